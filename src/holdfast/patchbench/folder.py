"""A benchmark folder, ours or the published one: instances.csv, networks, specifications, images, labels."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.fingerprint import of_file
from holdfast.core.model import existing_file
from holdfast.core.registry import lookup
from holdfast.core.types import Floats, Image, Size
from holdfast.data.entries import read_image_file
from holdfast.data.files import file_names, image_names, subfolders
from holdfast.graph.inspect import read_proto
from holdfast.patchbench.layout import TAIL, Target, size_of
from holdfast.patchbench.probe import effect_of, open_probe
from holdfast.verify.vnncomp.instances import ROWS, csv_rows, number_of, stem_of
from holdfast.verify.vnnlib.read import read_vnnlib
from holdfast.verify.vnnlib.spec import Spec

FORMAT = 1  # of the manifest
LISTING, MANIFEST = "instances.csv", "manifest.json"
KIND = "holdfast patch benchmark"


@dataclass(frozen=True)
class InstanceRow:
    """A line of instances.csv; its files may be packed, or missing."""

    line: int
    network_name: str
    spec_name: str
    seconds: float
    network: Path
    spec: Path

    @property
    def missing(self) -> list[str]:
        """The names of its files that are missing, also as .gz."""
        files = {self.network_name: self.network, self.spec_name: self.spec}
        return [name for name, file in files.items() if not file.is_file()]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark folder: its rows, and its manifest, which is empty if holdfast did not create it."""

    folder: Path
    rows: tuple[InstanceRow, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sizes: dict[Path, Size] = field(default_factory=dict, repr=False, compare=False)  # probed patches


@dataclass(frozen=True, eq=False)
class Instance:
    """One instance: whether a patch at a column and row in these closed ranges makes the output unsafe.

    `image` (h, w, 3) and `target` are those of the specification. `free`: the patch has any content at a
    fixed position.
    """

    name: str
    network: Path
    spec: Path
    image: Image
    target: Target
    patch: Size
    columns: tuple[float, float]
    rows: tuple[float, float]
    threshold: float
    strict: bool
    free: bool
    point: Floats = field(repr=False)  # the lower bounds of the flat input


def open_benchmark(folder: Path) -> Benchmark:
    """The benchmark in a folder. Raise InputError if there is none or a listed file is missing."""
    bench = listed(folder)
    for row in bench.rows:
        for name in row.missing:
            raise InputError(f"{folder / LISTING}:{row.line}: no file {name} (nor {name}.gz) in {folder}")
    return bench


def listed(folder: Path) -> Benchmark:
    """The benchmark in a folder; files may be missing. Raise InputError if instances.csv cannot be read."""
    missing = f"{folder}: expected a benchmark folder with {LISTING} in it, got none"
    lines = csv_rows(folder / LISTING, ROWS, f"{missing}; create one: holdfast patchbench make DIR")
    if not lines:
        raise InputError(f"{folder / LISTING}: expected {ROWS}, got none")
    rows = []
    for number, cells in lines:
        seconds = number_of(cells[2]) if len(cells) == 3 else None
        if seconds is None or seconds <= 0:
            expected = "expected network,specification,seconds"
            raise InputError(f"{folder / LISTING}:{number}: {expected}, got {','.join(cells)!r}")
        network, spec = (existing_file(folder / name) or folder / name for name in cells[:2])
        rows.append(InstanceRow(number, cells[0], cells[1], seconds, network, spec))
    return Benchmark(folder, tuple(rows), _manifest(folder))


def _manifest(folder: Path) -> Mapping[str, Any]:
    """The content of our manifest; empty if there is none or another program wrote it."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise InputError(f"{path}: expected JSON, got: {problem}") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        return {}
    if content.get("format") != FORMAT or not _is_complete(content):
        got = f"format {content.get('format')!r}, or something missing"
        raise InputError(f"{path}: expected a whole manifest of format {FORMAT}, got {got}; create it again")
    return content


def _is_complete(content: Mapping[str, Any]) -> bool:
    """Whether a manifest has the fields that are read, in their types."""
    try:
        sizes = [content["size"], *(network["patch"] for network in content["networks"].values())]
        model = content["model"]
        fields: list[tuple[type, list[Any]]] = [
            (bool, [content["rule"]["strict"]]),
            (str, [model["input"], *model["outputs"], content["content"]]),
            (int, [side for width, height in sizes for side in (width, height)]),
            (dict, [model["card"], content["specs"], content["files"]]),
        ]
        return all(isinstance(value, kind) for kind, values in fields for value in values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def instances(bench: Benchmark) -> Iterator[Instance]:
    """All instances; specifications are read lazily."""
    return (instance_of(bench, row) for row in bench.rows)


def instance_of(bench: Benchmark, row: InstanceRow) -> Instance:
    """The instance of one row, from its specification."""
    spec = read_vnnlib(row.spec)
    if len(spec.cases) != 1 or spec.outputs != 1:
        raise InputError(f"{row.spec}: expected one output and no `or`, got {spec.outputs} outputs")
    case, p = spec.cases[0], spec.inputs - TAIL
    width, height = bench.manifest.get("size", (0, 0))
    if not 0 < 3 * width * height == p:
        width, height = size_of(spec.inputs)
    if case.rows.shape[0] != 1 or case.rows[0, 0] <= 0 or case.inputs is not None:
        raise InputError(f"{row.spec}: expected one bound from above on the output, such as Y_0 <= 0.5")
    tail = case.lower[p:]
    pixels = np.rint(case.lower[:p] * 255).clip(0, 255).astype(np.uint8).reshape(3, height, width)
    return Instance(
        name=name_of(row),
        network=row.network,
        spec=row.spec,
        image=np.ascontiguousarray(pixels.transpose(1, 2, 0)),
        target=Target.of(tail[3], tail[4:]),
        patch=_patch_size(bench, row, spec),
        columns=(float(tail[0]), float(case.upper[p])),
        rows=(float(tail[1]), float(case.upper[p + 1])),
        threshold=float(case.bound[0] / case.rows[0, 0]),
        strict=bool(case.strict[0]),
        free=bool((case.lower[:p] < case.upper[:p]).any()),
        point=case.lower,
    )


def name_of(row: InstanceRow) -> str:
    """The name of the image: the part after idx_ in the name of the specification."""
    stem = stem_of(row.spec_name)
    return stem.partition("_idx_")[2] or stem


def _patch_size(bench: Benchmark, row: InstanceRow, spec: Spec) -> Size:
    """The size of the patch, from the manifest or else from the effect of the position inputs."""
    networks = bench.manifest.get("networks", {})
    if row.network_name in networks:
        return Size(*networks[row.network_name]["patch"])
    if row.network not in bench.sizes:
        probe = open_probe(read_proto(row.network), spec.inputs)
        point = spec.cases[0].lower.astype(np.float32)
        bench.sizes[row.network] = effect_of(probe, point, (0, 1, 2, 9, 20), (0, 9, 20, 31, 40)).patch
    return bench.sizes[row.network]


@dataclass(frozen=True)
class Finding:
    """A problem of a benchmark: kind, first location, description, number of occurrences."""

    kind: str
    where: str
    what: str
    count: int = 1

    def __str__(self) -> str:
        more = f" ({self.count} of this kind)" if self.count > 1 else ""
        return f"{self.kind}: {self.where}: {self.what}{more}"


def file_findings(bench: Benchmark) -> Iterator[Finding]:
    """Yield missing files, files that differ from the manifest, and files that are not listed."""
    for row in bench.rows:
        for name in row.missing:
            yield Finding("missing file", f"{LISTING}:{row.line}", f"no {name} (nor {name}.gz)")
    listed = {Path(row.spec_name.removesuffix(".gz")).name for row in bench.rows}
    for name in file_names(bench.folder / "vnnlib"):
        if name.removesuffix(".gz") not in listed:
            yield Finding("not listed", f"vnnlib/{name}", f"not listed in {LISTING}")
    if not bench.manifest:
        return
    hashes = bench.manifest["files"]
    for name, digest in hashes.items():
        path = bench.folder / name
        if not path.is_file():
            yield Finding("missing file", name, f"listed in {MANIFEST}, but missing")
        elif of_file(path) != digest:
            message = f"its sha256 differs from {MANIFEST}: changed after it was created"
            yield Finding("stale file", name, message)
    for path in sorted(bench.folder.rglob("*")):
        name = path.relative_to(bench.folder).as_posix()
        if path.is_file() and name not in hashes and name != MANIFEST:
            yield Finding("not in the manifest", name, "was not there when the benchmark was made")


def image_and_label(bench: Benchmark, row: InstanceRow) -> tuple[Image | None, Target | None, list[Finding]]:
    """The image of an instance and its predicted label, None if missing, and problems."""
    name = bench.manifest.get("specs", {}).get(row.spec_name, name_of(row))
    files: dict[Path, Path] = {}
    for location in (bench.folder, *_sets(bench.folder)):
        for suffix in (".bmp", ".jpeg", ".jpg", ".png"):  # the last existing one is used
            if (file := location / "images" / f"{name}{suffix}").is_file():
                files[location] = file
    if not files:
        return None, None, [Finding("missing image", row.spec_name, f"no image {name} found")]
    # An image may be in the set of each patch.
    root = min(files, key=lambda location: location.name != stem_of(row.network_name))
    image, labels, problems = None, dict[str, Target](), list[Finding]()
    try:
        image = lookup("decode", "pillow")(read_image_file(files[root]))
    except HoldfastError as problem:
        problems.append(Finding("unreadable image", files[root].name, str(problem)))
    for kind in ("gt", "pred"):
        label = root / "labels" / kind / f"{name}.txt"
        label = label if label.is_file() else root / f"{kind}_labels" / f"{name}.txt"
        try:
            # Published predictions have an index before the class.
            numbers = [float(word) for word in label.read_text().split()]
            if len(numbers) not in (5, 6) or not np.isfinite(numbers).all():
                raise ValueError
            labels[kind] = Target.of(numbers[-5], numbers[-4:])
        except FileNotFoundError:
            problems.append(Finding("missing label", row.spec_name, f"no {kind} label of {name} found"))
        except (OSError, ValueError):
            problems.append(Finding("unreadable label", label.name, "expected one line `class x1 y1 x2 y2`"))
    return image, labels.get("pred"), problems


def unused_images(bench: Benchmark) -> list[str]:
    """Images that no instance uses, in a folder without a manifest."""
    used = {name_of(row) for row in bench.rows}
    return [
        f"{root.relative_to(bench.folder)}/images/{name}"
        for root in ([] if bench.manifest else _sets(bench.folder))
        for name in image_names(root / "images")
        if name.rpartition(".")[0] not in used
    ]


def _sets(folder: Path) -> list[Path]:
    """The published folder's datasets, one per patch."""
    data = folder / "dataset"
    return subfolders(data) if data.is_dir() else []
