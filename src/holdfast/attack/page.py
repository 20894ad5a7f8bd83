"""An attack as a page: mAP before and after, changed pixels, and attacked images."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from holdfast.attack.prints import print_name, prints_of
from holdfast.attack.result import AttackResult, Attempt, BudgetPoint
from holdfast.attack.survival import VIEWS
from holdfast.attack.types import CONTIGUOUS
from holdfast.core.patch import Survival, apply
from holdfast.core.text import printable
from holdfast.core.types import Floats, Image
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.classes import realign
from holdfast.metrics.points import is_indication
from holdfast.report.charts.lines import ChartLine, line_chart
from holdfast.report.html import document, write_page
from holdfast.report.parts import Card, Document, Figure, Section, scroll
from holdfast.report.patched import READING, AttackedImage, attacked_gallery
from holdfast.report.tables import Cell, Column, Table, many, to_html

Clean: TypeAlias = Callable[[str], Image | None]  # an image's decoded pixels by its name
SHOWN = 6  # images with pictures
PATCHES = 4  # patches per image that are shown enlarged
LISTED = 200  # rows of the table of images
WORDS = {
    "placement": "placement: each patch up to 10% of its side away",
    "shift": "shift: the scene up to 5% of the image's sides away",
    "scale": "scale: the scene enlarged or reduced by up to 1.25",
    "rotation": "rotation: the scene turned by up to 10°",
    "light": "light: gamma and contrast by up to 1.25, brightness by up to 20 of 255",
    "jpeg": "jpeg: quality 50 to 95",
}
SHAPES = {"square": "square patches", "circle": "circular patches", "sign": "octagonal patches"}


def shape_of(result: AttackResult) -> str:
    """The shape of the changed pixels: scattered pixels, contiguous squares, patches, one universal patch."""
    about = result.about
    if about["method"]["shape"] != "pixels":
        return SHAPES[about["method"]["shape"]]
    if about["universal"] != "none":
        return "a universal patch"
    if about["method"]["mask"] == "square":
        return "contiguous squares"
    regions = about["method"]["mask"] in CONTIGUOUS or about["limits"]["regions"]
    return "contiguous regions" if regions else "scattered pixels"


def tables(result: AttackResult) -> tuple[Table, ...]:
    """The effect on every model, the changes per image, mAP by pixel budget, and the survival of patches."""
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
    curve = Table.of(result.points, points if result.distance else points[:-1], caption)
    survival = (survival_table(result.survival)[0],) if result.survival else ()
    return effects, changes, curve, *survival


def survival_table(rows: Sequence[Survival]) -> tuple[Table, str]:
    """The survival of patches by transform, and what it counts."""
    columns: list[Column[Survival]] = [
        Column("random view", get=lambda s: WORDS.get(s.transform, s.transform)),
        Column("still hidden", get=lambda s: f"{s.hidden} of {s.views}"),
        Column("share", get=lambda s: s.hidden / s.views if s.views else None),
        Column("n, images", get=lambda s: s.images),
    ]
    few = " With fewer than 20 images this is an indication." if is_indication(rows[0].images) else ""
    note = (
        f"{VIEWS} random views of each kind per image in which the patch hides every detected object. A view "
        f"counts if the model detects an object in it without the patch.{few}"
    )
    return Table.of(rows, columns, "Survival of the patch"), note


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
    rule, n, aimed = f"AP rule {about['settings']['rule']}", len(result.attempts), len(result.aimed)
    cards = [
        Card("mAP before", first.before, f"clean images; {rule}", n=n),
        Card("mAP after", first.after, f"{shape_of(result)}; {rule}", n=n),
    ]
    if result.contiguous:
        note = f"contiguous squares, same pixel budget; {rule}"
        cards.append(Card("mAP after", result.contiguous.effects[0].after, note, n=n))
    cards += [
        Card("pixels changed", result.mean(lambda a: a.pixels), "mean of attacked images", 0, aimed),
        Card("success", result.success, "share of attacked images", n=aimed),
    ]
    if result.survival and (together := result.survival[-1]).views:
        share, note = together.hidden / together.views, "share of random views in which patches still hide"
        cards.append(Card("survival", share, note, n=together.images))
    return document(
        Document(
            title=f"Attack on {name}",
            subject=(name, data),
            facts=(
                ("images", str(len(result.attempts))),
                ("attacked", str(len(result.aimed))),
                ("goal", about["method"]["goal"]),
                ("patch size", size)
                if (size := about["method"]["size"])
                else ("pixel budget", str(about["limits"]["pixels"])),
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
    if result.survival and (together := result.survival[-1]).views:
        text += (
            f" The patch still hides its object in {together.hidden} of {together.views} random views of "
            f"{many(together.images, 'image')} (placement, shift, scale, rotation, light and JPEG together)."
        )
    if result.contiguous and result.contiguous.aimed:
        text += f" {_sentence(result.contiguous)}"
    others = [f"{e.model} from {e.before:.3f} to {e.after:.3f}" for e in result.effects[1:]]
    return text + (f" Models that were not attacked: {'; '.join(others)}." if others else "")


def _sentence(result: AttackResult) -> str:
    first, pixels = result.effects[0], result.mean(lambda a: a.pixels) or 0.0
    share = pixels / np.mean([a.size.width * a.size.height for a in result.aimed])
    shape, unit = shape_of(result), " pixels" if result.about["method"]["shape"] != "pixels" else ""
    return (
        f"{shape[0].upper()}{shape[1:]} ({pixels:.0f}{unit} per image, {100 * share:.2f}%) lower mAP from "
        f"{first.before:.3f} to {first.after:.3f} and succeed in {sum(a.success for a in result.aimed)} of "
        f"{many(len(result.aimed), 'image')}."
    )


def next_step(result: AttackResult) -> str:
    """What to do next, in one sentence."""
    if not result.aimed:
        return "Attack images in which the model detects an object: check the dataset with holdfast evaluate."
    if result.success:
        return "Run holdfast audit on this model to see whether the attack still works under your deployment."
    budget = "--size" if result.about["method"]["size"] else "--pixels"
    proofs = "A failed attack is not a proof: holdfast verify gives proofs."
    return f"Raise {budget}, --steps or --restarts. {proofs}"


def sections(
    result: AttackResult, clean: Clean, shown: int = SHOWN, identifier: str = "attack"
) -> tuple[Section, ...]:
    """The sections of an attack, for its own page or for a larger one."""
    effects, changes, curve, *survival = (
        Figure("", scroll(to_html(table, sortable=False), table.caption), wide=wide)
        for table, wide in zip(tables(result), (True, False, True, True), strict=False)
    )
    survived = [replace(figure, note=survival_table(result.survival)[1]) for figure in survival]
    figures = (effects, changes, *survived, *_charts(result), curve)
    return (
        Section(identifier, "Attack", figures, verdict(result)),
        *_pictures(result, clean, shown, identifier),
    )


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


def _pictures(attack: AttackResult, clean: Clean, shown: int, prefix: str) -> list[Section]:
    names = [attempt.name for attempt in chosen(attack, shown)]
    lead = "Detections before and after: correct, wrong, and true boxes that are missed."
    sections = []
    for number, result in enumerate(r for r in (attack, attack.contiguous) if r):
        attempts = (a for a in result.attempts if a.name in names)
        images = [image for a in attempts if (image := _image(result, a, clean))]
        if images:
            least = float(result.about["method"]["rule"]["iou"])
            body = attacked_gallery(images, result.alignment.names, least, f"{prefix}-images-{number}")
            figure = Figure("", body, READING, wide=True)
            shape = shape_of(result)
            sections.append(
                Section(f"{prefix}-images-{number}", f"Attacked images: {shape}", (figure,), lead)
            )
    return sections or [Section(f"{prefix}-images-0", "Attacked images", (), "No image was changed.")]


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
    patches = _enlarged(result, attempt)
    return AttackedImage(
        attempt.name, summary, before, after, first.truth, detections=detections, patches=patches
    )


def _enlarged(result: AttackResult, attempt: Attempt) -> tuple[tuple[str, Image], ...]:
    """The first patches of a shape with their captions."""
    patches, captioned = prints_of(attempt, result.about["method"]["shape"]), []
    for number, (rgba, size) in enumerate(itertools.islice(patches, PATCHES)):
        text = f"patch {number + 1}: {len(rgba)}×{len(rgba)} px"
        text += f", {size.centimetres:.1f} cm" if size.centimetres else ""
        file = printable(print_name(result.files[attempt.name], number))
        captioned.append((f"{text} ({file})", rgba))
    return tuple(captioned)


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
        *(
            [name, str(value)]
            for name, value in {**about["method"], **about["limits"]}.items()
            if value != ""
        ),
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
