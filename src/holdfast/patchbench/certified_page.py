"""Certified positions as a table and as a page: the state of every position on every image."""

import html

import numpy as np

from holdfast.core.types import Image
from holdfast.patchbench.certify import INDICATION, CertificationResult, CertifiedImage
from holdfast.patchbench.page import embedded
from holdfast.patchbench.positions.free import STATES, PositionCertificates
from holdfast.report.charts.svg import element, tip
from holdfast.report.parts import Card, Document, Figure, Section, duration, scroll
from holdfast.report.tables import Column, Table, grouped, many, to_html

_COLOURS = ((176, 180, 186), (8, 96, 150), (222, 96, 20))  # unknown, certified, violated
_SIDE = 320.0  # of a drawing, in its own units
MOST = 60  # images drawn; the table has all
_LEAD = (
    "The state of every position of the patch's top left corner: blue is certified for any content, orange "
    "is violated by a content that was replayed, grey is not decided."
)


def table_of(result: CertificationResult) -> Table:
    """One row per image, and one for all."""
    columns: list[Column[tuple[CertifiedImage, PositionCertificates]]] = [
        Column("image", get=lambda row: row[0].name),
        Column("target", get=lambda row: row[0].label),
        Column("positions", get=lambda row: grouped(row[1].states.size)),
        Column("certified %", 2, get=lambda row: 100 * row[1].share("certified")),
        Column("violated %", 2, get=lambda row: 100 * row[1].share("violated")),
        Column("unknown %", 2, get=lambda row: 100 * row[1].share("unknown")),
        Column("by splitting", get=lambda row: grouped(row[1].split)),
        Column("seconds", 1, get=lambda row: row[1].seconds),
    ]
    return Table.of(result.decided(), columns)


def summary(result: CertificationResult) -> str:
    """The result in one sentence, with the number of images it rests on."""
    images = sum(1 for _ in result.decided())
    few = ", an indication" if images < INDICATION else ""
    shares = ", ".join(
        f"{100 * result.share(status):.2f}% {status}" for status in ("certified", "violated", "unknown")
    )
    return (
        f"{_sizes(result)} patch of any content: {shares} of {grouped(result.positions)} "
        f"positions (n = {many(images, 'image')}{few}); {pace(result)} s per position."
    )


def _sizes(result: CertificationResult) -> str:
    return ", ".join(f"{side}×{side}" for side in result.sides)


def pace(result: CertificationResult) -> str:
    """The seconds per position."""
    return f"{result.seconds / max(result.positions, 1):.2g}"


def rule_of(result: CertificationResult) -> str:
    """What is proven, and what is not."""
    return (
        f"output = iou(prediction, target) × [class equal]; {result.bar}; the target is the prediction "
        "without the patch. Certified: bounds prove that no content in the input's range is unsafe, in every "
        "evaluation of the file in its own precision. Violated: a content was replayed in ONNX Runtime on "
        "the original file. Not proven: patches in the scene (this one is on the network's input), and "
        "several patches at once."
    )


def page(result: CertificationResult, command: str = "") -> Document:
    """The page of certified positions."""
    worst = sorted(result.decided(), key=lambda pair: (pair[1].share("certified"), pair[0].name))
    figures = [_figure(image, certificates) for image, certificates in worst[:MOST]]
    trouble = "; ".join(f"{image.name}: {image.trouble}" for image in result.images if image.trouble)
    table = scroll(to_html(table_of(result)), "Positions in numbers")
    numbers = Section("numbers", "Positions in numbers", (Figure("", table, trouble, wide=True),))
    drawn = [Section("positions", "Positions", tuple(figures), _LEAD)] if figures else []
    return Document(
        title=f"Certified patch positions of {result.subject}",
        subject=(result.subject, result.source),
        facts=(
            ("images", str(len(result.images))),
            ("patch", f"{_sizes(result)}, any content"),
            ("positions", grouped(result.positions)),
            ("time", duration(result.seconds)),
        ),
        verdict=summary(result) if figures else "No image has positions.",
        next_step=_next_step(result),
        cards=tuple(
            Card(status, result.share(status), f"share of {grouped(result.positions)} positions", 4)
            for status in ("certified", "violated", "unknown")
        ),
        rule=rule_of(result),
        command=command,
        sections=(*drawn, numbers),
        kind="patch positions",
    )


def _next_step(result: CertificationResult) -> str:
    if result.count("unknown"):
        return "Give more time per image (--seconds) for the positions that are not decided."
    if result.count("violated"):
        return "Train with bounds (holdfast train certified), or use a smaller patch."
    return "Every position is certified: try a larger patch."


def _figure(image: CertifiedImage, result: PositionCertificates) -> Figure:
    states = np.array(_COLOURS, np.uint8)[result.states]
    drawings = [
        (_drawn(image.picture, f"{image.name}: image"), "image"),
        (_drawn(states, f"{image.name}: state of every position"), "state of every position"),
    ]
    cells = "".join(f"<div>{svg}<small>{html.escape(text)}</small></div>" for svg, text in drawings)
    counts = ", ".join(f"{grouped(result.count(status))} {status}" for status in STATES[1:] + STATES[:1])
    return Figure(
        f"{image.name}, {image.label}", f'<div class="three">{cells}</div>', counts + ".", wide=True
    )


def _drawn(picture: Image, title: str) -> str:
    height, width = picture.shape[:2]
    unit = _SIDE / max(height, width)
    box = f"0 0 {width * unit:g} {height * unit:g}"
    background = embedded(picture, width * unit, height * unit)
    return element("svg", tip(title), background, class_="picture", viewBox=box, role="img")
