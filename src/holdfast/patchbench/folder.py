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

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.fingerprint import of_file
from holdfast.core.registry import lookup
from holdfast.core.types import Floats, Image, Size
from holdfast.data.entries import read_image_file
from holdfast.data.files import file_names, image_names, subfolders
from holdfast.graph.inspect import read_proto
from holdfast.patchbench.layout import TAIL, Target, size_of
from holdfast.patchbench.probe import effect_of, open_probe
from holdfast.verify.vnnlib.read import read_vnnlib
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
    sizes: dict[Path, Size] = field(default_factory=dict, repr=False, compare=False)  # probed patches


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
    return Row(number, network, spec, seconds, _file(folder / network), _file(folder / spec))


def _file(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def _manifest(folder: Path) -> Mapping[str, Any] | None:
    """The content of our manifest; None if there is none or it is another program's."""
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
        whole = whole and all(isinstance(size, list) and len(size) == 2 for size in sizes)
        whole = whole and all(isinstance(n, int) for size in sizes for n in size)
        return whole and all(isinstance(one, dict) for one in mappings)
    except (KeyError, TypeError, AttributeError):
        return False


def instances(bench: Bench) -> Iterator[Instance]:
    """Every instance, its specification read when it is its turn."""
    return (instance_of(bench, row) for row in bench.rows)


def instance_of(bench: Bench, row: Row) -> Instance:
    """The instance of one row, its specification read."""
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
    pixels = np.rint(case.lower[:p] * 255).clip(0, 255).astype(np.uint8).reshape(3, size.height, size.width)
    return Instance(
        name=name_of(row),
        network=row.network,
        spec=row.spec,
        seconds=row.seconds,
        image=np.ascontiguousarray(pixels.transpose(1, 2, 0)),
        target=Target(int(tail[3]), (float(tail[4]), float(tail[5]), float(tail[6]), float(tail[7]))),
        patch=_patch_size(bench, row, row.network, spec),
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
    """The size of the picture according to the manifest, else square."""
    if bench.manifest is not None:
        size = Size(*bench.manifest["size"])
        if 3 * size.width * size.height + TAIL == spec.inputs:
            return size
    return size_of(spec.inputs)


def _patch_size(bench: Bench, row: Row, network: Path, spec: Spec) -> Size:
    """The patch's size according to the manifest, else by what positions do to the picture."""
    listed = bench.manifest["networks"] if bench.manifest is not None else {}
    if row.network_name in listed:
        return Size(*listed[row.network_name]["patch"])
    if network not in bench.sizes:
        probe, point = open_probe(read_proto(network), spec.inputs), spec.cases[0].lower.astype(np.float32)
        bench.sizes[network] = effect_of(probe, point, (0, 1, 2, 9, 20), (0, 9, 20, 31, 40)).patch
    return bench.sizes[network]


@dataclass(frozen=True)
class Finding:
    """Something wrong with a benchmark: what kind, where first met, what, and how often."""

    kind: str
    where: str
    what: str
    count: int = 1

    def __str__(self) -> str:
        more = f" ({self.count} of this kind)" if self.count > 1 else ""
        return f"{self.kind}: {self.where}: {self.what}{more}"


def file_findings(bench: Bench) -> Iterator[Finding]:
    """Listed files that are missing, files that differ from the manifest, files nobody lists."""
    for row in bench.rows:
        for name, file in ((row.network_name, row.network), (row.spec_name, row.spec)):
            if file is None:
                yield Finding("missing file", f"{LISTING}:{row.line}", f"no {name} (nor {name}.gz)")
    listed = {Path(row.spec_name.removesuffix(".gz")).name for row in bench.rows}
    for name in file_names(bench.folder / "vnnlib"):
        if name.removesuffix(".gz") not in listed:
            yield Finding("not listed", f"vnnlib/{name}", f"{LISTING} does not name it")
    if bench.manifest is None:
        return
    known = bench.manifest["files"]
    for name, digest in known.items():
        path = bench.folder / name
        if not path.is_file():
            yield Finding("missing file", name, f"the {MANIFEST} names it, but it is not there")
        elif of_file(path) != digest:
            yield Finding(
                "stale file", name, f"its sha256 is not the one in {MANIFEST}: changed after it was made"
            )
    for path in sorted(bench.folder.rglob("*")):
        name = path.relative_to(bench.folder).as_posix()
        if path.is_file() and name not in known and name != MANIFEST:
            yield Finding("not in the manifest", name, "was not there when the benchmark was made")


@dataclass(frozen=True, eq=False)
class Beside:
    """The image of an instance and its predicted label, as far as the folder holds them."""

    image: Image | None
    predicted: Target | None


def beside(bench: Bench, row: Row) -> tuple[Beside, list[Finding]]:
    """What lies in the folder for an instance, and what should but does not."""
    name = name_of(row)
    if bench.manifest is not None:
        name = bench.manifest["specs"].get(row.spec_name, name)
    stem = Path(row.network_name.removesuffix(".gz")).stem
    places = [bench.folder, *_sets(bench.folder)]
    roots = [place for place in places if _image(place, name) is not None]
    roots.sort(key=lambda place: place.name != stem)  # an image may be in the set of each patch
    if not roots:
        return Beside(None, None), [Finding("missing image", row.spec_name, f"no image {name} found")]
    root, problems = roots[0], list[Finding]()
    path = _image(root, name)
    image = _decoded(path, problems) if path is not None else None
    labels = {}
    for kind in ("gt", "pred"):
        files = (root / "labels" / kind / f"{name}.txt", root / f"{kind}_labels" / f"{name}.txt")
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            problems.append(Finding("missing label", row.spec_name, f"no {kind} label of {name} found"))
        else:
            labels[kind] = _label(file, problems)
    return Beside(image, labels.get("pred")), problems


def left_over(bench: Bench) -> list[str]:
    """Images that no instance uses, in a folder without a manifest."""
    used = {name_of(row) for row in bench.rows}
    found = [
        f"{root.relative_to(bench.folder)}/images/{name}"
        for root in _sets(bench.folder)
        for name in image_names(root / "images")
        if name.rpartition(".")[0] not in used
    ]
    return found if bench.manifest is None else []


def _sets(folder: Path) -> list[Path]:
    """The published folder's datasets, one per patch."""
    data = folder / "dataset"
    return subfolders(data) if data.is_dir() else []


def _image(root: Path, name: str) -> Path | None:
    places = (root / "images" / f"{name}{suffix}" for suffix in (".png", ".jpg", ".jpeg", ".bmp"))
    return next((path for path in places if path.is_file()), None)


def _decoded(path: Path, problems: list[Finding]) -> Image | None:
    try:
        decoded: Image = lookup("decode", "pillow")(read_image_file(path))
        return decoded
    except HoldfastError as problem:
        problems.append(Finding("unreadable image", path.name, str(problem)))
        return None


def _label(path: Path, problems: list[Finding]) -> Target | None:
    """The target of a label file: class x1 y1 x2 y2, in published predictions with an index before them."""
    try:
        numbers = [float(word) for word in path.read_text().split()]
        if len(numbers) not in (5, 6) or not np.isfinite(numbers).all():
            raise ValueError
    except (OSError, ValueError):
        said = "expected one line `class x1 y1 x2 y2`"
        problems.append(Finding("unreadable label", path.name, said))
        return None
    label, x1, y1, x2, y2 = numbers[-5:]
    return Target(int(label), (x1, y1, x2, y2))
