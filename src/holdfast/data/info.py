"""What a dataset holds: counts, classes, sizes and problems, from a look at every image, in threads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from io import BytesIO
from typing import Any

import numpy as np

from holdfast.core.dataset import Dataset, Entry, Problem
from holdfast.core.errors import ImageError
from holdfast.core.model import Task
from holdfast.core.types import Boxes, Ints, Label, MaskFile, Size
from holdfast.data import problems as kinds
from holdfast.data.entries import FileEntry, PixelBoxes, StoredLabel, StoredMask, UnitBoxes, read_image_file
from holdfast.data.images import Sniffed, has_end_mark, is_cut_off, misnamed, sniff, sniff_head
from holdfast.data.problems import NOTES, Problems, check_inside, grouped

SMALL, LARGE = 32**2, 96**2  # the areas in pixels at which COCO parts small, medium and large


@dataclass(frozen=True)
class Extent:
    """The smallest, the middle and the largest of some image sizes (by area), and how often each occurs."""

    smallest: Size
    median: Size
    largest: Size
    distinct: tuple[tuple[Size, int], ...]  # the most frequent first


@dataclass(frozen=True)
class DataInfo:
    """What a dataset holds."""

    name: str
    format: str
    task: Task
    images: int  # usable ones: entries whose header could be read
    unreadable: int  # entries that could not
    boxes: int
    crowd: int
    difficult: int
    without_objects: int  # detection: images with no box
    classes: tuple[tuple[str, int], ...]  # name, and objects, images (labels) or pixels (decoded masks)
    formats: tuple[tuple[str, int], ...]  # of the image files, by content
    sizes: Extent | None
    small: int  # boxes with an area up to 32², up to 96², and above
    medium: int
    large: int
    problems: tuple[Problem, ...]

    @property
    def faults(self) -> int:
        """How many problems are more than notes."""
        return sum(problem.kind not in NOTES for problem in self.problems)


def describe(dataset: Dataset, *, decode: bool = False, threads: int = 8) -> DataInfo:
    """What a dataset holds, from every image's header; with `decode` from the pixels too."""
    counts: Counter[int] = Counter()
    sizes: Counter[Size] = Counter()
    formats: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    problems = list(dataset.problems)
    for look in survey(dataset, decode=decode, threads=threads):
        problems += look.problems
        if look.sniffed is not None:
            sizes[look.sniffed.size] += 1
            formats[look.sniffed.format] += 1
        _count(look, counts, tally)
    names = dataset.classes or tuple(str(key) for key in range(max(counts, default=-1) + 1))
    return DataInfo(
        name=dataset.name,
        format=dataset.format,
        task=dataset.task,
        images=sizes.total(),
        unreadable=len(dataset) - sizes.total(),
        boxes=tally["boxes"],
        crowd=tally["crowd"],
        difficult=tally["difficult"],
        without_objects=tally["none"],
        classes=tuple((name, counts[key]) for key, name in enumerate(names)),
        formats=tuple(formats.most_common()),
        sizes=_extent(sizes),
        small=tally["small"],
        medium=tally["medium"],
        large=tally["large"],
        problems=tuple(problem for group in grouped(problems).values() for problem in group),
    )


def as_dict(info: DataInfo) -> dict[str, Any]:
    """The same as plain values for JSON, with the problems by kind."""
    plain = asdict(info)
    plain["classes"] = [{"name": name, "count": count} for name, count in info.classes]
    plain["formats"] = dict(info.formats)
    if (sizes := info.sizes) is not None:
        plain["sizes"] = {
            "smallest": list(sizes.smallest),
            "median": list(sizes.median),
            "largest": list(sizes.largest),
            "distinct": [[*size, count] for size, count in sizes.distinct],
        }
    plain["faults"] = info.faults
    plain["problems"] = [
        {
            "kind": kind,
            "note": kind in NOTES,
            "count": len(group),
            "all": [{"where": p.where, "what": p.what} for p in group],
        }
        for kind, group in grouped(info.problems).items()
    ]
    return plain


def text(info: DataInfo, *, most: int = 10) -> str:
    """The same as rows for people; at most that many problems of a kind are shown in full."""
    rows = [("data set", info.name), ("format", info.format), ("task", info.task)]
    unreadable = f" ({info.unreadable} more cannot be read)" if info.unreadable else ""
    rows.append(("images", f"{info.images:,}{unreadable}"))
    rows.append(("files", ", ".join(f"{name} {count:,}" for name, count in info.formats) or "none"))
    if info.sizes is not None:
        rows += _size_rows(info.sizes)
    if info.task in ("detect", "single"):
        flags = [f"{n:,} {name}" for name, n in (("crowd", info.crowd), ("difficult", info.difficult)) if n]
        rows.append(("boxes", f"{info.boxes:,}" + (f" ({', '.join(flags)})" if flags else "")))
        rows.append(("box areas", f"small {info.small:,} · medium {info.medium:,} · large {info.large:,}"))
        rows.append(("no objects", f"{info.without_objects:,} images"))
    rows.append(("classes", f"{len(info.classes):,}"))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join([*lines, *_class_lines(info), *_problem_lines(info, most)])


