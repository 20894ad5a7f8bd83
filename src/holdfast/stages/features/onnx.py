"""Any ONNX network as a feature net; its distance carries the file's name and hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.fingerprint import of
from holdfast.core.model import read_onnx
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size, Tensor
from holdfast.graph.inspect import inspect
from holdfast.stages.features import FeatureNet, open_graph, run_graph
from holdfast.stages.resize.libraries import pillow_bilinear

_VERSION = 1  # of what this file does before and behind the network
_TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}


class _Feed(NamedTuple):
    """What the network wants: channels first or last, its size (None: the picture's own), its type."""

    first: bool
    size: Size | None
    dtype: Any


@stage("features")
def onnx(text: str = "", threads: int = 1) -> FeatureNet:
    """FD-<file>-<hash>: the first output of an ONNX file for RGB in 0..1 (uint8: 0..255).

    A map is averaged over its places. A fixed input size is reached by Pillow's bilinear resize, without
    keeping the aspect. What else an image needs (mean, deviation) belongs into the graph.
    """
    if not text:
        raise InputError("features 'onnx': expected onnx:FILE with the path of an ONNX file, got no file")
    path = Path(text)
    info = inspect(path)
    # by path, so that weights kept in files beside the model are found; a .gz must be unpacked first
    session = open_graph(read_onnx(path) if path.suffix == ".gz" else str(path), str(path), threads)
    feed = _feed(path, session)

    def row(image: Image) -> Tensor:
        found = run_graph(session, _tensor(image, feed))
        return found.mean(axis=(2, 3)) if found.ndim == 4 else found

    size = feed.size or Size(64, 64)
    length = np.size(row(np.zeros((size.height, size.width, 3), np.uint8)))
    name = f"FD-{path.name.removesuffix('.gz').removesuffix('.onnx')}-{info.sha256[:8]}"
    return FeatureNet(name, of({"model": info.sha256, "version": _VERSION}), int(length), row)


def _feed(path: Path, session: Any) -> _Feed:
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        found = ", ".join(f"{i.name} {i.shape}" for i in inputs) or "none"
        raise ModelError(f"{path}: expected one image input of 4 dimensions, got {found}")
    batch, *rest = inputs[0].shape
    if 3 not in (rest[0], rest[2]) or (isinstance(batch, int) and batch != 1):
        raise ModelError(
            f"{path}: expected an input (1, 3, h, w) or (1, h, w, 3), batch free or 1, got {inputs[0].shape}"
        )
    if inputs[0].type not in _TYPES:
        raise ModelError(f"{path}: expected an input of type float or uint8, got {inputs[0].type}")
    first = rest[0] == 3
    sides = rest[1:] if first else rest[:2]
    fixed = Size(sides[1], sides[0]) if all(isinstance(side, int) for side in sides) else None
    return _Feed(first, fixed, _TYPES[inputs[0].type])


def _tensor(image: Image, feed: _Feed) -> Tensor:
    if feed.size and image.shape[:2] != (feed.size.height, feed.size.width):
        image = pillow_bilinear(image, feed.size)
    pixels = image.transpose(2, 0, 1)[None] if feed.first else image[None]
    made = np.ascontiguousarray(pixels, feed.dtype)
    return made / np.float32(255) if feed.dtype is np.float32 else made
