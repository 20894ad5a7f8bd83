"""An attack as a page: mAP before and after, changed pixels, and attacked images."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from holdfast.attack.result import AttackResult, Attempt, BudgetPoint
from holdfast.attack.types import CONTIGUOUS
from holdfast.core.patch import apply
from holdfast.core.types import Floats, Image
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.classes import realign
from holdfast.report.charts.lines import ChartLine, line_chart
from holdfast.report.html import document, write_page
from holdfast.report.parts import Card, Document, Figure, Section, scroll
from holdfast.report.patched import READING, AttackedImage, attacked_gallery
from holdfast.report.tables import Cell, Column, Table, many, to_html

Clean: TypeAlias = Callable[[str], Image | None]  # an image's decoded pixels by its name
SHOWN = 6  # images with pictures
LISTED = 200  # rows of the table of images


def shape_of(result: AttackResult) -> str:
    """The shape of the changed pixels: scattered pixels, contiguous squares, one universal patch."""
    about = result.about
    if about["universal"] != "none":
        return "a universal patch"
    if about["method"]["mask"] == "square":
        return "contiguous squares"
    regions = about["method"]["mask"] in CONTIGUOUS or about["limits"]["regions"]
    return "contiguous regions" if regions else "scattered pixels"


def tables(result: AttackResult) -> tuple[Table, ...]:
    """The effect on every model, the changes per image, and mAP by pixel budget."""
    columns: list[Column | str] = [
        "model", "changed pixels", "mAP before", "mAP after", Column("S_e", 3, "1 − after / before"),
        "success", Column("pixels, mean", 1),
    ]  # fmt: skip
    rows = _effect_rows(result) + (_effect_rows(result.contiguous) if result.contiguous else [])
    effects = Table(columns, rows, f"Effect of the attack ({_rule(result)})")
    rows = []
    names = {"pixels": "changed pixels", "psnr": "PSNR, dB", "ssim": "SSIM"}
    for name in ("pixels", "amplitude", "psnr", "ssim", "seconds"):
        values = [float(v) for a in result.aimed if (v := getattr(a, name)) is not None]
        numbers = (float(np.mean(values)), min(values), max(values)) if values else (None, None, None)
        rows.append([names.get(name, name), *numbers])
    heads = (Column(name, -4) for name in ("mean", "min", "max"))
    changes = Table(["", *heads], rows, f"Changes per image ({shape_of(result)}, n = {len(result.aimed)})")
    points: list[Column[BudgetPoint]] = [
        Column("pixel budget", get=lambda p: p.budget),
        Column("images attacked", get=lambda p: p.attacked),
        Column("pixels, mean", 1, get=lambda p: p.pixels),
        Column("mAP", get=lambda p: p.map),
        Column(result.distance, 4, get=lambda p: p.distance),
    ]
    caption = "mAP by pixel budget (images that need more pixels stay clean)"
    return effects, changes, Table.of(result.points, points if result.distance else points[:-1], caption)


def _effect_rows(result: AttackResult) -> list[list[Cell]]:
    """The attacked model first, then the models that were not attacked."""
    success = f"{sum(a.success for a in result.aimed)} of {many(len(result.aimed), 'image')}"
    pixels = result.mean(lambda a: a.pixels)
    return [
        [e.model, f"{shape_of(result)}{', not attacked' if i else ''}", e.before, e.after, e.effect,
         "" if i else success, None if i else pixels]
        for i, e in enumerate(result.effects)
    ]  # fmt: skip


def _rule(result: AttackResult) -> str:
    return f"AP rule {result.about['settings']['rule']}, n = {len(result.attempts)}"


def write(result: AttackResult, clean: Clean, out: Path) -> Path:
    """Write the page and return its path; `clean` gives an image's decoded pixels by its name."""
    return write_page(page(result, clean), out)


