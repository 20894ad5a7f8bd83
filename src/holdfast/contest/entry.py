"""An entry: its file names, all of its problems in one run, and packing it from a folder."""

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
_RESERVED = re.compile(r"(?i)con|prn|aux|nul|com[0-9]|lpt[0-9]")  # not allowed as folder names on Windows
BOMBS = ("packed-longer", "png-longer")  # never accidental: the examination ends at the first


def team_of(name: str) -> str | None:
    """The team in the name advimages_TEAM.zip; None for any other name."""
    plain = unicodedata.normalize("NFC", name)  # macOS decomposes names: e and ´ for é
    team = plain.removeprefix("advimages_").removesuffix(".zip")
    return team if plain == f"advimages_{team}.zip" and is_team(team) else None


def is_team(team: str) -> bool:
    """Whether this is a valid team name: it must work as a file and folder name on any system."""
    plain = unicodedata.normalize("NFC", team)
    if not 1 <= len(plain) <= 64 or plain != unicodedata.normalize("NFKC", plain):
        return False
    if len(plain.encode("utf-8", "replace")) > 200 or _RESERVED.fullmatch(plain):
        return False
    return all(c in "-_" or unicodedata.category(c)[0] in "LMN" for c in plain)


def read_numbered(path: Path, rules: Rules) -> tuple[dict[int, ZipInfo], list[Problem]]:
    """The recognisable images of a zip by number, and every problem with a name."""
    images, members = rules.images, read_members(path, rules.images, rules.archive)
    files = [m for m in members if not m.is_dir()]
    base, problems = _base(files)
    junk = [m.filename for m in members if is_junk(m.filename)]
    candidates = [m for m in files if not is_junk(m.filename)]
    problems += _collisions(candidates)
    numbered: dict[int, ZipInfo] = {}
    unexpected, out_of_range = list[str](), list[str]()
    # Correct names first: 17.png is image 17 even if another file claims the number.
    candidates.sort(key=lambda m: _numbered(m.filename) != (base, m.filename.removeprefix(base)))
    for member in candidates:
        name = member.filename
        folder, expected = _numbered(name)
        if folder != base or not expected:
            unexpected.append(name)
        elif 1 <= int(expected[:-4]) <= images:
            problems += _misnamed(name, name.removeprefix(base), expected)
            numbered.setdefault(int(expected[:-4]), member)
        else:
            out_of_range.append(name)
    folders = [m.filename for m in members if m.is_dir() and m.filename != FOLDER and not is_junk(m.filename)]
    unexpected += [name for name in folders if not base.startswith(name)]  # x/ is reported with x/images/
    missing = [f"{number}.png" for number in range(1, images + 1) if number not in numbered]
    nested = [name for name in unexpected if name.lower().endswith(_ARCHIVES)]
    others = [name for name in unexpected if name not in nested]
    groups = {
        "missing": missing,
        "number": out_of_range,
        "junk": junk,
        "nested": nested,
        "unexpected": others,
    }
    for kind, names in groups.items():
        if names:
            shown = names
            if kind == "junk":
                macos = [name for name in junk if "__MACOSX" in name.split("/")]
                shown = ["__MACOSX/"] * bool(macos) + sorted(set(junk) - set(macos))
            limit = {"limit": images} if kind == "number" else {}
            problems.append(Problem(kind, "", {"names": listed(shown), "count": len(names), **limit}))
    return dict(sorted(numbered.items())), problems


def _base(files: Sequence[ZipInfo]) -> tuple[str, list[Problem]]:
    """The folder of the images, and a problem if it has the wrong name."""
    locations = (_numbered(m.filename) for m in files if not is_junk(m.filename))
    folders = Counter(folder for folder, expected in locations if expected)
    if not folders or FOLDER in folders:
        return FOLDER, []
    base = min(folders, key=lambda folder: (-folders[folder], folder))
    return base, [Problem("folder", "", {"got": printable(base)}) if base else Problem("folder-none")]


def _numbered(name: str) -> tuple[str, str]:
    """The folder of a file and its correct name N.png, empty if it is not a numbered image."""
    folder, slash, last = name.rpartition("/")
    match = _NUMBERED.fullmatch(last)
    return folder + slash, f"{int(match[1])}.png" if match and match[2].lower() in _PICTURES else ""


