"""The names of an entry: the zip's with the team in it, and those of the files inside."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zipfile import ZipInfo

from holdfast.contest.entry.messages import Problem, listed, printable
from holdfast.core.errors import InputError

FOLDER = "advimages/"
TEAM_RULE = "1 to 64 letters (of any script), digits, - and _"
_NUMBERED = re.compile(r"([0-9]{1,9})\.([A-Za-z]{3,5})")
_PICTURES = ("png", "jpg", "jpeg", "bmp", "gif", "tif", "tiff", "webp", "apng")
_ARCHIVES = (".zip", ".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")
_RESERVED = re.compile(r"(?i)con|prn|aux|nul|com[0-9]|lpt[0-9]")  # no folder can be called so on Windows


@dataclass(frozen=True)
class Listing:
    """The numbered images among the files of a zip, and what is wrong with the names."""

    numbered: dict[int, ZipInfo]
    problems: tuple[Problem, ...]


def zip_name(team: str) -> str:
    """The name an entry of this team must have; InputError for a team that cannot be in it."""
    if not is_team(team):
        raise InputError(f"--team: expected {TEAM_RULE}, got {team!r}")
    return f"advimages_{unicodedata.normalize('NFC', team)}.zip"


def team_of(name: str) -> str | None:
    """The team named by advimages_TEAM.zip, None if the name is another."""
    plain = unicodedata.normalize("NFC", name)  # macOS takes names apart: e and ´ for é
    team = plain.removeprefix("advimages_").removesuffix(".zip")
    return team if plain == f"advimages_{team}.zip" and is_team(team) else None


def is_team(team: str) -> bool:
    """Whether this can be a team: it becomes a file's and a folder's name on any system."""
    plain = unicodedata.normalize("NFC", team)
    if not 1 <= len(plain) <= 64 or plain != unicodedata.normalize("NFKC", plain):
        return False
    if len(plain.encode("utf-8", "replace")) > 200 or _RESERVED.fullmatch(plain):
        return False
    return all(c in "-_" or unicodedata.category(c)[0] in "LMN" for c in plain)


def sort_out(members: Sequence[ZipInfo], images: int) -> Listing:
    """The images by number, as far as they can be told, and every problem with a name."""
    files = [m for m in members if not m.is_dir()]
    base, problems = _base(files)
    junk = [m for m in members if is_junk(m.filename)]
    rest = [m for m in files if not is_junk(m.filename)]
    problems += _collisions(rest)
    numbered: dict[int, ZipInfo] = {}
    strange, outside = list[str](), list[str]()
    # The right names first: 17.png is image 17 whatever else calls itself so.
    for member in sorted(rest, key=lambda m: _wanted(m.filename, base) != m.filename.removeprefix(base)):
        want = _wanted(member.filename, base)
        if want is None:
            strange.append(member.filename)
            continue
        number = int(want[:-4])
        if 1 <= number <= images:
            problems += _misnamed(member.filename, member.filename.removeprefix(base), want)
            numbered.setdefault(number, member)
        else:
            outside.append(member.filename)
    folders = [m.filename for m in members if m.is_dir() and m.filename != FOLDER and not is_junk(m.filename)]
    strange += [name for name in folders if not base.startswith(name)]  # x/ of x/images/ is told with it
    problems += _missing(numbered, images)
    if outside:
        shown: dict[str, str | int] = {"names": listed(outside), "count": len(outside), "limit": images}
        problems += [Problem("number", facts=shown)]
    problems += _unexpected(strange, junk)
    return Listing(dict(sorted(numbered.items())), tuple(problems))


def _base(files: Sequence[ZipInfo]) -> tuple[str, list[Problem]]:
    """The folder the images are in, and a problem if it is not called as it should be."""
    homes: Counter[str] = Counter()
    for member in files:
        home, last = _split(member.filename)
        if not is_junk(member.filename) and _number(last):
            homes[home] += 1
    if not homes or FOLDER in homes:
        return FOLDER, []
    base = min(homes, key=lambda home: (-homes[home], home))
    return base, [Problem("folder", "", {"got": printable(base)}) if base else Problem("folder-none")]


def _split(name: str) -> tuple[str, str]:
    home, slash, last = name.rpartition("/")
    return home + slash, last


def _number(last: str) -> re.Match[str] | None:
    found = _NUMBERED.fullmatch(last)
    return found if found and found[2].lower() in _PICTURES else None


def _wanted(name: str, base: str) -> str | None:
    """What a numbered file in the base folder should be called there, None if it is no such file."""
    home, last = _split(name)
    found = _number(last) if home == base else None
    return f"{int(found[1])}.png" if found else None


def _misnamed(name: str, got: str, want: str) -> Iterator[Problem]:
    digits, _, ending = got.partition(".")
    if digits != want[:-4]:
        yield Problem("zeros", name, {"want": want})
    if ending == ending.upper() and ending.lower() == "png":
        yield Problem("upper", name, {"want": want})
    elif ending != "png":
        yield Problem("extension", name, {"want": want})


def _collisions(files: Sequence[ZipInfo]) -> Iterator[Problem]:
    counts = Counter(m.filename for m in files)
    yield from (Problem("twice", name, {"count": count}) for name, count in counts.items() if count > 1)
    first: dict[str, str] = {}
    for name in counts:
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        if first.setdefault(key, name) != name:
            yield Problem("alike", name, {"other": printable(first[key])})


def _missing(numbered: dict[int, ZipInfo], images: int) -> Iterator[Problem]:
    gone = [f"{number}.png" for number in range(1, images + 1) if number not in numbered]
    if gone:
        yield Problem("missing", "", {"names": listed(gone), "count": len(gone)})


def is_junk(name: str) -> bool:
    """Whether macOS or Windows adds files of this name."""
    parts = name.split("/")
    last = parts[-1]
    return "__MACOSX" in parts or last.startswith("._") or last in (".DS_Store", "Thumbs.db", "desktop.ini")


def _unexpected(strange: Sequence[str], junk: Sequence[ZipInfo]) -> Iterator[Problem]:
    apple = [m.filename for m in junk if "__MACOSX" in m.filename.split("/")]
    shown = ["__MACOSX/"] * bool(apple) + sorted({m.filename for m in junk} - set(apple))
    if junk:
        yield Problem("junk", "", {"names": listed(shown), "count": len(junk)})
    nested = [name for name in strange if name.lower().endswith(_ARCHIVES)]
    others = [name for name in strange if name not in nested]
    for kind, names in (("nested", nested), ("unexpected", others)):
        if names:
            yield Problem(kind, "", {"names": listed(names), "count": len(names)})
