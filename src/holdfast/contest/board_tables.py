"""The leaderboard as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.report.tables import Column, Table

if TYPE_CHECKING:
    from holdfast.contest.board import Board
    from holdfast.contest.ledger import Record


def record_row(record: Record) -> dict[str, Any]:
    """The numbers of one score by column."""
    score = record.score
    scenarios = score["scenarios"]
    return {
        "team": record.team,
        "submission": record.submission,
        "final": score["final"],
        **{f"S_e {name}": s["S_e"] for name, s in scenarios.items()},
        "S_s": next(iter(scenarios.values()))["S_s"],
        score["distance"]["name"]: score["distance"]["value"],
        "pixels": round(score["changed_pixels"]["mean"], 1),
    }


def board_table(board: Board) -> Table:
    """Rank, team, the best entry with its numbers, and the last one."""
    rows = []
    for s in board.standings:
        best = record_row(s.best)
        best.pop("team")
        number = best.pop("submission")
        counts = {"best": number, "last": s.last.submission, "last final": s.last.final}
        rows.append({"rank": s.rank, "team": s.team, **best, **counts, "submissions": s.submissions})
    caption = f"{board.rules.name}: {board.rules.distance} (features {board.rules.features_sha256[:12]})"
    if not rows:
        return Table(["rank", "team", "final"], [], f"{caption}; no entries yet")
    return _table(rows, caption)


def history_table(board: Board) -> Table:
    """Every score that counts, in the order of submission."""
    return _table([{"submitted": r.submitted, **record_row(r)} for r in board.history], "history")


def records_table(records: Sequence[Record]) -> Table:
    """A few scores."""
    return _table([record_row(record) for record in records])


def _table(rows: Sequence[dict[str, Any]], caption: str = "") -> Table:
    columns = [Column(name, 1 if name == "pixels" else 4) for name in (rows[0] if rows else ("team",))]
    return Table(columns, [list(row.values()) for row in rows], caption)


def stale_lines(board: Board, folder: Path) -> list[str]:
    """One line for each submission whose score was made under something that is another now."""
    lines = [
        f"{s.record.team}, submission {s.record.submission}, final {s.record.final:.4f}: scored under other "
        f"{' and '.join(s.changed)}; not ranked"
        for s in board.stale
    ]
    return [*lines, f"holdfast contest rescore --contest {folder}"] if lines else []
