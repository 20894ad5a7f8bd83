"""The instances of a benchmark folder: read from its csv, scaled, sampled."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.errors import InputError
from holdfast.core.model import existing_file

ROWS = "rows of network,specification,seconds"


@dataclass(frozen=True)
class Instance:
    """One question: a network and a specification as the csv in `folder` names them, and the limit in s."""

    category: str
    network: str
    spec: str
    limit: float
    network_path: Path
    spec_path: Path
    folder: Path


def csv_rows(path: Path, expected: str, missing: str) -> list[tuple[int, list[str]]]:
    """The non-blank rows of a csv with their numbers; raise InputError `missing` if there is no file."""
    try:
        lines = list(csv.reader(io.StringIO(path.read_text("utf-8-sig"))))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(missing) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{path}: expected {expected}, got: {problem}") from None
    rows = ((number, [cell.strip() for cell in line]) for number, line in enumerate(lines, 1))
    return [(number, cells) for number, cells in rows if any(cells)]


def stem_of(name: str) -> str:
    """The name of a file, which may be a .gz, without folders and endings."""
    return Path(name.removesuffix(".gz")).stem


def read_instances(path: Path) -> tuple[Instance, ...]:
    """The instances a csv lists (network, specification, seconds), with its files next to it, also as .gz."""
    if path.is_dir():
        listings = sorted(path.glob("*instances.csv"))
        if len(listings) != 1:
            raise InputError(f"{path}: expected one *instances.csv in this folder, got {len(listings)}")
        path = listings[0]
    rows = csv_rows(path, ROWS, f"{path}: no such file; give the instances.csv of a benchmark")
    if rows and rows[0][0] == 1:  # a header has words where others have the seconds
        cells = rows[0][1]
        if len(cells) >= 3 and number_of(cells[2]) is None and not cells[0].endswith((".onnx", ".gz")):
            rows = rows[1:]
    instances = [_instance(path, number, cells) for number, cells in rows]
    if not instances:
        raise InputError(f"{path}: expected {ROWS}, got none")
    return tuple(instances)


def category_of(path: Path) -> str:
    """The benchmark's name: acasxu of acasxu_instances.csv, else the name of the csv's folder."""
    return path.stem.removesuffix("instances").rstrip("_-") or path.resolve().parent.name


def limited(instances: Sequence[Instance], scale: float = 1.0, most: float | None = None) -> list[Instance]:
    """The instances with their limits times `scale`, and none above `most` seconds."""
    for value, option in ((scale, "--timeout-scale"), (most, "--limit")):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise InputError(f"{option}: expected a number above 0, got {value:g}")
    return [replace(i, limit=min(i.limit * scale, most or math.inf)) for i in instances]


def sampled(instances: Sequence[Instance], count: int, seed: int = 0) -> list[Instance]:
    """A sample of the instances with each network's share preserved, in the order of the csv."""
    from holdfast.core.fingerprint import generator

    if count < 1:
        raise InputError(f"--sample: expected at least 1 instance, got {count}")
    if count >= len(instances):
        return list(instances)
    groups: dict[tuple[str, str], list[int]] = {}
    for place, instance in enumerate(instances):
        groups.setdefault((instance.category, instance.network), []).append(place)
    shares = allotted([len(group) for group in groups.values()], count)
    chosen: list[int] = []
    for (names, group), share in zip(groups.items(), shares, strict=True):
        draw = generator(seed, "vnncomp", *names).permutation(len(group))[:share]
        chosen += [group[i] for i in draw.tolist()]
    return [instances[i] for i in sorted(chosen)]


def allotted(sizes: Sequence[int], count: int) -> list[int]:
    """`count` divided among groups in proportion to their sizes, none above its size, if possible none 0."""
    least = 1 if count >= len(sizes) else 0
    exact = [size * count / sum(sizes) for size in sizes]
    shares = [max(least, math.floor(e)) for e in exact]
    while sum(shares) > count:  # small groups got one each: take these from large ones
        above = (i for i, share in enumerate(shares) if share > least)
        shares[min(above, key=lambda i: (exact[i] - shares[i], -i))] -= 1
    while sum(shares) < count:
        room = (i for i, size in enumerate(sizes) if shares[i] < size)
        shares[max(room, key=lambda i: (exact[i] - shares[i], -i))] += 1
    return shares


def number_of(text: str) -> float | None:
    """The finite number in a cell of a csv; None if there is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _instance(path: Path, number: int, cells: Sequence[str]) -> Instance:
    if len(cells) != 3:
        raise InputError(f"{path}:{number}: expected network,specification,seconds, got {len(cells)} fields")
    limit = number_of(cells[2])
    if limit is None or limit <= 0:
        raise InputError(f"{path}:{number}: expected a time limit in seconds, got {cells[2]!r}")
    files = []
    for name in cells[:2]:
        file = existing_file(path.parent / name)
        if file is None:
            raise InputError(f"{path}:{number}: no file {name} (nor {name}.gz) in {path.parent}")
        files.append(file)
    return Instance(category_of(path), cells[0], cells[1], limit, files[0], files[1], path.parent.resolve())
