"""Kernels give the bits of OpenCV's Lanczos and area resizes, take over late, and never when they differ."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.frame import Window, place
from holdfast.core.model import Input
from holdfast.core.registry import lookup
from holdfast.core.types import Size
from holdfast.stages import quick
from holdfast.stages.quick import Meter
from holdfast.stages.quick import opencv as taking
from holdfast.stages.quick.opencv import AREA, LANCZOS, Resampler, known, plain, resized
from holdfast.stages.resize import opencv as stages

pytest.importorskip("numba", reason="numba is not installed: pip install 'holdfast[quick]'")

NAMES = (LANCZOS, AREA)
ALL = frozenset(NAMES)


@pytest.fixture
def patient(monkeypatch):
    """A process that has worked for long enough that kernels are worth loading."""
    monkeypatch.setattr(Meter, "spent", quick.COMPILING + 1)


def ready():
    """A resampler whose kernels were found right."""
    sampler = Resampler()
    sampler.asked, sampler.right = True, ALL
    return sampler


def picture(height, width, seed=0):
    """Noise; black and white alone, where sums go beyond 0 and 255; a gradient; large squares."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (height, width, 3), np.uint8)
    if seed % 4 == 0:
        return (noise > 127).astype(np.uint8) * 255
    if seed % 4 == 1:
        return noise
    slope = rng.uniform(0, 3, 2)
    if seed % 4 == 2:
        x, y, c = np.arange(width)[None, :, None], np.arange(height)[:, None, None], np.arange(3)
        return np.clip(slope[0] * x + slope[1] * y + 9 * c, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(noise[::5, ::5].repeat(5, 0).repeat(5, 1)[:height, :width])


def window_of(size, parts):
    left, top = int(parts[0] * (size.width - 1)), int(parts[1] * (size.height - 1))
    width, height = 1 + int(parts[2] * (size.width - left - 1)), 1 + int(parts[3] * (size.height - top - 1))
    return Window(left, top, width, height)


def cropped(image, window):
    left, top, width, height = window
    return image[top : top + height, left : left + width]


def check(image, size, name, parts):
    """The window as OpenCV gives it; whether the kernel gave it."""
    window = window_of(size, parts)
    want = cropped(plain(image, size, name), window)
    image.flags.writeable = False  # as decoders give it
    np.testing.assert_array_equal(ready().cut(image, size, name, window), want, strict=True)
    return known(image, size, name)


SIDES = st.tuples(*[st.integers(1, 150)] * 4)
PARTS = st.tuples(*[st.floats(0, 1)] * 4)


@given(SIDES, PARTS, st.integers(0, 11))
@settings(max_examples=200, deadline=None)
def test_the_kernel_gives_opencvs_bits_of_lanczos(sides, parts, seed):
    height, width, new_height, new_width = sides
    by_kernel = check(picture(height, width, seed), Size(new_width, new_height), LANCZOS, parts)
    assert by_kernel == ((height, width) != (new_height, new_width))


@given(SIDES, PARTS, st.integers(0, 11))
@settings(max_examples=200, deadline=None)
def test_the_kernel_gives_opencvs_bits_of_area(sides, parts, seed):
    a, b, c, d = sides
    (height, new_height), (width, new_width) = (max(a, c), min(a, c)), (max(b, d), min(b, d))
    by_kernel = check(picture(height, width, seed), Size(new_width, new_height), AREA, parts)
    assert by_kernel == bool(height % new_height or width % new_width)


@given(SIDES, st.sampled_from(NAMES), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_what_is_not_the_kernels_is_still_right(sides, name, seed):
    height, width, tall, wide = sides
    for size in (Size(width, height), Size(width, height + tall), Size(width + wide, height)):
        check(picture(height, width, seed), size, name, (0, 0, 1, 1))
        assert known(picture(height, width), size, name) == (name == LANCZOS and size != (width, height))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Size(500, 375), Size(341, 256)),
        (Size(1301, 9), Size(1299, 8)),  # shares below a thousandth
        (Size(49 * 3, 8), Size(3, 7)),  # 1/(1/49) is not 49 in float64
        (Size(240, 360), Size(200, 300)),  # halves
    ],
)
def test_tricky_sizes(name, before, after):
    for seed in range(4):
        assert check(picture(before.height, before.width, seed), after, name, (0, 0, 1, 1))


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 49])
def test_whole_factors_of_area_are_left_to_opencv(factor, monkeypatch):
    monkeypatch.setattr(taking, "resized", lambda *given: pytest.fail("the kernel was asked"))
    image, size = picture(5 * factor, 4 * factor, 1), Size(4, 5)
    found = ready().cut(image, size, AREA, Window(0, 0, *size))
    np.testing.assert_array_equal(found, plain(image, size, AREA))


