"""Every runtime against ONNX Runtime: equal outputs by name, or one line that says why not."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.models import classifier, save_graph
from helpers.nms_graphs import blobs_as
from holdfast.core.errors import HoldfastError, ModelError
from holdfast.core.extras import install_hint
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.registry import names, part
from holdfast.core.types import Size
from holdfast.graph.load import load_model, shipped, write_guess
from holdfast.stages.runtime.libraries import in_shape

OTHERS = [n for n in names("runtime") if n != "onnxruntime"]
CARD = Card("detect", Input(Size(16, 16)), Head("yolox"), ("a",))


def opened(name, source, model, threads=1):
    registered = part("runtime", name)
    if hint := install_hint(registered.facts.get("needs", "holdfast")):
        pytest.skip(hint)
    return registered.function(source, model, threads)


def weight(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)


def two_heads(folder, kernel=3):
    """A network with outputs of the same size whose names sort against their order."""
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["c"], ["r"], alpha=0.1),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w1"], ["z_first"]),
        helper.make_node("Conv", ["p", "w2"], ["a_second"]),
    ]
    weights = {"w0": weight(6, 3, kernel, kernel), "b0": weight(6, seed=1)}
    weights |= {"w1": weight(4, 6, 1, 1, seed=2), "w2": weight(4, 6, 1, 1, seed=3)}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    side = 8 if kernel == 3 else 9
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, side, side])
        for n in ("z_first", "a_second")
    ]
    path = save_graph(folder / "two.onnx", nodes, [x], ends, weights, opset=13)
    return Model("two", path, CARD, "0" * 64)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_two_outputs_by_name(name, as_bytes, tmp_path):
    model = two_heads(tmp_path)
    source = model.read() if as_bytes else str(model.path)
    run, wanted = opened(name, source, model), opened("onnxruntime", source, model)
    for seed in range(2):
        x = np.random.default_rng(seed).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
        got, right = run(x), wanted(x)
        assert list(got) == list(right) == ["z_first", "a_second"]
        for key in right:
            assert got[key].shape == right[key].shape
            assert np.abs(got[key] - right[key]).max() < 1e-4


@pytest.mark.parametrize("name", OTHERS)
def test_a_result_is_not_overwritten_by_the_next(name, tmp_path):
    model = two_heads(tmp_path)
    run = opened(name, str(model.path), model)
    x = np.ones((1, 3, 16, 16), np.float32)
    first = run(x)
    kept = {k: v.copy() for k, v in first.items()}
    run(x * -3)
    assert all(np.array_equal(first[k], kept[k]) for k in kept)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("model_name", shipped())
def test_shipped_models_agree_or_say_why_not(name, model_name):
    model = load_model(model_name)
    w, h = model.card.input.size
    x = np.random.default_rng(0).random((1, 3, h, w), np.float32)
    wanted = opened("onnxruntime", str(model.path), model)(x)
    # Both shuffle channels by slices with a stride: a finding, kept here.
    if name == "ncnn" and model_name in ("signs-single", "signs-free"):
        with pytest.raises(ModelError, match=r"no layer for Tensor\.slice"):
            opened(name, str(model.path), model)
        return
    got = opened(name, str(model.path), model)(x)
    for key, value in wanted.items():
        assert np.abs(got[key] - value).max() < 1e-3 * max(1.0, np.abs(value).max())


@pytest.mark.parametrize("name", OTHERS)
def test_a_free_batch(name, tmp_path):
    model = load_model(classifier(tmp_path))
    x = np.full((1, 3, 16, 16), 0.7, np.float32)
    got = opened(name, str(model.path), model)(x)["y"]
    assert np.allclose(got, opened("onnxruntime", str(model.path), model)(x)["y"], atol=1e-5)


def of_four(folder, *, folded=False):
    """A network whose file fixes a batch of four; `folded`: on its way the images are rows of one matrix."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "inner"], ["r"]),
        helper.make_node("Relu", ["r"], ["p"]),
        helper.make_node("Reshape", ["p", "outer"], ["y"]),
    ]
    inner = [24, 256] if folded else [4, 6, 256]
    weights = {"w": weight(6, 3, 3, 3), "b": weight(6, seed=1)}
    weights |= {"inner": np.array(inner), "outer": np.array([4, 6, 16, 16])}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 6, 16, 16])
    path = save_graph(folder / "four.onnx", nodes, [x], [y], weights, opset=13)
    return Model("four", path, CARD, "0" * 64)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_batch_the_file_fixes(name, as_bytes, tmp_path):
    model = of_four(tmp_path)
    source = model.read() if as_bytes else str(model.path)
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
    wanted = opened("onnxruntime", source, model)(x)["y"]
    got = opened(name, source, model)(x)["y"]
    assert got.shape == wanted.shape == (1, 6, 16, 16)
    assert np.abs(got - wanted).max() < 1e-4


