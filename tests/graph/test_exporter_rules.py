"""Exports whose outputs mean what shapes alone do not tell: Ultralytics, TensorFlow, torchvision."""

import numpy as np
import pytest
from onnx import TensorProto

from holdfast.core.errors import CardError
from holdfast.graph.card import BUILT_IN, read_card
from holdfast.graph.inspect import inspect
from holdfast.graph.load import check_card, guess, write_guess

COCO = str(dict(enumerate(BUILT_IN["coco80"])))
PERSON = "{0: 'person'}"
TABLE = ("x1", "y1", "x2", "y2", "score", "label")
# name: (outputs, metadata, head, number of classes, options)
ULTRALYTICS = {
    "detect": ({"o": (1, 84, 84)}, {"task": "detect", "names": COCO}, "yolov8", 80, {}),
    "segment": (
        {"output0": (1, 116, 84), "output1": (1, 32, 16, 16)},
        {"task": "segment", "names": COCO},
        *("yolov8", 80, {"outputs": ("output0",), "trailing": 32}),
    ),
    "pose": (
        {"o": (1, 56, 84)},
        {"task": "pose", "names": PERSON, "kpt_shape": "[17, 3]"},
        *("yolov8", 1, {"trailing": 51}),
    ),
    "obb": (
        {"o": (1, 20, 84)},
        {"task": "obb", "names": str(list("abcdefghijklmno"))},
        *("yolov8", 15, {"trailing": 1, "angle": True}),
    ),
    "rt-detr": ({"o": (1, 300, 84)}, {"task": "detect", "names": COCO}, "rtdetr", 80, {}),
    "rt-detr of two classes": (
        {"o": (1, 300, 6)},
        {"task": "detect", "names": "{0: 'a', 1: 'b'}", "head": "RTDETRDecoder", "end2end": "False"},
        *("rtdetr", 2, {}),
    ),
    "end to end": (
        {"o": (1, 300, 6)},
        {"task": "detect", "names": COCO, "end2end": "True"},
        *("boxes", 80, {"columns": TABLE}),
    ),
    "end to end, of two classes": (
        {"o": (1, 300, 6)},
        {"task": "detect", "names": "{0: 'a', 1: 'b'}", "end2end": "True"},
        *("boxes", 2, {"columns": TABLE}),
    ),
    "segment, end to end": (
        {"output0": (1, 300, 38), "output1": (1, 32, 16, 16)},
        {"task": "segment", "names": COCO, "end2end": "True"},
        *("boxes", 80, {"boxes": "output0", "columns": (*TABLE, *["-"] * 32)}),
    ),
    "obb with NMS inside": (
        {"o": (1, 300, 7)},
        {"task": "obb", "names": "['a', 'b']", "args": "{'nms': True, 'batch': 1}"},
        *("boxes", 2, {"columns": ("cx", "cy", "w", "h", "score", "label", "angle")}),
    ),
}


@pytest.mark.parametrize("case", ULTRALYTICS)
def test_the_metadata_of_ultralytics_go_before_shapes(make_net, case):
    outputs, metadata, head, classes, options = ULTRALYTICS[case]
    path = make_net(outputs, metadata=metadata)
    card, reasons = guess(path)
    assert (card.task, card.head.name, len(card.classes)) == ("detect", head, classes)
    assert dict(card.head.options) == options
    assert card.input.policy == ("stretch" if head == "rtdetr" else "letterbox")
    assert card.input.scale == 1 / 255
    assert not any("no names are stored" in reason for reason in reasons)
    if metadata["task"] in ("segment", "pose", "obb"):
        assert any("not evaluated" in reason for reason in reasons)
    check_card(card, inspect(path))
    assert read_card(write_guess(path)[0]) == card