def _misnamed(name: str, got: str, expected: str) -> Iterator[Problem]:
    digits, _, ending = got.partition(".")
    if digits != expected[:-4]:
        yield Problem("zeros", name, {"want": expected})
    if ending == ending.upper() and ending.lower() == "png":
        yield Problem("upper", name, {"want": expected})
    elif ending != "png":
        yield Problem("extension", name, {"want": expected})


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
    """A submission: the zip, and the file in it for each numbered image."""

    path: Path
    team: str
    size: Size
    members: dict[int, ZipInfo] = field(repr=False)

    def image(self, number: int) -> Image:
        """The pixels (h, w, 3) uint8 of image `number`; EntryError if the contest does not allow the file."""
        return read_image(self.path, self.members[number], self.size)


def open_entry(path: Path, rules: Rules) -> Entry:
    """The entry in this zip; raise EntryError if a file is missing, unexpected or misnamed."""
    numbered, problems = read_numbered(path, rules)
    team = team_of(path.name)
    if team is None:
        raise EntryError(Problem("zip-name", path.name))
    if problems:
        raise EntryError(*problems, archive=path.name)
    return Entry(path, team, Size(rules.width, rules.height), numbered)


@dataclass(frozen=True)
class Examination:
    """The result of examining an entry: its problems, and the changed pixels of each image by number."""

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
            verdict = Problem("bad", self.archive, {"count": len(self.problems)}, lang)
            return (*map(str, self.problems), str(verdict))
        facts = {"count": len(self.changed), "largest": self.largest, "mean": self.mean}
        return (str(Problem("good", self.archive, facts, lang)),)


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

    def examine_image(number: int, info: ZipInfo) -> tuple[int | None, tuple[Problem, ...]]:
        """The changed pixels of one image, None if they cannot be counted, and its problems."""
        try:
            image = read_image(path, info, size)
        except EntryError as error:
            return None, error.problems
        count = changed_pixels(original(contest, number, size), image)
        if count <= rules.pixels:
            return count, ()
        return count, (Problem("pixels", info.filename, {"got": count, "limit": rules.pixels}),)

    try:
        numbered, misnamed = read_numbered(path, rules)
    except EntryError as error:
        problems += error.problems
    else:
        problems += misnamed
        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            results = pool.map(examine_image, numbered, numbered.values())
            for number, (count, image_problems) in zip(numbered, results, strict=True):
                if count is not None:
                    changed[number] = count
                problems += image_problems
                progress(1)
                if any(problem.kind in BOMBS for problem in image_problems):
                    pool.shutdown(cancel_futures=True)
                    break
    return Examination(path.name, team, tuple(replace(problem, lang=lang) for problem in problems), changed)


def original(contest: Path, number: int, size: Size) -> Image:
    """The contest's own image `number`; raise DataError if it is missing or invalid."""
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
                info = zipfile.ZipInfo(f"{inside}{file.name}", (1980, 1, 1, 0, 0, 0))
                info.create_system, info.external_attr = 3, 0o100644 << 16
                archive.writestr(info, file.read_bytes())
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
    source = inner if inner.is_dir() else folder
    images, unexpected = dict[int, Path](), list[str]()
    for path in sorted(source.iterdir()):
        name = path.name
        if is_junk(name) or path.resolve() == target.resolve():
            continue
        if _numbered(name)[1] == name != "0.png" and path.is_file():
            images[int(name[:-4])] = path
        else:
            unexpected.append(name + "/" * path.is_dir())
    if unexpected:
        expected = "only images named 1.png, 2.png, … (no leading zeros, lower case)"
        names = f"{len(unexpected)} {'name' if len(unexpected) == 1 else 'names'}"
        raise DataError(f"{source}: expected {expected}, got {listed(unexpected)} ({names})")
    if not images:
        raise DataError(f"{source}: expected images named 1.png, 2.png, …, got none")
    if count := max(images) - len(images):  # it may be millions: a file called 20260101.png
        missing = islice((f"{n}.png" for n in range(1, max(images)) if n not in images), SHOWN + 1)
        raise DataError(f"{source}: missing: {listed(missing)} ({count} {'file' if count == 1 else 'files'})")
    for path in images.values():
        with path.open("rb") as file:
            if file.read(8) != SIGNATURE:
                raise DataError(f"{path}: not a PNG by its content; expected a PNG image")
    return [images[number] for number in sorted(images)]
