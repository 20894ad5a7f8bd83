"""Summary of a dataset: counts, classes, sizes and problems, from the headers of all images."""

import contextlib
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.dataset import DataProblem, Dataset, Entry
from holdfast.core.errors import ImageError
from holdfast.core.model import Task
from holdfast.core.types import Boxes, Ints, Label, MaskFile, Size
from holdfast.data import problems as kinds
from holdfast.data.entries import FileEntry, PixelBoxes, StoredLabel, UnitBoxes, read_image_file
from holdfast.data.images import ImageHeader, has_end_mark, is_cut_off, misnamed, sniff, sniff_head
from holdfast.data.problems import NOTES, Problems, check_inside, grouped

SMALL, LARGE = 32**2, 96**2  # COCO's area limits of small, medium and large boxes, in pixels
_TALLIED = ("boxes", "crowd", "difficult", "small", "medium", "large", "without_objects")


@dataclass(frozen=True)
class SizeRange:
    """The smallest, the middle and the largest of some image sizes (by area), and how often each occurs."""

    smallest: Size
    median: Size
    largest: Size
    distinct: tuple[tuple[Size, int], ...]  # the most frequent first


@dataclass(frozen=True)
class DataInfo:
    """Summary of a dataset."""

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
    sizes: SizeRange | None
    small: int  # boxes with an area up to 32², up to 96², and above
    medium: int
    large: int
    problems: tuple[DataProblem, ...]

    @property
    def faults(self) -> int:
        """How many problems are more than notes."""
        return sum(problem.kind not in NOTES for problem in self.problems)