def _count(look: Look, counts: Counter[int], tally: Counter[str]) -> None:
    if isinstance(look.truth, Boxes):
        truth, areas = look.truth, look.truth.areas
        counts.update(truth.classes.tolist())
        tally["boxes"] += len(truth)
        tally["none"] += len(truth) == 0
        tally["crowd"] += int(truth.crowd.sum())
        tally["difficult"] += int(truth.difficult.sum())
        tally["small"] += int((areas <= SMALL).sum())
        tally["medium"] += int(((areas > SMALL) & (areas <= LARGE)).sum())
        tally["large"] += int((areas > LARGE).sum())
    elif isinstance(look.truth, Label):
        counts[look.truth.index] += 1
    elif look.pixels is not None:
        for key in np.flatnonzero(look.pixels).tolist():
            counts[key] += int(look.pixels[key])


def _extent(sizes: Counter[Size]) -> Extent | None:
    if not sizes:
        return None
    ordered = sorted(sizes, key=lambda size: (size.width * size.height, size))
    middle, passed = (sizes.total() + 1) // 2, 0
    for median in ordered:
        passed += sizes[median]
        if passed >= middle:
            break
    frequent = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return Extent(ordered[0], median, ordered[-1], tuple(frequent))


def _size_rows(sizes: Extent) -> list[tuple[str, str]]:
    shown = ", ".join(f"{_by(size)} ({count:,})" for size, count in sizes.distinct[:5])
    rest = len(sizes.distinct) - 5
    more = f", and {rest:,} more sizes" if rest > 0 else ""
    three = " · ".join(_by(size) for size in (sizes.smallest, sizes.median, sizes.largest))
    return [("sizes", f"{three}  (smallest · median · largest)"), ("", shown + more)]


def _by(size: Size) -> str:
    return f"{size.width}×{size.height}"


def _class_lines(info: DataInfo, most: int = 100) -> list[str]:
    present = [(name, count) for name, count in info.classes if count]
    unit = {"classify": "images", "segment": "pixels"}.get(info.task, "objects")
    width = max((len(name) for name, _ in present[:most]), default=0)
    lines = [f"  {name:<{width}}  {count:>9,} {unit}" for name, count in present[:most]]
    if len(present) > most:
        lines.append(f"  … and {len(present) - most:,} more that occur")
    absent = len(info.classes) - len(present)
    if absent and (present or info.task != "segment"):  # masks that were not decoded tell nothing
        lines.append(f"  … and {absent:,} that do not occur")
    return lines


def _problem_lines(info: DataInfo, most: int) -> list[str]:
    lines = [f"problems  {info.faults:,}"]
    for kind, group in grouped(info.problems).items():
        lines.append(f"  {kind}: {len(group):,}{' (note)' if kind in NOTES else ''}")
        lines += [f"    {problem}" for problem in group[:most]]
        if len(group) > most:
            lines.append(f"    … and {len(group) - most:,} more")
    return lines


_HEAD_BYTES, _TAIL_BYTES = 32 << 10, 4 << 10


@dataclass(frozen=True)
class Look:
    """What one entry turned out to be; `sniffed` and `truth` are None if it cannot be read."""

    sniffed: Sniffed | None
    truth: Boxes | Label | None
    pixels: Ints | None = None  # pixels by class id, if masks were decoded
    problems: tuple[Problem, ...] = field(default=())


