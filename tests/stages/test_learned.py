"""The learned decoder: what it restores, where it keeps its hands off, and that tiles leave no seam."""

import io
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from hashlib import sha256
from importlib import resources
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from helpers import models as making
from holdfast.core.registry import lookup, part
from holdfast.data.signs.scene import encode, scene
from holdfast.stages.decode import learned as module
from holdfast.stages.decode.learned import facts_of, learned, planes, restore
from holdfast.stages.decode.libjpeg import pillow
from holdfast.stages.families import family, options

SCENE = scene(0, 3).image  # of the seed that is held out


def psnr(found, wanted):
    return 10 * np.log10(255**2 / np.square(found.astype(float) - wanted).mean())


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("quality", [30, 60])
def test_it_is_nearer_to_the_original_than_the_plain_decoder(quality, subsampling):
    data = encode(SCENE, quality, subsampling)
    assert psnr(learned(data), SCENE) > psnr(pillow(data), SCENE) + 0.1


@pytest.mark.parametrize(("quality", "subsampling", "least"), [(95, "4:2:0", 0.2), (95, "4:4:4", -0.15)])
def test_at_high_quality_halved_chroma_is_still_restored_and_little_is_lost_elsewhere(
    quality, subsampling, least
):
    data = encode(SCENE, quality, subsampling)
    assert psnr(learned(data), SCENE) > psnr(pillow(data), SCENE) + least


def test_it_is_offered_on_demand_only():
    (one,) = (o for o in options(family("decode")) if o.name == "learned")
    assert not one.default
    assert "appendix B" in one.systems
    assert not one.missing


def test_its_facts_name_the_very_net_so_that_results_of_another_are_not_taken_for_its_own():
    file = resources.files("holdfast").joinpath("models", "decoder", "restore.onnx")
    data = file.read_bytes()
    assert part("decode", "learned").facts["alike"].endswith(f" net {sha256(data).hexdigest()[:8]}")
    assert len(data) <= 200_000


# ── tiles


