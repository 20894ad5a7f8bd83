"""Everything that is wrong with an entry, in one run: zip, names, pictures, changed pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from zipfile import ZipInfo

from holdfast.contest.entry.archive import read_image, read_members
from holdfast.contest.entry.messages import EntryError, Lang, Problem, bad_line, good_line
from holdfast.contest.entry.names import sort_out, team_of
from holdfast.contest.entry.png import decode
from holdfast.contest.rules import Rules
from holdfast.core.errors import DataError
from holdfast.core.patch import changed_pixels
from holdfast.core.types import Image, Size

BOMBS = ("packed-longer", "png-longer")  # never made by mistake: the examination ends at the first


@dataclass(frozen=True)
class Examined:
    """What an examination of an entry found: its problems, and the changed pixels of each image by number."""

    archive: str
    team: str | None
    problems: tuple[Problem, ...]
    changed: Mapping[int, int] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        """The most changed pixels of an image."""
        return max(self.changed.values(), default=0)

    @property
    def mean(self) -> float:
        """The changed pixels of an image on average."""
        return sum(self.changed.values()) / max(len(self.changed), 1)

    def lines(self, lang: Lang = "en") -> tuple[str, ...]:
        """One line for each problem and one about the entry."""
        if self.problems:
            return (*map(str, self.problems), bad_line(self.archive, len(self.problems), lang))
        return (good_line(self.archive, len(self.changed), self.largest, self.mean, lang),)


def examine(
    path: Path,
    contest: Path,
    rules: Rules,
    lang: Lang = "en",
    jobs: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Examined:
    """All problems of an entry and the changed pixels of its images; a bomb ends the examination.

    `progress` is called after each image. Jobs are threads: zlib and Pillow release the interpreter lock.
    """
    team = team_of(path.name)
    problems = [] if team else [Problem("zip-name", path.name)]
    changed: dict[int, int] = {}
    try:
        listing = sort_out(read_members(path, rules.images, rules.archive), rules.images)
    except EntryError as refused:
        problems += refused.problems
    else:
        problems += listing.problems
        look = partial(_look, path, contest, rules)
        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            answers = pool.map(look, listing.numbered, listing.numbered.values())
            for number, (count, found) in zip(listing.numbered, answers, strict=True):
                if count is not None:
                    changed[number] = count
                problems += found
                progress(1)
                if any(problem.kind in BOMBS for problem in found):
                    pool.shutdown(cancel_futures=True)
                    break
    return Examined(path.name, team, tuple(replace(problem, lang=lang) for problem in problems), changed)


def _look(
    path: Path, contest: Path, rules: Rules, number: int, info: ZipInfo
) -> tuple[int | None, tuple[Problem, ...]]:
    """The changed pixels of one image, None if they cannot be counted, and what is wrong with it."""
    size = Size(rules.width, rules.height)
    try:
        image = read_image(path, info, size)
    except EntryError as refused:
        return None, refused.problems
    count = changed_pixels(original(contest, number, size), image)
    if count <= rules.pixels:
        return count, ()
    return count, (Problem("pixels", info.filename, {"got": count, "limit": rules.pixels}),)


def original(contest: Path, number: int, size: Size) -> Image:
    """The contest's own image `number`; DataError if it is not there or not of the contest's kind."""
    path = contest / "images" / f"{number}.png"
    try:
        return decode(path.read_bytes(), size, str(path))
    except OSError as problem:
        raise DataError(f"{path}: expected an image of the contest, got: {problem.strerror}") from None
    except EntryError as problem:
        raise DataError(f"the contest's own image is not as its rules say: {problem}") from None
