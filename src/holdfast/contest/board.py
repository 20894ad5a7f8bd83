"""Scores, one file each (entries/TEAM/NNN.json and the table of images as CSV), and the leaderboard."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from holdfast.contest.contest import Contest, Hashes, Phase, hashes_of, open_contest
from holdfast.contest.entry import examine
from holdfast.contest.rules import Rules, read_rules
from holdfast.contest.run import ImageScore, Score, score
from holdfast.core import fingerprint
from holdfast.core.errors import InputError, OutputError
from holdfast.engine.manifest import now
from holdfast.engine.store import to_json, write_atomic
from holdfast.report.tables import Cell, Column, Table, table_of, to_csv

ENTRIES = "entries"
DIGITS = 9  # decimals to which equal finals share a rank


@dataclass(frozen=True)
class ScoreRecord:
    """A saved score: its file, the submission, its times, its numbers, and the path of the zip."""

    path: Path
    team: str
    number: int  # of the score, from 1
    submission: int  # of the zip; a rescore has another number, not another submission
    submitted: str  # ISO 8601, UTC
    scored: str
    archive: str  # path of the zip: relative to the contest's folder if it was copied, else absolute
    sha256: str  # of the zip
    hashes: Hashes
    score: dict[str, Any]  # from `Score.to_plain`

    @property
    def final(self) -> float:
        """The final score."""
        return float(self.score["final"])


def read_ledger(folder: Path) -> tuple[ScoreRecord, ...]:
    """All scores, by team and number; raise InputError for a file that cannot be read."""
    paths = sorted((folder / ENTRIES).glob("*/*.json"))
    return tuple(sorted((_read(p) for p in paths), key=lambda r: (r.team, r.number)))


def _read(path: Path) -> ScoreRecord:
    try:
        plain = orjson.loads(path.read_bytes())
        score = plain["score"]
        float(score["final"])
        rest = {k: plain[k] for k in ("team", "number", "submission", "submitted", "scored", "archive")}
        hashes, sha256 = Hashes(**score["hashes"]), score["archive_sha256"]
        return ScoreRecord(path=path, sha256=sha256, hashes=hashes, score=score, **rest)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(f"{path}: not written by `holdfast contest score` ({problem}); remove it") from None


def enter(folder: Path, archive: Path, score: Score, *, keep: bool = True) -> ScoreRecord:
    """Save a new submission and return its record; the zip is copied to the folder unless `keep` is False.

    If the zip is the one of the team's last submission, it counts as that submission, scored again.
    """
    own = [r for r in read_ledger(folder) if r.team == score.team]
    where = _copy_archive(folder, archive, score) if keep else str(archive.resolve())
    last = max(own, key=lambda r: r.submission, default=None)
    if last is not None and last.sha256 == score.archive:
        return write_record(folder, score, last.submission, last.submitted, where)
    return write_record(folder, score, last.submission + 1 if last else 1, "", where)


def images_csv(rows: tuple[ImageScore, ...]) -> str:
    """The table of images as CSV."""
    return to_csv(table_of([row.to_plain() for row in rows]))


def _copy_archive(folder: Path, archive: Path, score: Score) -> str:
    """Copy the zip to the folder and return its path inside it; identical zips are stored once."""
    inside = f"{ENTRIES}/{score.team}/zips/{score.archive[:16]}/{archive.name}"
    target = folder / inside
    try:
        if target.is_file() and fingerprint.of_file(target) == score.archive:
            return inside
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            shutil.copyfile(archive, part)
            if fingerprint.of_file(part) != score.archive:
                raise InputError(f"{archive}: changed after it was scored; score it again")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as problem:
        hint = "use --no-keep to store only its path"
        text = f"{target}: the zip could not be copied: {problem.strerror}; {hint}"
        raise OutputError(text) from problem
    return inside


def write_record(folder: Path, score: Score, submission: int, submitted: str, archive: str) -> ScoreRecord:
    """Write a score under the next free number; without a time it is submitted now. Return its record."""
    home = folder / ENTRIES / score.team
    home.mkdir(parents=True, exist_ok=True)
    number = max((int(p.stem) for p in home.glob("*.json") if p.stem.isdecimal()), default=0) + 1
    time = now()
    plain = {"team": score.team, "submission": submission, "submitted": submitted or time, "scored": time}
    while True:
        path = home / f"{number:03d}.json"
        content = {**plain, "number": number, "archive": archive, "score": score.to_plain()}
        part = home / f".{number:03d}.{os.getpid()}.part"
        write_atomic(part, to_json(content, indent=True))
        try:
            os.link(part, path)  # fails if another process took the number meanwhile
        except FileExistsError:
            number += 1
            continue
        except OSError:  # a disk without links
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        write_atomic(path.with_suffix(".csv"), images_csv(score.rows).encode(), durable=False)
        return _read(path)


@dataclass(frozen=True)
class Standing:
    """A team's rank, with its best and last submission under the current rules."""

    rank: int
    team: str
    best: ScoreRecord
    last: ScoreRecord
    submissions: int


