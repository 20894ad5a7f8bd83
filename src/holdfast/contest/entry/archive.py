"""An entry of a contest: a checked zip whose images are decoded in memory, one by one, never extracted.

What is refused as a zip says `directory`, what as a name `names`, what as a picture `png`. Whether too many
pixels are changed only `validate` can tell: it has the originals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contest.entry.directory import Packed, read_directory, unpack
from holdfast.contest.entry.messages import EntryError as EntryError
from holdfast.contest.entry.messages import Problem
from holdfast.contest.entry.names import sort_out, team_of
from holdfast.contest.entry.png import HEAD_BYTES, decode, head_problems, longest
from holdfast.contest.rules import Rules
from holdfast.core.types import Image, Size


@dataclass(frozen=True)
class Entry:
    """What a team handed in: the zip, and where in it each numbered image is."""

    path: Path
    team: str
    size: Size
    members: dict[int, Packed] = field(repr=False)

    def __len__(self) -> int:
        return len(self.members)

    def image(self, number: int) -> Image:
        """The pixels (h, w, 3) uint8 of image `number`; EntryError if it is none of the contest's kind."""
        return read_image(self.path, self.members[number], self.size)

    def images(self) -> Iterator[tuple[int, Image]]:
        """Number and pixels of each image, in the order of the numbers."""
        for number in sorted(self.members):
            yield number, self.image(number)


def open_entry(path: Path, rules: Rules) -> Entry:
    """The entry in this zip, all its images there and no other file; EntryError says in one line why not."""
    members = read_directory(path, rules.images, rules.archive)
    listing = sort_out(members, rules.images)
    team = team_of(path.name)
    if team is None:
        raise EntryError(Problem("zip-name", path.name))
    for problem in listing.problems:
        raise EntryError(problem, path.name)
    return Entry(path, team, Size(rules.width, rules.height), listing.numbered)


def read_image(path: Path, member: Packed, size: Size) -> Image:
    """The pixels of one file of the zip; its header is looked at before the rest is unpacked."""
    try:
        for problem in image_problems(path, member, size):
            raise EntryError(problem)
        return decode(unpack(path, member), size, member.name)
    except EntryError as refused:
        raise EntryError(refused.problem, path.name) from None


def image_problems(path: Path, member: Packed, size: Size) -> tuple[Problem, ...]:
    """What the first bytes of a file and its length tell."""
    found = tuple(head_problems(unpack(path, member, HEAD_BYTES), size, member.name))
    if not found and member.bytes > longest(size):
        return (Problem("file-bytes", member.name, {"got": member.bytes, "limit": longest(size)}),)
    return found
