"""What one process makes of one image: masks, odd values, keys."""

import io

import numpy as np
import pytest
from PIL import Image

import making
from holdfast.core.errors import ImageError
from holdfast.core.pipeline import pipeline_of
from holdfast.core.types import Detections
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.run.evaluate import Plan, evaluate
from holdfast.run.recording import read_mask

SEGMENT_CARD = """\
task = "segment"
classes = ["dark", "bright"]

[input]
size = [16, 16]
scale = 0.00392156862745098

[head]
name = "segmentation"
"""


def segmenter(folder):
    """An ONNX file that calls a pixel bright when its channels' mean is over one half."""
    from onnx import TensorProto, helper

    weights = {"w": np.array([[-1.0] * 3, [1.0] * 3], np.float32).reshape(2, 3, 1, 1)}
    weights["b"] = np.array([1.5, -1.5], np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 16, 16])
    path = making.save_graph(
        folder / "seg.onnx", [helper.make_node("Conv", ["x", "w", "b"], ["y"])], [x], [y], weights
    )
    path.with_suffix(".toml").write_text(SEGMENT_CARD)
    return path


def png(array, palette=None):
    picture = Image.fromarray(array)
    if palette:
        picture.putpalette(palette)
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


VOC = [0, 0, 0, 128, 0, 0, 0, 128, 0, *([0] * 753)]
IDS = np.array([[0, 1], [2, 255]], np.uint8)


@pytest.mark.parametrize(
    "data",
    [png(IDS), png(IDS, VOC), png(IDS.astype(np.uint16)), png(np.repeat(IDS[:, :, None], 3, axis=2))],
    ids=["grey", "palette as in VOC", "16-bit", "grey as RGB"],
)
def test_a_mask_is_read_as_class_ids(data):
    np.testing.assert_array_equal(read_mask(data), IDS)


def test_a_mask_of_colours_or_of_nonsense_is_an_image_error():
    with pytest.raises(ImageError, match="colours"):
        read_mask(png(np.array([[[128, 0, 0], [0, 128, 0]]], np.uint8)))
    with pytest.raises(ImageError, match="its mask cannot be decoded"):
        read_mask(b"no mask")


def test_one_mask_with_an_unknown_class_is_that_images_failure(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for i in range(3):
        truth = rng.integers(0, 2, (16, 16)).astype(np.uint8)
        pixels = np.repeat(truth[:, :, None] * 200 + 20, 3, axis=2).astype(np.uint8)
        (tmp_path / "data" / "images" / f"{i}.png").write_bytes(png(pixels))
        truth[0, 0] = (255, 7, 1)[i]  # ignored; unknown; a class
        (tmp_path / "data" / "masks" / f"{i}.png").write_bytes(png(truth, VOC))
    (tmp_path / "data" / "classes.txt").write_text("dark\nbright\n")
    plan = Plan(
        load_model(segmenter(tmp_path)), open_dataset(tmp_path / "data"), runs=tmp_path / "runs", jobs=1
    )
    done = evaluate(plan)
    assert [f.name for f in done.failed] == ["1.png"]
    assert "value 7" in done.failed[0].reason
    assert done.result["metrics"]["pixel_accuracy"] > 0.99


def test_numbers_that_overflow_in_the_head_are_that_images_failure(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 3)

    def post(raw, frame, card):
        bad = post.calls == 1
        post.calls += 1
        return Detections([[0, 0, np.inf if bad else 9, 9]], [0.5], [0])

    post.calls = 0
    model = load_model(tmp_path / "blobs.onnx")
    pipeline = pipeline_of(model.card).replace(post=post)
    plan = Plan(model, open_dataset(tmp_path / "data"), pipeline, runs=tmp_path / "runs", jobs=1)
    done = evaluate(plan)
    assert [str(f) for f in done.failed] == ["001.jpg: Detections.boxes: expected finite numbers, got inf"]
    assert done.result["images"] == 2
