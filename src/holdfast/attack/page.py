"""An attack as a page: what it does to mAP, what it costs, and pictures of it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from holdfast.attack.result import Attempt, Outcome, Point
from holdfast.core.patch import apply
from holdfast.core.types import Floats, Image
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.classes import realign
from holdfast.report.charts.lines import Line, line_chart
from holdfast.report.html import document, write_page
from holdfast.report.parts import Card, Document, Figure, Section, scroll
from holdfast.report.patched import GAIN, Exhibit, exhibition
from holdfast.report.tables import Cell, Column, Table, to_html

Clean: TypeAlias = Callable[[str], Image | None]  # an image's decoded pixels by its name
SHOWN = 6  # images with pictures
LISTED = 200  # rows of the table of images


def tables(found: Outcome) -> tuple[Table, ...]:
    """The effect on every model, the costs, and the curve."""
    rows: list[list[Cell]] = [
        [e.model, "never attacked" if i else "attacked", e.before, e.after, e.effect]
        for i, e in enumerate(found.effects)
    ]
    effects = Table(["model", "", "mAP before", "mAP after", Column("S_e", 3)], rows, "What the attack does")
    values = {
        "changed pixels": [float(a.pixels) for a in found.aimed],
        "amplitude": [float(a.amplitude) for a in found.aimed],
        "PSNR, dB": [a.psnr for a in found.aimed if a.psnr is not None],
        "SSIM": [a.ssim for a in found.aimed],
        "seconds": [a.seconds for a in found.aimed],
    }
    rows = []
    for name, each in values.items():
        three = (float(np.mean(each)), min(each), max(each)) if each else (None, None, None)
        # SSIM is so near to 1 that two digits would say nothing.
        rows.append([name, *(f"{v:.4f}" if name == "SSIM" and v is not None else v for v in three)])
    succeeded = f"{sum(a.success for a in found.aimed)} of {len(found.aimed)} images with a target succeeded"
    heads = (Column(name, 2) for name in ("mean", "least", "most"))
    costs = Table(["", *heads], rows, f"What it costs an image: {succeeded}")
    columns: list[Column[Point]] = [
        Column("pixels allowed", get=lambda p: p.budget),
        Column("images attacked", get=lambda p: p.attacked),
        Column("pixels, mean", 1, get=lambda p: p.pixels),
        Column("mAP", get=lambda p: p.map),
        Column(found.distance, 4, get=lambda p: p.distance),
    ]
    caption = "When an image may have at most so many changed pixels"
    return effects, costs, Table.of(found.points, columns if found.distance else columns[:-1], caption)


def write(found: Outcome, clean: Clean, out: Path) -> Path:
    """Write the page and return its path; `clean` gives an image's decoded pixels by its name."""
    return write_page(page(found, clean), out)


def page(found: Outcome, clean: Clean) -> str:
    """The attack as one self-contained HTML file."""
    about, first = found.about, found.effects[0]
    name, data = about["model"]["name"], about["data"]["name"]
    return document(
        Document(
            title=f"Patch attack on {name}",
            subject=(name, data),
            facts=(
                ("images", str(len(found.attempts))),
                ("with a target", str(len(found.aimed))),
                ("goal", about["method"]["goal"]),
                ("made", about["created"]),
            ),
            verdict=verdict(found),
            cards=(
                Card("mAP before", first.before, "clean images"),
                Card("mAP after", first.after, "with the patches"),
                Card("pixels changed", found.mean(lambda a: a.pixels), "mean of images with a target", 0),
                Card("images that succeed", found.success, "of those with a target"),
            ),
            rule=about["rule"],
            command=about["command"],
            sections=(*sections(found, clean), _about(found)),
            kind="patch attack",
        )
    )


def verdict(found: Outcome) -> str:
    """The outcome in one sentence."""
    first, pixels = found.effects[0], found.mean(lambda a: a.pixels) or 0.0
    if not found.aimed:
        return f"{first.model} finds nothing true in these images: there was nothing to attack."
    share = pixels / np.mean([a.size.width * a.size.height for a in found.aimed])
    text = (
        f"With {pixels:.0f} changed pixels an image ({100 * share:.2f} %) mAP falls from {first.before:.3f} "
        f"to {first.after:.3f}."
    )
    others = [f"{e.model} from {e.before:.3f} to {e.after:.3f}" for e in found.effects[1:]]
    return text + (f" Never attacked, and yet: {'; '.join(others)}." if others else "")


