"""Maps of patch positions as a page: the image, its unsafe positions, and the output at every position."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Floats, Image
from holdfast.patchbench.positions.sweep import PositionMap, SafetyRule
from holdfast.patchbench.run import WORDS, ImageMaps, Kind, MapView, PositionResult, rows_of
from holdfast.report.charts.svg import drawing, element, label, tip
from holdfast.report.html import picture_uri
from holdfast.report.parts import Alert, Card, Document, Figure, Section, duration, scroll
from holdfast.report.tables import Column, Table, grouped, many, to_html

_NAMES = {"position": "square patch", "file": "position input of the file", "described": "as described"}
MOST = 60  # pictures drawn; the table has all
_LEAD = (
    "Every position of the patch was run. Orange marks unsafe positions (at the centre of the patch). The "
    "ring is the patch with the smallest output. Worst images first."
)
_SIDE = 320.0  # of a drawing, in its own units
_EDGE = 30.0  # room for numbers along the left and the lower side
# From the threshold up to 1: pale to blue. Below: yellow to red, distinct from safe positions.
_SAFE = ((0.93, 0.95, 0.97), (0.42, 0.68, 0.84), (0.03, 0.32, 0.56))
_UNSAFE = ((0.45, 0.02, 0.06), (0.84, 0.24, 0.05), (1.0, 0.72, 0.25))


def table_of(result: PositionResult) -> Table:
    """One row per map."""
    note = "Column, row of the patch's top left pixel; in brackets the position inputs."
    verdicts = {"violated": "violated (sat)", "holds": "holds (unsat)"}
    columns: list[Column[tuple[ImageMaps, MapView]]] = [
        Column("image", get=lambda row: row[0].name),
        Column("target", get=lambda row: row[0].label),
        Column("patch", get=lambda row: WORDS[row[1].kind]),
        Column("clean", 4, get=lambda row: row[1].map.clean),
        Column("minimum", 4, get=lambda row: row[1].map.minimum),
        Column("at x, y", note=note, get=lambda row: _worst(row[1])),
        Column("unsafe positions", get=lambda row: _unsafe(row[1].map)),
        Column("robust area %", 2, get=lambda row: 100 * row[1].map.robust),
        Column("verdict", get=lambda row: verdicts[row[1].map.status]),
    ]
    return Table.of(rows_of(result), columns)


def _worst(view: MapView) -> str:
    row, column = view.map.worst
    return f"{column:g}, {row:g}" if view.over else f"({row:g}, {column:g})"


def _unsafe(position_map: PositionMap) -> str:
    return f"{int(position_map.unsafe.sum()):,} of {position_map.outputs.size:,}"


def summary(result: PositionResult, kind: Kind) -> str:
    """The summary of one kind of map in one sentence."""
    maps = result.of(kind)
    sat = sum(position_map.status == "violated" for position_map in maps)
    area = 100 * sum(position_map.robust for position_map in maps) / len(maps)
    return (
        f"{WORDS[kind].capitalize()}: {sat} of {many(len(maps), 'image')} violated at some position (sat), "
        f"{len(maps) - sat} hold at every position (unsat); robust area {area:.2f}%."
    )


def rule_of(result: PositionResult) -> str:
    """The definition of the output and of unsafe outputs; empty without a map."""
    bars = list(dict.fromkeys(str(view.map.bar) for _, view in rows_of(result)))
    if not bars:
        return ""
    replayed = sum(view.map.replayed for _, view in rows_of(result))
    gap = max(view.map.difference for _, view in rows_of(result))
    return (
        f"output = iou(prediction, target) × [class equal]; {' / '.join(bars)}. {grouped(replayed)} "
        "positions, including all close to the threshold and the smallest output, were replayed one by one "
        f"in ONNX Runtime on the original file; largest difference from the batched run: {gap:.1e}."
    )


def sections(result: PositionResult) -> list[Section]:
    """The maps as sections of a page: drawn, worst first, and in a table."""

    def rank(image: ImageMaps) -> tuple[float, float, str]:
        last = image.maps[-1].map
        return last.robust, last.minimum, image.name

    worst = sorted((image for image in result.pictures if image.maps), key=rank)
    figures = [_figure(image) for image in worst[:MOST]]
    threshold = next((view.map.bar.threshold for _, view in rows_of(result)), 0.5)
    legend = Figure("", scale_bar(threshold), "Colours of all maps.", wide=True)
    drawn = Section("positions", "Patch positions", (legend, *figures), _LEAD)
    table = scroll(to_html(table_of(result)), "Positions in numbers")
    trouble = "; ".join(f"{image.name}: {image.trouble}" for image in result.pictures if image.trouble)
    numbers = Section("positions-numbers", "Positions in numbers", (Figure("", table, trouble, wide=True),))
    return [drawn, numbers] if figures else [numbers]


def _figure(image: ImageMaps) -> Figure:
    notes = []
    for view in image.maps:
        result = view.map
        row, column = result.worst
        at = f"x {column:g}, y {row:g}" if view.over else f"position ({row:g}, {column:g})"
        notes.append(
            f"{WORDS[view.kind].capitalize()}: robust area {100 * result.robust:.2f}%, "
            f"{_unsafe(result)} unsafe, minimum {result.minimum:.4f} at {at}, clean {result.clean:.4f}"
        )
    effects = [view.words for view in image.maps if view.kind == "file"]
    notes += [f"Effect of the position input: {words}" for words in effects[:1]]
    return Figure(f"{image.name}, {image.label}", cells_of(image), ". ".join(notes) + ".", wide=True)


def next_step(result: PositionResult) -> str:
    """What to do next, in one sentence."""
    maps = [view.map for _, view in rows_of(result)]
    if not maps:
        return "Read why the images have no map, and correct the model card or the dataset."
    if any(position_map.status == "violated" for position_map in maps):
        work = "they are counterexamples a verifier must find"
        return f"Look at the unsafe positions of the worst images; {work}."
    return "Every position holds: try a larger patch, or let a verifier prove it for any content."


def page(result: PositionResult, command: str = "") -> Document:
    """The page of an evaluation of patch positions."""
    count = sum(view.map.outputs.size for _, view in rows_of(result))
    without = sum(1 for image in result.pictures if image.trouble and not image.maps)
    alerts = [Alert(f"{many(without, 'image')} without a map", "positions-numbers")] if without else []
    if result.of("file"):
        text = "The position input of the file does not place the patch as described; the page shows both"
        alerts.append(Alert(text, "positions"))
    return Document(
        title=f"Patch positions of {result.subject}",
        subject=(result.subject, result.source),
        facts=(
            ("images", str(len(result.pictures))),
            ("patch", result.content),
            ("positions", grouped(count)),
            ("time", duration(result.seconds)),
        ),
        verdict=" ".join(summary(result, kind) for kind in result.kinds) or "No image has a map.",
        next_step=next_step(result),
        cards=tuple(card for kind in result.kinds for card in _cards(result, kind)),
        minor=tuple(Card("note", note) for note in result.notes),
        rule=rule_of(result),
        command=command,
        alerts=tuple(alerts),
        sections=tuple(sections(result)),
        kind="patch positions",
    )


def _cards(result: PositionResult, kind: Kind) -> Sequence[Card]:
    maps, words = result.of(kind), WORDS[kind]
    area = sum(position_map.robust for position_map in maps) / len(maps)
    unsafe = sum(position_map.status == "violated" for position_map in maps)
    smallest, n = min(position_map.minimum for position_map in maps), len(maps)
    return (
        Card("robust area", area, f"share of safe positions, {words}", 4, n),
        Card("unsafe pictures", unsafe, f"of {n}, {words}", n=n),
        Card("smallest output", smallest, words, 4, n),
    )


def cells_of(image: ImageMaps) -> str:
    """The drawings of one picture side by side."""
    last = image.maps[-1]
    single = len(image.maps) == 1 or not last.over
    drawings = [(_framed(image, None), "picture and target box")] if single else []
    if last.over:
        caption = f"target box, unsafe positions ({_NAMES[last.kind]})"
        drawings.append((_framed(image, last, dim=single), caption))
    drawings += [(_heat(view), f"output at every position ({_NAMES[view.kind]})") for view in image.maps]
    cells = "".join(f"<div>{svg}<small>{html.escape(caption)}</small></div>" for svg, caption in drawings)
    return f'<div class="three">{cells}</div>'


def _framed(image: ImageMaps, view: MapView | None, dim: bool = False) -> str:
    """The picture with the target's box and, if a map is given, its unsafe positions and its minimum."""
    height, width = image.picture.shape[:2]
    unit = _SIDE / max(height, width)
    background = image.picture
    if dim:  # grey and darker, so that marks are visible
        grey = background.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
        background = np.repeat((grey * 0.6 + 20)[..., None], 3, axis=2).astype(np.uint8)
    parts = [embedded(background, width * unit, height * unit)]
    if view is not None:
        parts += _marks(view, unit)
    if image.target is not None:
        x1, y1, x2, y2 = np.array(image.target.box) * ([width * unit, height * unit] * 2)
        place = {"x": x1, "y": y1, "width": max(x2 - x1, 1.0), "height": max(y2 - y1, 1.0)}
        parts += [element("rect", class_="under", **place), element("rect", class_="mark right", **place)]
    title = f"{image.name}: unsafe positions" if view is not None else f"{image.name}: picture and target"
    box = f"0 0 {width * unit:g} {height * unit:g}"
    return element("svg", tip(title), *parts, class_="picture", viewBox=box, role="img")


