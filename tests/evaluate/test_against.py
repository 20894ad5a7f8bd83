"""`holdfast evaluate --against` for models that segment."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from helpers import models as making

CARD = """\
task = "segment"
classes = ["dark", "bright"]

[input]
size = [16, 16]
scale = 0.00392156862745098

[head]
name = "segmentation"
"""


@pytest.fixture
def masks(tmp_path):
    """A model that calls a pixel bright when it is over one half, and noisy images with their masks."""
    weights = {"w": np.array([[-1.0] * 3, [1.0] * 3], np.float32).reshape(2, 3, 1, 1)}
    weights["b"] = np.array([1.5, -1.5], np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 16, 16])
    path = making.save_graph(
        tmp_path / "seg.onnx", [helper.make_node("Conv", ["x", "w", "b"], ["y"])], [x], [y], weights
    )
    path.with_suffix(".toml").write_text(CARD)
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for i in range(6):
        truth = np.kron(rng.integers(0, 2, (8, 8)), np.ones((4, 4))).astype(np.uint8)
        pixels = rng.normal(80 + 95 * truth[:, :, None], 45, (32, 32, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data" / "images" / f"{i}.png")
        Image.fromarray(truth).save(tmp_path / "data" / "masks" / f"{i}.png")
    return tmp_path


def test_segmenters_are_compared_with_an_interval(holdfast, masks):
    assert holdfast("evaluate", "seg.onnx", "data", "--jobs", 1).code == 0
    run = "holdfast-runs/seg-on-data"
    same = holdfast("evaluate", "seg.onnx", "data", "--jobs", 1, "--against", run)
    assert same.code == 0
    assert "mIoU (n = 6): 0.00 points lost, no difference on any image" in same.out
    assert "no difference on any image" in same.out
    other = "resize=pillow-nearest"
    done = holdfast("evaluate", "seg.onnx", "data", "--jobs", 1, "--stage", other, "--against", run)
    assert done.code == 0
    assert re.search(r"mIoU \(n = 6\): \d+\.\d\d points lost", done.out)
    assert "labels changed in 6 of 6 images" in done.out
    assert "of all labels)" in done.out


def test_a_run_of_another_task_is_refused(fails, holdfast, masks):
    making.classifier(masks)
    making.image_folder(masks / "folder", 4)
    assert holdfast("evaluate", "tiny.onnx", "folder", "--jobs", 1).code == 0
    line = fails("evaluate", "seg.onnx", "data", "--jobs", 1, "--against", "holdfast-runs/tiny-on-folder")
    assert "--against: expected a run of the task segment, got one of classify" in line
