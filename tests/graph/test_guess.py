import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.errors import CardError, ModelError
from holdfast.core.types import Size
from holdfast.graph.card import read_card
from holdfast.graph.inspect import inspect
from holdfast.graph.load import check_card, guess, write_guess

WHOLE = TensorProto.INT64
CASES = {
    # name: (outputs, extras of the net, task, head, number of classes, options)
    "classifier": ({"p": (1, 10)}, {}, "classify", "classifier", 10, {}),
    "classifier with a background": ({"p": (1, 1001)}, {}, "classify", "classifier", 1000, {"skip": 1}),
    "classifier 4d": ({"p": (1, 10, 1, 1)}, {}, "classify", "classifier", 10, {}),
    "landmark": (
        {"scores": (1, 3), "box": (1, 4)},
        {},
        "single",
        "landmark",
        3,
        {"outputs": ("box", "scores")},
    ),
    "yolox": ({"o": (1, 84, 15)}, {"last": "Sigmoid"}, "detect", "yolox", 10, {"strides": (8, 16, 32)}),
    "yolox raw": ({"o": (1, 84, 15)}, {"last": "Relu"}, "detect", "yolox", 10, {"activation": "sigmoid"}),
    "yolov5": ({"o": (1, 252, 85)}, {}, "detect", "yolov5", 80, {}),
    "yolov8": ({"o": (1, 14, 84)}, {}, "detect", "yolov8", 10, {}),
    "yolov8 turned": ({"o": (1, 84, 84)}, {}, "detect", "yolov8", 80, {}),
    "nanodet": (
        {f"{n}{s}": (1, c, w) for n, w in (("c", 10), ("d", 32)) for s, c in ((8, 64), (16, 16), (32, 4))},
        {"last": "Sigmoid"},
        *("detect", "nanodet", 10, {"strides": (8, 16, 32), "centre": 0.5, "activation": "none"}),
    ),
    "nanodet-plus": (
        {"o": (1, 85, 42)},
        {},
        "detect",
        "nanodet",
        10,
        {"centre": 0.0, "strides": (8, 16, 32, 64)},
    ),
    "yolov3": (
        {"big": (1, 45, 2, 2), "mid": (1, 45, 4, 4), "small": (1, 45, 8, 8)},
        {},
        *("detect", "yolov3", 10, {"strides": (8, 16, 32), "outputs": ("small", "mid", "big")}),
    ),
    "yolov3 of two anchors": (
        {"a": (1, 50, 8, 8), "b": (1, 50, 4, 4)},
        {},
        "detect",
        "yolov3",
        20,
        {"strides": (8, 16)},
    ),
    "yolov3 tiny": (
        {"a": (1, 255, 2, 2), "b": (1, 255, 4, 4)},
        {},
        *("detect", "yolov3", 80, {"strides": (16, 32)}),
    ),
    "yolov3 nhwc": (
        {"a": (1, 2, 2, 45), "b": (1, 4, 4, 45)},
        {},
        "detect",
        "yolov3",
        10,
        {"outputs": ("b", "a")},
    ),
    "retinanet": (
        {"s": (1, 9 * 86, 7), "d": (1, 9 * 86, 4)},
        {"last": "Sigmoid"},
        *("detect", "anchors", 7, {"activation": "none"}),
    ),
    "after nms": (
        {"boxes": (50, 4), "scores": (50,), "labels": (50,)},
        {"dtypes": {"labels": WHOLE}},
        *("detect", "boxes", 91, {"boxes": "boxes", "labels": "labels"}),
    ),
    "after nms, efficient": (
        {"num_dets": (1, 1), "det_boxes": (1, 50, 4), "det_scores": (1, 50), "det_classes": (1, 50)},
        {"dtypes": {"num_dets": WHOLE, "det_classes": WHOLE}},
        *("detect", "boxes", 80, {"count": "num_dets", "labels": "det_classes"}),
    ),
    "selected": (
        {"b": (1, 30, 4), "s": (1, 5, 30), "i": (9, 3)},
        {"dtypes": {"i": WHOLE}},
        *("detect", "selected", 5, {"outputs": ("b", "s", "i")}),
    ),
    "segmentation": ({"o": (1, 12, 64, 64)}, {}, "segment", "segmentation", 12, {}),
    "segmentation with aux": (
        {"out": (1, 12, 16, 16), "aux": (1, 12, 16, 16)},
        {},
        *("segment", "segmentation", 12, {"outputs": ("out",)}),
    ),
    "segmentation of two": (
        {"o": (1, 1, 64, 64)},
        {"last": "Sigmoid"},
        *("segment", "segmentation", 2, {"single": "probability"}),
    ),
    "segmentation ids": ({"o": (1, 64, 64)}, {"dtypes": {"o": WHOLE}}, "segment", "segmentation", 256, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_heads_are_recognised(make_net, case, tmp_path):
    outputs, extras, task, head, classes, options = CASES[case]
    path = make_net(outputs, **extras)
    card, reasons = guess(path)
    assert (card.task, card.head.name, len(card.classes)) == (task, head, classes)
    assert options.items() <= card.head.options.items()
    assert card.input.size == Size(64, 64)
    check_card(card, inspect(path))  # what is guessed fits
    assert all("\n" not in r for r in reasons)
    assert all(": " in r and ("because" in r or "assumed" in r) for r in reasons)
    fields = [r.split(":")[0] for r in reasons]
    assert {"task", "head", "classes", "size", "layout", "scale", "colour", "policy"} <= set(fields)
    target, _ = write_guess(path)
    assert read_card(target) == card


def test_fastestdet(tmp_path):
    """One map in which a sigmoid, a convolution and a softmax are joined."""
    nodes = [helper.make_node("Conv", ["x", f"w{i}"], [f"c{i}"], strides=[16, 16]) for i in range(3)] + [
        helper.make_node("Sigmoid", ["c0"], ["s"]),
        helper.make_node("Softmax", ["c2"], ["p"], axis=1),
        helper.make_node("Concat", ["s", "c1", "p"], ["o"], axis=1),
    ]
    weights = [
        numpy_helper.from_array(np.zeros((n, 3, 16, 16), np.float32), f"w{i}")
        for i, n in enumerate((1, 4, 7))
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 352, 352])],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [1, 12, 22, 22])],
        weights,
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    card, reasons = guess(path)
    assert (card.head.name, len(card.classes), card.input.colour) == ("fastestdet", 7, "bgr")
    assert any("of stride 16 = sigmoid, 4 raw values and a softmax of 7" in r for r in reasons)


