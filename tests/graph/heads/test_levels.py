"""Heads on maps of other sizes than the card's: pools that round the other way make them, no cell moves."""

import numpy as np
import pytest

from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.candidates import levels, nominal_stride

STRIDES = (8, 16, 32)


def card(head, size=(416, 416), classes=2, **options):
    task = "segment" if head == "segmentation" else "detect"
    return Card(task, Input(Size(*size)), Head(head, options), tuple("ab"[:classes]), score=0.1)


def read(raw, of):
    return part("head", of.head.name).function(raw, of)


@pytest.mark.parametrize(
    ("size", "maps"),
    [
        ((416, 416), ((52, 52), (26, 26), (13, 13))),
        ((416, 416), ((53, 53), (27, 27), (14, 14))),  # a ceiled stem: 105, 53, 27, 14
        ((416, 416), ((51, 51), (26, 26), (13, 13))),  # rounded down
        ((416, 320), ((41, 53), (21, 27), (11, 14))),
        ((420, 416), ((52, 52), (26, 26), (13, 13))),  # 420 is 52.5 cells of 8: only its columns round down
        ((640, 360), ((46, 81), (23, 41), (12, 21))),
    ],
)
def test_level_sizes_are_worked_out_from_their_sum(size, maps):
    assert levels(Size(*size), STRIDES, sum(h * w for h, w in maps)) == maps


def test_no_sizes_are_made_up():
    assert levels(Size(416, 416), STRIDES, 3550) is None
    assert levels(Size(416, 416), STRIDES, 3734, 0) is None
    # 4 rows and 6 columns; 4·6 + 1: five by five would round up in one direction and down in the other
    assert levels(Size(96, 64), (16,), 25) is None
    # 24 × 40 at stride 8 is 3 × 5 cells; 18 and 20 are one row or one column more
    assert levels(Size(40, 24), (8,), 20) == ((4, 5),)
    assert levels(Size(40, 24), (8,), 18) == ((3, 6),)


def test_the_order_of_strides_is_kept():
    found = levels(Size(416, 416), (32, 8, 16), 53**2 + 27**2 + 14**2)
    assert found == ((14, 14), (53, 53), (27, 27))


def test_nominal_stride():
    assert [nominal_stride(416, n) for n in (52, 53, 26, 27, 13, 14)] == [8, 8, 16, 16, 32, 32]
    assert nominal_stride(352, 23) == 16
    assert nominal_stride(64, 2) == 32
    assert nominal_stride(64, 3) is None  # 16 with a cell less or 32 with one more: the card must say
    assert nominal_stride(416, 40) is None


def yolox_cells(maps, at):
    """Rows (1, n, 7) in which one cell has an object of 16 × 24 pixels in its middle."""
    level, row, column = at
    n = sum(h * w for h, w in maps)
    rows = np.zeros((1, n, 7), np.float32)
    index = sum(h * w for h, w in maps[:level]) + row * maps[level][1] + column
    rows[0, index] = [0.5, 0.5, np.log(16 / STRIDES[level]), np.log(24 / STRIDES[level]), 1.0, 0.0, 0.9]
    return {"output": rows}


@pytest.mark.parametrize("maps", [((52, 52), (26, 26), (13, 13)), ((53, 53), (27, 27), (14, 14))])
@pytest.mark.parametrize("at", [(0, 10, 20), (1, 5, 7), (2, 12, 3)])
def test_yolox_finds_the_cell_on_either_grid(maps, at):
    level, row, column = at
    found = read(yolox_cells(maps, at), card("yolox"))
    x, y = (column + 0.5) * STRIDES[level], (row + 0.5) * STRIDES[level]
    assert np.allclose(found.boxes, [[x - 8, y - 12, x + 8, y + 12]], atol=1e-4)
    assert found.classes.tolist() == [1]


def test_yolox_says_when_no_grid_fits():
    raw = {"output": np.zeros((1, 3600, 7), np.float32)}
    with pytest.raises(CardError, match="3600 cells are not those of strides"):
        read(raw, card("yolox"))