@dataclass(frozen=True)
class StaleScore:
    """A score under other rules, models, data, feature network or code; it is not ranked."""

    record: ScoreRecord
    changed: tuple[str, ...]  # what has changed: "rules", "models", "data", "features", "code"


@dataclass(frozen=True)
class Board:
    """The standings of one contest; all their scores have the same hashes, hence the same distance."""

    rules: Rules
    hashes: Hashes
    standings: tuple[Standing, ...]
    history: tuple[ScoreRecord, ...]  # every current score, in order of submission
    stale: tuple[StaleScore, ...]  # the latest score of each submission without a current one

    def to_plain(self) -> dict[str, Any]:
        """The board as JSON values."""
        return {
            "contest": self.rules.name,
            "distance": {"name": self.rules.distance, "features_sha256": self.rules.features_sha256},
            "hash": self.hashes.whole,
            "hashes": asdict(self.hashes),
            "board": [
                {key: getattr(s, key) for key in ("rank", "team", "submissions")}
                | {"best": plain(s.best), "last": plain(s.last)}
                for s in self.standings
            ],
            "history": [{"team": r.team, **plain(r)} for r in self.history],
            "stale": [{"team": s.record.team, "changed": s.changed, **plain(s.record)} for s in self.stale],
        }


def plain(record: ScoreRecord) -> dict[str, Any]:
    """A record's numbers, without the table of images."""
    keys = ("final", "scenarios", "distance", "changed_pixels", "archive_sha256")
    when = {"submission": record.submission, "submitted": record.submitted, "scored": record.scored}
    return {**when, **{key: record.score[key] for key in keys}}


def board(folder: Path) -> Board:
    """The leaderboard of the contest in a folder."""
    rules = read_rules(folder)
    hashes = hashes_of(folder, rules)
    # One score per submission: the last under these hashes, or else the last of all.
    current: dict[tuple[str, int, str], ScoreRecord] = {}
    old: dict[tuple[str, int, str], ScoreRecord] = {}
    for record in read_ledger(folder):
        # With the zip's hash: two zips scored at the same time can have the same number.
        submission = record.team, record.submission, record.sha256
        (current if record.hashes == hashes else old)[submission] = record
    old = {submission: record for submission, record in old.items() if submission not in current}
    counted = sorted(current.values(), key=lambda r: (r.submitted, r.team, r.submission, r.number))
    stale = [
        StaleScore(r, tuple(key for key, value in asdict(hashes).items() if value != getattr(r.hashes, key)))
        for r in old.values()
    ]
    rows = []
    for team in sorted({record.team for record in counted}):
        own = sorted((r for r in counted if r.team == team), key=lambda r: (r.submission, r.number))
        best = max(own, key=lambda r: round(r.final, DIGITS))  # of equal ones the first
        rows.append((-round(best.final, DIGITS), team, best, own[-1], len(own)))
    rows.sort(key=lambda row: row[:2])
    finals = [row[0] for row in rows]
    standings = tuple(Standing(finals.index(row[0]) + 1, *row[1:]) for row in rows)
    return Board(rules, hashes, standings, tuple(counted), tuple(stale))


