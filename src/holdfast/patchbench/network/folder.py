"""A benchmark folder, ours or the published one: instances.csv, networks, specifications, images, labels."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Image, Size
from holdfast.graph.inspect import read_proto
from holdfast.patchbench.network.layout import TAIL, Target, size_of
from holdfast.patchbench.network.probe import effect_of, open_probe
from holdfast.verify.vnnlib import read_vnnlib
from holdfast.verify.vnnlib.spec import Spec

FORMAT = 1  # of the manifest
LISTING, MANIFEST = "instances.csv", "manifest.json"
KIND = "holdfast patch benchmark"


@dataclass(frozen=True)
class Row:
    """A line of instances.csv; a file that is not there (nor as .gz) is None."""

    line: int
    network_name: str
    spec_name: str
    seconds: float
    network: Path | None
    spec: Path | None


@dataclass(frozen=True)
class Bench:
    """A benchmark folder: its rows, and the manifest if it is one of ours."""

    folder: Path
    rows: tuple[Row, ...]
    manifest: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Instance:
    """One question: whether a patch at a column and a row of these closed ranges makes the output unsafe.

    `image` (h, w, 3) and `target` are those of the specification. `free`: the patch's values are free, its
    place is fixed.
    """

    name: str
    network: Path
    spec: Path
    seconds: float
    image: Image
    target: Target
    patch: Size
    columns: tuple[float, float]
    rows: tuple[float, float]
    threshold: float
    strict: bool
    free: bool
    point: Floats = field(repr=False)  # the lower bounds of the flat input


def open_bench(folder: Path) -> Bench:
    """The benchmark in a folder; InputError if it has none or if a listed file is missing."""
    bench = listed(folder)
    for row in bench.rows:
        for name, file in ((row.network_name, row.network), (row.spec_name, row.spec)):
            if file is None:
                raise InputError(f"{folder / LISTING}:{row.line}: no file {name} (nor {name}.gz) in {folder}")
    return bench


def listed(folder: Path) -> Bench:
    """The benchmark in a folder as far as it is there; InputError if instances.csv cannot be read."""
    path = folder / LISTING
    try:
        lines = list(csv.reader(path.read_text("utf-8-sig").splitlines()))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder}: expected a benchmark folder with {LISTING} in it, got none; make one: "
            "holdfast patchbench make DIR"
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{path}: expected rows of network,specification,seconds, got: {problem}") from None
    rows = tuple(_row(folder, number, line) for number, line in enumerate(lines, 1) if any(line))
    if not rows:
        raise InputError(f"{path}: expected rows of network,specification,seconds, got none")
    return Bench(folder, rows, _manifest(folder))


def _row(folder: Path, number: int, cells: list[str]) -> Row:
    cells = [cell.strip() for cell in cells]
    try:
        network, spec, limit = cells
        seconds = float(limit)
        if not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{folder / LISTING}:{number}: expected network,specification,seconds, got {','.join(cells)!r}"
        ) from None
    return Row(number, network, spec, seconds, _found(folder / network), _found(folder / spec))


def _found(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def _manifest(folder: Path) -> Mapping[str, Any] | None:
    """What our manifest says; None if there is none or it is another program's."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise InputError(f"{path}: expected JSON, got: {problem}") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        return None
    if content.get("format") != FORMAT or not _is_whole(content):
        got = f"format {content.get('format')!r}, or something missing"
        raise InputError(f"{path}: expected a whole manifest of format {FORMAT}, got {got}; make it anew")
    return content


def _is_whole(content: Mapping[str, Any]) -> bool:
    """Whether a manifest has the fields that are read, in their types."""
    try:
        sizes = [content["size"], *(network["patch"] for network in content["networks"].values())]
        mappings = [content["model"]["card"], content["specs"], content["files"]]
        names = [content["model"]["input"], *content["model"]["outputs"], content["content"]]
        whole = isinstance(content["rule"]["strict"], bool) and all(isinstance(n, str) for n in names)
        return whole and all(map(_is_size, sizes)) and all(isinstance(one, dict) for one in mappings)
    except (KeyError, TypeError, AttributeError):
        return False


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(n, int) for n in value)


def instances(bench: Bench) -> Iterator[Instance]:
    """Every instance, its specification read when it is its turn."""
    sizes: dict[Path, Size] = {}
    for row in bench.rows:
        yield instance_of(bench, row, sizes)


def instance_of(bench: Bench, row: Row, sizes: dict[Path, Size] | None = None) -> Instance:
    """The instance of one row; `sizes` keeps what was found of networks that no manifest tells of."""
    if row.network is None or row.spec is None:
        raise InputError(f"{bench.folder / LISTING}:{row.line}: names a file that is not there")
    spec = read_vnnlib(row.spec)
    if len(spec.cases) != 1 or spec.outputs != 1:
        raise InputError(f"{row.spec}: expected one output and no `or`, got {spec.outputs} outputs")
    case, size = spec.cases[0], picture_size(bench, spec)
    if case.rows.shape[0] != 1 or case.rows[0, 0] <= 0 or case.inputs is not None:
        raise InputError(f"{row.spec}: expected one bound from above on the output, such as Y_0 <= 0.5")
    p = spec.inputs - TAIL
    tail = case.lower[p:]
    patch = _told_size(bench, row)
    if patch is None:
        sizes = {} if sizes is None else sizes
        if row.network not in sizes:
            sizes[row.network] = _probed_size(row.network, spec)
        patch = sizes[row.network]
    pixels = np.rint(case.lower[:p] * 255).clip(0, 255).astype(np.uint8).reshape(3, size.height, size.width)
    return Instance(
        name=name_of(row),
        network=row.network,
        spec=row.spec,
        seconds=row.seconds,
        image=np.ascontiguousarray(pixels.transpose(1, 2, 0)),
        target=Target(int(tail[3]), (float(tail[4]), float(tail[5]), float(tail[6]), float(tail[7]))),
        patch=patch,
        columns=(float(tail[0]), float(case.upper[p])),
        rows=(float(tail[1]), float(case.upper[p + 1])),
        threshold=float(case.bound[0] / case.rows[0, 0]),
        strict=bool(case.strict[0]),
        free=bool((case.lower[:p] < case.upper[:p]).any()),
        point=case.lower,
    )


def name_of(row: Row) -> str:
    """The image's name: what stands behind idx_ in the specification's."""
    stem = Path(row.spec_name.removesuffix(".gz")).stem
    return stem.partition("_idx_")[2] or stem


def picture_size(bench: Bench, spec: Spec) -> Size:
    """The size of the picture: as the manifest says, else square."""
    if bench.manifest is not None:
        size = Size(*bench.manifest["size"])
        if 3 * size.width * size.height + TAIL == spec.inputs:
            return size
    return size_of(spec.inputs)


def _told_size(bench: Bench, row: Row) -> Size | None:
    """The patch's size if the manifest tells it."""
    networks = bench.manifest["networks"] if bench.manifest is not None else {}
    return Size(*networks[row.network_name]["patch"]) if row.network_name in networks else None


def _probed_size(network: Path, spec: Spec) -> Size:
    """The patch's size by what positions do to the picture."""
    probe = open_probe(read_proto(network), spec.inputs)
    return effect_of(
        probe, spec.cases[0].lower.astype(np.float32), (0, 1, 2, 9, 20), (0, 9, 20, 31, 40)
    ).patch