def test_tables_are_kept_and_cannot_be_changed():
    for table in (taking.neighbours, taking.covered):
        assert table(50, 30) is table(50, 30)
        for part in table(50, 30):
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 1


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_takes_over_only_after_a_while(name, monkeypatch):
    image, size, window = picture(90, 170), Size(100, 60), Window(3, 5, 80, 50)
    monkeypatch.setattr(Meter, "spent", 0.0)
    sampler = Resampler()
    want = sampler.cut(image, size, name, window)
    assert not sampler.asked
    assert Meter.spent > 0
    monkeypatch.setattr(Meter, "spent", quick.COMPILING + 1)
    sampler.cut(image, size, name, window)
    assert sampler.right == ALL
    monkeypatch.setattr(taking, "plain", lambda *given: pytest.fail("OpenCV was asked again"))
    np.testing.assert_array_equal(sampler.cut(image, size, name, window), want)


def slow_lanczos(half=1 << 21, between=0):
    """The kernel in numpy; mutants round otherwise, at the end or between the passes."""

    def kernel(lines, left, x, across, y, down, some, turned, total, made, out):
        seen = lines.reshape(len(lines), -1, 3).astype(np.int64)
        eight = np.arange(8)
        rows = np.clip(x[:, None] + eight, 0, seen.shape[1] - 1)
        sums = np.einsum("hxkc,xk->hxc", seen[:, rows], across) >> between << between
        columns = np.clip(y[:, None] + eight, 0, len(lines) - 1)
        sums = np.einsum("ykxc,yk->yxc", sums[columns], down)
        out[:] = np.clip((sums + half) >> 22, 0, 255).reshape(out.shape)

    return kernel


def slow_area(rounded=np.rint, exact=np.float32, backwards=False, fused=False):
    """The kernel in numpy; mutants round otherwise, or sum otherwise."""

    def added(total, by, value):
        if fused:  # the product is not rounded
            return (np.float64(by) * value + total).astype(np.float32)
        return total + exact(by) * value

    def kernel(lines, left, x, across, y, down, line, row, total, out):
        seen = np.pad(lines.reshape(len(lines), -1, 3).astype(exact), ((0, 0), (0, 99), (0, 0)))
        made = np.zeros((len(y), len(x), 3))
        order = range(across.shape[1])[:: -1 if backwards else 1]
        rows = np.zeros((len(lines), len(x), 3), exact)
        for i, first in enumerate(x // np.uint64(3)):
            for k in order:
                rows[:, i] = added(rows[:, i], across[i, k], seen[:, left + int(first) + k])
        for i, first in enumerate(y):
            sums = np.zeros((len(x), 3), exact)
            for k in range(np.count_nonzero(down[i])):
                sums = added(sums, down[i, k], rows[first + k])
            made[i] = rounded(sums)
        out[:] = np.clip(made, 0, 255).reshape(out.shape)

    return kernel


def test_the_kernels_in_numpy_agree(monkeypatch):
    monkeypatch.setattr(taking, "lanczos", slow_lanczos())
    monkeypatch.setattr(taking, "area", slow_area())
    assert taking.agrees(LANCZOS)
    assert taking.agrees(AREA)


def fails(*given):
    raise RuntimeError("no such processor")


def off_by_one(kernel):
    def broken(*given):
        kernel(*given)
        given[-1].flat[given[-1].size // 2] ^= 1

    return broken


LANCZOS_MUTANTS = {
    "fails": fails,
    "off by one": off_by_one(taking.lanczos),
    "cut, not rounded": slow_lanczos(half=0),
    "halves down": slow_lanczos(half=(1 << 21) - 1),
    "rounded between": slow_lanczos(between=4),
}
AREA_MUTANTS = {
    "fails": fails,
    "off by one": off_by_one(taking.area),
    "halves up": slow_area(rounded=lambda x: np.floor(x + 0.5)),
    "cut, not rounded": slow_area(rounded=np.floor),
    "float64": slow_area(exact=np.float64),
    "from the right": slow_area(backwards=True),
    "fused": slow_area(fused=True),
}


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        *[pytest.param(LANCZOS, mutant, id=f"lanczos {how}") for how, mutant in LANCZOS_MUTANTS.items()],
        *[pytest.param(AREA, mutant, id=f"area {how}") for how, mutant in AREA_MUTANTS.items()],
    ],
)
def test_a_kernel_that_differs_is_never_used(name, mutant, patient, monkeypatch):
    monkeypatch.setattr(taking, "lanczos" if name == LANCZOS else "area", mutant)
    sampler, size = Resampler(), Size(100, 60)
    for seed in range(4):
        image = picture(90, 170, seed)
        found = sampler.cut(image, size, name, Window(0, 0, *size))
        np.testing.assert_array_equal(found, plain(image, size, name))
    assert sampler.asked
    assert sampler.right == ALL - {name}  # the other is