def survey(dataset: Dataset, *, decode: bool = False, threads: int = 8) -> Iterator[Look]:
    """A look at each entry, in order. Header only, unless `decode` asks for the pixels too."""
    size = max(1, min(256, len(dataset) // (4 * threads)))
    blocks = [dataset.entries[start : start + size] for start in range(0, len(dataset), size)]
    with ThreadPoolExecutor(threads) as pool:  # reading waits for the disk; decoding releases the lock
        for looks in pool.map(lambda block: [look_at(entry, dataset, decode) for entry in block], blocks):
            yield from looks


def look_at(entry: Entry, dataset: Dataset, decode: bool) -> Look:
    """What one entry turns out to be."""
    try:
        if isinstance(entry, FileEntry):
            return _look_at_file(entry, dataset, decode)
        sample = entry.load()
        truth = None if isinstance(sample.truth, MaskFile) else sample.truth
        pixels = _count_ids(sample.truth.data, entry.name) if isinstance(sample.truth, MaskFile) else None
        return Look(sniff(sample.data, sample.name), truth, pixels)
    except ImageError as problem:
        text = str(problem)
        kind = kinds.EMPTY_FILE if "(0 bytes)" in text else kinds.UNREADABLE_IMAGE
        for prefix in (entry.name, getattr(entry, "path", entry.name)):
            text = text.removeprefix(f"{prefix}: ")
        return Look(None, None, None, (Problem(kind, entry.name, text),))


def _look_at_file(entry: FileEntry, dataset: Dataset, decode: bool) -> Look:
    sniffed, cut_off = _sniff_file(entry.path, entry.name)
    problems = Problems()
    for note in (*misnamed(sniffed, entry.path), *sniffed.notes):
        problems.add(kinds.ODD_IMAGE, entry.name, note)
    if cut_off:
        said = f"the {sniffed.format} file lacks its end mark: probably cut off"
        problems.add(kinds.TRUNCATED_IMAGE, entry.name, said)
    elif decode and (said := _undecodable(read_image_file(entry.path), sniffed)):
        problems.add(kinds.UNREADABLE_IMAGE, entry.name, said)
    if entry.size is not None and entry.size != sniffed.size:
        said = "the annotations say {}×{}, the image is {}×{}".format(*entry.size, *sniffed.size)
        problems.add(kinds.SIZE_DIFFERS, entry.name, said)
    truth: Boxes | Label | None = None
    pixels = None
    if isinstance(entry.truth, PixelBoxes | UnitBoxes):
        truth = entry.truth.scaled(sniffed.size)
        if isinstance(entry.truth, PixelBoxes) and entry.size != sniffed.size:
            for number, box in enumerate(truth.xyxy.tolist(), 1):  # else the reader has looked already
                check_inside(box, sniffed.size, f"{entry.name}: box {number}", problems)
    elif isinstance(entry.truth, StoredLabel):
        truth = Label(entry.truth.index)
    else:
        pixels = _look_at_mask(entry.truth, entry.name, sniffed, dataset, decode, problems)
    return Look(sniffed, truth, pixels, tuple(problems))


def _sniff_file(path: str, name: str) -> tuple[Sniffed, bool]:
    """What a file's header says, and whether the file is cut off; reads its first and last kilobytes."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 (paths are kept as text)
            head = stream.read(_HEAD_BYTES)
            found = sniff_head(head, name) if head else None
            if found is not None:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(max(0, size - _TAIL_BYTES))
                if has_end_mark(found.format, stream.read(_TAIL_BYTES)):
                    return found, False
    except FileNotFoundError:
        raise ImageError(f"{name}: no such image file") from None
    except OSError as problem:
        raise ImageError(f"{name}: cannot be read: {problem.strerror or problem}") from problem
    data = read_image_file(path)
    return sniff(data, name), is_cut_off(data)


def _look_at_mask(
    mask: StoredMask, name: str, image: Sniffed, dataset: Dataset, decode: bool, problems: Problems
) -> Ints | None:
    found, _ = _sniff_file(mask.path, mask.path)
    if found.mode not in ("L", "P", "1", "I", "I;16"):
        said = f"the mask {mask.path} has colours ({found.mode}); expected one channel of class ids"
        problems.add(kinds.UNREADABLE_LABEL, name, said)
        return None
    if found.size != image.size:
        said = "the mask is {}×{}, the image {}×{}".format(*found.size, *image.size)
        problems.add(kinds.SIZE_DIFFERS, name, said)
    if not decode:
        return None
    counts = _count_ids(read_image_file(mask.path), mask.path)
    known = len(dataset.classes)
    strange = [int(key) for key in np.flatnonzero(counts) if key >= known and key != dataset.ignore_index]
    if known and strange:
        said = f"the mask has the values {strange[:8]}, which are no classes (of {known})"
        problems.add(kinds.UNKNOWN_CLASS, name, said)
    return counts


def _count_ids(data: bytes, name: str) -> Ints:
    """How many pixels of a mask have each value."""
    from PIL import Image as Pillow

    sniff(data, name)  # refuses what is no image or far too large
    try:
        with Pillow.open(BytesIO(data)) as picture:
            values = np.asarray(picture).astype(np.int64)
    except (OSError, ValueError, SyntaxError) as problem:
        raise ImageError(f"{name}: the mask cannot be decoded: {problem}") from None
    return np.bincount(values.ravel(), minlength=1)


def _undecodable(data: bytes, sniffed: Sniffed) -> str:
    """Why an image cannot be decoded, empty if it can."""
    from PIL import Image as Pillow

    Pillow.init()
    try:
        with Pillow.OPEN[sniffed.format][0](BytesIO(data), "") as picture:
            picture.load()
    except (OSError, ValueError, SyntaxError, EOFError) as problem:
        return f"cannot be decoded: {problem}"
    return ""