def test_a_classifier_of_ultralytics_is_not_normalised_as_imagenet(make_net):
    path = make_net({"o": (1, 3)}, metadata={"task": "classify", "names": "['a', 'b', 'c']"})
    card, _ = guess(path)
    assert (card.task, card.classes, card.input.mean) == ("classify", ("a", "b", "c"), (0.0, 0.0, 0.0))
    assert (card.input.policy, card.input.short_side) == ("crop", 64)


def test_outputs_that_contradict_the_metadata_are_refused(make_net):
    path = make_net({"o": (1, 85, 84)}, metadata={"task": "pose", "names": PERSON})
    with pytest.raises(CardError, match="task 'pose' with 1 classes, but the outputs 'o'"):
        guess(path)


def test_a_file_that_names_other_classes_is_not_said_to_name_none(make_net):
    _, reasons = guess(make_net({"o": (1, 14, 84)}, metadata={"names": PERSON}))
    assert "classes: 10 without names, because the graph has 10 and the metadata names 1" in reasons


TENSORFLOW = {
    "detection_boxes:0": (1, 20, 4),
    "detection_classes:0": (1, 20),
    "detection_scores:0": (1, 20),
    "num_detections:0": (1,),
}


def test_tensorflow_gives_y_before_x_in_parts_of_the_image_and_ids_of_coco(make_net):
    path = make_net(TENSORFLOW, (1, "h", "w", 3), input_type=TensorProto.UINT8)
    card, _ = guess(path)
    assert (card.head.name, card.classes) == ("boxes", BUILT_IN["coco91"])
    read = {"form": "yxyx", "normalised": True, "label_offset": 0, "count": "num_detections:0"}
    assert read.items() <= card.head.options.items()
    image = card.input
    assert (image.dtype, image.layout, image.policy, image.scale) == ("uint8", "nhwc", "stretch", 1.0)


@pytest.mark.parametrize(("scores", "classes", "offset"), [(91, 91, 0), (4, 3, 1)])
def test_scores_of_every_class_tell_how_many_tensorflow_has(make_net, scores, classes, offset):
    outputs = {"raw_detection_boxes": (1, 50, 4), "raw_detection_scores": (1, 50, scores), **TENSORFLOW}
    card, _ = guess(make_net(outputs, (1, 64, 64, 3), input_type=TensorProto.UINT8))
    assert (len(card.classes), card.head.options["label_offset"]) == (classes, offset)
    assert card.head.options["boxes"] == "detection_boxes:0"


def test_torchvision_needs_no_batch_axis(make_net):
    outputs = {"boxes": ("n", 4), "labels": ("n",), "scores": ("n",)}
    path = make_net(outputs, (3, 64, 48), dtypes={"labels": TensorProto.INT64})
    card, _ = guess(path)
    assert (card.head.name, card.classes) == ("boxes", BUILT_IN["coco91"])
    assert (*card.input.size, card.input.layout, card.input.policy) == (48, 64, "nchw", "letterbox")
    check_card(card, inspect(path))


def test_constants_tell_whether_a_graph_takes_parts_or_bytes(tmp_path):
    from onnx import helper

    from helpers.nms_graphs import Graph, save

    def scale(kind: str, size: float, **constant: object) -> float:
        graph = Graph()
        number = graph.add("Constant", **constant) if constant else np.float32(size)
        graph.add("GlobalAveragePool", graph.add(kind, "x", number), out="y")
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 1, 1])
        return guess(save(tmp_path / "net.onnx", graph, x, [y]))[0].input.scale

    assert [scale("Sub", 0.485), scale("Div", 0.5), scale("Mul", 2.0)] == [1 / 255] * 3
    assert scale("Sub", 0.5, value=helper.make_tensor("v", TensorProto.FLOAT, [], [0.5])) == 1 / 255
    assert scale("Sub", 0.5, value_float=0.5) == 1.0  # not looked into
    assert [scale("Sub", 123.7), scale("Div", 255.0), scale("Mul", 1 / 255)] == [1.0] * 3
