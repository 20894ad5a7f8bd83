"""Linear layers with a bound on what merging them rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.graph.ir import Array, Conv, Scale, Take, Total


@dataclass(frozen=True, eq=False)
class Layer:
    """z = weight (m, n) @ v + bias, then max(z, slope · z).

    The true weights are within terms · u · size of these (u = 2**-53), the bias within terms · u · bias_size:
    where steps were merged, `size` adds up the magnitudes that were. `exact` says that each row just picks
    one value, so that a product with it rounds nothing.
    """

    weight: Array
    bias: Array
    size: Array
    bias_size: Array
    slope: Array
    terms: int = 0
    exact: bool = False

    def then(self, matrix: Array, shift: Array) -> Layer:
        """Matrix (k, m) @ this + shift, without an activation."""
        return Layer(
            matrix @ self.weight,
            matrix @ self.bias + shift,
            np.abs(matrix) @ self.size,
            np.abs(matrix) @ self.bias_size + np.abs(shift),
            np.ones(len(matrix)),
            self.terms + (0 if self.exact else matrix.shape[1] + 2),
        )


def picked(first: int, count: int) -> Layer:
    """Values first .. first + count, as they are."""
    pick, zero = np.eye(first + count)[first:], np.zeros(count)
    return Layer(pick, zero, pick, zero, np.ones(count), exact=True)


def joined(layers: Sequence[Layer], width: int) -> Layer:
    """The rows of all, over `width` values."""
    return Layer(
        np.concatenate([_wide(part.weight, width) for part in layers]),
        np.concatenate([part.bias for part in layers]),
        np.concatenate([_wide(part.size, width) for part in layers]),
        np.concatenate([part.bias_size for part in layers]),
        np.concatenate([part.slope for part in layers]),
        max(part.terms for part in layers),
        all(part.exact for part in layers),
    )


def _wide(matrix: Array, width: int) -> Array:
    return np.pad(matrix, ((0, 0), (0, width - matrix.shape[1])))


def taken(step: Take, parts: Sequence[Layer], width: int) -> Layer:
    """The step over the values its sources are layers of."""
    whole, index = joined(parts, width), step.index.ravel()
    found = index >= 0
    fill = np.zeros(len(index)) if step.fill is None else step.fill.ravel()
    return Layer(
        whole.weight[index] * found[:, None],
        np.where(found, whole.bias[index], fill),
        whole.size[index] * found[:, None],
        np.where(found, whole.bias_size[index], np.abs(fill)),
        np.ones(len(index)),
        whole.terms,
        whole.exact and bool(found.all()),
    )


def summed(step: Total, parts: Sequence[Layer], width: int) -> Layer:
    """The step over the values its sources are layers of."""
    weight = size = np.zeros((len(parts[0].bias), width))
    bias = bias_size = np.zeros(len(weight))
    for factor, part in zip(step.weights, parts, strict=True):
        weight, bias = weight + factor * _wide(part.weight, width), bias + factor * part.bias
        size, bias_size = (
            size + abs(factor) * _wide(part.size, width),
            bias_size + abs(factor) * part.bias_size,
        )
    terms = max(part.terms for part in parts) + len(parts) + 2
    return Layer(weight, bias, size, bias_size, np.ones(len(bias)), terms)


def scaled(step: Scale, layer: Layer) -> Layer:
    """The step over the values its source is a layer of."""
    factor, offset = step.factor.ravel(), step.offset.ravel()
    return Layer(
        factor[:, None] * layer.weight,
        factor * layer.bias + offset,
        np.abs(factor)[:, None] * layer.size,
        np.abs(factor) * layer.bias_size + np.abs(offset),
        np.ones(len(factor)),
        layer.terms + (0 if layer.exact else 2),
    )


def matrix_of(step: Conv, source: tuple[int, int, int]) -> tuple[Array, Array]:
    """The convolution as a matrix over its flat source (channels, height, width), and its flat bias."""
    channels, height, width = source
    out, rows, columns = step.shape
    each, kh, kw = step.weight.shape[1:]
    matrix = np.zeros((out, rows, columns, channels, height, width))
    group = np.arange(out) // (out // step.groups)
    for y in range(rows):
        for x in range(columns):
            for ky in range(kh):
                for kx in range(kw):
                    at = y * step.stride[0] + ky * step.dilation[0] - step.pads[0]
                    across = x * step.stride[1] + kx * step.dilation[1] - step.pads[1]
                    if 0 <= at < height and 0 <= across < width:
                        for c in range(each):
                            matrix[np.arange(out), y, x, group * each + c, at, across] += step.weight[
                                :, c, ky, kx
                            ]
    return matrix.reshape(out * rows * columns, -1), np.repeat(step.bias, rows * columns)
