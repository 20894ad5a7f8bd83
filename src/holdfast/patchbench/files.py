"""The files of a benchmark folder: missing, changed, not listed, and those of an instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.fingerprint import of_file
from holdfast.core.types import Image
from holdfast.data.entries import read_image_file
from holdfast.data.files import file_names, image_names, subfolders
from holdfast.patchbench.network.folder import LISTING, MANIFEST, Bench, Row, name_of
from holdfast.patchbench.network.layout import Target


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
    """The image of an instance and its labels, as far as the folder holds them."""

    image: Image | None
    truth: Target | None
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
        return Beside(None, None, None), [Finding("missing image", row.spec_name, f"no image {name} found")]
    root, problems = roots[0], list[Finding]()
    path = _image(root, name)
    image = _decoded(path, problems) if path is not None else None
    labels = []
    for kind in ("gt", "pred"):
        files = (root / "labels" / kind / f"{name}.txt", root / f"{kind}_labels" / f"{name}.txt")
        found = next((file for file in files if file.is_file()), None)
        if found is None:
            problems.append(Finding("missing label", row.spec_name, f"no {kind} label of {name} found"))
        labels.append(_label(found, problems) if found is not None else None)
    return Beside(image, labels[0], labels[1]), problems


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
    data = folder / "dataset"
    return subfolders(data) if data.is_dir() else []


def _image(root: Path, name: str) -> Path | None:
    places = (root / "images" / f"{name}{suffix}" for suffix in (".png", ".jpg", ".jpeg", ".bmp"))
    return next((path for path in places if path.is_file()), None)


def _decoded(path: Path, problems: list[Finding]) -> Image | None:
    from holdfast.core.registry import lookup

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