def page(result: AttackResult, clean: Clean) -> str:
    """The attack as one self-contained HTML file."""
    about, first = result.about, result.effects[0]
    name, data = about["model"]["name"], about["data"]["name"]
    rule, aimed = _rule(result), f"n = {len(result.aimed)}"
    cards = [
        Card("mAP before", first.before, f"clean images; {rule}"),
        Card("mAP after", first.after, f"{shape_of(result)}; {rule}"),
    ]
    if result.contiguous:
        note = f"contiguous squares, same pixel budget; {rule}"
        cards.append(Card("mAP after", result.contiguous.effects[0].after, note))
    cards += [
        Card("pixels changed", result.mean(lambda a: a.pixels), f"mean of attacked images, {aimed}", 0),
        Card("success", result.success, f"share of attacked images, {aimed}"),
    ]
    return document(
        Document(
            title=f"Attack on {name}",
            subject=(name, data),
            facts=(
                ("images", str(len(result.attempts))),
                ("attacked", str(len(result.aimed))),
                ("goal", about["method"]["goal"]),
                ("pixel budget", str(about["limits"]["pixels"])),
                ("created", about["created"]),
            ),
            verdict=verdict(result),
            next_step=next_step(result),
            cards=tuple(cards),
            rule=about["rule"],
            command=about["command"],
            sections=(*sections(result, clean), _about(result)),
            kind="attack",
        )
    )


def verdict(result: AttackResult) -> str:
    """The outcome in a sentence or two."""
    first = result.effects[0]
    if not result.aimed:
        return f"{first.model} detects no true object in these images: there is nothing to attack."
    text = _sentence(result)
    if result.contiguous and result.contiguous.aimed:
        text += f" {_sentence(result.contiguous)}"
    others = [f"{e.model} from {e.before:.3f} to {e.after:.3f}" for e in result.effects[1:]]
    return text + (f" Models that were not attacked: {'; '.join(others)}." if others else "")


def _sentence(result: AttackResult) -> str:
    first, pixels = result.effects[0], result.mean(lambda a: a.pixels) or 0.0
    share = pixels / np.mean([a.size.width * a.size.height for a in result.aimed])
    shape = shape_of(result)
    return (
        f"{shape[0].upper()}{shape[1:]} ({pixels:.0f} per image, {100 * share:.2f}%) lower mAP from "
        f"{first.before:.3f} to {first.after:.3f} and succeed in {sum(a.success for a in result.aimed)} of "
        f"{many(len(result.aimed), 'image')}."
    )


def next_step(result: AttackResult) -> str:
    """What to do next, in one sentence."""
    if not result.aimed:
        return "Attack images in which the model detects an object: check the dataset with holdfast evaluate."
    if result.success:
        return "Run holdfast audit on this model to see whether the attack still works under your deployment."
    return (
        "Raise --pixels, --steps or --restarts. A failed attack is not a proof: holdfast verify gives proofs."
    )


def sections(result: AttackResult, clean: Clean, shown: int = SHOWN) -> tuple[Section, ...]:
    """The sections of an attack, for its own page or for a larger one."""
    effects, changes, curve = (
        Figure("", scroll(to_html(table, sortable=False), table.caption), wide=wide)
        for table, wide in zip(tables(result), (True, False, True), strict=True)
    )
    attack = Section("attack", "Attack", (effects, changes, *_charts(result), curve), verdict(result))
    return (attack, *_pictures(result, clean, shown))


def _charts(result: AttackResult) -> list[Figure]:
    maps = np.array([p.map for p in result.points])
    top = max(1e-9, float(maps.max()))
    y_range = (0.0, 1.0 if top > 0.5 else top * 1.1)

    def chart(x: Floats, least: float, against: str, label: str, note: str) -> Figure:
        title, lines = f"mAP by {against}", [ChartLine("mAP", x, maps, bold=True)]
        x_range = (0.0, max(float(x.max()), least))
        svg = line_chart(lines, title=title, x_label=label, y_label="mAP", x_range=x_range, y_range=y_range)
        return Figure(title, svg, note)

    pixels = np.array([float(p.budget) for p in result.points])
    note = "Images that need more pixels stay clean."
    charts = [chart(pixels, 1.0, "pixel budget", "changed pixels per image", note)]
    distances = np.array([np.nan if p.distance is None else p.distance for p in result.points])
    if np.isfinite(distances).all() and distances.max() > 0:
        label = f"{result.distance} of the attacked images"
        note = "Fréchet distance between the features of the attacked and the clean images."
        charts.append(chart(distances, 0.0, result.distance, label, note))
    return charts


