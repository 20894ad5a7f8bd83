"""A diagnosis in tables and sentences: where two systems part, what each difference costs, what it broke."""

import math
from collections.abc import Sequence
from pathlib import Path

from holdfast.diagnose.dump import size_text
from holdfast.diagnose.lockstep import StageApart, first_apart
from holdfast.diagnose.run import Blame, Diagnosis, Share
from holdfast.noise.suite import excludes_zero
from holdfast.noise.vision.tables import metric_name
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import document, write_page
from holdfast.report.parts import Card, Document, Figure, Section, table_figure
from holdfast.report.tables import Cell, Table, many, to_html, to_text

MOST_BROKEN = 200
EQUALS = (
    "The same: choices that, in the place of those of the row or on top of them, give the very same values: "
    "this dump cannot tell them apart. Of such the one with the fewest changes against training is shown."
)
MOST_SAME = 8  # equal choices named in a line of the terminal


def to_texts(found: Diagnosis) -> list[str]:
    """The diagnosis as it is printed: tables, then what they say."""
    parts = [to_text(stage_table(found.stages))] if found.stages else []
    if found.blame is not None:
        parts.append(to_text(blame_table(found.blame)))
    parts += [like_text(table) for table in found.dumps]
    said = words(found)
    broken = found.blame.broken if found.blame else ()
    if broken:
        more = f" and {len(broken) - 10} more" if len(broken) > 10 else ""
        said += f"\nbroken   {', '.join(broken[:10])}{more}"
    if found.calibration is not None:
        shares = found.blame.shares if found.blame else ()
        shown = any(share.note == found.calibration.how for share in shares)  # in the table of blame
        method = "" if shown or not found.calibration.how else f"; method: {found.calibration.how}"
        said += f"\nnote     integer precisions calibrated on {found.calibration.on}{method}"
    return [*parts, said.strip()] if said else parts


def stage_table(stages: Sequence[StageApart]) -> Table:
    """What every stage hands on in the two systems, compared."""
    columns = ["stage", "images that differ", "largest difference", "mean difference", "share of values"]
    rows: list[list[Cell]] = []
    for s in stages:
        sizes = size_text(s.largest), size_text(s.mean)
        rows.append([s.stage, f"{s.differ} of {s.images}", *sizes, f"{100 * s.share:z.2f} %"])
    return Table(columns, rows, "Training and deployment in lockstep")


def blame_table(found: Blame) -> Table:
    """What each difference costs alone, and what comes back if it alone is undone."""
    columns = ["difference", "alone", "95 % interval", "mended", "95 % interval ", "changed alone", "note"]
    rows: list[list[Cell]] = [
        [
            s.label,
            f"{s.alone:z.2f}",
            f"[{s.alone_low:z.2f}, {s.alone_high:z.2f}]",
            f"{s.mended:z.2f}",
            f"[{s.mended_low:z.2f}, {s.mended_high:z.2f}]",
            f"{s.changed} of {found.images}",
            s.note,
        ]
        for s in found.shares
    ]
    what = "what a difference costs alone, and what comes back if of all it alone is mended"
    return Table(columns, rows, f"Points of {metric_name(found)}: {what}")


def like_text(table: Table) -> str:
    """The table of a dump for a terminal: what gives the same stands in lines below, which would widen it."""
    lines = [to_text(Table(table.columns[:-1], [row[:-1] for row in table.rows], table.caption))]
    for text in dict.fromkeys(str(row[-1]) for row in table.rows if row[-1]):
        same, rows = text.split(", "), ", ".join(str(row[0]) for row in table.rows if row[-1] == text)
        more = f" and {len(same) - MOST_SAME} more (--json has all)" if len(same) > MOST_SAME else ""
        lines.append(f"same     as {rows}: {', '.join(same[:MOST_SAME])}{more}")
    return "\n".join(lines)


