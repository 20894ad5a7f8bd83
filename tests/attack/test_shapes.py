"""Shapes: area, position, the grammar of sizes, and the PNG files to print."""

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from holdfast.attack.masks import corners, count_regions, shares
from holdfast.attack.prints import LARGEST, cut_out, print_png, print_size
from holdfast.attack.shapes import PatchSize, mask_of, outline, side_of_area, sign_width, size_of, stickers
from holdfast.attack.types import Limits, Method, Sticker, Target
from holdfast.core.errors import ImageError, InputError
from holdfast.core.patch import Patch
from holdfast.core.types import Boxes, no_detections

SHAPES = st.sampled_from(["square", "circle", "sign"])
HEIGHT, WIDTH = 60, 80


def target_of(*boxes):
    xyxy = np.array(boxes, np.float64).reshape(-1, 4)
    return Target(np.zeros((HEIGHT, WIDTH, 3), np.uint8), Boxes(xyxy, np.zeros(len(xyxy))), no_detections())


@st.composite
def boxes(draw):
    x1, y1 = draw(st.floats(0, WIDTH - 12)), draw(st.floats(0, HEIGHT - 12))
    return [x1, y1, draw(st.floats(x1 + 10, WIDTH)), draw(st.floats(y1 + 10, HEIGHT))]


def gains(seed=0):
    return np.random.default_rng(seed).random((HEIGHT, WIDTH))


@given(SHAPES, st.integers(1, 60))
def test_an_outline_is_one_symmetric_region_that_touches_its_square(shape, side):
    mask = outline(shape, side)
    assert np.array_equal(mask, mask[::-1])
    assert np.array_equal(mask, mask.T)
    assert count_regions(mask) == 1
    assert mask[0].any()


@pytest.mark.parametrize(
    ("shape", "share"), [("square", 1.0), ("circle", math.pi / 4), ("sign", 2 * math.sqrt(2) - 2)]
)
def test_the_area_of_a_large_outline_is_that_of_the_figure(shape, share):
    assert outline(shape, 500).mean() == pytest.approx(share, rel=0.01)


@given(SHAPES, st.integers(1, 4000))
def test_a_budget_gives_the_largest_shape_within_it(shape, area):
    side = side_of_area(shape, area)
    assert outline(shape, side).sum() <= area < outline(shape, side + 1).sum()


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.lists(boxes(), min_size=1, max_size=3), st.integers(1, 900), st.integers(0, 9))
def test_patches_keep_to_the_budget_the_boxes_and_the_image(shape, where, budget, seed):
    target = target_of(*where)
    placed = stickers(target, Method(shape=shape), Limits(pixels=budget), gains(seed))
    mask = mask_of(placed, shape, (HEIGHT, WIDTH))
    hit = np.array(shares(target, budget)) > 0
    assert len(placed) == hit.sum() > 0
    assert mask.sum() <= sum(outline(shape, one.side).sum() for one in placed) <= budget
    for one, (x1, y1, x2, y2) in zip(placed, corners(target)[hit], strict=True):
        assert x1 <= one.x <= one.x + one.side <= x2
        assert y1 <= one.y <= one.y + one.side <= y2


@settings(max_examples=40, deadline=None)
@given(SHAPES, boxes(), st.floats(2, 60), st.integers(0, 9))
def test_a_share_is_that_of_the_box(shape, box, percent, seed):
    target = target_of(box)
    x1, y1, x2, y2 = corners(target)[0]
    area, room = (x2 - x1) * (y2 - y1) * percent / 100, min(x2 - x1, y2 - y1)
    side = max(1, side_of_area(shape, area))
    method = Method(shape=shape, size=f"{percent}%")
    if side > room:
        with pytest.raises(ImageError, match="larger than its object"):
            stickers(target, method, Limits(), gains(seed))
    else:
        (one,) = stickers(target, method, Limits(), gains(seed))
        assert outline(shape, one.side).sum() <= max(1, area) < outline(shape, one.side + 1).sum()


def test_centimetres_follow_from_the_width_of_each_object():
    target = target_of([0, 0, 30, 40], [40, 10, 70, 25])
    method = Method(shape="square", size="12 cm", sign_size="60cm")
    first, second = stickers(target, method, Limits(), gains())
    assert (first.side, second.side) == (6, 6)
    assert first.centimetres == second.centimetres == 12


def test_a_patch_is_where_the_gradient_is():
    slope = np.zeros((HEIGHT, WIDTH))
    slope[31:41, 52:62] = outline("circle", 10)
    (one,) = stickers(target_of([0, 0, WIDTH, HEIGHT]), Method(shape="circle", size="10px"), Limits(), slope)
    assert (one.x, one.y, one.side) == (52, 31, 10)
    (other,) = stickers(
        target_of([0, 0, WIDTH, HEIGHT]), Method(shape="circle", size="10px"), Limits(), slope, (one,)
    )
    assert max(abs(other.x - one.x), abs(other.y - one.y)) > 10 / 4