def image_net(path, first, shape, out_shape, kind=TensorProto.FLOAT):
    """An image that meets one operator first and ends as its spatial mean."""
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT)]
    weights = [numpy_helper.from_array(np.full(1, 2.0, np.float32), "two")]
    nodes += [helper.make_node(first, ["f", "two"] if first != "Relu" else ["f"], ["n"])]
    nodes += [helper.make_node("ReduceMean", ["n"], ["o"], axes=[2, 3], keepdims=0)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, out_shape)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_normalisation_inside_the_graph_is_seen(tmp_path):
    card, reasons = guess(image_net(tmp_path / "a.onnx", "Div", [1, 3, 32, 32], [1, 3]))
    assert (card.input.scale, card.input.mean) == (1.0, (0.0, 0.0, 0.0))
    assert "scale: 1, because the graph begins with Div" in reasons
    card, reasons = guess(image_net(tmp_path / "b.onnx", "Relu", [1, 3, 32, 32], [1, 3]))
    assert card.input.scale == 1 / 255
    assert card.input.mean == (0.485, 0.456, 0.406)
    assert "scale: 1/255, assumed, as in torchvision classifiers: the graph does not normalise" in reasons


def test_bytes_as_input(tmp_path):
    card, reasons = guess(image_net(tmp_path / "a.onnx", "Relu", [1, 3, 32, 32], [1, 3], TensorProto.UINT8))
    assert (card.input.dtype, card.input.scale) == ("uint8", 1.0)
    assert "scale: 1, because it takes bytes" in reasons


