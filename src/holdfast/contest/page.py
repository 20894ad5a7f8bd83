"""An entry of a contest as a page: its score, and what it did to the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from holdfast.contest.board_page import board_page, rule_text
from holdfast.contest.pictures import gallery, lost
from holdfast.contest.rules import Rules
from holdfast.contest.run import MIMIC, SINGLE, Row, Score
from holdfast.core.errors import OutputError
from holdfast.engine.store import write_atomic
from holdfast.report.html import document
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll
from holdfast.report.patched import GAIN, Exhibit
from holdfast.report.tables import Cell, Column, Table, to_html

__all__ = ["board_page", "image_table", "rule_text", "score_table", "show_page", "write"]


def write(page: str, out: Path) -> Path:
    """The path of the written page, there whole or not at all; OutputError if it cannot be written there."""
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'contest.html'}")
    write_atomic(out, page.encode())
    return out


def show_page(
    made: Score, rules: Rules, best: Sequence[Exhibit], worst: Sequence[Exhibit],
    classes: Sequence[str], command: str = "",
) -> str:  # fmt: skip
    """One entry as a self-contained HTML file: its score, its best and worst images, the table of all."""
    pixels = float(np.mean([row.changed_pixels for row in made.rows]))
    return document(
        Document(
            title=f"{made.team} in {made.contest}",
            subject=(made.team, made.contest),
            facts=(
                ("images", str(len(made.rows))),
                ("zip", f"sha256 {made.archive[:12]}"),
                ("rules, models, data, features, code", made.hashes.whole[:12]),
            ),
            verdict=_verdict(made, pixels),
            cards=_cards(made, rules, pixels),
            minor=(),
            rule=rule_text(rules),
            command=command,
            alerts=_alerts(made),
            sections=tuple(_sections(made, rules, best, worst, classes)),
            kind="contest",
        )
    )


def _cards(made: Score, rules: Rules, pixels: float) -> tuple[Card, ...]:
    name, most = made.distance_name, max(row.changed_pixels for row in made.rows)
    single, mimic = made.scenarios[SINGLE], made.scenarios[MIMIC]
    return (
        Card("final score", f"{made.final:.3f}", "sum of both scenarios' scores, at most 2"),
        Card("S_e single", single.effect, "part of the single model's mAP that is gone"),
        Card("S_e mimic", mimic.effect, "part of the mimic model's mAP that is gone"),
        Card("S_s", single.stealth, f"1 at {name} {rules.distance_min:g}, 0 at {rules.distance_max:.4g}"),
        Card(name, f"{made.distance:.4g}", "distance of the changed images from the originals"),
        Card("changed pixels", pixels, f"an image on average; {most} at most, {rules.pixels} allowed", 1),
    )


def score_table(made: Score) -> Table:
    """Both scenarios with S_e and S_s as they count and as they were before they were cut to their range."""
    columns = ["scenario", "mAP before", "mAP after", "S_e", "S_e raw", "S_s", "S_s raw", "score"]
    rows: list[list[Cell]] = [
        [name, s.map_before, s.map_after, s.effect, s.effect_raw, s.stealth, s.stealth_raw, s.score]
        for name, s in made.scenarios.items()
    ]
    rows.append(["final", None, None, None, None, None, None, made.final])
    return Table([Column(name, 4) for name in columns], rows)


def image_table(rows: Sequence[Row]) -> Table:
    """Every image: pixels, PSNR, targets, and how many of them each scenario finds before and after."""
    scenarios = list(rows[0].found_before)
    columns = [
        *(Column("image"), Column("pixels"), Column("PSNR", 1, "dB; n/a if nothing is changed")),
        Column("targets"),
        *(Column(f"{name} {when}", 0, "targets found") for name in scenarios for when in ("before", "after")),
        Column("lost", 2, "part of the targets found before that is not found after"),
    ]
    body = [
        [
            *(row.number, row.changed_pixels, row.psnr, row.targets),
            *(n for name in scenarios for n in (row.found_before[name], row.found_after[name])),
            lost(row),
        ]
        for row in rows
    ]
    return Table(columns, body)


def _verdict(made: Score, pixels: float) -> str:
    fell = [
        f"the {name} model's mAP goes from {s.map_before:.3f} to {s.map_after:.3f}"
        for name, s in made.scenarios.items()
    ]
    return f"Final score {made.final:.4f}: {' and '.join(fell)} with {pixels:.0f} changed pixels an image."


def _alerts(made: Score) -> tuple[Alert, ...]:
    alerts = []
    for name, s in made.scenarios.items():
        if s.effect != s.effect_raw:
            alerts.append(f"S_e of the {name} model counts as {s.effect:g}, it was {s.effect_raw:.4f}")
    stealth = made.scenarios[SINGLE]
    if stealth.stealth != stealth.stealth_raw:
        alerts.append(f"S_s counts as {stealth.stealth:g}, it was {stealth.stealth_raw:.4f}")
    return tuple(Alert(text, "score") for text in alerts)


def _sections(
    made: Score, rules: Rules, best: Sequence[Exhibit], worst: Sequence[Exhibit], classes: Sequence[str]
) -> list[Section]:
    note = "score = S_e · S_s; raw: before it was cut to the range of the rules."
    table = Figure("", scroll(to_html(score_table(made), sortable=False), "Score"), note, wide=True)
    sections = [Section("score", "Score", (table,))]
    galleries: Mapping[str, tuple[str, Sequence[Exhibit], str]] = {
        "best": (
            "Best images",
            best,
            "Most targets lost, of equal ones those with the fewest changed pixels.",
        ),
        "worst": (
            "Worst images",
            worst,
            "Fewest targets lost, of equal ones those with the most changed pixels.",
        ),
    }
    for name, (title, exhibits, lead) in galleries.items():
        if exhibits:
            body = gallery(exhibits, classes, rules.iou, name)
            told = f"Mask: every changed pixel. Difference: |after − before| · {GAIN}, cut off at 255."
            sections.append(Section(name, title, (Figure("", body, told, wide=True),), lead))
    body = scroll(to_html(image_table(made.rows)), "All images")
    note = "Click a heading to sort. Targets found: true boxes on which a detection of their class lies."
    sections.append(Section("images", "All images", (Figure("", body, note, wide=True),)))
    return sections
