"""A patch laid over images on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from holdfast.core.errors import DataError, ImageError, InputError
from holdfast.core.patch import OnBoxes, Patch, Spot, apply, changed_pixels
from holdfast.data.images import SUFFIXES
from holdfast.data.patchfile import png_of
from holdfast.engine.store import write_atomic
from holdfast.stages.decode.pillow import pillow


def lay(
    patch: Patch,
    source: Path,
    out: Path,
    boxes: tuple[tuple[float, ...], ...] = (),
    at: tuple[int, int] | None = None,
) -> list[tuple[Path, int]]:
    """Write one PNG for an image, or one each for a folder; return paths and counts of changed pixels."""
    if at is not None:
        patch = dataclasses.replace(patch, where=Spot(*at))
    if isinstance(patch.where, OnBoxes) and not boxes:
        raise InputError("this patch lies on boxes: give --box X1,Y1,X2,Y2, or --at X,Y to lay it at a spot")
    if boxes and not isinstance(patch.where, OnBoxes):
        raise InputError("--box: this patch lies at a spot, not on boxes; leave it out")
    places = np.array(boxes, np.float64).reshape(-1, 4)
    written = []
    for path, target in _pairs(source, out):
        try:
            clean = pillow(path.read_bytes())
        except ImageError as problem:
            raise DataError(f"{path}: {problem}") from problem
        image = apply(clean, patch, places)
        write_atomic(target, png_of(image), durable=False)
        written.append((target, changed_pixels(clean, image)))
    return written


def _pairs(source: Path, out: Path) -> Iterator[tuple[Path, Path]]:
    if source.is_file():
        if out.suffix.lower() != ".png":
            raise InputError(f"--out {out}: expected the name of a PNG, for that is what keeps every pixel")
        yield source, out
        return
    if not source.is_dir():
        raise DataError(f"{source}: no such image or folder")
    found = sorted(p for p in source.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    if not found:
        raise DataError(f"{source}: expected images, found none")
    for path in found:
        yield path, out / f"{path.stem}.png"
