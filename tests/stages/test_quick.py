"""Kernels give the bits of the plain functions, take over late, and never when they differ."""

import math
from functools import partial

import numpy as np
import PIL
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.frame import Window, place
from holdfast.core.model import Input
from holdfast.core.registry import lookup
from holdfast.core.types import Size
from holdfast.stages import normalise, quick
from holdfast.stages.colour import bt601, nv12
from holdfast.stages.quick import Meter, Quick, mixed, resample
from holdfast.stages.quick import pillow as taking
from holdfast.stages.quick.pillow import Resampler, plain

pytest.importorskip("numba", reason="numba is not installed: pip install 'holdfast[quick]'")

NAMES = sorted(resample.NAMES)
RULE = taking.rule_of()


@pytest.fixture
def patient(monkeypatch):
    """A process that has worked for long enough that kernels are worth loading."""
    monkeypatch.setattr(Meter, "spent", quick.COMPILING + 1)


def picture(height, width, seed=0):
    """Noise, or black and white alone, where sums go beyond 0 and 255."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (height, width, 3), np.uint8)
    return noise if seed % 2 else (noise > 127).astype(np.uint8) * 255


@given(
    st.tuples(*[st.integers(1, 150)] * 4),
    st.tuples(*[st.floats(0, 1)] * 4),
    st.sampled_from(NAMES),
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
    assert Meter.spent > 0
    monkeypatch.setattr(Meter, "spent", quick.COMPILING + 1)
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
        for name in NAMES:
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
        for found, plane in zip(bt601._planes(image), want, strict=True):
            assert found.dtype == plane.dtype
            np.testing.assert_array_equal(found, plane)
        np.testing.assert_array_equal(bt601._pixels(*want), bt601._back(*want, bt601.EXACT))


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
        np.testing.assert_array_equal(bt601._pixels(y, u, v), bt601._back(y, u, v, bt601.EXACT))


def fresh(monkeypatch, *made, spent=quick.COMPILING + 1):
    """The same functions as in a new process, in which kernels are worth loading, or not."""
    monkeypatch.setattr(Meter, "spent", spent)
    for one in made:
        monkeypatch.setattr(one, "asked", False)
        monkeypatch.setattr(one, "kernel", None)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("nv12", (nv12._NEAREST,)),
        ("nv12-bilinear", (nv12._BILINEAR,)),
        ("yuv444", (bt601._TO_YUV, bt601._TO_RGB)),
    ],
)
def test_colours_are_the_same_before_and_after(name, made, monkeypatch):
    image, stage = picture(75, 101, 1), lookup("colour", name)
    fresh(monkeypatch, *made, spent=0.0)
    plainly = stage(image)
    assert all(one.kernel is None for one in made)
    fresh(monkeypatch, *made)
    np.testing.assert_array_equal(stage(image), plainly)
    assert all(one.kernel is one.compiled for one in made)


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_nv12_by_the_kernel_is_that_of_the_equations(height, width, bilinear, seed):
    image = picture(height, width, seed)
    image.flags.writeable = False
    want = (nv12._bilinear if bilinear else nv12._nearest)(image)
    np.testing.assert_array_equal(nv12._compiled(image, bilinear=bilinear), want)


@given(
    st.tuples(*[st.floats(0.125, 300, width=32)] * 3),
    st.tuples(*[st.floats(-300, 300, width=32)] * 3),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_normalised_by_the_kernel_to_the_last_bit(std, mean, bgr):
    image = picture(7, 33, 1)[:, ::-1]  # not in one piece
    gain = np.float32(1) / np.array(std, np.float32)
    shift = np.array(mean, np.float32) / np.array(std, np.float32)
    found = normalise._compiled(image, gain, shift, bgr, 0)
    want = normalise._shifted(image, gain, shift, bgr, 0)
    assert found.dtype == want.dtype == np.float32
    np.testing.assert_array_equal(found, want)
    third = (image[..., ::-1] if bgr else image)[..., 2].astype(np.float32) * gain[2] - shift[2]
    np.testing.assert_array_equal(want[2], third)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("colour", ["rgb", "bgr"])
def test_a_tensor_is_the_same_by_kernel_and_without(layout, colour, monkeypatch):
    image, mean, std = picture(20, 30, 1), (10.0, 20.0, 30.0), (2.0, 3.0, 7.0)
    wanted = Input(size=Size(30, 20), layout=layout, colour=colour, mean=mean, std=std)
    fresh(monkeypatch, normalise._SHIFTED)
    quickly = normalise.card(image, wanted)
    assert (normalise._SHIFTED.kernel is not None) == (layout == "nchw")
    monkeypatch.setattr(normalise, "_SHIFTED", normalise._shifted)
    plainly = normalise.card(image, wanted)
    np.testing.assert_array_equal(quickly, plainly)
    assert quickly.shape == ((3, 20, 30) if layout == "nchw" else (20, 30, 3))
    assert quickly.flags.c_contiguous


def fused(image, gain, shift, bgr, channel):
    """One rounding instead of two."""
    pixels = np.moveaxis(image[:, :, ::-1] if bgr else image, 2, channel).astype(np.float64)
    return (pixels * gain[:, None, None] - shift[:, None, None]).astype(np.float32)


def colours_swapped(image, gain, shift, bgr, channel):
    return normalise._shifted(image, gain, shift, not bgr, channel)


@pytest.mark.parametrize("mutant", [fused, colours_swapped])
def test_another_normalisation_is_refused(mutant):
    assert Quick(normalise._shifted, normalise._compiled, normalise._samples).agreeing() is not None
    assert Quick(normalise._shifted, mutant, normalise._samples).agreeing() is None


def samples_of_chroma(image, bilinear):
    """The mean of the upper two pixels in place of all four."""
    y, u, v = bt601._forth(image)
    halved = [nv12._halved(np.repeat(p[::2], 2, axis=0)[: len(p)]) for p in (u, v)]
    wide = nv12._interpolated if bilinear else nv12._repeated
    return bt601._back(y, *(wide(p, y.shape) for p in halved), bt601.EXACT)


@pytest.mark.parametrize("bilinear", [False, True])
def test_another_chroma_is_refused(bilinear):
    plainly = nv12._bilinear if bilinear else nv12._nearest
    right = partial(nv12._compiled, bilinear=bilinear)
    other = partial(nv12._compiled, bilinear=not bilinear)
    assert Quick(plainly, right, nv12._samples).agreeing() is right
    assert Quick(plainly, other, nv12._samples).agreeing() is None
    assert Quick(plainly, partial(samples_of_chroma, bilinear=bilinear), nv12._samples).agreeing() is None


@given(st.integers(0, 5000), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_the_sums_of_a_digest_are_those_of_its_equation(size, seed):
    blocks = np.random.default_rng(seed).integers(0, 1 << 32, (size // 1000, mixed.WORDS), np.uint32)
    want = np.zeros((len(blocks), 2), np.uint64)
    for i, block in enumerate(blocks.tolist()):
        for k, key in enumerate(mixed.keys().tolist()):
            added = [(w + by) % 2**32 for w, by in zip(block, key, strict=True)]
            want[i, k] = sum(a * b for a, b in zip(added[:128], added[128:], strict=True)) % 2**64
    np.testing.assert_array_equal(mixed._sums(blocks), want)
    np.testing.assert_array_equal(mixed._compiled(blocks), want)


@given(st.integers(1, 3000), st.integers(0, 9), st.data())
@settings(max_examples=100, deadline=None)
def test_a_digest_tells_arrays_apart(size, seed, data):
    array = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    same = mixed.digest(array, "head")
    assert same == mixed.digest(array.copy(), "head")
    other = array.copy()
    other[data.draw(st.integers(0, size - 1))] ^= data.draw(st.integers(1, 255))
    longer = np.append(array, np.uint8(0))
    many = [mixed.digest(a, "head") for a in (other, longer, array[np.newaxis], array.view(np.int8))]
    assert len({same, mixed.digest(array, "foot"), *many}) == 6


@pytest.mark.parametrize("side", [227, 224])
def test_a_digest_of_a_part_that_begins_between_words(side, monkeypatch):
    whole = picture(side + 9, side)
    for top in range(5):
        part = whole[top : top + side]
        assert part.flags.c_contiguous
        fresh(monkeypatch, mixed._SUMS, spent=0.0)
        plainly = mixed.digest(part, "card")
        fresh(monkeypatch, mixed._SUMS)
        assert mixed.digest(part, "card") == plainly == mixed.digest(part.copy(), "card")
        assert mixed._SUMS.kernel is mixed._compiled


def outcome(work):
    """What comes of it: the numbers, or the kind of the exception."""
    try:
        return np.asarray(work())
    except Exception as problem:  # noqa: BLE001
        return type(problem)


STAGES = {
    "nv12": (lookup("colour", "nv12"), (nv12._NEAREST,)),
    "nv12-bilinear": (lookup("colour", "nv12-bilinear"), (nv12._BILINEAR,)),
    "planes": (bt601.to_yuv, (bt601._TO_YUV,)),
    "card": (lambda image: normalise.card(image, Input(size=Size(20, 16))), (normalise._SHIFTED,)),
    "one mean": (
        lambda image: normalise.card(image, Input(size=Size(20, 16), mean=(5.0,), std=(2.0,))),
        (normalise._SHIFTED,),
    ),
}


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
@pytest.mark.parametrize("name", STAGES)
def test_what_is_not_rgb_comes_out_the_same_before_and_after(name, channels, monkeypatch):
    stage, made = STAGES[name]
    image = np.random.default_rng(0).integers(0, 256, (16, 20, channels) if channels else (16, 20), np.uint8)
    fresh(monkeypatch, *made, spent=0.0)
    plainly = outcome(lambda: stage(image))
    fresh(monkeypatch, *made)
    for one in made:
        monkeypatch.setattr(one, "kernel", one.compiled)
    quickly = outcome(lambda: stage(image))
    np.testing.assert_array_equal(quickly, plainly)
    assert isinstance(plainly, np.ndarray) or (channels, name) != (3, "card")


def test_a_digest_is_the_same_for_ever():
    picture = np.arange(4000).astype(np.uint8).reshape(40, 100)
    assert mixed.digest(picture, "card") == "1b3d07a3febff4da"
    assert mixed.digest(picture[:, ::2], "card") == mixed.digest(picture[:, ::2].copy(), "card")


def test_a_quick_function_keeps_to_the_plain_one(patient, monkeypatch):
    def double(x):
        return 2 * x

    samples = lambda: [(np.arange(3),)]  # noqa: E731
    assert Quick(double, lambda x: x + x, samples).agreeing() is not None
    assert Quick(double, lambda x: x * x, samples).agreeing() is None
    assert Quick(double, lambda x: (2 * x).astype(np.int16), samples).agreeing() is None
    wrong = Quick(double, lambda x: x * x, samples)
    np.testing.assert_array_equal(wrong(np.arange(4)), [0, 2, 4, 6])
    assert wrong.asked
    monkeypatch.setattr(quick, "patience", lambda: math.inf)
    without = Quick(double, lambda x: pytest.fail("the kernel was asked"), samples)
    np.testing.assert_array_equal(without(np.arange(2)), [0, 2])
    assert not without.asked
