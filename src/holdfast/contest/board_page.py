"""The leaderboard of a contest as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.contest.board import Board, Standing
from holdfast.contest.ledger import Record
from holdfast.contest.rules import Rules
from holdfast.report.html import document
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll
from holdfast.report.tables import Cell, Column, Table, to_html

_ORDER = "In the order of submission, UTC."


def board_page(board: Board, command: str = "") -> str:
    """The leaderboard as one self-contained HTML file: standings, history, scores that do not count."""
    rules, standings = board.rules, board.standings
    many = f"{len(board.stale)} submission{' is' if len(board.stale) == 1 else 's are'}"
    stale = f"{many} not ranked: holdfast contest rescore scores again what was scored under other rules"
    best = f"{standings[0].best.final:.3f}" if standings else None
    return document(
        Document(
            title=f"Leaderboard of {rules.name}",
            subject=("Leaderboard", rules.name),
            facts=(
                ("images", str(rules.images)),
                ("distance", f"{rules.distance} (features {rules.features_sha256[:12]})"),
                ("rules, models, data, features, code", board.hashes.whole[:12]),
            ),
            verdict=_leaders(standings),
            cards=(
                Card("best final", best, "of all teams, at most 2"),
                Card("teams", len(standings), "with a score that counts"),
                Card("submissions", len(board.history), "that count, every team's history included"),
                Card("not counted", len(board.stale), "scored under other rules, models, data or code"),
            ),
            minor=(),
            rule=rule_text(rules),
            command=command,
            alerts=(Alert(stale, "stale"),) if board.stale else (),
            sections=tuple(_board_sections(board)),
            kind="contest",
        )
    )  # fmt: skip


def _leaders(standings: Sequence[Standing]) -> str:
    first = [s.team for s in standings if s.rank == 1]
    if not first:
        return "No score counts yet."
    return f"{' and '.join(first)} lead{'s' * (len(first) == 1)} with {standings[0].best.final:.4f}."


def _board_sections(board: Board) -> list[Section]:
    if not board.standings and not board.stale:
        return []
    sections = []
    if board.standings:
        standings = [
            {"rank": s.rank, "team": s.team, **_numbers(s.best), "best": s.best.submission,
             "last": s.last.submission, "last final": s.last.final, "submissions": s.submissions}
            for s in board.standings
        ]  # fmt: skip
        note = "Each team by its best submission; finals equal to nine decimals share a rank. Click to sort."
        history = [
            {"submitted": r.submitted.replace("T", " ").split("+")[0], "team": r.team,
             "submission": r.submission, **_numbers(r)}
            for r in board.history
        ]  # fmt: skip
        sections = [
            Section("standings", "Standings", (_table_figure(standings, "Standings", note),)),
            Section(
                "history", "History", (_table_figure(history, "History", "In the order of submission, UTC."),)
            ),
        ]
    if board.stale:
        old = [
            {"team": s.record.team, "submission": s.record.submission, **_numbers(s.record, clip=True),
             "another one now": ", ".join(s.changed)}
            for s in board.stale
        ]  # fmt: skip
        lead = "Scores made under something that is another now: never ranked with the others."
        sections.append(Section("stale", "Not counted", (_table_figure(old, "Not counted", ""),), lead))
    return sections


def board_section(board: Board) -> Section:
    """The standings alone, for a page about more than the contest."""
    figures = [figure for section in _board_sections(board)[:1] for figure in section.figures]
    return Section("contest", "Patch contest", tuple(figures), rule_text(board.rules))


def _numbers(record: Record, *, clip: bool = False) -> dict[str, Cell]:
    """The numbers of one score by column; `clip`: only those every contest has, whatever its distance."""
    score: Mapping[str, Any] = record.score
    scenarios = score["scenarios"]
    made: dict[str, Cell] = {"final": score["final"]}
    made |= {f"S_e {name}": s["S_e"] for name, s in scenarios.items()}
    made["S_s"] = next(iter(scenarios.values()))["S_s"]
    distance = score["distance"]
    made |= (
        {"distance": f"{distance['name']} {distance['value']:.4g}"}
        if clip
        else {distance["name"]: distance["value"]}
    )
    made["pixels"] = float(score["changed_pixels"]["mean"])
    return made


def _table_figure(rows: Sequence[Mapping[str, Cell]], name: str, note: str) -> Figure:
    columns = [Column(key, 1 if key == "pixels" else 4) for key in rows[0]]
    body = to_html(Table(columns, [list(row.values()) for row in rows]))
    return Figure("", scroll(body, name), note, wide=True)


def rule_text(rules: Rules) -> str:
    """What the score depends on, in words."""
    members = len(rules.mimic.members) + rules.mimic.hidden
    vote = f"{rules.mimic.least} of {members} members have one of its class with IoU ≥ {rules.mimic.iou:g}"
    effect, stealth = (f"{scale.low:g}..{scale.high:g}" for scale in (rules.effect, rules.stealth))
    return (
        f"AP by the rule {rules.ap!r} at IoU {rules.iou:g}, detections from score {rules.score:g}, NMS at "
        f"{rules.nms_iou:g}. Mimic model: a box stands when {vote}. At most {rules.pixels} changed pixels an "
        f"image, counted if any channel differs. S_e is cut to {effect}, S_s to {stealth}."
    )