def _marks(view: MapView, unit: float) -> list[str]:
    """Unsafe positions at the centre of the patch, and the patch itself where the output is smallest."""
    position_map, (high, wide) = view.map, view.patch
    parts = []
    runs, right, down = "", (wide - 1) / 2 * unit, (high - 1) / 2 * unit
    # Runs of unsafe positions as rectangles.
    for row, line in zip(position_map.rows, position_map.unsafe, strict=True):
        ends = np.flatnonzero(np.diff(line.astype(np.int8), prepend=0, append=0))
        for begin, end in ends.reshape(-1, 2).tolist():
            x, y, length = position_map.columns[begin] * unit + right, row * unit + down, (end - begin) * unit
            runs += f"M{x:.1f} {y:.1f}h{length:.1f}v{unit:.1f}h-{length:.1f}z"
    if runs:
        parts.append(element("path", d=runs, fill="#ff7a1a", fill_opacity="0.72"))
    y, x = position_map.worst
    note = tip(f"minimum {position_map.minimum:.4f} at x {x:g}, y {y:g}")
    place = {"x": x * unit - 2, "y": y * unit - 2, "width": wide * unit + 4, "height": high * unit + 4}
    ring = element("rect", fill="none", stroke="#ffffff", stroke_width="1.6", **place)
    under = element("rect", fill="none", stroke="#000000", stroke_width="3.6", stroke_opacity="0.6", **place)
    return [*parts, element("g", note, under, ring)]


