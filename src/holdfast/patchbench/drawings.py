"""The drawings of a map of positions: picture, unsafe positions over it, output at every position."""

from __future__ import annotations

import html

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Bools, Floats, Image
from holdfast.patchbench.positions.types import Bar, PositionMap
from holdfast.patchbench.run import Mapped, Shown
from holdfast.report.charts.svg import drawing, element, label, tip
from holdfast.report.html import picture_uri

_SIDE = 320.0  # of a drawing, in its own units
_EDGE = 30.0  # room for numbers along the left and the lower side
# From the threshold up to 1: pale to blue. Below: yellow to red: no unsafe place looks like a safe one.
_SAFE = ((0.93, 0.95, 0.97), (0.42, 0.68, 0.84), (0.03, 0.32, 0.56))
_UNSAFE = ((0.45, 0.02, 0.06), (0.84, 0.24, 0.05), (1.0, 0.72, 0.25))


def cells_of(one: Mapped) -> str:
    """The drawings of one picture side by side."""
    last = one.maps[-1]
    alone = len(one.maps) == 1 or not last.over
    drawn = [(_framed(one, None), "picture and target box")] if alone else []
    if last.over:
        drawn.append((_framed(one, last, dim=alone), f"target box, unsafe positions ({_named(last)})"))
    drawn += [(_heat(shown), f"output at every position ({_named(shown)})") for shown in one.maps]
    cells = "".join(f"<div>{svg}<small>{html.escape(said)}</small></div>" for svg, said in drawn)
    return f'<div class="three">{cells}</div>'


def _named(shown: Shown) -> str:
    return {"position": "square patch", "file": "what the file does", "described": "as described"}[shown.kind]


def _framed(one: Mapped, shown: Shown | None, dim: bool = False) -> str:
    """The picture with the target's box and, if a map is given, its unsafe positions and its minimum."""
    height, width = one.picture.shape[:2]
    unit = _SIDE / max(height, width)
    ground = _dimmed(one.picture) if dim else one.picture
    parts = [embedded(ground, width * unit, height * unit)]
    if shown is not None:
        parts += _marks(shown, unit)
    if one.target is not None:
        x1, y1, x2, y2 = (
            v * s for v, s in zip(one.target.box, [width * unit, height * unit] * 2, strict=True)
        )
        place = {"x": x1, "y": y1, "width": max(x2 - x1, 1.0), "height": max(y2 - y1, 1.0)}
        parts += [element("rect", class_="under", **place), element("rect", class_="mark right", **place)]
    what = f"{one.name}: unsafe positions" if shown is not None else f"{one.name}: picture and target"
    box = f"0 0 {width * unit:g} {height * unit:g}"
    return element(
        "svg", element("title", html.escape(what)), *parts, class_="picture", viewBox=box, role="img"
    )


def _marks(shown: Shown, unit: float) -> list[str]:
    """Unsafe positions at the centre of the patch, and the patch itself where the output is smallest."""
    found, (high, wide) = shown.map, shown.patch
    shift = (wide - 1) / 2 * unit, (high - 1) / 2 * unit
    parts = []
    if found.unsafe.any():
        area = element("path", d=_runs(found.unsafe, found, unit, shift), fill="#ff7a1a", fill_opacity="0.72")
        parts.append(area)
    row, column = found.where
    x, y = found.columns[column] * unit, found.rows[row] * unit
    told = tip(f"minimum {found.minimum:.4f} at x {found.columns[column]:g}, y {found.rows[row]:g}")
    place = {"x": x - 2, "y": y - 2, "width": wide * unit + 4, "height": high * unit + 4}
    ring = element("rect", fill="none", stroke="#ffffff", stroke_width="1.6", **place)
    under = element("rect", fill="none", stroke="#000000", stroke_width="3.6", stroke_opacity="0.6", **place)
    return [*parts, element("g", told, under, ring)]


def _runs(mask: Bools, found: PositionMap, unit: float, shift: tuple[float, float]) -> str:
    """The marked cells as a path: every row's runs as rectangles."""
    drawn = []
    for row, line in zip(found.rows, mask, strict=True):
        ends = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(np.int8), [0]])))
        for begin, end in ends.reshape(-1, 2).tolist():
            x, y = found.columns[begin] * unit + shift[0], row * unit + shift[1]
            drawn.append(
                f"M{x:.1f} {y:.1f}h{(end - begin) * unit:.1f}v{unit:.1f}h-{(end - begin) * unit:.1f}z"
            )
    return "".join(drawn)


