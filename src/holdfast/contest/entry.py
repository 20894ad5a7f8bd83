"""An entry: the names in it, everything that is wrong with it, in one run, and its zip from a folder."""

import os
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from zipfile import ZipInfo

from holdfast.contest.archive import read_image, read_members
from holdfast.contest.messages import SHOWN, EntryError, Lang, Problem, listed, printable
from holdfast.contest.png import SIGNATURE, decode
from holdfast.contest.rules import Rules
from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.core.patch import changed_pixels
from holdfast.core.types import Image, Size

FOLDER = "advimages/"
TEAM_RULE = "1 to 64 letters (of any script), digits, - and _"
_NUMBERED = re.compile(r"([0-9]{1,9})\.([A-Za-z]{3,5})")
_PICTURES = ("png", "jpg", "jpeg", "bmp", "gif", "tif", "tiff", "webp", "apng")
_ARCHIVES = (".zip", ".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")
_RESERVED = re.compile(r"(?i)con|prn|aux|nul|com[0-9]|lpt[0-9]")  # no folder can be called so on Windows
BOMBS = ("packed-longer", "png-longer")  # never made by mistake: the examination ends at the first


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


def read_numbered(path: Path, rules: Rules) -> tuple[dict[int, ZipInfo], list[Problem]]:
    """The images of a zip by number, as far as they can be told, and every problem with a name."""
    images, members = rules.images, read_members(path, rules.images, rules.archive)
    files = [m for m in members if not m.is_dir()]
    base, problems = _base(files)
    junk = [m.filename for m in members if is_junk(m.filename)]
    rest = [m for m in files if not is_junk(m.filename)]
    problems += _collisions(rest)
    numbered: dict[int, ZipInfo] = {}
    strange, outside = list[str](), list[str]()
    # The right names first: 17.png is image 17 whatever else calls itself so.
    for member in sorted(rest, key=lambda m: _numbered(m.filename) != (base, m.filename.removeprefix(base))):
        name = member.filename
        home, want = _numbered(name)
        if home != base or not want:
            strange.append(name)
        elif 1 <= int(want[:-4]) <= images:
            problems += _misnamed(name, name.removeprefix(base), want)
            numbered.setdefault(int(want[:-4]), member)
        else:
            outside.append(name)
    folders = [m.filename for m in members if m.is_dir() and m.filename != FOLDER and not is_junk(m.filename)]
    strange += [name for name in folders if not base.startswith(name)]  # x/ of x/images/ is told with it
    missing = [f"{number}.png" for number in range(1, images + 1) if number not in numbered]
    nested = [name for name in strange if name.lower().endswith(_ARCHIVES)]
    apple = [name for name in junk if "__MACOSX" in name.split("/")]
    others = [name for name in strange if name not in nested]
    groups = (
        ("missing", missing, missing),
        ("number", outside, outside),
        ("junk", junk, ["__MACOSX/"] * bool(apple) + sorted(set(junk) - set(apple))),
        ("nested", nested, nested),
        ("unexpected", others, others),
    )
    for kind, names, shown in groups:
        if names:
            limit = {"limit": images} if kind == "number" else {}
            problems.append(Problem(kind, "", {"names": listed(shown), "count": len(names), **limit}))
    return dict(sorted(numbered.items())), problems


def _base(files: Sequence[ZipInfo]) -> tuple[str, list[Problem]]:
    """The folder the images are in, and a problem if it is not called as it should be."""
    placed = (_numbered(m.filename) for m in files if not is_junk(m.filename))
    homes = Counter(home for home, want in placed if want)
    if not homes or FOLDER in homes:
        return FOLDER, []
    base = min(homes, key=lambda home: (-homes[home], home))
    return base, [Problem("folder", "", {"got": printable(base)}) if base else Problem("folder-none")]


def _numbered(name: str) -> tuple[str, str]:
    """The folder of a file, and what it should be called there: N.png, or empty if it is no such image."""
    home, slash, last = name.rpartition("/")
    found = _NUMBERED.fullmatch(last)
    return home + slash, f"{int(found[1])}.png" if found and found[2].lower() in _PICTURES else ""


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


