"""Models and files that are not the usual: channels last, no batch, positions that leave the picture."""

import dataclasses
import shutil

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.cli import run
from holdfast.graph.load import load_model
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.folder import open_benchmark
from holdfast.patchbench.positions.models import map_positions, open_detector
from holdfast.patchbench.run import evaluate_bench
from holdfast.stages.normalise import card as normalise

CARD = """\
task = "single"
classes = ["a", "b", "c"]

[input]
size = [16, 16]
layout = "{layout}"
colour = "bgr"
scale = "1/255"
mean = [0.4, 0.5, 0.6]
std = [0.2, 0.3, 0.25]

[head]
name = "landmark"
outputs = ["box", "scores"]
"""


def tiny(folder, layout="nchw", stubborn=False):
    """A detector of random weights; a stubborn one has a node that would work along the batch."""
    rng = np.random.default_rng(5)
    weights = {
        "w": rng.normal(size=(6, 3, 3, 3)).astype(np.float32) / 3,
        "pick": rng.normal(size=(7, 6 * 64)).astype(np.float32) / 20,
        "base": np.array([0.2, 0.2, 0.8, 0.8, 0, 0.1, 0.2], np.float32),
        "axis": np.array(0, np.int64),
        "cut": np.array([4, 3], np.int64),
        "to": np.array([1, -1], np.int64),
    }
    first = "x" if layout == "nchw" else "t"
    nodes = [] if layout == "nchw" else [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])]
    nodes += [
        helper.make_node("Conv", [first, "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("CumSum", ["c", "axis"], ["d"])
        if stubborn
        else helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Reshape", ["d", "to"], ["f"]),
        helper.make_node("Gemm", ["f", "pick", "base"], ["g"], transB=1),
        helper.make_node("Split", ["g", "cut"], ["box", "scores"], axis=1),
    ]
    shape = [1, 3, 16, 16] if layout == "nchw" else [1, 16, 16, 3]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in (("box", 4), ("scores", 3))
    ]
    path = save_graph(folder / "tiny.onnx", nodes, [x], outputs, weights)
    path.with_suffix(".toml").write_text(CARD.format(layout=layout))
    return load_model(path)


@pytest.mark.parametrize(
    ("layout", "stubborn", "how"),
    [("nchw", False, "batches"), ("nhwc", False, "batches"), ("nchw", True, "one by one")],
)
def test_any_layout_gives_the_map_of_its_file(tmp_path, layout, stubborn, how):
    detector = open_detector(tiny(tmp_path, layout, stubborn))
    rng = np.random.default_rng(1)
    picture = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
    patch = rng.integers(0, 256, (4, 6, 3)).astype(np.uint8)
    made = map_positions(detector, picture, patch, jobs=2)
    assert made.how == how
    assert bool(detector.batches.why) == stubborn
    assert made.outputs.shape == (13, 11)
    target = detector.predict(detector.tensor(picture)[None])
    for row in range(13):
        for column in range(11):
            pixels = picture.copy()
            pixels[row : row + 4, column : column + 6] = patch
            raw = detector.exact(normalise(pixels, detector.model.card.input)[None])
            said = int(np.argmax(raw["scores"]))
            wanted = single_values(raw["box"], [said], [target.box], [target.label])[0]
            assert made.outputs[row, column] == pytest.approx(wanted, abs=1e-5)
    assert len(np.unique(made.outputs)) > 20


def test_positions_that_leave_the_picture_are_told_apart(tmp_path):
    folder = tmp_path / "made"
    words = ["patchbench", "make", str(folder), "--images", "1", "--data", "signs:4:6", "--patch", "44"]
    assert run(words) == 0
    whole = evaluate_bench(open_benchmark(folder)).pictures[0]
    assert [shown.kind for shown in whole.maps] == ["position"]
    spec = next((folder / "vnnlib").iterdir())
    text = spec.read_text()
    assert "(<= X_12288 20" in text
    spec.write_text(
        text.replace("(<= X_12288 20", "(<= X_12288 23").replace("(<= X_12289 20", "(<= X_12289 23")
    )
    (one,) = evaluate_bench(open_benchmark(folder)).pictures
    assert [shown.kind for shown in one.maps] == ["file", "described"]
    file, described = (shown.map for shown in one.maps)
    assert file.outputs.shape == (24, 24)  # by column and row, as the file has them
    np.testing.assert_allclose(file.outputs[:21, :21].T, described.outputs, atol=1e-5)
    np.testing.assert_allclose(described.outputs, whole.maps[0].map.outputs, atol=1e-5)


def test_one_row_of_positions_is_mapped(tmp_path):
    folder = tmp_path / "row"
    words = ["patchbench", "make", str(folder), "--images", "1", "--data", "signs:4:6", "--patch", "44"]
    assert run(words) == 0
    whole = evaluate_bench(open_benchmark(folder)).pictures[0]
    spec = next((folder / "vnnlib").iterdir())
    spec.write_text(spec.read_text().replace("(<= X_12289 20.0", "(<= X_12289 0.5"))  # one cell: row 0
    (one,) = evaluate_bench(open_benchmark(folder)).pictures
    np.testing.assert_allclose(one.maps[0].map.outputs, whole.maps[0].map.outputs[:1], atol=1e-5)


def test_free_content_is_for_the_verifier(tmp_path, capsys):
    folder = tmp_path / "free"
    words = ["patchbench", "make", str(folder), "--images", "1", "--data", "signs:4:6", "--content", "free"]
    assert run([*words, "--patch", "1"]) == 0
    capsys.readouterr()
    assert run(["patchbench", "evaluate", str(folder), "--images", "1"]) == 2
    assert "holdfast verify" in capsys.readouterr().out
    shutil.rmtree(folder)


def test_a_missing_listing_is_said(tmp_path):
    from holdfast.core.errors import InputError

    with pytest.raises(InputError, match="instances"):
        open_benchmark(tmp_path)


def test_result_without_maps_has_a_page(tmp_path):
    from holdfast.patchbench.page import page
    from holdfast.patchbench.run import ImageMaps, PositionResult

    one = ImageMaps("a", np.zeros((1, 1, 3), np.uint8), None, "", (), "no picture")
    made = page(PositionResult("m", "d", "black", (one,), 0.1))
    assert made.cards == ()
    assert "No image has a map" in made.verdict
    assert dataclasses.is_dataclass(made)