def test_a_fixed_batch_that_ncnn_cannot_follow_is_one_line(tmp_path):
    model = of_four(tmp_path, folded=True)
    with pytest.raises(ModelError, match="has a fixed batch of 4; export it with a batch of 1") as raised:
        opened("ncnn", str(model.path), model)
    assert "\n" not in str(raised.value)
    x = np.ones((1, 3, 16, 16), np.float32)
    wanted, got = (opened(n, str(model.path), model)(x)["y"] for n in ("onnxruntime", "openvino"))
    assert np.abs(got - wanted).max() < 1e-4


def test_openvino_gives_no_places_in_its_source(tmp_path):
    nodes = [helper.make_node("Det", ["x"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    model = Model("det", save_graph(tmp_path / "det.onnx", nodes, [x], [y], {}, opset=13), CARD, "0" * 64)
    with pytest.raises(ModelError, match="Det") as raised:
        opened("openvino", str(model.path), model)
    assert ".cpp" not in str(raised.value)


@pytest.mark.parametrize("name", OTHERS)
def test_an_operator_it_does_not_know_is_one_line(name, tmp_path):
    nodes = [helper.make_node("Bernoulli", ["x"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 16, 16]) for n in "xy")
    path = save_graph(tmp_path / "odd.onnx", nodes, [x], [y], {}, opset=15)
    model = Model("odd", path, CARD, "0" * 64)
    image = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)
    with pytest.raises(HoldfastError) as raised:
        opened(name, str(path), model)(image)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("name", ["openvino", "opencv-dnn"])
def test_an_output_as_long_as_the_image_makes_it(name, tmp_path):
    """The blank image, by which a runtime is tried, has one value; this one has as many as pixels."""
    nodes = [helper.make_node("Unique", ["x"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k"])
    path = save_graph(tmp_path / "unique.onnx", nodes, [x], [y], {}, opset=13)
    model = Model("unique", path, CARD, "0" * 64)
    image = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)
    assert np.array_equal(opened(name, str(path), model)(image)["y"], np.unique(image))


def test_padded_one_by_one_convolutions_are_right_or_refused(tmp_path):
    """OpenCV 5.0.0 reads beyond the image there."""
    model = two_heads(tmp_path, kernel=1)
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
    wanted = opened("onnxruntime", str(model.path), model)(x)
    classic = opened("opencv-dnn-classic", str(model.path), model)(x)
    for key, value in wanted.items():
        assert np.abs(classic[key] - value).max() < 1e-4
    try:
        found = opened("opencv-dnn", str(model.path), model)(x)
    except ModelError:
        with pytest.raises(ModelError, match="opencv-dnn-classic"):
            opened("opencv-dnn", model.read(), model)
        return
    for key, value in wanted.items():
        assert np.abs(found[key] - value).max() < 1e-4


def test_an_output_of_another_size_is_refused():
    assert in_shape("X", "y", np.zeros((4, 2)), (1, 8)).shape == (1, 8)
    with pytest.raises(HoldfastError, match="expected \\(1, 9\\)"):
        in_shape("X", "y", np.zeros((4, 2)), (1, 9))


def test_an_output_of_an_open_size_takes_what_the_image_has():
    assert in_shape("X", "y", np.zeros((3, 4)), (None, 4)).shape == (3, 4)
    assert in_shape("X", "y", np.zeros((0, 4)), (None, 4)).shape == (0, 4)
    assert in_shape("X", "y", np.zeros((1, 3, 4)), (None, 4)).shape == (3, 4)  # an axis more
    with pytest.raises(HoldfastError, match="expected \\(n, 4\\)"):
        in_shape("X", "y", np.zeros((3, 5)), (None, 4))


@pytest.mark.parametrize("layout", ["batched", "torchvision", "tensorflow"])
@pytest.mark.parametrize("name", OTHERS)
def test_detections_of_a_graph_with_nms_inside_agree_or_it_is_refused(name, layout, tmp_path):
    path = blobs_as(layout, tmp_path / "net.onnx")
    write_guess(path)
    model = load_model(path)
    head = part("head", model.card.head.name).function
    kind = model.card.input.dtype
    pictures = [np.full((1, 64, 64, 3), level, kind) for level in (0, 0)]
    for corner, light in ((8, 1.0), (24, 0.8)):  # of the second picture
        value = light * (255 if kind == "uint8" else 1)
        pictures[1][:, corner : corner + 16, corner : corner + 16] = value
    if model.card.input.layout == "nchw":
        pictures = [np.ascontiguousarray(p.transpose(0, 3, 1, 2)) for p in pictures]
    wanted = opened("onnxruntime", str(path), model)
    refusal = ""
    try:
        run = opened(name, str(path), model)
    except ModelError as problem:  # operators it lacks, or a crash on an image without detections
        refusal = str(problem)
    assert "\n" not in refusal
    if refusal and name != "openvino":
        return
    assert refusal == ""
    for picture, least in zip(pictures, (0, 1), strict=True):
        right, got = head(wanted(picture), model.card), head(run(picture), model.card)
        assert len(got) == len(right) >= least
        assert np.abs(got.boxes - right.boxes).max(initial=0.0) < 1e-3
        assert got.classes.tolist() == right.classes.tolist()


def test_nothing_is_written_into_home_or_the_working_folder(tmp_path):
    """OpenVINO's import would put an identifier into the home folder and send usage data."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    model = two_heads(tmp_path)
    code = (
        "import sys, pathlib, numpy as np\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from test_runtimes import CARD, OTHERS\n"
        "from importlib.util import find_spec\n"
        "from holdfast.core.model import Model\n"
        "from holdfast.core.registry import part\n"
        "model = Model('two', pathlib.Path(sys.argv[1]), CARD, '0' * 64)\n"
        "for name in OTHERS:\n"
        "    p = part('runtime', name)\n"
        "    if not p.facts.get('needs') or find_spec(p.facts['needs']):\n"
        "        p.function(sys.argv[1], model, 1)(np.zeros((1, 3, 16, 16), np.float32))\n"
        "print([m for m in sys.modules if m.startswith('openvino_telemetry')])\n"
    )
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(model.path), str(here)],
        cwd=work, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[]")
    assert list(home.rglob("*")) == []
    assert list(work.rglob("*")) == []


def test_a_quantised_graph_runs_elsewhere_too(tmp_path):
    from holdfast.graph.rewrite.int8 import int8_minmax
    from holdfast.graph.rewrite.types import RewriteContext

    model = two_heads(tmp_path)
    images = [np.random.default_rng(s).normal(0, 1, (1, 3, 16, 16)).astype(np.float32) for s in range(4)]
    made = int8_minmax(
        onnx.load(model.path), RewriteContext(CARD, lambda: iter(images))
    ).model.SerializeToString()
    got, wanted = opened("openvino", made, model)(images[0]), opened("onnxruntime", made, model)(images[0])
    for key, value in wanted.items():
        # Integer kernels of two runtimes may differ by a step of the grid here and there.
        assert np.abs(got[key] - value).mean() < 0.02 * np.abs(value).max()
