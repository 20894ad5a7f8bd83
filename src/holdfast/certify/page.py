"""The page of a certification: numbers, curves over the patch size, and where each object is vulnerable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np

from holdfast.certify.certificate import REGIONS, ImageCertificate
from holdfast.certify.result import Certification
from holdfast.certify.tables import (
    area_table,
    attack_table,
    clean_table,
    not_proven,
    overlap_table,
    region_table,
    size_table,
)
from holdfast.certify.threat import WORDS
from holdfast.core.dataset import Dataset
from holdfast.core.errors import HoldfastError
from holdfast.core.text import printable
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.report.charts.lines import ChartLine, line_chart
from holdfast.report.gallery import GalleryImage, Mark, WorstImages, gallery
from holdfast.report.html import SIZE_LIMIT, document
from holdfast.report.parts import Card, Document, Figure, Section, table_figure
from holdfast.report.tables import many
from holdfast.stages.masks import PatchSize

Picture = Callable[[str], bytes | None]  # the encoded image by its name
SHOWN = 12  # images with their rectangles
MASKED = {"scene": "decoded image", "input": "network's input"}


def page(result: Certification) -> str:
    """The certification as one self-contained HTML file."""
    about = result.about
    name, data = about["model"]["name"], about["data"]["name"]
    shown = pictures(result, picture_of(result))
    sections = (numbers(result), curves(result), shown, limits(result))
    return document(
        Document(
            title=f"Certified patches: {name}",
            subject=(name, data),
            facts=(
                ("images", str(result.clean.images)),
                ("objects", str(result.clean.objects)),
                ("patch", about["patch"]),
                ("masks", "; ".join(about["families"])),
                ("passes per image", f"{about['passes']:g}"),
                ("seconds per image", f"{about['seconds_per_image']:g}"),
                ("created", about["created"]),
            ),
            verdict=verdict(result),
            next_step=next_step(result),
            cards=cards(result),
            rule=threat(result),
            command=about["command"],
            sections=sections,
            kind="certify",
        )
    )


def picture_of(result: Certification) -> Picture:
    """A function that returns an encoded image of the dataset; None if it cannot be read any more."""
    if result.about["threat"] == "input":
        return lambda name: None  # places are in the network's input, which is not kept
    source = result.about["data"]["source"]
    dataset: Dataset | None = result.__dict__.get("_dataset")
    if dataset is None and "data" in source:
        reading = {"format": source.get("format"), "split": source.get("split")}
        with contextlib.suppress(HoldfastError):
            dataset = open_dataset(source["data"], task="detect", **reading)
    entries = {printable(entry.name): entry for entry in dataset.entries} if dataset else {}

    def picture(name: str) -> bytes | None:
        with contextlib.suppress(HoldfastError):
            return entries[name].load().data if name in entries else None
        return None

    return picture


def verdict(result: Certification) -> str:
    """The outcome in two sentences."""
    patch, parts = result.about["patch"], []
    for region, words in (("far", "away from"), ("close", "close to"), ("over", "over")):
        row = result.recall(region)
        if row is not None and row.recall is not None:
            parts.append(f"{words} it: {row.certified} of {row.of}")
    text = f"No patch of {patch}, whatever it shows, can hide these objects from the wrapped detector: "
    clean = result.clean
    lost = "" if clean.points_lost is None else f" The defence loses {clean.points_lost:.2f} points of AP50"
    return f"{text}patch {'; '.join(parts)}.{lost} and adds {clean.added_false:.2f} false boxes per image."


def next_step(result: Certification) -> str:
    """What to do next."""
    over = result.recall("over")
    squares = any("squares" in family for family in result.about["families"])
    if over is not None and over.of and not over.certified and not squares:
        return "Add --squares 8: half-planes cannot certify patches over small objects."
    return f"Run the model with this defence: holdfast evaluate … --defend {result.folder or 'RUN'}."


def threat(result: Certification) -> str:
    """What is certified, in words."""
    about = result.about
    return (
        f"One square patch of {about['patch']} with any content {WORDS[about['threat']]}, anywhere. Masks "
        f"are grey ({about['grey']}) and hide the {MASKED[about['masks']]}. Certified: the wrapped detector "
        f"still reports, at a score above {about['score']:g}, a box of the object's class that covers more "
        f"than {about['overlap']:g} of the object. Far: more than a tenth of the image away; over: the patch "
        "meets the box."
    )


def cards(result: Certification) -> tuple[Card, ...]:
    """The headline numbers."""
    found = []
    for region in REGIONS:
        row = result.recall(region)
        if row is not None:
            found.append(Card(f"certified {region}", row.recall, "share of objects", 3, row.of))
    clean = result.clean
    found.append(
        Card("AP50 wrapped", clean.wrapped, f"without the defence {clean.vanilla or 0:.3f}", 3, clean.images)
    )
    return (*found, Card("false boxes added", clean.added_false, "per image", 3, clean.images))


def numbers(result: Certification) -> Section:
    """The tables."""
    tables = (clean_table(result), region_table(result), overlap_table(result), area_table(result))
    figures = [table_figure("", table) for table in tables]
    if result.attacked:
        figures.append(table_figure("Attacks on the wrapped detector", attack_table(result)))
    return Section("numbers", "Certified recall", tuple(figures))


def curves(result: Certification) -> Section:
    """The certified recall by patch size in pixels."""
    lines = []
    for colour, region in enumerate(REGIONS, 1):
        rows = [(r, side) for r in result.rows if (side := _pixels(r.patch)) and _is_main(result, r, region)]
        rows.sort(key=lambda pair: pair[1])
        points = [(side, r.recall) for r, side in rows if r.recall is not None]
        x, y = (np.array(column, float) for column in zip(*points, strict=True)) if points else ((), ())
        lines.append(ChartLine(region, np.asarray(x), np.asarray(y), colour))
    most = max((float(line.x.max()) for line in lines if len(line.x)), default=1.0)
    chart = line_chart(
        lines, title="Certified recall by patch size", x_label="side of the patch, pixels",
        y_label="certified objects", x_range=(0.0, most),
    )  # fmt: skip
    figures = (Figure("Certified recall by patch size", chart), table_figure("", size_table(result)))
    return Section("sizes", "Patch sizes", figures)


def _pixels(patch: str) -> int:
    return PatchSize.parse(patch.replace(" ", "")).pixels


def _is_main(result: Certification, row: object, region: str) -> bool:
    found = result.recall(region, getattr(row, "patch", ""))
    return found is row


def pictures(result: Certification, picture: Picture) -> Section:
    """The images with the objects and the pixels of the places that are not certified."""
    size, overlap = PatchSize.parse(result.about["patch"].replace(" ", "")), result.about["overlap"]
    shots = [_shot(image, size.side(image.size), overlap) for image in result.images]
    order = sorted(range(len(shots)), key=lambda n: (-shots[n][1], n))[:SHOWN]
    definition = (
        "Dashed: where the patch must be to hide the object (all pixels it may cover there); outside these "
        "rectangles no patch hides it. Green objects have none. Images with the largest rectangles first."
    )
    found = gallery(WorstImages(definition, tuple(shots[n][0] for n in order)), picture, SIZE_LIMIT // 2)
    return Section("places", "Vulnerable places", found.figures, found.lead)


def _shot(image: ImageCertificate, side: int, overlap: float) -> tuple[GalleryImage, float]:
    marks, shares, safe = [], [], 0
    for number, one in enumerate(image.objects):
        places = image.vulnerable(number, side, overlap)
        open_ = image.verdicts(number, side, overlap)["everywhere"][1]
        shares.append(open_)
        safe += not open_
        kind = "missed" if open_ else "right"
        marks.append(Mark.of(np.array(one.box), "missed" if kind == "missed" else "right", one.label))
        if open_:
            pixels = np.array([places.left, places.top, places.right + side - 1, places.bottom + side - 1])
            marks.append(Mark.of(pixels.astype(float), "ignored", ""))
    text = f"{safe} of {many(len(image.objects), 'object')} certified everywhere"
    return GalleryImage(image.name, Size(*image.size), tuple(marks), text), float(np.sum(shares))


def limits(result: Certification) -> Section:
    """What is not proven."""
    return Section("limits", "What is not proven", (), " ".join(not_proven(result)))
