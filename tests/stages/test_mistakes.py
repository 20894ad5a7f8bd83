"""The noise options of family `mistakes`, each against numpy written here."""

import numpy as np
import pytest

from holdfast.core.model import Input
from holdfast.core.pipeline import frame_of
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.noise.suite import NoiseSelection
from holdfast.stages.families import family, options

SPEC = Input(Size(20, 16), colour="rgb", scale=1 / 255, policy="letterbox", pad=114)
IMAGE = np.random.default_rng(0).integers(0, 255, (16, 20, 3)).astype(np.uint8)


def plain(image):
    return (image / 255.0).transpose(2, 0, 1)


def fed(kind, name, image=IMAGE, spec=SPEC):
    return part(kind, name).function(image, spec)


def test_the_family_runs_only_if_it_is_named():
    every = options(family("mistakes"))
    assert len(every) == 24
    assert not any(NoiseSelection().takes(one) or NoiseSelection(every=True).takes(one) for one in every)
    assert all(NoiseSelection(only=("mistakes",)).takes(one) for one in every)
    named = NoiseSelection(only=("mistakes=grey",))
    assert [one.name for one in every if named.takes(one)] == ["grey"]


def test_pixels_are_mirrored_flipped_and_reshaped():
    np.testing.assert_allclose(fed("normalise", "mirrored"), plain(IMAGE[:, ::-1]), atol=1e-6)
    np.testing.assert_allclose(fed("normalise", "upside-down"), plain(IMAGE[::-1]), atol=1e-6)
    reshaped = fed("normalise", "reshaped")
    np.testing.assert_allclose(reshaped, (IMAGE / 255.0).reshape(3, 16, 20), atol=1e-6)


def test_the_shift_moves_to_the_right_and_down():
    one = fed("normalise", "shifted-one-pixel")
    np.testing.assert_allclose(one[:, 1:, 1:], plain(IMAGE)[:, :-1, :-1], atol=1e-6)
    half = fed("normalise", "shifted-half-pixel")
    wide = IMAGE.astype(float)
    four = (wide[1:, 1:] + wide[:-1, 1:] + wide[1:, :-1] + wide[:-1, :-1]) / 4
    np.testing.assert_allclose(half[:, 1:, 1:], plain(four), atol=0.51 / 255)


def test_grey_and_gamma_change_levels():
    grey = part("colour", "grey").function(IMAGE)
    np.testing.assert_allclose(grey[..., 1], IMAGE @ [0.299, 0.587, 0.114], atol=0.5)
    darker, brighter = (part("colour", f"gamma-{name}").function(IMAGE) for name in ("darker", "brighter"))
    assert darker.mean() < IMAGE.mean() < brighter.mean()
    assert (
        np.abs(part("colour", "gamma-brighter").function(darker).astype(int) - IMAGE)[IMAGE > 60].max() <= 2
    )


def test_levels_are_compressed_to_the_limited_range_and_expanded_from_it():
    limited, expanded = (part("colour", f"levels-{name}").function for name in ("limited", "expanded"))
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, 2)
    assert (limited(ramp).min(), limited(ramp).max()) == (16, 235)
    assert np.abs(expanded(limited(ramp)).astype(int) - ramp).max() <= 1
    assert (expanded(ramp)[0, 16, 0], expanded(ramp)[0, 235, 0]) == (0, 255)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("channels-swapped", "colour", "bgr"),
        ("not-normalised", "scale", 1.0),
        ("divided-twice", "scale", 1 / 255**2),
        ("imagenet-normalised", "mean", (0.485, 0.456, 0.406)),
        ("minus-one-to-one", "scale", 1 / 127.5),
        ("stretched", "policy", "stretch"),
        ("letterbox-corner", "place", "corner"),
        ("centre-crop", "policy", "crop"),
        ("pad-black", "pad", 0),
        ("pad-grey", "pad", 128),
        ("letterbox-truncated", "policy", "letterbox-truncate"),
    ],
)
def test_a_fit_states_another_input(name, field, value):
    assert getattr(part("fit", name).function(SPEC), field) == pytest.approx(value)


def test_what_does_not_apply_changes_nothing():
    stretch = Input(Size(20, 16), scale=1 / 255)
    for name in ("pad-black", "pad-grey", "letterbox-truncated", "divided-by-255", "stretched"):
        assert part("fit", name).function(stretch) == stretch


def test_the_truncating_letterbox_rounds_down():
    image = Size(301, 223)
    rounded, truncated = (
        frame_of(image, Input(Size(160, 160), policy=policy)).resized
        for policy in ("letterbox", "letterbox-truncate")
    )
    assert rounded == Size(160, round(223 * 160 / 301)) == Size(160, 119)
    assert truncated == Size(160, 118)


def test_resizing_twice_loses_detail():
    twice = part("resize", "resized-twice").function(IMAGE, Size(20, 16))
    assert twice.shape == (16, 20, 3)
    assert twice.std() < IMAGE.std()