def score_row(record: ScoreRecord, *, name_distance: bool = False) -> dict[str, Cell]:
    """The numbers of one score by column; with `name_distance` the distance is a text that has its name."""
    score = record.score
    scenarios, name, value = score["scenarios"], score["distance"]["name"], score["distance"]["value"]
    return {
        "final": score["final"],
        **{f"S_e {key}": s["S_e"] for key, s in scenarios.items()},
        "S_s": next(iter(scenarios.values()))["S_s"],
        **({"distance": f"{name} {value:.4g}"} if name_distance else {name: value}),
        "pixels": float(score["changed_pixels"]["mean"]),
    }


def record_row(record: ScoreRecord, *, name_distance: bool = False) -> dict[str, Cell]:
    """Team, submission and numbers of one score."""
    numbers = score_row(record, name_distance=name_distance)
    return {"team": record.team, "submission": record.submission, **numbers}


def standing_row(standing: Standing) -> dict[str, Cell]:
    """Rank, team, the best entry with its numbers, and the last one."""
    return {
        "rank": standing.rank,
        "team": standing.team,
        **score_row(standing.best),
        "best": standing.best.submission,
        "last": standing.last.submission,
        "last final": standing.last.final,
        "submissions": standing.submissions,
    }


def board_table(board: Board) -> Table:
    """One row per team, best first."""
    caption = f"{board.rules.name}: {board.rules.distance} (features {board.rules.features_sha256[:12]})"
    if not board.standings:
        return Table(["rank", "team", "final"], [], f"{caption}; no entries yet")
    return _table([standing_row(standing) for standing in board.standings], caption)


def history_table(board: Board) -> Table:
    """Every current score, in order of submission."""
    return _table([{"submitted": r.submitted, **record_row(r)} for r in board.history], "history")


def records_table(records: Sequence[ScoreRecord]) -> Table:
    """A few scores."""
    return _table([record_row(record) for record in records])


def _table(rows: Sequence[dict[str, Any]], caption: str = "") -> Table:
    return rows_table([{**row, "pixels": round(row["pixels"], 1)} for row in rows], caption)


def rows_table(rows: Sequence[dict[str, Any]], caption: str = "") -> Table:
    """Rows of one kind as a table."""
    columns = [Column(name, 1 if name == "pixels" else 4) for name in (rows[0] if rows else ("team",))]
    return Table.of(rows, columns, caption)


def rescore(folder: Path, phase: Phase, jobs: int = 0) -> tuple[ScoreRecord | str, ...]:
    """Rescore all submissions without a current score, in order of submission: new records or problems."""
    stale = [old.record for old in board(folder).stale]
    if not stale:
        return ()
    contest, records = open_contest(folder), sorted(stale, key=lambda r: (r.submitted, r.team, r.submission))
    return tuple(_rescore_one(contest, record, phase, jobs) for record in records)


def _rescore_one(contest: Contest, record: ScoreRecord, phase: Phase, jobs: int) -> ScoreRecord | str:
    path = contest.folder / record.archive  # an absolute path stays as it is
    label = f"{record.team}, submission {record.submission}"
    if not path.is_file():
        return f"{label}: its zip is missing ({path}); not rescored"
    if fingerprint.of_file(path) != record.sha256:
        return f"{label}: {path} has changed since it was scored; not rescored"
    problems = examine(path, contest.folder, contest.rules).problems
    if problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        return f"{label}: not valid under these rules: {problems[0]}{more}"
    try:
        with phase(f"{record.team} {record.submission}", len(contest.shots)) as step:
            result = score(contest, path, step, jobs)
    except InputError as problem:
        return f"{label}: {problem}"
    return write_record(contest.folder, result, record.submission, record.submitted, record.archive)