@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    tile=st.sampled_from([16, 32, 48]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_tiles_leave_no_seam(height, width, tile, seed):
    y, x = np.random.default_rng(seed).integers(0, 300, 2)
    data = encode(np.ascontiguousarray(SCENE[y : y + height, x : x + width]), 40)
    pixels, facts = pillow(data), facts_of(data)
    whole = restore(pixels, facts, 1024)
    assert whole.shape == pixels.shape
    np.testing.assert_array_equal(restore(pixels, facts, tile), whole)


def test_a_tile_is_the_whole_pictures_before_rounding_too():
    data = encode(SCENE[:96, :160].copy(), 40)
    tensor = planes(pillow(data)[None], facts_of(data)[None])
    whole = module._run(tensor)
    part_of_it = module._run(np.ascontiguousarray(tensor[:, :, :, 16:64]))  # pixels 32 to 128, of 16 a phase
    np.testing.assert_array_equal(part_of_it[..., 16:80], whole[..., 48:112])


def test_the_rim_is_as_wide_as_the_net_sees_and_no_narrower(monkeypatch):
    data = encode(SCENE[:160, :160].copy(), 30)
    pixels, facts = pillow(data), facts_of(data)
    whole = restore(pixels, facts, 1024)
    monkeypatch.setattr(module, "RIM", 0)
    assert (restore(pixels, facts, 32) != whole).any()


def test_a_large_picture_goes_through_in_pieces(monkeypatch):
    shapes = []
    run = module._run
    monkeypatch.setattr(module, "_run", lambda tensor: shapes.append(tensor.shape) or run(tensor))
    learned(encode(SCENE, 50))
    assert len(shapes) == 6
    most = (module.TILE + 2 * module.RIM) // 2
    assert max(s[2] for s in shapes) <= most
    assert max(s[3] for s in shapes) <= most


# ── what it leaves alone


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP"])
def test_other_formats_are_pillows(kind):
    stream = io.BytesIO()
    Image.fromarray(SCENE[:40, :50]).save(stream, kind)
    np.testing.assert_array_equal(learned(stream.getvalue()), pillow(stream.getvalue()))


def test_cmyk_is_pillows():
    stream = io.BytesIO()
    Image.fromarray(SCENE[:40, :50]).convert("CMYK").save(stream, "JPEG", quality=40)
    np.testing.assert_array_equal(learned(stream.getvalue()), pillow(stream.getvalue()))


def test_damaged_data_is_pillows():
    data = bytearray(encode(SCENE[:64, :64].copy(), 40))
    data[-60:-40] = b"\xff\xd0" * 10
    np.testing.assert_array_equal(learned(bytes(data)), pillow(bytes(data)))


def test_grey_stays_grey_and_is_restored_too():
    data = making.jpeg(SCENE[:, :, 1], quality=30)
    found = learned(data)
    assert (found == found[..., :1]).all()
    assert (found != pillow(data)).any()
    assert psnr(found[..., 0], SCENE[..., 1]) > psnr(pillow(data)[..., 0], SCENE[..., 1])


# ── the file's facts and the planes


def test_facts_tell_how_coarse_a_file_is_and_whether_chroma_is_halved():
    window = SCENE[:48, :48].copy()
    fine, coarse = (facts_of(encode(window, q, "4:2:0")) for q in (95, 30))
    assert (fine[:2] < coarse[:2]).all()
    assert fine[2] == 1
    assert facts_of(encode(window, 95, "4:2:2"))[2] == 0.5
    full = facts_of(encode(window, 95, "4:4:4"))
    assert full[2] == 0
    np.testing.assert_array_equal(full[:2], fine[:2])
    grey = facts_of(making.jpeg(window[..., 0], quality=95))
    np.testing.assert_array_equal(grey, [fine[0], fine[0], 0])


def test_planes_by_hand():
    pixels = np.arange(2 * 16 * 32 * 3, dtype=np.uint64).astype(np.uint8).reshape(2, 16, 32, 3)
    made = planes(pixels, np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    assert made.shape == (2, 19, 8, 16)
    for channel in range(3):
        for dy in range(2):
            for dx in range(2):
                want = pixels[:, dy::2, dx::2, channel] * np.float32(1 / 255)
                np.testing.assert_allclose(made[:, channel * 4 + dy * 2 + dx], want, rtol=1e-6)
    assert made[0, 12, :, 0].tolist() == made[0, 12, :, 5].tolist()  # the row's phase, alike in all columns
    np.testing.assert_allclose(made[0, 12, :4, 0], [-1, -1 / 3, 1 / 3, 1], atol=1e-6)
    np.testing.assert_array_equal(made[0, 12, :4, 0], made[0, 12, 4:, 0])
    np.testing.assert_array_equal(made[0, 15, 0, :8], made[0, 15, 0, 8:])
    assert len(set(made[0, 15, 0, :8].tolist())) == 8
    assert made[1, 16:, 3, 3].tolist() == [4, 5, 6]


# ── processes and threads


def test_workers_and_threads_give_the_same_pixels():
    files = [encode(SCENE[i : i + 64, :80].copy(), 40) for i in range(0, 64, 16)]
    here = [learned(data) for data in files]
    with ThreadPoolExecutor(4) as threads:
        for one, other in zip(here, threads.map(learned, files), strict=True):
            np.testing.assert_array_equal(one, other)
    with ProcessPoolExecutor(1, get_context("spawn")) as workers:
        for one, other in zip(here, workers.map(lookup("decode", "learned"), files), strict=True):
            np.testing.assert_array_equal(one, other)


def test_one_session_for_all_files():
    learned(encode(SCENE[:16, :16].copy(), 40))
    before = module._session.cache_info().misses
    learned(encode(SCENE[:32, :16].copy(), 50))
    assert module._session.cache_info().misses == before