def sections(found: Outcome, clean: Clean, shown: int = SHOWN) -> tuple[Section, ...]:
    """The sections of an attack, for its own page or for one about more."""
    effects, costs, curve = (Figure("", scroll(to_html(t, sortable=False), t.caption)) for t in tables(found))
    figures = (effects, costs, *_charts(found), dataclasses.replace(curve, wide=True))
    return (Section("attack", "Patch attack", figures, verdict(found)), _pictures(found, clean, shown))


def _charts(found: Outcome) -> list[Figure]:
    maps = np.array([p.map for p in found.points])
    top = max(1e-9, float(maps.max()))
    y_range = (0.0, 1.0 if top > 0.5 else top * 1.1)

    def chart(x: Floats, right: float, against: str, x_label: str, note: str) -> Figure:
        title, lines, x_range = f"mAP against {against}", [Line("mAP", x, maps, bold=True)], (0.0, right)
        chart = line_chart(
            lines, title=title, x_label=x_label, y_label="mAP", x_range=x_range, y_range=y_range
        )
        return Figure(title, chart, note)

    pixels = np.array([float(p.budget) for p in found.points])
    right, note = max(float(pixels.max()), 1.0), "Images that need more are left clean."
    charts = [chart(pixels, right, "changed pixels", "changed pixels an image may have", note)]
    distances = np.array([np.nan if p.distance is None else p.distance for p in found.points])
    if np.isfinite(distances).all() and distances.max() > 0:
        label = f"{found.distance} of the attacked images"
        note = "How far the images have moved from the clean ones, as a network sees them."
        charts.append(chart(distances, float(distances.max()), found.distance, label, note))
    return charts


def _pictures(found: Outcome, clean: Clean, shown: int) -> Section:
    rows = []
    for attempt in chosen(found, shown):
        before = clean(attempt.name)
        if before is None:
            continue
        seen = realign([attempt.record(attempt.model, after) for after in (False, True)], found.alignment)
        first, second = (r for r in seen if isinstance(r, DetectionRecord))
        said = first.detections, second.detections
        note = (
            f"{attempt.pixels} pixel{'' if attempt.pixels == 1 else 's'}, amplitude {attempt.amplitude}, "
            f"{attempt.left} of {attempt.targets} targets still found"
        )
        rows.append(
            Exhibit(
                attempt.name, note, before, after=apply(before, attempt.patch), truth=first.truth, said=said
            )
        )
    least = float(found.about["method"]["rule"]["iou"])
    names = found.alignment.names
    body = exhibition(rows, names, least, "patched") if rows else "<p>No image was changed.</p>"
    note = f"Mask: every changed pixel. Difference: |after − before| · {GAIN}, cut off at 255."
    lead = (
        "Boxes before and after: what is found rightly, what is wrong, and true boxes nothing is found for."
    )
    return Section("patched", "Patched images", (Figure("", body, note, wide=True),), lead)


def chosen(found: Outcome, count: int) -> list[Attempt]:
    """Images to show: fewest pixels, most pixels, and those that withstood, from the changed ones."""
    changed = sorted((a for a in found.aimed if a.pixels), key=lambda a: (not a.success, a.pixels))
    if len(changed) <= count:
        return changed
    places = np.linspace(0, len(changed) - 1, count).round().astype(int)
    return [changed[i] for i in dict.fromkeys(places.tolist())]


def _about(found: Outcome) -> Section:
    about = found.about
    facts: list[list[Cell]] = [
        ["model", f"{about['model']['name']} (sha256 {about['model']['sha256'][:16]}…)"],
        ["model unchanged", "its file and its outputs are the same before and after"],
        *([name, str(value)] for name, value in {**about["method"], **about["limits"]}.items()),
        ["seed", about["seed"]],
        ["surrogates", ", ".join(m["name"] for m in about["surrogates"]) or "none"],
        ["deployments", ", ".join(about["deployments"]) or "none"],
    ]
    how = scroll(to_html(Table(["", "what"], facts), sortable=False), "Method")
    digits = {"PSNR": 1, "seconds": 1}
    names = ("name", "targets", "left", "pixels", "amplitude", "psnr", "ssim", "seconds", "note")
    heads = [{"name": "image", "psnr": "PSNR", "ssim": "SSIM"}.get(name, name) for name in names]
    columns = [Column(head, digits.get(head, 3)) for head in heads]
    rows = [[getattr(a, name) for name in names] for a in found.attempts[:LISTED]]
    rest = len(found.attempts) - len(rows)
    note = f"{rest} more are in images.csv." if rest > 0 else ""
    images = Figure("Every image", scroll(to_html(Table(columns, rows)), "Images"), note, wide=True)
    return Section("about", "How it was run", (images, Figure("Method", how)))
