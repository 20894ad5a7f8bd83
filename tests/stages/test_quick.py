"""Kernels give the bits of the plain functions, take over late, and never when they differ."""

import numpy as np
import PIL
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.frame import Window, place
from holdfast.core.model import Input
from holdfast.core.registry import lookup
from holdfast.core.types import Size
from holdfast.stages import quick
from holdfast.stages.colour import bt601
from holdfast.stages.quick import Meter, Quick
from holdfast.stages.quick import pillow as taking
from holdfast.stages.quick.pillow import Resampler, plain

pytest.importorskip("numba", reason="numba is not installed: pip install 'holdfast[quick]'")
from holdfast.stages.quick import resample, yuv

FILTERS = sorted(resample.FILTERS)
RULE = taking.rule_of()


@pytest.fixture
def patient(monkeypatch):
    """A process that has worked for long enough that kernels are worth loading."""
    monkeypatch.setattr(Meter, "spent", quick.PATIENCE + 1)


def picture(height, width, seed=0):
    """Noise, or black and white alone, where sums go beyond 0 and 255."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (height, width, 3), np.uint8)
    return noise if seed % 2 else (noise > 127).astype(np.uint8) * 255


@given(
    st.tuples(*[st.integers(1, 150)] * 4),
    st.tuples(*[st.floats(0, 1)] * 4),
    st.sampled_from(FILTERS),
    st.integers(0, 9),
)
@settings(max_examples=200, deadline=None)
def test_the_kernel_gives_pillows_bits(sides, parts, name, seed):
    height, width, new_height, new_width = sides
    left, top = int(parts[0] * (new_width - 1)), int(parts[1] * (new_height - 1))
    window = Window(
        left, top, 1 + int(parts[2] * (new_width - left - 1)), 1 + int(parts[3] * (new_height - top - 1))
    )
    image, size = picture(height, width, seed), Size(new_width, new_height)
    want = plain(image, size, name)[top : top + window.height, left : left + window.width]
    image.flags.writeable = False  # as decoders give it
    sampler = Resampler()
    sampler.asked, sampler.rule = True, RULE
    np.testing.assert_array_equal(sampler.cut(image, size, name, window), want)


def test_the_rule_is_that_of_the_pillow_installed():
    old = int(PIL.__version__.partition(".")[0]) < 13
    assert RULE is (taking.rows_first if old else taking.columns_if_tall)


def test_the_kernel_takes_over_only_after_a_while(monkeypatch):
    image, size, window = picture(90, 170), Size(100, 60), Window(0, 0, 100, 60)
    monkeypatch.setattr(Meter, "spent", 0.0)
    sampler = Resampler()
    want = sampler.cut(image, size, "BICUBIC", window)
    assert not sampler.asked
    assert 0 < Meter.spent < quick.PATIENCE
    monkeypatch.setattr(Meter, "spent", quick.PATIENCE + 1)
    sampler.cut(image, size, "BICUBIC", window)
    assert sampler.rule is RULE
    monkeypatch.setattr(taking, "plain", lambda *given: pytest.fail("Pillow was asked again"))
    np.testing.assert_array_equal(sampler.cut(image, size, "BICUBIC", window), want)


def off_by_one(made):
    """The same with one other number."""
    made = made.copy()
    made.flat[len(made.flat) // 2] ^= 1
    return made


def broken_kernel(patch):
    exact = resample.resized
    patch.setattr(resample, "resized", lambda *given: off_by_one(exact(*given)))


def failing_kernel(patch):
    def fails(*given):
        raise RuntimeError("no such processor")

    patch.setattr(resample, "resized", fails)


def another_order(patch):
    patch.setattr(taking, "RULES", (lambda before, after: not RULE(before, after),))


def another_factor(patch):
    def rule(before, after):
        less = before.height - after.height
        return less > 0 and less >= 2 * (before.width - after.width)

    patch.setattr(taking, "RULES", (rule,))


@pytest.mark.parametrize("mutant", [broken_kernel, failing_kernel, another_order, another_factor])
def test_a_kernel_that_differs_is_never_used(mutant, patient, monkeypatch):
    mutant(monkeypatch)
    sampler, size = Resampler(), Size(100, 60)
    for seed in range(3):
        image = picture(90, 170, seed)
        np.testing.assert_array_equal(
            sampler.cut(image, size, "LANCZOS", Window(0, 0, *size)), plain(image, size, "LANCZOS")
        )
    assert sampler.asked
    assert sampler.rule is None


def test_other_pictures_than_rgb_are_left_to_pillow(patient):
    sampler, size = Resampler(), Size(40, 30)
    for image in (picture(90, 170)[:, :, 0], np.dstack([picture(90, 170), picture(90, 170)[:, :, :1]])):
        found = sampler.cut(image, size, "BOX", Window(0, 0, *size))
        np.testing.assert_array_equal(found, plain(image, size, "BOX"))
    assert sampler.rule is RULE


def test_a_crop_is_asked_for_its_window_and_is_the_same(patient):
    wanted = Input(size=Size(64, 64), policy="crop", short_side=80)
    for seed in range(2):
        image = picture(120, 201, seed)
        for name in FILTERS:
            stage = lookup("resize", f"pillow-{name.lower()}")
            cut, frame = place(image, wanted, stage)
            whole = stage(image, frame.resized)
            top, left = -frame.offset_y, -frame.offset_x
            np.testing.assert_array_equal(cut, whole[top : top + 64, left : left + 64])
            np.testing.assert_array_equal(whole, plain(image, frame.resized, name))


def test_planes_and_pixels_are_those_of_the_equations():
    for seed in range(4):
        image = picture(67, 91, seed)
        want = bt601._forth(image)
        for found, plane in zip(yuv.planes(image), want, strict=True):
            assert found.dtype == plane.dtype
            np.testing.assert_array_equal(found, plane)
        np.testing.assert_array_equal(yuv.pixels(*want), bt601._back(*want, bt601.EXACT))


def test_other_types_than_the_kernels_are_plain(patient):
    image = picture(20, 30, 1).astype(np.int32)
    planes = [plane.astype(np.int32) for plane in bt601.to_yuv(image)]
    np.testing.assert_array_equal(
        bt601.to_rgb(*planes, bt601.EXACT), bt601._back(*bt601._forth(image), bt601.EXACT)
    )


def test_every_chroma_goes_back_alike():
    u, v = (np.ascontiguousarray(g) for g in np.meshgrid(*[np.arange(256, dtype=np.int16)] * 2))
    for luma in (0, 15, 16, 120, 235, 255):
        y = np.full_like(u, luma)
        np.testing.assert_array_equal(yuv.pixels(y, u, v), bt601._back(y, u, v, bt601.EXACT))


@pytest.mark.parametrize("name", ["nv12", "nv12-bilinear", "yuv444"])
def test_colours_are_the_same_before_and_after(name, monkeypatch):
    image, stage = picture(75, 101, 1), lookup("colour", name)
    plainly = stage(image)
    monkeypatch.setattr(Meter, "spent", quick.PATIENCE + 1)
    for made in (bt601._TO_YUV, bt601._TO_RGB):
        monkeypatch.setattr(made, "asked", False)
        monkeypatch.setattr(made, "kernel", None)
    np.testing.assert_array_equal(stage(image), plainly)
    assert bt601._TO_YUV.kernel is not None
    assert bt601._TO_RGB.kernel is not None


def test_a_quick_function_keeps_to_the_plain_one(patient, monkeypatch):
    def double(x):
        return 2 * x

    samples = lambda: [(np.arange(3),)]  # noqa: E731
    assert Quick(double, lambda: lambda x: x + x, samples).agreeing() is not None
    assert Quick(double, lambda: lambda x: x * x, samples).agreeing() is None
    assert Quick(double, lambda: lambda x: (2 * x).astype(np.int16), samples).agreeing() is None
    wrong = Quick(double, lambda: lambda x: x * x, samples)
    np.testing.assert_array_equal(wrong(np.arange(4)), [0, 2, 4, 6])
    assert wrong.asked
    monkeypatch.setattr(quick, "there", lambda: False)
    without = Quick(double, lambda: pytest.fail("nothing to load"), samples)
    np.testing.assert_array_equal(without(np.arange(2)), [0, 2])
    assert not without.asked
