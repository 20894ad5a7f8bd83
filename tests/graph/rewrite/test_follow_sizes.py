"""Sizes before and after: axes as products and sums of runs, and constants cut to them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.graph.rewrite.follow.rules import scale
from holdfast.graph.rewrite.follow.shapes import (
    AxisCells,
    axis,
    changed,
    extended,
    joined,
    new_size,
    offset,
    old_size,
    regrouped,
)

GREW = axis(52, 53)


def fixed(*sizes):
    return [axis(n, n) for n in sizes]


def news(axes, shape):
    found = regrouped(axes, shape)
    return [new_size(a) for a in found] if isinstance(found, tuple) else found


@pytest.mark.parametrize(
    ("axes", "shape", "wanted"),
    [
        ([*fixed(1, 116), GREW, GREW], (1, 2, 58, 52, 52), [1, 2, 58, 53, 53]),  # a channel shuffle
        ([*fixed(1, 2, 58), GREW, GREW], (1, 116, 52, 52), [1, 116, 53, 53]),
        ([*fixed(1, 80), GREW, GREW], (1, 80, 2704), [1, 80, 2809]),
        ([*fixed(1, 80), GREW, GREW], (80, 52, 52), [80, 53, 53]),
        ([*fixed(1, 255), GREW, axis(26, 27)], (1, 3, 85, 1352), [1, 3, 85, 53 * 27]),
        ([*fixed(4, 9), GREW], (6, 6, 52), [6, 6, 53]),
        ([*fixed(4, 9), GREW], (3, 624), [3, 12 * 53]),
        ([*fixed(1, 512), axis(1, 2), axis(1, 2)], (1, 512), [1, 2048]),  # a 1×1 map that grew
        ([*fixed(1, 512), axis(1, 2), axis(1, 2)], (512, 1, 1), [512, 2, 2]),
        ([*fixed(1, 8), axis(2, 3)], (1, 8, 1, 2), [1, 8, 1, 3]),
        ([*fixed(3), GREW], (52, 3), AxisCells(52, 53)),  # no Transpose: the cells would be cut
        ([*fixed(1), GREW, *fixed(2)], (1, 26, 4), AxisCells(52, 53)),
    ],
)
def test_reshape(axes, shape, wanted):
    assert news(axes, shape) == wanted


def test_a_flattened_map_is_found_again():
    flat = regrouped([*fixed(1, 85), GREW, axis(26, 27)], (1, 85, 1352))
    turned = [flat[0], flat[2], flat[1]]
    assert news(turned, (1, 52, 26, 85)) == [1, 53, 27, 85]
    assert news(turned, (1, 26, 52, 85)) == AxisCells(52, 53)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.randoms())
def test_unchanged_axes_go_into_every_shape(sizes, random):
    total = int(np.prod(sizes))
    shape, rest = [], total
    while rest > 1:
        shape.append(random.choice([d for d in range(2, rest + 1) if rest % d == 0]))
        rest //= shape[-1]
    assert news(fixed(*sizes), shape) == shape


def test_axes_one_after_the_other():
    cells = joined([(AxisCells(4, 5), AxisCells(4, 5)), (AxisCells(2, 3), AxisCells(2, 3)), axis(7, 7)])
    assert (old_size(cells), new_size(cells), changed(cells)) == (16 + 4 + 7, 25 + 9 + 7, True)
    assert [offset(cells, at) for at in (0, 16, 20, 23, 27)] == [0, 25, 34, 37, 41]
    assert offset(cells, 5) is None
    assert joined(fixed(2, 3)) == axis(5, 5)


def grid(rows, columns, stride):
    """Cell centres (n, 2), row by row."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    return np.stack([x + 0.5, y + 0.5], axis=1).astype(np.float32) * stride


def test_grids_are_continued_level_by_level():
    """The anchor points and strides of YOLOv8 or YOLOX in the graph, all levels in one axis."""
    old, new = [(4, 6), (2, 3)], [(5, 7), (3, 4)]
    cells = joined([(AxisCells(a, c), AxisCells(b, d)) for (a, b), (c, d) in zip(old, new, strict=True)])
    points, wanted = (
        np.concatenate([grid(*s, stride) for s, stride in zip(sizes, (8, 16), strict=True)])
        for sizes in (old, new)
    )
    assert np.allclose(extended(points[None], [axis(1, 1), cells, axis(2, 2)]), wanted[None])
    strides = np.repeat([8, 16], [24, 6])
    assert np.array_equal(extended(strides, [cells]), np.repeat([8, 16], [35, 12]))
    turned = extended(points.T[None], [axis(1, 1), axis(2, 2), cells])
    assert np.allclose(turned, wanted.T[None])


def test_what_is_no_grid_is_not_made_up():
    learned = np.random.default_rng(0).normal(size=(1, 4, 52)).astype(np.float32)
    assert extended(learned, [*fixed(1, 4), GREW]) is None
    assert extended(np.ones((1, 4, 3), np.float32), [*fixed(1, 4), GREW]) is None
    shrunk = extended(learned, [*fixed(1, 4), axis(52, 51)])
    assert np.array_equal(shrunk, learned[:, :, :51])
    alone = np.ones((1, 4, 1), np.float32)
    assert np.array_equal(extended(alone, [*fixed(1, 4), GREW]), alone)  # spread over all cells as before


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 700), st.integers(1, 700))
def test_scales_give_the_size_in_either_precision(cells, wanted):
    found = scale(cells, wanted)
    assert found.dtype == np.float32
    assert int(np.float32(cells) * found) == int(cells * float(found)) == wanted
