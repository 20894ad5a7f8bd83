import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ImageError
from holdfast.core.model import Input
from holdfast.core.pipeline import frame_of, place
from holdfast.core.types import Size
from holdfast.stages.resize.libraries import opencv_nearest

sizes = st.builds(Size, st.integers(1, 900), st.integers(1, 900))
policies = st.sampled_from(["stretch", "letterbox", "crop"])


@given(sizes, policies, st.sampled_from(["centre", "corner"]), st.integers(0, 2**32 - 1))
def test_boxes_come_back_through_the_frame(size, policy, where, seed):
    frame = frame_of(size, Input(Size(64, 48), policy=policy, place=where, short_side=70))
    corners = np.sort(np.random.default_rng(seed).random((5, 2, 2)), axis=1).reshape(5, 4)
    boxes = corners * [size.width, size.height, size.width, size.height]
    np.testing.assert_allclose(frame.to_original(frame.to_network(boxes)), boxes, atol=1e-8)


@given(sizes, policies)
def test_every_policy_fills_the_network_input(size, policy):
    image = np.zeros((size.height, size.width, 3), np.uint8)
    small, frame = place(image, Input(Size(32, 24), policy=policy, short_side=40), opencv_nearest)
    assert small.shape == (24, 32, 3)
    assert frame.network == (32, 24)


def test_letterbox_keeps_the_aspect_and_pads():
    image = np.full((100, 200, 3), 7, np.uint8)
    small, frame = place(image, Input(Size(64, 64), policy="letterbox", pad=99), opencv_nearest)
    assert frame.resized == (64, 32)
    assert (small[16:48] == 7).all()
    assert (small[:16] == 99).all()
    assert (small[48:] == 99).all()
    corner = frame_of(Size(200, 100), Input(Size(64, 64), policy="letterbox", place="corner"))
    assert (corner.offset_x, corner.offset_y) == (0, 0)


def test_crop_is_the_centre_after_the_short_side():
    frame = frame_of(Size(500, 400), Input(Size(224, 224), policy="crop", short_side=256))
    assert frame.resized == (320, 256)
    assert (frame.offset_x, frame.offset_y) == (-48, -16)
    cut = frame_of(Size(640, 427), Input(Size(224, 224), policy="crop", short_side=256))
    assert cut.resized == (383, 256)  # as torchvision's Resize(256)


def test_clipping_to_the_image():
    frame = frame_of(Size(10, 10), Input(Size(10, 10)))
    assert frame.to_original(np.array([[-5.0, 2.0, 20.0, 3.0]])).tolist() == [[0.0, 2.0, 10.0, 3.0]]


def test_a_resize_that_lies_about_its_size_is_caught():
    with pytest.raises(ImageError, match="resize: expected 4×4×3"):
        place(np.zeros((8, 8, 3), np.uint8), Input(Size(4, 4)), lambda image, size: image)


@pytest.mark.parametrize(
    ("size", "resized", "network"),
    [
        ((640, 480), (1067, 800), (1088, 800)),  # 640 · 800/480 = 1066.67
        ((480, 640), (800, 1067), (800, 1088)),
        ((1000, 400), (1333, 533), (1344, 544)),  # the long side decides
    ],
)
def test_short_side_keeps_the_ratio_and_pads_to_a_multiple(size, resized, network):
    how = {"short_side": 800, "long_side": 1333, "multiple": 32, "place": "corner", "pad": 50}
    spec = Input(Size(640, 640), policy="short-side", **how)
    image = np.full((size[1], size[0], 3), 7, np.uint8)
    placed, frame = place(image, spec, opencv_nearest)
    assert (frame.resized, frame.network) == (resized, network)
    assert placed.shape == (network[1], network[0], 3)
    assert (placed[: resized[1], : resized[0]] == 7).all()
    assert (placed[resized[1] :] == 50).all()
    assert (placed[:, resized[0] :] == 50).all()
    box = np.array([[10.0, 20, 100, 200]])
    np.testing.assert_allclose(frame.to_original(frame.to_network(box)), box)
