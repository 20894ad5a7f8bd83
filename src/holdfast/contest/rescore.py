"""Scores made anew after a change of rules, models or code; what was scored before stays in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.contest.board import board
from holdfast.contest.contest import Contest, open_contest
from holdfast.contest.entry.validate import examine
from holdfast.contest.ledger import Record, archive_of, enter_again
from holdfast.contest.pool import Phase
from holdfast.contest.run import score
from holdfast.core import fingerprint
from holdfast.core.errors import InputError


@dataclass(frozen=True)
class Outcome:
    """What became of one submission: its new record, or why there is none."""

    before: Record
    after: Record | None
    problem: str = ""


def to_rescore(folder: Path) -> tuple[Record, ...]:
    """The submissions without a score under the contest as it is now, in the order they were made."""
    found = [stale.record for stale in board(folder).stale]
    return tuple(sorted(found, key=lambda r: (r.submitted, r.team, r.submission)))


def rescore(folder: Path, phase: Phase, jobs: int = 0) -> tuple[Outcome, ...]:
    """What became of every submission that needed a new score."""
    records = to_rescore(folder)
    if not records:
        return ()
    contest = open_contest(folder)
    return tuple(_again(contest, record, phase, jobs) for record in records)


def _again(contest: Contest, record: Record, phase: Phase, jobs: int) -> Outcome:
    path = archive_of(contest.folder, record)
    what = f"{record.team}, submission {record.submission}"
    if not path.is_file():
        return Outcome(record, None, f"{what}: its zip is gone ({path}); not scored again")
    if fingerprint.of_file(path) != record.sha256:
        return Outcome(record, None, f"{what}: {path} is another zip than was scored; not scored again")
    problems = examine(path, contest.folder, contest.rules).problems
    if problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        return Outcome(record, None, f"{what}: not good under these rules: {problems[0]}{more}")
    try:
        with phase(f"{record.team} {record.submission}", len(contest.shots)) as step:
            made = score(contest, path, step, jobs)
    except InputError as problem:
        return Outcome(record, None, f"{what}: {problem}")
    return Outcome(record, enter_again(contest.folder, record, made))
