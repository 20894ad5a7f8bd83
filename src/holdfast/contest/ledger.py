"""All scores, one file each: entries/TEAM/NNN.json, with the table of images next to it as CSV."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from holdfast.contest.contest import Hashes
from holdfast.contest.run import Row, Score
from holdfast.core import fingerprint
from holdfast.core.errors import InputError, OutputError
from holdfast.engine.manifest import now
from holdfast.engine.store import to_json, write_atomic
from holdfast.report.tables import table_of, to_csv

ENTRIES = "entries"


@dataclass(frozen=True)
class Record:
    """A score in the ledger: which file, which submission of the team, when, what, and where the zip lies."""

    path: Path
    team: str
    number: int  # of the score, from 1
    submission: int  # of the zip; a rescore has another number, not another submission
    submitted: str  # ISO 8601, UTC
    scored: str
    archive: str  # the zip: inside the contest's folder if it was kept, else where it was
    sha256: str  # of the zip
    hashes: Hashes
    score: dict[str, Any]  # what `Score.to_plain` gives

    @property
    def final(self) -> float:
        """The final score."""
        return float(self.score["final"])


def read_ledger(folder: Path) -> tuple[Record, ...]:
    """All scores, by team and number; InputError names a file that cannot be read."""
    paths = sorted((folder / ENTRIES).glob("*/*.json"))
    return tuple(sorted((_read(p) for p in paths), key=lambda r: (r.team, r.number)))


def _read(path: Path) -> Record:
    try:
        plain = orjson.loads(path.read_bytes())
        score = plain["score"]
        float(score["final"])
        rest = {k: plain[k] for k in ("team", "number", "submission", "submitted", "scored", "archive")}
        hashes, sha256 = Hashes(**score["hashes"]), score["archive_sha256"]
        return Record(path=path, sha256=sha256, hashes=hashes, score=score, **rest)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(
            f"{path}: not a score `holdfast contest score` wrote ({problem}); remove it"
        ) from None


def enter(folder: Path, archive: Path, score: Score, *, keep: bool = True) -> Record:
    """The record of a new submission; the zip is copied into the folder unless `keep` is False.

    The zip of the team's last submission once more is that submission, scored again.
    """
    mine = [r for r in read_ledger(folder) if r.team == score.team]
    where = _kept(folder, archive, score) if keep else str(archive.resolve())
    last = max(mine, key=lambda r: r.submission, default=None)
    if last is not None and last.sha256 == score.archive:
        return write_record(folder, score, last.submission, last.submitted, where)
    return write_record(folder, score, last.submission + 1 if last else 1, "", where)


def archive_of(folder: Path, record: Record) -> Path:
    """Where the zip of a record lies."""
    return folder / record.archive  # an absolute path stays as it is


def images_csv(rows: tuple[Row, ...]) -> str:
    """The table of images as CSV."""
    return to_csv(table_of([row.to_plain() for row in rows]))


def _kept(folder: Path, archive: Path, score: Score) -> str:
    """The path inside the folder of the copied zip; equal zips are kept once."""
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
                raise InputError(f"{archive}: was changed after it was scored; score it again")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(
            f"{target}: the zip could not be kept: {problem.strerror}; --no-keep notes only where it lies"
        ) from problem
    return inside


def write_record(folder: Path, score: Score, submission: int, submitted: str, archive: str) -> Record:
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