def _heat(shown: Shown) -> str:
    """The output at every position as colours, with its axes and the place of the minimum."""
    found = shown.map
    rows, columns = found.outputs.shape
    unit = (_SIDE - _EDGE) / max(rows, columns)
    wide, tall = columns * unit, rows * unit
    picture = embedded(colours(found.outputs, found.bar), wide, tall, _EDGE, 0.0)
    names = ("y (row)", "x (column)") if shown.over else ("first position input", "second position input")
    parts = [picture, *_axis(found.columns, unit, tall, names[1]), *_axis_left(found.rows, unit, names[0])]
    row, column = found.where
    x, y = _EDGE + (column + 0.5) * unit, (row + 0.5) * unit
    told = tip(f"minimum {found.minimum:.4f} at ({found.rows[row]:g}, {found.columns[column]:g})")
    ring = [
        element("circle", cx=x, cy=y, r=6, fill="none", stroke=colour, stroke_width=width)
        for colour, width in (("#000000", "4"), ("#ffffff", "2"))
    ]
    title = element("title", html.escape(f"output at every position, {_named(shown)}"))
    box = f"0 0 {_EDGE + wide:g} {tall + _EDGE:g}"
    return element("svg", title, *parts, element("g", told, *ring), class_="chart", viewBox=box, role="img")


def _axis(values: Floats, unit: float, tall: float, name: str) -> list[str]:
    """Numbers below the map."""
    shown = [i for i in range(len(values)) if i % 16 == 0]
    texts = [
        label(_EDGE + (i + 0.5) * unit, tall + 12, f"{values[i]:g}", class_="tick middle small")
        for i in shown
    ]
    return [*texts, label(_EDGE + len(values) * unit / 2, tall + 26, name, class_="name middle")]


def _axis_left(values: Floats, unit: float, name: str) -> list[str]:
    """Numbers beside the map."""
    shown = [i for i in range(len(values)) if i % 16 == 0]
    texts = [label(_EDGE - 5, (i + 0.5) * unit + 4, f"{values[i]:g}", class_="tick end small") for i in shown]
    middle = len(values) * unit / 2
    return [*texts, label(9, middle, name, class_="name middle", transform=f"rotate(-90 9 {middle:.1f})")]


def colours(outputs: Floats, bar: Bar) -> Image:
    """An RGB picture (rows, columns, 3) of outputs: two scales that meet at the threshold."""
    threshold, unsafe = bar.threshold, bar.unsafe(outputs)
    values = np.nan_to_num(outputs, nan=0.0)
    low = _ramp(np.clip(values / max(threshold, 1e-9), 0, 1), _UNSAFE)
    high = _ramp(np.clip((values - threshold) / max(1 - threshold, 1e-9), 0, 1), _SAFE)
    return np.asarray(np.where(unsafe[..., None], low, high) * 255).round().astype(np.uint8)


def _ramp(share: Floats, stops: tuple[tuple[float, float, float], ...]) -> Floats:
    places = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(share, places, [stop[i] for stop in stops]) for i in range(3)], axis=-1)


def scale_bar(threshold: float, safe: str = "safe: IoU × class equal") -> str:
    """The colours of outputs from 0 to 1, with the threshold and what is safe in words."""
    outputs = np.linspace(0, 1, 201)[None]
    unsafe = outputs <= threshold
    low, high = _ramp(np.clip(outputs / max(threshold, 1e-9), 0, 1), _UNSAFE), _ramp(
        np.clip((outputs - threshold) / max(1 - threshold, 1e-9), 0, 1), _SAFE
    )  # fmt: skip
    picture = (np.where(unsafe[..., None], low, high) * 255).round().astype(np.uint8)
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


def _dimmed(picture: Image) -> Image:
    """The picture in grey and darker, so that marks on it are seen."""
    grey = picture.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    return np.repeat((grey * 0.6 + 20)[..., None], 3, axis=2).astype(np.uint8)


def embedded(picture: NDArray[np.uint8], width: float, height: float, x: float = 0.0, y: float = 0.0) -> str:
    """A picture embedded without loss, its pixels as squares."""
    source = picture_uri(picture, "PNG", optimize=True)
    return element(
        "image", href=source, x=x, y=y, width=width, height=height, preserveAspectRatio="none",
        image_rendering="pixelated",
    )  # fmt: skip
