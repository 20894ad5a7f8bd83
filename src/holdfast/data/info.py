"""What a data set holds: counts, classes, sizes, and every problem found."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from holdfast.core.dataset import Dataset, Problem
from holdfast.core.model import Task
from holdfast.core.types import Boxes, Label, Size
from holdfast.data.problems import NOTES, grouped
from holdfast.data.survey import Look, survey

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
    """What a data set holds."""

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
    """What a data set holds, from every image's header; with `decode` from the pixels too."""
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