def words(diagnosis: Diagnosis) -> str:
    """The diagnosis in two or three sentences."""
    stages, found = diagnosis.stages, diagnosis.blame
    apart, said = first_apart(stages), ""
    if apart is not None:
        far = "in shape" if math.isinf(apart.largest) else f"by {size_text(apart.largest)} at most"
        part = f"{apart.differ} of {apart.images} images differ there, {far}"
        said = f"They part at the stage {apart.stage}: {part}."
    elif stages:
        said = f"The two systems agree bit for bit at every stage on {many(stages[0].images, 'image')}."
    if found is None:
        return said
    sure = "" if excludes_zero(found.low, found.high) else ", which may be the choice of images"
    change = f"{abs(found.drop):z.2f} points {'gained' if found.drop < 0 else 'lost'}"
    said += (
        f" {metric_name(found)} goes from {100 * found.train:z.2f} to {100 * found.deploy:z.2f}: {change} "
        f"(interval of the loss [{found.low:z.2f}, {found.high:z.2f}]){sure}; {found.changed} of "
        f"{found.images} predictions change."
    )
    worst = max(found.shares, key=lambda s: s.mended, default=None)
    if worst is not None and worst.mended > 0:
        said += f" Mending {worst.label} alone gives {worst.mended:z.2f} back."
    return said.strip()


def write(diagnosis: Diagnosis, subject: tuple[str, str], command: str, out: Path) -> Path:
    """Write the page, whole or not at all; OutputError if it cannot be written there. Return its path."""
    stages, found, dumps = diagnosis.stages, diagnosis.blame, diagnosis.dumps
    sections = [_section("stages", "Where they part", stage_table(stages))] if stages else []
    sections += _blamed(found) if found else []
    sections += [_section(f"dump-{i}", "The dump", table, EQUALS) for i, table in enumerate(dumps, 1)]
    if calibration := diagnosis.calibration:
        how = calibration.how or "that of each option tried"
        rows: list[list[Cell]] = [[calibration.images, calibration.on, how]]
        body = to_html(Table(["images", "calibrated on", "method"], rows), sortable=False)
        lead = "What integer precisions saw to choose the range of every tensor."
        sections.append(Section("calibration", "Calibration", (Figure("", body, wide=True),), lead))
    page = Document(
        title=f"Diagnosis of {subject[0]} on {subject[1]}",
        subject=subject,
        facts=(("images", str(found.images if found else (stages[0].images if stages else 1))),),
        verdict=words(diagnosis),
        cards=_cards(found) if found else (),
        command=command,
        sections=tuple(sections),
        kind="diagnosis",
        layout="diagnosis",
    )
    return write_page(document(page), out, "diagnose.html")


def _section(identifier: str, title: str, table: Table, note: str = "") -> Section:
    figure = table_figure("", table, note, name=title, wide=True)
    return Section(identifier, title, (figure,), f"{table.caption}.")


def _cards(found: Blame) -> tuple[Card, ...]:
    metric = metric_name(found)
    return (
        Card(f"{metric}, training", 100 * found.train, "the system it was trained with", 2),
        Card(f"{metric}, deployment", 100 * found.deploy, "the system it runs on", 2),
        Card("lost", found.drop, f"points, 95 % interval [{found.low:z.2f}, {found.high:z.2f}]", 2),
        Card("changed", found.changed, f"predictions of {found.images}"),
    )


def _blamed(found: Blame) -> list[Section]:
    kinds = {"alone": "Lost by it alone", "mended": "Back if it alone is mended"}
    groups = [
        ForestGroup(name, [_spot(share, kind) for share in found.shares]) for kind, name in kinds.items()
    ]
    title, table = "What each difference costs", blame_table(found)
    chart = Figure("", forest(groups, title=title, unit="points"), wide=True)
    figures = chart, table_figure("", table, name="What each costs", wide=True)
    blamed = Section("blame", title, figures, f"{table.caption}.")
    if not found.broken:
        return [blamed]
    images = Table(["image"], [[name] for name in found.broken[:MOST_BROKEN]])
    listed = table_figure("", images, name="Images it broke", wide=True)
    lead = f"{len(found.broken)} images were right in training's system and are wrong in deployment's."
    return [blamed, Section("broken", "Images it broke", (listed,), lead)]


def _spot(share: Share, field: str) -> ForestPoint:
    value, low, high = (getattr(share, field + end) for end in ("", "_low", "_high"))
    return ForestPoint(share.label, value, low, high, note=f"{field} {value:z.2f}")