def shifted(table):
    def moved(size, wanted):
        first, weights = table(size, wanted)
        return np.minimum(first + 1, size - 1), weights

    return moved


def whole_weights(size, wanted):
    """Weights that sum to one, as other libraries have them."""
    first, weights = taking.neighbours.__wrapped__(size, wanted)
    weights = weights.copy()
    weights[:, 3] += (1 << taking.BITS) - weights.sum(1, dtype=np.int32)
    return first, weights


def shares_of_one(size, wanted):
    """Shares that sum to one, as near as float32 can."""
    first, shares = taking.covered.__wrapped__(size, wanted)
    return first, shares / shares.sum(1, keepdims=True, dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "table", "mutant"),
    [
        (LANCZOS, "neighbours", shifted(taking.neighbours)),
        (LANCZOS, "neighbours", whole_weights),
        (AREA, "covered", shifted(taking.covered)),
        (AREA, "covered", shares_of_one),
    ],
)
def test_another_table_is_refused(name, table, mutant, monkeypatch):
    assert taking.agrees(name)
    monkeypatch.setattr(taking, table, mutant)
    assert not taking.agrees(name)


def test_small_shares_are_seen(monkeypatch):
    monkeypatch.setattr(taking, "covered", taking.covered.__wrapped__)
    assert taking.agrees(AREA)
    monkeypatch.setattr(taking, "LEAST", 1e-9)
    assert not taking.agrees(AREA)


def test_other_pictures_than_8_bit_rgb_are_left_to_opencv(patient, monkeypatch):
    sampler, size = Resampler(), Size(40, 30)
    sampler.cut(picture(90, 170), size, AREA, Window(0, 0, *size))
    assert sampler.right == ALL
    monkeypatch.setattr(taking, "resized", lambda *given: pytest.fail("the kernel was asked"))
    image = picture(90, 170, 1)
    others = [image[:, :, 0], image[:, :, :2], np.dstack([image, image[:, :, :1]])]
    others += [image.astype(kind) for kind in (np.uint16, np.int16, np.float32)]
    for name in NAMES:
        for other in others:
            other = np.ascontiguousarray(other)
            found = sampler.cut(other, size, name, Window(2, 3, 30, 20))
            assert found.dtype == other.dtype
            np.testing.assert_array_equal(found, plain(other, size, name)[3:23, 2:32])


def test_a_picture_that_is_not_in_one_piece_is_the_same():
    image = picture(120, 201, 1)
    for part in (image[::2, 3:], image[:, ::-1], image.transpose(1, 0, 2), image[:, :, ::-1]):
        size = Size(part.shape[1] * 2 // 3, part.shape[0] * 3 // 4)
        for name in NAMES:
            want = plain(np.ascontiguousarray(part), size, name)
            np.testing.assert_array_equal(resized(part, size, name, Window(0, 0, *size)), want)


@pytest.mark.parametrize(("stage", "name"), [("opencv-lanczos", LANCZOS), ("opencv-area", AREA)])
@pytest.mark.parametrize(("policy", "short"), [("crop", 80), ("square", 71)])
def test_a_crop_is_asked_for_its_window_and_is_the_same(stage, name, policy, short, patient, monkeypatch):
    monkeypatch.setattr(stages._QUICK, "asked", False)
    monkeypatch.setattr(stages._QUICK, "right", frozenset())
    wanted, resize = Input(size=Size(64, 64), policy=policy, short_side=short), lookup("resize", stage)
    for seed in range(4):
        image = picture(120, 201, seed)
        cut, frame = place(image, wanted, resize)
        whole = resize(image, frame.resized)
        window = Window(-frame.offset_x, -frame.offset_y, 64, 64)
        np.testing.assert_array_equal(cut, cropped(whole, window))
        np.testing.assert_array_equal(cut, resize.part(image, frame.resized, window))
        np.testing.assert_array_equal(whole, plain(image, frame.resized, name))
    assert stages._QUICK.right == ALL