def _heat(view: MapView) -> str:
    """The output at every position as colours, with axes and the position of the minimum."""
    position_map = view.map
    rows, columns = position_map.outputs.shape
    unit = (_SIDE - _EDGE) / max(rows, columns)
    wide, tall = columns * unit, rows * unit
    picture = embedded(colours(position_map.outputs, position_map.bar), wide, tall, _EDGE, 0.0)
    names = ("y (row)", "x (column)") if view.over else ("first position input", "second position input")
    down, right = (list(enumerate(values))[::16] for values in (position_map.rows, position_map.columns))
    ticks = [
        *(label(_EDGE + (i + 0.5) * unit, tall + 12, f"{v:g}", class_="tick middle small") for i, v in right),
        label(_EDGE + wide / 2, tall + 26, names[1], class_="name middle"),
        *(label(_EDGE - 5, (i + 0.5) * unit + 4, f"{v:g}", class_="tick end small") for i, v in down),
        label(9, tall / 2, names[0], class_="name middle", transform=f"rotate(-90 9 {tall / 2:.1f})"),
    ]
    row, column = position_map.where
    x, y = _EDGE + (column + 0.5) * unit, (row + 0.5) * unit
    note = tip("minimum {:.4f} at ({:g}, {:g})".format(position_map.minimum, *position_map.worst))
    ring = [
        element("circle", cx=x, cy=y, r=6, fill="none", stroke=colour, stroke_width=width)
        for colour, width in (("#000000", "4"), ("#ffffff", "2"))
    ]
    title = tip(f"output at every position, {_NAMES[view.kind]}")
    box = f"0 0 {_EDGE + wide:g} {tall + _EDGE:g}"
    parts = [title, picture, *ticks, element("g", note, *ring)]
    return element("svg", *parts, class_="chart", viewBox=box, role="img")


def colours(outputs: Floats, bar: SafetyRule) -> Image:
    """An RGB picture (rows, columns, 3) of outputs: two scales that meet at the threshold."""
    threshold, unsafe = bar.threshold, bar.unsafe(outputs)
    values = np.nan_to_num(outputs, nan=0.0)
    low = _ramp(np.clip(values / max(threshold, 1e-9), 0, 1), _UNSAFE)
    high = _ramp(np.clip((values - threshold) / max(1 - threshold, 1e-9), 0, 1), _SAFE)
    return np.asarray(np.where(unsafe[..., None], low, high) * 255).round().astype(np.uint8)


def _ramp(share: Floats, stops: tuple[tuple[float, float, float], ...]) -> Floats:
    positions = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(share, positions, [stop[i] for stop in stops]) for i in range(3)], axis=-1)


def scale_bar(threshold: float, safe: str = "safe: IoU × class equal") -> str:
    """The colours of outputs from 0 to 1, with the threshold and a label of the safe range."""
    picture = colours(np.linspace(0, 1, 201)[None], SafetyRule(threshold))
    at = 10 + 600 * threshold
    words = [
        label(10, 38, "0", class_="tick middle"),
        label(at, 38, f"{threshold:g}", class_="tick middle"),
        label(610, 38, "1", class_="tick middle"),
        label(10 + 300 * threshold, 38, "unsafe", class_="tick middle strong"),
        label((at + 610) / 2, 38, safe, class_="tick middle strong"),
    ]
    image = embedded(picture, 600.0, 16.0, 10.0, 6.0)
    line = element("line", x1=at, x2=at, y1=2, y2=26, class_="axis")
    return drawing(620.0, 44.0, "colours of outputs", "", image, line, *words, fixed=True)


def embedded(picture: NDArray[np.uint8], width: float, height: float, x: float = 0.0, y: float = 0.0) -> str:
    """A losslessly embedded picture with square pixels."""
    source = picture_uri(picture, "PNG", optimize=True)
    place: dict[str, Any] = {"href": source, "x": x, "y": y, "width": width, "height": height}
    return element("image", **place, preserveAspectRatio="none", image_rendering="pixelated")