def describe(dataset: Dataset, *, threads: int = 8) -> DataInfo:
    """Summary of a dataset, from every image's header."""
    counts, sizes, formats = Counter[int](), Counter[Size](), Counter[str]()
    tally, problems = Counter[str](), list(dataset.problems)
    size = max(1, min(256, len(dataset) // (4 * threads)))
    blocks = [dataset.entries[start : start + size] for start in range(0, len(dataset), size)]
    with ThreadPoolExecutor(threads) as pool:  # reading waits for the disk
        looks = pool.map(lambda block: [_look_at(entry) for entry in block], blocks)
        for look in chain.from_iterable(looks):
            problems += look.problems
            if look.sniffed is not None:
                sizes[look.sniffed.size] += 1
                formats[look.sniffed.format] += 1
            _count(look.truth, counts, tally)
    names = dataset.classes or tuple(str(key) for key in range(max(counts, default=-1) + 1))
    return DataInfo(
        name=dataset.name,
        format=dataset.format,
        task=dataset.task,
        images=sizes.total(),
        unreadable=len(dataset) - sizes.total(),
        classes=tuple((name, counts[key]) for key, name in enumerate(names)),
        formats=tuple(formats.most_common()),
        sizes=_extent(sizes),
        problems=tuple(problem for group in grouped(problems).values() for problem in group),
        **{key: tally[key] for key in _TALLIED},
    )


def as_dict(info: DataInfo) -> dict[str, Any]:
    """The summary as plain values for JSON, with the problems by kind."""
    plain = asdict(info)
    plain["classes"] = [{"name": name, "count": count} for name, count in info.classes]
    plain["formats"] = dict(info.formats)
    if info.sizes is not None:
        plain["sizes"] = {key: list(getattr(info.sizes, key)) for key in ("smallest", "median", "largest")}
        plain["sizes"]["distinct"] = [[*size, count] for size, count in info.sizes.distinct]
    plain["faults"] = info.faults
    plain["problems"] = []
    for kind, group in grouped(info.problems).items():
        listed = [{"where": problem.where, "what": problem.what} for problem in group]
        plain["problems"].append({"kind": kind, "note": kind in NOTES, "count": len(group), "all": listed})
    return plain


def text(info: DataInfo, *, most: int = 10) -> str:
    """The summary as text; at most `most` problems of each kind are listed."""
    rows = [("dataset", info.name), ("format", info.format), ("task", info.task)]
    unreadable = f" ({info.unreadable} more cannot be read)" if info.unreadable else ""
    rows.append(("images", f"{info.images:,}{unreadable}"))
    rows.append(("files", ", ".join(f"{name} {count:,}" for name, count in info.formats) or "none"))
    if (sizes := info.sizes) is not None:
        three = " · ".join(map(_by, (sizes.smallest, sizes.median, sizes.largest)))
        common_sizes = ", ".join(f"{_by(size)} ({count:,})" for size, count in sizes.distinct[:5])
        rest = len(sizes.distinct) - 5
        more = f", and {rest:,} more sizes" if rest > 0 else ""
        rows += [("sizes", f"{three}  (smallest · median · largest)"), ("", common_sizes + more)]
    if info.task in ("detect", "single"):
        flags = [f"{n:,} {name}" for name, n in (("crowd", info.crowd), ("difficult", info.difficult)) if n]
        rows.append(("boxes", f"{info.boxes:,}" + (f" ({', '.join(flags)})" if flags else "")))
        rows.append(("box areas", f"small {info.small:,} · medium {info.medium:,} · large {info.large:,}"))
        rows.append(("no objects", f"{info.without_objects:,} images"))
    rows.append(("classes", f"{len(info.classes):,}"))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += [*_class_lines(info), f"problems  {info.faults:,}"]
    for kind, group in grouped(info.problems).items():
        lines.append(f"  {kind}: {len(group):,}{' (note)' if kind in NOTES else ''}")
        lines += [f"    {problem}" for problem in group[:most]]
        if len(group) > most:
            lines.append(f"    … and {len(group) - most:,} more")
    return "\n".join(lines)


def _count(truth: Boxes | Label | Ints | None, counts: Counter[int], tally: Counter[str]) -> None:
    if isinstance(truth, Boxes):
        counts.update(truth.classes.tolist())
        medium, large = truth.areas > SMALL, truth.areas > LARGE
        sums = (truth.crowd, truth.difficult, ~medium, medium & ~large, large)
        added = (len(truth), *(int(flags.sum()) for flags in sums), int(len(truth) == 0))
        tally.update(dict(zip(_TALLIED, added, strict=True)))
    elif isinstance(truth, Label):
        counts[truth.index] += 1
    elif truth is not None:
        counts.update({key: int(truth[key]) for key in np.flatnonzero(truth).tolist()})


def _extent(sizes: Counter[Size]) -> SizeRange | None:
    if not sizes:
        return None
    ordered = sorted(sizes, key=lambda size: (size.width * size.height, size))
    middle = bisect_left(list(accumulate(sizes[size] for size in ordered)), (sizes.total() + 1) // 2)
    frequent = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return SizeRange(ordered[0], ordered[middle], ordered[-1], tuple(frequent))


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
    if absent and (present or info.task != "segment"):  # undecoded masks give no class counts
        lines.append(f"  … and {absent:,} that do not occur")
    return lines


_HEAD_BYTES, _TAIL_BYTES = 32 << 10, 4 << 10


class _EntryInfo(NamedTuple):
    """Contents of one entry; `sniffed` and `truth` are None if it cannot be read."""

    sniffed: ImageHeader | None
    truth: Boxes | Label | Ints | None  # or the pixels by class id of an embedded mask
    problems: Sequence[DataProblem] = ()


def _look_at(entry: Entry) -> _EntryInfo:
    try:
        if isinstance(entry, FileEntry):
            return _look_at_file(entry)
        sample = entry.load()
        truth: Boxes | Label | MaskFile | Ints = sample.truth
        if isinstance(truth, MaskFile):
            from PIL import Image as Pillow

            with Pillow.open(BytesIO(truth.data)) as picture:
                truth = np.bincount(np.asarray(picture).ravel())  # pixels by value
        return _EntryInfo(sniff(sample.data, sample.name), truth)
    except ImageError as problem:
        text = str(problem)
        kind = kinds.EMPTY_FILE if "(0 bytes)" in text else kinds.UNREADABLE_IMAGE
        for prefix in (entry.name, getattr(entry, "path", entry.name)):
            text = text.removeprefix(f"{prefix}: ")
        return _EntryInfo(None, None, [DataProblem(kind, entry.name, text)])


def _look_at_file(entry: FileEntry) -> _EntryInfo:
    sniffed, cut_off = _sniff_file(entry.path, entry.name)
    problems = Problems()
    for note in (*misnamed(sniffed, entry.path), *sniffed.notes):
        problems.add(kinds.ODD_IMAGE, entry.name, note)
    if cut_off:
        message = f"the {sniffed.format} file has no end marker; it is probably truncated"
        problems.add(kinds.TRUNCATED_IMAGE, entry.name, message)
    if entry.size is not None and entry.size != sniffed.size:
        message = f"the annotations say {_by(entry.size)}, the image is {_by(sniffed.size)}"
        problems.add(kinds.SIZE_DIFFERS, entry.name, message)
    truth: Boxes | Label | None = None
    if isinstance(entry.truth, PixelBoxes | UnitBoxes):
        truth = entry.truth.scaled(sniffed.size)
        if isinstance(entry.truth, PixelBoxes) and entry.size != sniffed.size:
            # otherwise the reader has checked them already
            for number, box in enumerate(truth.xyxy.tolist(), 1):
                check_inside(box, sniffed.size, f"{entry.name}: box {number}", problems)
    elif isinstance(entry.truth, StoredLabel):
        truth = Label(entry.truth.index)
    else:
        path = entry.truth.path
        mask, _ = _sniff_file(path, path)
        if mask.mode not in ("L", "P", "1", "I", "I;16"):
            message = f"the mask {path} is a colour image ({mask.mode}); expected one channel of class ids"
            problems.add(kinds.UNREADABLE_LABEL, entry.name, message)
        elif mask.size != sniffed.size:
            message = f"the mask is {_by(mask.size)}, the image {_by(sniffed.size)}"
            problems.add(kinds.SIZE_DIFFERS, entry.name, message)
    return _EntryInfo(sniffed, truth, problems)


def _sniff_file(path: str, name: str) -> tuple[ImageHeader, bool]:
    """The file's header, and whether the file is truncated, from its first and last kilobytes."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:  # noqa: PTH123 (paths are kept as text)
        head = stream.read(_HEAD_BYTES)
        header = sniff_head(head, name) if head else None
        if header is not None:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            if has_end_mark(header.format, stream.read(_TAIL_BYTES)):
                return header, False
    data = read_image_file(path)
    return sniff(data, name), is_cut_off(data)
