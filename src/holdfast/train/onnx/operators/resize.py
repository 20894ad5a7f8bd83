"""Resize and Upsample: along each axis the matrix that ONNX Runtime itself uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.graph.lower.matrix import along, per_axis
from holdfast.graph.lower.values import Lowering, Node
from holdfast.graph.lower.values import run as run_in_onnxruntime
from holdfast.train.onnx.tape import Run, recorded


def _resize(node: Node) -> Run:
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise node.fail("tf_crop_and_resize is not supported")
    bare = replace(node, inputs=())

    @lru_cache(maxsize=8)
    def matrices(
        shape: tuple[int, ...], given: tuple[tuple[str, tuple[float, ...]] | None, ...]
    ) -> tuple[tuple[int, Tensor], ...]:
        """Each axis that changes with its matrix (n, m), or with the places (m,) it takes values from."""
        constants = tuple(None if g is None else np.array(g[1], g[0]) for g in given)
        known = replace(bare, inputs=(None, *constants))
        wanted = run_in_onnxruntime(known, (np.zeros(shape, np.float32), *constants))[0].shape
        scales = per_axis(known, shape, "scales", 1 if node.opset < 11 else 2)
        changed = [a for a, n in enumerate(shape) if wanted[a] != n or scales.get(a, 1.0) != 1.0]
        still = [a for a in range(len(shape)) if a not in changed]
        if changed and not still:
            raise node.fail("expected at least one axis that keeps its size")
        return tuple((axis, _plain(along(known, shape, axis, still))) for axis in changed)

    def run(net: Any, x: Tensor, *given: Tensor | None) -> Tensor:
        sizes = tuple(None if g is None else (_kind(g), tuple(g.tolist())) for g in given)
        # one image says it all: the batch keeps its size
        for axis, matrix in matrices((1, *x.shape[1:]), _for_one(sizes, node)):
            if matrix.ndim == 1:
                x = x.index_select(axis, matrix)
            else:
                x = (x.movedim(axis, -1) @ matrix).movedim(-1, axis)
        return x

    return run


def _kind(value: Tensor) -> str:
    return "int64" if value.dtype == torch.int64 else "float32"


def _for_one(sizes: tuple[Any, ...], node: Node) -> tuple[Any, ...]:
    """The inputs for a batch of one: a batch may stand among the sizes."""
    if len(sizes) < 3 or sizes[2] is None or not sizes[2][1] or node.ints("axes") is not None:
        return sizes
    return (*sizes[:2], (sizes[2][0], (1, *sizes[2][1][1:])))


def _plain(matrix: np.ndarray) -> Tensor:
    """The matrix, or the places it picks if every column holds a single 1."""
    picks = ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(0) == 1).all()
    if picks:
        return torch.from_numpy(matrix.argmax(0))
    return torch.from_numpy(matrix).to(torch.float32)


OPERATORS: Mapping[str, Lowering] = recorded({"Resize": _resize, "Upsample": _resize})