def test_an_open_size_is_run_and_said_to_be_assumed(tmp_path):
    card, reasons = guess(image_net(tmp_path / "a.onnx", "Relu", ["n", 3, "h", "w"], ["n", "k"]))
    assert (card.task, len(card.classes), card.input.size) == ("classify", 3, Size(224, 224))
    assert "size: 224×224, assumed: the size in the graph is dynamic" in reasons


def test_a_network_that_does_not_run_says_so(make_net):
    path = make_net({"o": (1, "k")}, ("n", 3, "h", "w"))
    model = onnx.load(path)
    model.graph.node.append(helper.make_node("Reshape", ["image", "bad"], ["q"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([7, 11], np.int64), "bad"))
    model.graph.output.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, ["a", "b"]))
    onnx.save(model, path)
    with pytest.raises(ModelError, match="onnxruntime cannot run it on an image of 640×640") as caught:
        guess(path)
    assert "\n" not in str(caught.value)


def test_names_and_size_in_the_metadata_are_used(make_net):
    names = {i: f"sign {i}" for i in range(10)}
    card, reasons = guess(make_net({"o": (1, 14, 84)}, metadata={"names": str(names), "imgsz": "[64, 64]"}))
    assert card.classes == tuple(names.values())
    assert "classes: 10 names, because the file's metadata lists them" in reasons
    card, _ = guess(make_net({"o": (1, 14, 84)}, metadata={"names": "{0: 'a', 5: 'b'}"}))
    assert card.classes[:2] == ("0", "1")


def test_a_table_after_top_k(make_net):
    path = make_net({"o": (1, 300, 6)})
    with pytest.raises(CardError, match="no known head fits"):
        guess(path)
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    model.graph.node.append(helper.make_node("TopK", ["w0", "one"], ["v", "i"]))
    onnx.save(model, path)
    card, reasons = guess(path)
    assert (card.head.name, card.head.options["columns"][-1]) == ("boxes", "label")
    assert any(r.startswith("columns: x1 y1 x2 y2 score label, assumed") for r in reasons)


def test_anchors_are_said_to_be_assumed(make_net):
    outputs = CASES["yolov3"][0]
    card, reasons = guess(make_net(outputs))
    assert card.head.options["anchors"][0] == ((10, 13), (16, 30), (33, 23))
    assert any(
        r.startswith("anchors: YOLOv3's for COCO, assumed: the graph does not contain them") for r in reasons
    )


def test_nhwc(make_net):
    card, reasons = guess(make_net({"p": (1, 10)}, (1, 48, 80, 3)))
    assert (card.input.layout, card.input.size) == ("nhwc", Size(80, 48))
    assert "layout: nhwc, because the input is image float32 (1, 48, 80, 3)" in reasons


@pytest.mark.parametrize(
    ("outputs", "shape", "error", "told"),
    [
        (
            {"a": (1, 7, 7, 7, 7)},
            (1, 3, 64, 64),
            CardError,
            r"no known head fits the outputs 'a' \(1, 7, 7, 7, 7\)",
        ),
        (
            {"a": (1, 10)},
            (1, 2, 64, 64),
            ModelError,
            "expected an input of 3 colour channels, or 1 for grey, got image float32",
        ),
        (
            {"a": (1, 10)},
            (1, 64),
            ModelError,
            "expected one input that takes an image, of four axes or of three without a batch, got image",
        ),
    ],
)
def test_what_cannot_be_guessed(make_net, outputs, shape, error, told):
    with pytest.raises(error, match=told) as caught:
        guess(make_net(outputs, shape))
    assert "\n" not in str(caught.value)


def test_a_card_is_not_overwritten_without_force(make_net, tmp_path):
    path = make_net({"p": (1, 10)})
    target, _ = write_guess(path)
    assert target == tmp_path / "net.toml"
    with pytest.raises(CardError, match="the card already exists; use --force to overwrite it"):
        write_guess(path)
    assert write_guess(path, force=True)[0] == target
    assert write_guess(path, tmp_path / "other.toml")[0].is_file()