@pytest.mark.parametrize("sides", [(52, 26, 13), (53, 27, 14)])
def test_nanodet_finds_the_cell_on_either_grid(sides):
    raw = {}
    for level, n in enumerate(sides):
        scores, bins = np.zeros((1, n * n, 2), np.float32), np.zeros((1, n * n, 32), np.float32)
        if level == 1:
            scores[0, 4 * n + 6, 0] = 0.8
            bins[0, 4 * n + 6].reshape(4, 8)[:, 2] = 50.0  # two strides to each side
        raw |= {f"s{level}": scores, f"b{level}": bins}
    found = read(raw, card("nanodet"))
    assert np.allclose(found.boxes, [[104 - 32, 72 - 32, 104 + 32, 72 + 32]], atol=1e-3)


@pytest.mark.parametrize("side", [22, 23])
def test_fastestdet_finds_the_cell_on_either_grid(side):
    raw = np.zeros((1, 7, side, side), np.float32)
    raw[0, :, 21, 5] = [1.0, 0.0, 0.0, 0.0, 0.0, 0.9, 0.0]
    found = read({"out": raw}, card("fastestdet", (352, 352)))
    assert np.allclose(found.boxes, [[80 - 88, 336 - 88, 80 + 88, 336 + 88]], atol=1e-3)


@pytest.mark.parametrize("sides", [((8, 12), (4, 6)), ((9, 13), (5, 7)), ((8, 13), (4, 7))])
def test_anchors_lie_on_the_maps_there_are(sides):
    raw, strides = {}, (8, 16)
    for level, (h, w) in enumerate(sides):
        raw[f"s{level}"] = np.full((1, 2, h, w), -20.0, np.float32)
        raw[f"d{level}"] = np.zeros((1, 4, h, w), np.float32)
    raw["s1"][0, 1, 2, 3] = 4.0
    of = card(
        "anchors", (96, 64), strides=strides, sizes=(16.0, 32.0), ratios=(1.0,), scales=(1.0,), centre=0.5
    )
    found = read(raw, of)
    assert np.allclose(found.boxes, [[56 - 16, 40 - 16, 56 + 16, 40 + 16]])
    flat = {
        "scores": np.concatenate([raw[f"s{i}"].reshape(2, -1) for i in (0, 1)], 1).T[None],
        "deltas": np.concatenate([raw[f"d{i}"].reshape(4, -1) for i in (0, 1)], 1).T[None],
    }
    if sides[0] == (8, 13):  # 8·13 + 4·7 = 9·12 + 4·6: not to be told from the sum, so not guessed
        with pytest.raises(CardError, match="132 anchors are not 1 per cell"):
            read(flat, of)
    else:
        assert np.allclose(read(flat, of).boxes, found.boxes)


def test_anchors_on_maps_of_no_such_stride():
    raw = {"s": np.zeros((1, 2, 20, 20), np.float32), "d": np.zeros((1, 4, 20, 20), np.float32)}
    of = card("anchors", (96, 64), strides=(8,), ratios=(1.0,), scales=(1.0,))
    with pytest.raises(CardError, match="400 anchors are not 1 per cell at strides"):
        read(raw, of)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((64, 96), (64, 96)),
        ((72, 104), (64, 96)),  # an eightfold enlargement of 9 × 13 cells: the last are beyond the input
        ((17, 25), (16, 24)),
        ((16, 24), (16, 24)),
        ((128, 192), (128, 192)),  # finer than the input on purpose
        ((50, 80), (50, 80)),  # no stride: stretched as before
    ],
)
def test_segmentation_drops_cells_beyond_the_input(shape, wanted):
    scores = np.random.default_rng(0).normal(size=(1, 2, *shape)).astype(np.float32)
    found = read({"out": scores}, card("segmentation", (96, 64)))
    assert np.array_equal(found, scores[0, :, : wanted[0], : wanted[1]])
    ids = np.zeros((1, *shape), np.int64)
    assert read({"out": ids}, card("segmentation", (96, 64))).shape == wanted