def is_junk(name: str) -> bool:
    """Whether macOS or Windows adds files of this name."""
    parts = name.split("/")
    last = parts[-1]
    return "__MACOSX" in parts or last.startswith("._") or last in (".DS_Store", "Thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class Entry:
    """What a team handed in: the zip, and the file in it for each numbered image."""

    path: Path
    team: str
    size: Size
    members: dict[int, ZipInfo] = field(repr=False)

    def image(self, number: int) -> Image:
        """The pixels (h, w, 3) uint8 of image `number`; EntryError if the contest does not allow the file."""
        return read_image(self.path, self.members[number], self.size)


def open_entry(path: Path, rules: Rules) -> Entry:
    """The entry in this zip; EntryError if a file is missing, superfluous or malformed, in one line."""
    numbered, problems = read_numbered(path, rules)
    team = team_of(path.name)
    if team is None:
        raise EntryError(Problem("zip-name", path.name))
    if problems:
        raise EntryError(*problems, archive=path.name)
    return Entry(path, team, Size(rules.width, rules.height), numbered)


@dataclass(frozen=True)
class Examination:
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
        facts = {"count": len(self.changed), "largest": self.largest, "mean": self.mean}
        verdict = Problem("good", self.archive, facts, lang)
        if self.problems:
            verdict = Problem("bad", self.archive, {"count": len(self.problems)}, lang)
        return (*map(str, self.problems), str(verdict))


def examine(
    path: Path,
    contest: Path,
    rules: Rules,
    lang: Lang = "en",
    jobs: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Examination:
    """All problems of an entry and the changed pixels of its images; a bomb ends the examination.

    `progress` is called after each image. Jobs are threads: zlib and Pillow release the interpreter lock.
    """
    team, size = team_of(path.name), Size(rules.width, rules.height)
    problems = [] if team else [Problem("zip-name", path.name)]
    changed: dict[int, int] = {}

    def look(number: int, info: ZipInfo) -> tuple[int | None, tuple[Problem, ...]]:
        """The changed pixels of one image, None if they cannot be counted, and what is wrong with it."""
        try:
            image = read_image(path, info, size)
        except EntryError as refused:
            return None, refused.problems
        count = changed_pixels(original(contest, number, size), image)
        if count <= rules.pixels:
            return count, ()
        return count, (Problem("pixels", info.filename, {"got": count, "limit": rules.pixels}),)

    try:
        numbered, misnamed = read_numbered(path, rules)
    except EntryError as refused:
        problems += refused.problems
    else:
        problems += misnamed
        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            answers = pool.map(look, numbered, numbered.values())
            for number, (count, found) in zip(numbered, answers, strict=True):
                if count is not None:
                    changed[number] = count
                problems += found
                progress(1)
                if any(problem.kind in BOMBS for problem in found):
                    pool.shutdown(cancel_futures=True)
                    break
    return Examination(path.name, team, tuple(replace(problem, lang=lang) for problem in problems), changed)


def original(contest: Path, number: int, size: Size) -> Image:
    """The contest's own image `number`; DataError if it is not there or not of the contest's kind."""
    path = contest / "images" / f"{number}.png"
    try:
        return decode(path.read_bytes(), size, str(path))
    except OSError as problem:
        raise DataError(f"{path}: expected an image of the contest, got: {problem.strerror}") from None
    except EntryError as problem:
        raise DataError(f"the contest's own image is not as its rules say: {problem}") from None


def pack(folder: Path, team: str, out: Path) -> Path:
    """Write advimages_TEAM.zip into `out` from N.png in the folder or its folder advimages; return its path.

    Names are checked before: numbers from 1 without a gap, nothing else. Files that macOS and Windows add are
    skipped. An older zip of this name is replaced once the new one is complete.
    """
    if not is_team(team):
        raise InputError(f"--team: expected {TEAM_RULE}, got {team!r}")
    target = out / f"advimages_{unicodedata.normalize('NFC', team)}.zip"
    images = _images(folder, target)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_zip(target, FOLDER, images, zip64=False)
    except (OSError, zipfile.LargeZipFile) as problem:
        raise OutputError(f"{target}: cannot be written: {problem}") from None
    return target


def write_zip(path: Path, inside: str, files: Sequence[Path], *, zip64: bool = True) -> None:
    """Write a zip of these files in the folder `inside`: the same bytes for the same files."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # PNG is compressed already; stored, the bytes depend on no version of zlib. No date, no user.
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, allowZip64=zip64) as archive:
            for file in files:
                about = zipfile.ZipInfo(f"{inside}{file.name}", (1980, 1, 1, 0, 0, 0))
                about.create_system, about.external_attr = 3, 0o100644 << 16
                archive.writestr(about, file.read_bytes())
        part.replace(path)
    finally:
        with suppress(OSError):  # the first error is the reason
            part.unlink(missing_ok=True)


def _images(folder: Path, target: Path) -> list[Path]:
    """The images in the order of their numbers; DataError if there is anything else, or a gap."""
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing"
        raise DataError(f"{folder}: expected a folder of 1.png, 2.png, …, got {got}")
    inner = folder / FOLDER.rstrip("/")
    home = inner if inner.is_dir() else folder
    found, strange = dict[int, Path](), list[str]()
    for path in sorted(home.iterdir()):
        name = path.name
        if is_junk(name) or path.resolve() == target.resolve():
            continue
        if _numbered(name)[1] == name != "0.png" and path.is_file():
            found[int(name[:-4])] = path
        else:
            strange.append(name + "/" * path.is_dir())
    if strange:
        raise DataError(
            f"{home}: expected only images named 1.png, 2.png, … (no leading zeros, lower case), "
            f"got {listed(strange)} ({len(strange)} {'name' if len(strange) == 1 else 'names'})"
        )
    if not found:
        raise DataError(f"{home}: expected images named 1.png, 2.png, …, got none")
    count = max(found) - len(found)
    if count:  # it may be millions: a file called 20260101.png
        gone = islice((f"{n}.png" for n in range(1, max(found)) if n not in found), SHOWN + 1)
        raise DataError(f"{home}: missing: {listed(gone)} ({count} {'file' if count == 1 else 'files'})")
    for path in found.values():
        with path.open("rb") as file:
            if file.read(8) != SIGNATURE:
                raise DataError(f"{path}: not a PNG by its content; expected a PNG image")
    return [found[number] for number in sorted(found)]
