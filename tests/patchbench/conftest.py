"""Small single-object detectors whose answers are known and white pictures for them."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers import models as making
from holdfast.data.patchfile import png_of

CARD = """\
task = "single"
classes = ["mandatory", "prohibitory", "warning"]

[input]
size = [16, 16]
{more}
[head]
name = "landmark"
outputs = ["box", "scores"]
"""
UNIT = "scale = 0.00392156862745098\n"


def _dense(folder, box, scores, name="tiny", more=UNIT, nhwc=False):
    """A detector of one layer: box = x @ box[0] + box[1], scores alike; x is the picture, flat."""
    shape = [1, 16, 16, 3] if nhwc else [1, 3, 16, 16]
    weights = {"wb": box[0], "bb": box[1], "ws": scores[0], "bs": scores[1]}
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "wb", "bb"], ["box"]),
        helper.make_node("Gemm", ["flat", "ws", "bs"], ["scores"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in (("box", 4), ("scores", 3))
    ]
    weights = {key: np.asarray(value, np.float32) for key, value in weights.items()}
    path = making.save_graph(folder / f"{name}.onnx", nodes, [x], outputs, weights)
    path.with_suffix(".toml").write_text(CARD.format(more=more))
    return path


@pytest.fixture
def dense(tmp_path):
    """A function that makes a detector of one layer: see `_dense`."""
    return lambda *given, **more: _dense(tmp_path, *given, **more)


@pytest.fixture
def halving(dense):
    """A detector that says half the box when red at column 0, row 0 is black; `flip` adds a class change.

    Its class changes when green at column 12, row 9 is black.
    """

    def make(flip=True):
        box, scores = np.zeros((768, 4)), np.zeros((768, 3))
        box[0, 2] = 0.5
        if flip:
            scores[256 + 9 * 16 + 12, 1] = -1.0
        return dense((box, [0, 0, 0.5, 1]), (scores, [0.5, 1.0 if flip else 0.0, -1]))

    return make


@pytest.fixture
def white(tmp_path):
    """A data set of white 16×16 pictures whose one target of class 0 fills them."""

    def make(count=3, folder="white"):
        root = tmp_path / folder
        for part in ("images", "gt_labels"):
            (root / part).mkdir(parents=True)
        for i in range(count):
            pixels = np.full((16, 16, 3), 255, np.uint8)
            pixels[2, 3] = i  # no two alike
            (root / "images" / f"w{i}.png").write_bytes(png_of(pixels))
            (root / "gt_labels" / f"w{i}.txt").write_text("0 0 0 1 1\n")
        return root

    return make


@pytest.fixture
def bench(holdfast, halving, white, tmp_path):
    """A folder made of the halving detector, white pictures and a black patch of one pixel."""

    def make(*more, name="bench", images=2, flip=True, data=None):
        data = data or white(folder=f"white-{name}")
        done = holdfast(
            "patchbench", "make", tmp_path / name, "--model", halving(flip), "--data", data, "--held-out",
            "--images", images, *more,
        )  # fmt: skip
        assert done.code == 0, done
        return tmp_path / name

    return make