def _pictures(attack: AttackResult, clean: Clean, shown: int) -> list[Section]:
    names = [attempt.name for attempt in chosen(attack, shown)]
    lead = "Detections before and after: correct, wrong, and true boxes that are missed."
    sections = []
    for number, result in enumerate(r for r in (attack, attack.contiguous) if r):
        attempts = (a for a in result.attempts if a.name in names)
        images = [image for a in attempts if (image := _image(result, a, clean))]
        if images:
            least = float(result.about["method"]["rule"]["iou"])
            body = attacked_gallery(images, result.alignment.names, least, f"attacked-{number}")
            figure = Figure("", body, READING, wide=True)
            shape = shape_of(result)
            sections.append(Section(f"attacked-{number}", f"Attacked images: {shape}", (figure,), lead))
    return sections or [Section("attacked-0", "Attacked images", (), "No image was changed.")]


def _image(result: AttackResult, attempt: Attempt, clean: Clean) -> AttackedImage | None:
    """The attacked image with its boxes; None if it is unchanged or cannot be read."""
    before = clean(attempt.name) if attempt.pixels else None
    if before is None:
        return None
    records = realign([attempt.record(attempt.model, after) for after in (False, True)], result.alignment)
    first, second = (record for record in records if isinstance(record, DetectionRecord))
    summary = (
        f"{many(attempt.pixels, 'pixel')} changed, amplitude {attempt.amplitude}; "
        f"{attempt.targets - attempt.left} of {many(attempt.targets, 'object')} hidden"
    )
    after, detections = apply(before, attempt.patch), (first.detections, second.detections)
    return AttackedImage(attempt.name, summary, before, after, first.truth, detections)


def chosen(result: AttackResult, count: int) -> list[Attempt]:
    """The images to show: from the fewest to the most changed pixels, failures last."""
    changed = sorted((a for a in result.aimed if a.pixels), key=lambda a: (not a.success, a.pixels))
    if len(changed) <= count:
        return changed
    indices = np.linspace(0, len(changed) - 1, count).round().astype(int)
    return [changed[i] for i in dict.fromkeys(indices.tolist())]


def _about(result: AttackResult) -> Section:
    about = result.about
    facts: list[list[Cell]] = [
        ["model", f"{about['model']['name']} (sha256 {about['model']['sha256'][:16]}…)"],
        ["model unchanged", "file and outputs are identical before and after the attack"],
        *([name, str(value)] for name, value in {**about["method"], **about["limits"]}.items()),
        ["seed", about["seed"]],
        ["surrogates", ", ".join(m["name"] for m in about["surrogates"]) or "none"],
        ["deployments", ", ".join(about["deployments"]) or "none"],
    ]
    method = scroll(to_html(Table(["setting", "value"], facts), sortable=False), "Method")
    columns = [
        Column("image", get=lambda a: a.name),
        Column("targets", get=lambda a: a.targets),
        Column("still detected", get=lambda a: a.left),
        Column("pixels", get=lambda a: a.pixels),
        Column("amplitude", get=lambda a: a.amplitude),
        Column("PSNR", 1, get=lambda a: a.psnr),
        Column("SSIM", get=lambda a: a.ssim),
        Column("seconds", 1, get=lambda a: a.seconds),
        Column("note", get=lambda a: a.note),
    ]
    table = Table.of(result.attempts[:LISTED], columns)
    rest = len(result.attempts) - LISTED
    note = f"{many(rest, 'more row')} in images.csv." if rest > 0 else ""
    images = Figure("Images", scroll(to_html(table), "Images"), note, wide=True)
    return Section("about", "How it was run", (images, Figure("Method", method)))