def test_a_patch_may_be_beside_its_object():
    slope = np.zeros((HEIGHT, WIDTH))
    slope[20:30, 50:60] = 1.0
    method = Method(shape="square", size="10px", inside=False)
    (one,) = stickers(target_of([30, 15, 50, 35]), method, Limits(), slope)
    assert (one.x, one.y) == (50, 20)


def test_patches_of_overlapping_objects_do_not_touch():
    slope = np.zeros((HEIGHT, WIDTH))
    slope[20:30, 30:40] = 1.0
    method = Method(shape="square", size="10px")
    placed = stickers(target_of([10, 10, 60, 50], [12, 12, 62, 52]), method, Limits(), slope)
    assert count_regions(mask_of(placed, "square", (HEIGHT, WIDTH))) == 2


def test_a_new_object_needs_no_box():
    (one,) = stickers(target_of(), Method(shape="sign", goal="fabricate"), Limits(pixels=100), gains())
    assert outline("sign", one.side).sum() <= 100


@pytest.mark.parametrize(
    ("text", "sign", "expected"),
    [
        ("38px", "", PatchSize(38, "px")),
        (" 7 px ", "", PatchSize(7, "px")),
        ("10%", "", PatchSize(10, "%")),
        (".5%", "60cm", PatchSize(0.5, "%")),
        ("12.5cm", "60 cm", PatchSize(12.5, "cm")),
        ("60cm", "60cm", PatchSize(60, "cm")),
        ("", "", None),
        ("", "60cm", None),
    ],
)
def test_sizes(text, sign, expected):
    assert size_of(Method(shape="square", size=text, sign_size=sign)) == expected


@pytest.mark.parametrize(
    ("text", "sign", "said"),
    [
        ("0px", "", "above 0, such as 38px"),
        ("0%", "", "above 0"),
        ("-3px", "", "got '-3px'"),
        ("38", "", "got '38'"),
        ("2.5px", "", "whole pixels"),
        ("1e3px", "", "got '1e3px'"),
        ("wide", "", "got 'wide'"),
        ("101%", "", "larger than the object"),
        ("12cm", "", "--sign-size 60cm"),
        ("61cm", "60cm", "larger than the object .--sign-size 60cm"),
        ("12cm", "60", "--sign-size: expected centimetres such as 60cm, got '60'"),
        ("12cm", "0cm", "--sign-size: expected centimetres"),
        ("38px", "six", "--sign-size: expected centimetres"),
    ],
)
def test_sizes_that_are_none(text, sign, said):
    with pytest.raises(InputError, match=said):
        size_of(Method(shape="square", size=text, sign_size=sign))


def test_the_width_of_the_object():
    assert sign_width("") == 0
    assert sign_width("7.5cm") == 7.5


def printed(sticker, shape="square"):
    values = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    rgba = cut_out(Patch(values, mask_of((sticker,), shape, (HEIGHT, WIDTH))), sticker, shape)
    size = print_size(sticker)
    return values, rgba, size, Image.open(io.BytesIO(print_png(rgba, size)))


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 30), st.floats(0.5, 9))
def test_a_print_has_its_centimetres_at_300_dpi(side, centimetres):
    values, _, size, picture = printed(Sticker(3, 5, side, centimetres))
    assert picture.mode == "RGBA"
    assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.02)
    assert picture.width == picture.height == size.pixels
    assert picture.width / picture.info["dpi"][0] * 2.54 == pytest.approx(centimetres, abs=0.01)
    # Without interpolation: every pixel is there, as a block of equal pixels.
    middle = ((np.arange(side) + 0.5) * size.pixels / side).astype(int)
    seen = np.array(picture)[middle[:, None], middle]
    assert np.array_equal(seen[..., :3], values[5 : 5 + side, 3 : 3 + side])


def test_a_print_without_centimetres_is_20_times_larger_and_transparent_outside():
    values, rgba, size, picture = printed(Sticker(3, 5, 9), "circle")
    assert size.per_metre is None
    assert "dpi" not in picture.info
    assert picture.size == (180, 180)
    shown = np.array(picture)
    assert np.array_equal(shown, rgba.repeat(20, axis=0).repeat(20, axis=1))
    assert np.array_equal(rgba[..., 3] == 255, outline("circle", 9))
    assert not rgba[0, 0].any()
    assert np.array_equal(rgba[4, 4, :3], values[9, 7])


def test_large_and_fine_prints_keep_their_centimetres():
    large = print_size(Sticker(0, 0, 40, 500.0))
    assert large.pixels == LARGEST
    assert 100 * large.pixels / large.per_metre == pytest.approx(500)
    fine = print_size(Sticker(0, 0, 600, 1.0))
    assert fine.pixels == 600
    assert 100 * fine.pixels / fine.per_metre == pytest.approx(1.0)
