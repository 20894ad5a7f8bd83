"""How far a patch spreads: what is stated against real JPEG files and real resizes."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

import holdfast as hf
from helpers import models as making
from holdfast.certify.threat import check_threat, frame_for, radius_of, spread_of
from holdfast.core.errors import InputError, MissingExtra
from holdfast.core.model import Card, Head, Input
from holdfast.core.pipeline import Pipeline, place
from holdfast.core.registry import lookup, names
from holdfast.core.types import Size
from holdfast.data.images import Encoding
from holdfast.stages.masks import HalfPlanes


def jpeg(pixels, subsampling, quality=60):
    out = io.BytesIO()
    Pillow.fromarray(pixels).save(out, "JPEG", quality=quality, subsampling=subsampling)
    return out.getvalue()


def patched(rng, pixels, x, y, side):
    other = pixels.copy()
    other[y : y + side, x : x + side] = rng.integers(0, 2, (side, side, 3)) * 255
    return other


def footprint(spread, x, y, side):
    last = x + side - 1, y + side - 1
    return (
        slice(spread.rows.first[y], spread.rows.end[last[1]]),
        slice(spread.columns.first[x], spread.columns.end[last[0]]),
    )


@pytest.mark.parametrize(
    ("subsampling", "blocks", "margin"), [(0, (8, 8), 0), (1, (16, 8), 1), (2, (16, 16), 1)]
)
@pytest.mark.parametrize("decoder", ["pillow", "opencv"])
@pytest.mark.parametrize("seed", range(4))
def test_jpeg_spreads_a_patch_over_its_blocks_and_no_further(subsampling, blocks, margin, decoder, seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (83, 70, 3)).astype(np.uint8)
    side = int(rng.integers(1, 20))
    x, y = int(rng.integers(0, 70 - side)), int(rng.integers(0, 83 - side))
    clean, attacked = (jpeg(p, subsampling) for p in (pixels, patched(rng, pixels, x, y, side)))
    encoding = Encoding.of(clean)
    assert encoding == Encoding(blocks, margin)
    frame = frame_for(Size(70, 83), CARD, Pipeline())
    spread = spread_of("scene", "scene", Size(70, 83), frame, encoding, "pillow-bilinear")
    decode = lookup("decode", decoder)
    changed = (decode(clean) != decode(attacked)).any(axis=2)
    assert changed.any()
    changed[footprint(spread, x, y, side)] = False
    assert not changed.any()


CARD = Card("detect", Input(Size(48, 40)), Head("boxes"), ("a",))
RESIZES = [name for name in names("resize") if name != "resized-twice"]


@pytest.mark.parametrize("policy", ["stretch", "letterbox", "crop"])
@pytest.mark.parametrize("resize", RESIZES)
def test_a_resize_spreads_a_patch_over_its_filter_and_no_further(resize, policy):
    try:
        function = lookup("resize", resize)
    except MissingExtra as problem:
        pytest.skip(str(problem))
    rng = np.random.default_rng(1)
    spec = Input(Size(48, 40), policy=policy)
    for width, height in ((113, 61), (23, 90), (48, 40), (30, 20), (200, 190)):
        pixels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
        for _ in range(3):
            side = int(rng.integers(1, 14))
            x, y = int(rng.integers(0, width - side)), int(rng.integers(0, height - side))
            before, frame = place(pixels, spec, function)
            after, _ = place(patched(rng, pixels, x, y, side), spec, function)
            changed = (before != after).any(axis=2)
            spread = spread_of("decoded", "input", Size(width, height), frame, Encoding(), resize)
            changed[footprint(spread, x, y, side)] = False
            assert not changed.any(), (resize, width, height, x, y, side)


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 60), st.integers(8, 60), st.sampled_from(["decoded", "scene"]), st.data())
def test_an_effective_mask_is_the_largest_whose_spread_the_mask_hides(width, height, threat, data):
    spec = Input(Size(32, 24), policy=data.draw(st.sampled_from(["stretch", "letterbox", "crop"])))
    card, size = Card("detect", spec, Head("boxes"), ("a",)), Size(width, height)
    frame = frame_for(size, card, Pipeline())
    encoding = Encoding((16, 8), 1)
    spread = spread_of(threat, "input", size, frame, encoding, "pillow-bilinear")
    masks = HalfPlanes(4).masks(frame.network)
    for mask, effective in zip(masks.tolist(), spread.effective(masks).tolist(), strict=True):
        hidden = (spread.columns.first >= mask[0]) & (spread.columns.end <= mask[2])
        rows = (spread.rows.first >= mask[1]) & (spread.rows.end <= mask[3])
        x1, y1, x2, y2 = effective
        if x1 < x2:
            assert hidden[x1:x2].all()
            assert rows[y1:y2].all()
            assert not hidden[:x1].any()
            assert not rows[y2:].any()
        else:
            assert not hidden.any() or not rows.any()


def test_a_patch_in_the_decoded_image_does_not_spread_before_scene_masks():
    size, masks = Size(50, 30), HalfPlanes(3).masks(Size(50, 30))
    frame = frame_for(size, CARD, Pipeline())
    spread = spread_of("decoded", "scene", size, frame, Encoding((16, 16), 1), "pillow-bilinear")
    assert spread.effective(masks).tolist() == masks.tolist()
    wider = spread_of("scene", "scene", size, frame, Encoding((16, 16), 1), "pillow-bilinear")
    assert wider.effective(masks)[0].tolist() == [0, 0, 0, 0]  # 12 columns hold no block of 16
    assert wider.effective(masks)[2].tolist() == [0, 0, 32, 30]  # 38 columns, with the margin of 1


def test_input_masks_take_a_patch_of_the_input_as_it_is():
    frame = frame_for(Size(100, 50), CARD, Pipeline())
    spread = spread_of("input", "input", Size(100, 50), frame, Encoding(), "pillow-bilinear")
    masks = HalfPlanes(5).masks(frame.network)
    assert spread.size == frame.network
    assert spread.effective(masks).tolist() == masks.tolist()


@pytest.mark.parametrize(
    ("threat", "where", "stages", "problem"),
    [
        ("input", "scene", {}, "--threat input: a patch in the network's input needs --masks input"),
        ("scene", "scene", {"decode": "learned"}, "--threat scene: expected one of the decoders pillow"),
        ("decoded", "input", {"colour": "nv12"}, "expected the colour stage rgb, got nv12"),
        ("decoded", "input", {"resize": "resized-twice"}, "how far the resize resized-twice spreads"),
        ("scene", "input", {"resize": lambda image, size: image}, "expected a named resize, got a function"),
    ],
)
def test_a_spread_that_is_not_known_is_one_line(threat, where, stages, problem):
    with pytest.raises(InputError, match=problem):
        check_threat(threat, where, Pipeline().replace(**stages))


def test_every_resize_has_a_radius():
    assert all(radius_of(name) >= 0.5 for name in RESIZES)


def test_weaker_threats_certify_more_and_every_result_says_which(tmp_path):
    model, data = hf.load(making.detector(tmp_path)), making.blob_coco(tmp_path / "data", 3)
    known = {"runs": tmp_path / "runs", "patch": "6", "lines": 15, "alpha": 0.3}
    places = {}
    for threat, masks in (("decoded", "scene"), ("scene", "scene"), ("decoded", "input"), ("input", "input")):
        result = hf.certify(model, data, threat=threat, masks=masks, **known)
        places[threat, masks] = result.recall("everywhere").places
        assert (result.about["threat"], result.about["masks"]) == (threat, masks)
        words = {"decoded": "decoded", "scene": "before the image is compressed", "input": "input"}[threat]
        assert words in result.save(tmp_path / "page.html").read_text()
    assert places["scene", "scene"] < places["decoded", "scene"]
    assert places["decoded", "input"] < places["input", "input"]
