"""The pages of a contest: one entry with its score and its images, and the leaderboard."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from holdfast.contest.board import Board, record_row, rows_table, standing_row
from holdfast.contest.rules import Rules
from holdfast.contest.run import MIMIC, SINGLE, ImageScore, Score
from holdfast.report.html import document
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll
from holdfast.report.patched import READING, AttackedImage, attacked_gallery
from holdfast.report.tables import Cell, Column, Table, many, to_html

Galleries: TypeAlias = Sequence[Sequence[AttackedImage]]  # the best images, then the worst
NAMES = {
    "truth": "true box",
    "missed": "true box missed by the single model",
    "right": "single model, correct",
    "wrong": "single model, wrong",
    "mimic": "mimic model",
}


def show_page(
    score: Score, rules: Rules, galleries: Galleries, classes: Sequence[str], command: str = ""
) -> str:
    """One entry as a self-contained HTML file: its score, its best and worst images, the table of all."""
    changed = [row.changed_pixels for row in score.rows]
    pixels, most, limit = float(np.mean(changed)), max(changed), rules.pixels
    low, high = rules.distance_min, rules.distance_max
    basis, n = f"AP rule {rules.ap}", len(changed)
    name, single, mimic = score.distance_name, score.scenarios[SINGLE], score.scenarios[MIMIC]
    changes = " and ".join(
        f"mAP of the {key} model falls from {s.map_before:.3f} to {s.map_after:.3f}"
        for key, s in score.scenarios.items()
    )
    ranges = [(f"S_e of the {key} model", s.effect, s.effect_raw) for key, s in score.scenarios.items()]
    ranges.append(("S_s", single.stealth, single.stealth_raw))
    page = Document(
        title=f"{score.team} in {score.contest}",
        subject=(score.team, score.contest),
        facts=(
            ("images", str(len(score.rows))),
            ("zip", f"sha256 {score.archive[:12]}"),
            ("rules, models, data, features, code", score.hashes.whole[:12]),
        ),
        verdict=f"Final score {score.final:.4f}: {changes} with {pixels:.0f} changed pixels per image.",
        next_step=next_step(score),
        cards=(
            Card("final score", f"{score.final:.3f}", "sum of both scenarios, at most 2", n=n),
            Card("S_e single", single.effect, f"share of mAP lost, single model; {basis}", n=n),
            Card("S_e mimic", mimic.effect, f"share of mAP lost, mimic model; {basis}", n=n),
            Card("S_s", single.stealth, f"1 at {name} {low:g}, 0 at {high:.4g}", n=n),
            Card(name, f"{score.distance:.4g}", "distance between changed and original images", n=n),
            Card("changed pixels", pixels, f"mean per image; maximum {most}, limit {limit}", 1, n),
        ),
        rule=rule_text(rules),
        command=command,
        alerts=tuple(
            Alert(f"{what} is clipped from {raw:.4f} to {value:g}", "score")
            for what, value, raw in ranges
            if value != raw
        ),
        sections=tuple(_sections(score, rules, galleries, classes)),
        kind="contest",
    )
    return document(page)


def next_step(score: Score) -> str:
    """What the participant can do next, in one sentence."""
    weak = min(score.scenarios, key=lambda key: score.scenarios[key].effect)
    if score.scenarios[weak].stealth < score.scenarios[weak].effect:
        return "To score higher, change fewer pixels or less per pixel: S_s is the smaller factor."
    return f"To score higher, hide more targets from the {weak} model: its S_e is the smallest factor."


def board_next_step(board: Board) -> str:
    """What the organiser can do next, in one sentence."""
    if board.stale:
        return "Run holdfast contest rescore: some submissions have no score under the current rules."
    if not board.standings:
        return "Publish the folder public/, then score each entry with holdfast contest score."
    return "Open an entry with holdfast contest show to see its attacked images."


def score_table(score: Score) -> Table:
    """Both scenarios with S_e and S_s, clipped to their range and raw."""
    columns = ["scenario", "mAP before", "mAP after", "S_e", "S_e raw", "S_s", "S_s raw", "score"]
    rows: list[list[Cell]] = [
        [name, s.map_before, s.map_after, s.effect, s.effect_raw, s.stealth, s.stealth_raw, s.score]
        for name, s in score.scenarios.items()
    ]
    rows.append(["final", None, None, None, None, None, None, score.final])
    return Table([Column(name, 4) for name in columns], rows)


def image_table(rows: Sequence[ImageScore]) -> Table:
    """Every image: pixels, PSNR, targets, and how many each scenario detects before and after."""
    scenarios = list(rows[0].found_before)
    columns = [
        *(Column("image"), Column("pixels"), Column("PSNR", 1, "dB; n/a if unchanged")),
        Column("targets"),
        *(Column(f"{s} {when}", 0, "targets detected") for s in scenarios for when in ("before", "after")),
        Column("hidden", 2, "share of the detected targets that are hidden"),
    ]
    body = []
    for row in rows:
        counts = [n for name in scenarios for n in (row.found_before[name], row.found_after[name])]
        body.append([row.number, row.changed_pixels, row.psnr, row.targets, *counts, lost(row)])
    return Table(columns, body)


def _sections(score: Score, rules: Rules, galleries: Galleries, classes: Sequence[str]) -> Iterator[Section]:
    note = "score = S_e · S_s; raw: before clipping to the range of the rules."
    body = scroll(to_html(score_table(score), sortable=False), "Score")
    yield Section("score", "Score", (Figure("", body, note, wide=True),))
    leads = {"best": "Most targets hidden; ties by the fewest changed pixels."}
    leads["worst"] = "Fewest targets hidden; ties by the most changed pixels."
    for (name, lead), images in zip(leads.items(), galleries, strict=True):
        if images:
            figure = Figure("", attacked_gallery(images, classes, rules.iou, name, NAMES), READING, wide=True)
            yield Section(name, f"{name.capitalize()} images", (figure,), lead)
    body = scroll(to_html(image_table(score.rows)), "All images")
    note = "Click a heading to sort. A target is detected if a detection of its class overlaps it."
    yield Section("images", "All images", (Figure("", body, note, wide=True),))


def lost(row: ImageScore) -> float | None:
    """The share of detected targets, over all scenarios, that are hidden; None if none was detected."""
    before, after = sum(row.found_before.values()), sum(row.found_after.values())
    return (before - after) / before if before else None


def select_rows(rows: Sequence[ImageScore], images: int) -> tuple[list[ImageScore], list[ImageScore]]:
    """The best and the worst images for the attacker, `images` in total, without duplicates.

    Best: most targets hidden, ties by the fewest changed pixels; worst: the reverse.
    """
    candidates = [(share, row) for row in rows if (share := lost(row)) is not None]
    ranked = [row for _, row in sorted(candidates, key=lambda x: (-x[0], x[1].changed_pixels, x[1].number))]
    best = ranked[: (images + 1) // 2]
    return best, ranked[len(best) :][::-1][: images - len(best)]


def describe_row(row: ImageScore) -> str:
    """The summary of an image."""
    pixels = f"{row.changed_pixels} pixel{'' if row.changed_pixels == 1 else 's'} changed"
    ratio = f", {row.psnr:.1f} dB" if row.psnr is not None else ""
    targets = f"{row.targets} target{'' if row.targets == 1 else 's'}"
    counts = [
        f"{name} model detects {row.found_before[name]} before, {row.found_after[name]} after"
        for name in row.found_before
    ]
    return f"{pixels}{ratio}; {targets}: {'; '.join(counts)}"


def board_page(board: Board, command: str = "") -> str:
    """The leaderboard as one self-contained HTML file: standings, history, scores that are not ranked."""
    rules, standings = board.rules, board.standings
    basis = f"AP rule {rules.ap}"
    stale = f"{many(len(board.stale), 'submission')} not ranked; run holdfast contest rescore"
    best, verdict = None, "No valid scores yet."
    if standings:
        first, final = [s.team for s in standings if s.rank == 1], standings[0].best.final
        best = f"{final:.3f}"
        verdict = f"{' and '.join(first)} lead{'s' * (len(first) == 1)} with {final:.4f}."
    page = Document(
        title=f"Leaderboard of {rules.name}",
        subject=("Leaderboard", rules.name),
        facts=(
            ("images", str(rules.images)),
            ("distance", f"{rules.distance} (features {rules.features_sha256[:12]})"),
            ("rules, models, data, features, code", board.hashes.whole[:12]),
        ),
        verdict=verdict,
        next_step=board_next_step(board),
        cards=(
            Card("best final", best, f"over all teams, at most 2; {basis}", n=rules.images),
            Card("teams", len(standings), "with a current score"),
            Card("submissions", len(board.history), "with a current score, all teams"),
            Card("not ranked", len(board.stale), "scored under other rules, models, data or code"),
        ),
        rule=rule_text(rules),
        command=command,
        alerts=(Alert(stale, "stale"),) if board.stale else (),
        sections=tuple(_board_sections(board)),
        kind="contest",
    )
    return document(page)


def _board_sections(board: Board) -> list[Section]:
    standings = [standing_row(s) for s in board.standings]
    times = [r.submitted.replace("T", " ").split("+")[0] for r in board.history]
    history = [{"submitted": t, **record_row(r)} for t, r in zip(times, board.history, strict=True)]
    rows = [record_row(s.record, name_distance=True) for s in board.stale]
    stale = [row | {"changed since": ", ".join(s.changed)} for row, s in zip(rows, board.stale, strict=True)]
    note = "Each team by its best submission; equal finals (nine decimals) share a rank. Click to sort."
    lead = "Scores under rules, models, data or code that have changed since. They are not ranked."
    sections = (
        ("standings", "Standings", standings, note, ""),
        ("history", "History", history, "In order of submission, UTC.", ""),
        ("stale", "Not ranked", stale, "", lead),
    )
    return [
        Section(name, title, (Figure("", scroll(to_html(rows_table(rows)), title), note, wide=True),), lead)
        for name, title, rows, note, lead in sections
        if rows
    ]


def board_section(board: Board) -> Section:
    """The standings as a section of another page."""
    figures = _board_sections(board)[0].figures if board.standings else ()
    return Section("contest", "Contest", figures, rule_text(board.rules))


def rule_text(rules: Rules) -> str:
    """The rules of the score in words."""
    members = len(rules.mimic.members) + rules.mimic.hidden
    vote = f"{rules.mimic.least} of {members} members have one of its class with IoU ≥ {rules.mimic.iou:g}"
    effect, stealth = (f"{scale.low:g}..{scale.high:g}" for scale in (rules.effect, rules.stealth))
    return (
        f"AP rule {rules.ap} at IoU {rules.iou:g}, score threshold {rules.score:g}, NMS IoU "
        f"{rules.nms_iou:g}. Mimic model: a box counts if {vote}. At most {rules.pixels} changed pixels per "
        f"image; a pixel counts if any channel differs. S_e is clipped to {effect}, S_s to {stealth}."
    )
