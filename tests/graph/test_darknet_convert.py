"""Darknet's .weights: every float is used or an error says why not; and the files and card that come out."""

import math
import struct

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from holdfast.core.errors import CardError, ModelError, OutputError
from holdfast.core.types import Size
from holdfast.graph.darknet.convert import convert, header_length

TEXT = """[net]
width=64
height=64
channels=3
[convolutional]
batch_normalize=1
filters=4
activation=leaky
[convolutional]
filters=8
size=3
pad=1
stride=4
[convolutional]
filters=18
activation=linear
[yolo]
anchors=10,13, 16,30, 33,23
num=3
classes=1
"""
EXPECTED = (4 * 4 + 4 * 3) + (8 + 8 * 36) + (18 + 18 * 8)


@pytest.fixture
def small(tmp_path):
    """A small network on disk: its .cfg and its .weights."""
    cfg, weights = tmp_path / "net.cfg", tmp_path / "net.weights"
    cfg.write_text(TEXT)
    floats = np.random.default_rng(0).uniform(0.1, 1, EXPECTED).astype("<f4")
    weights.write_bytes(struct.pack("<3iQ", 0, 2, 5, 64000) + floats.tobytes())
    return cfg, weights


def put(data, place, value):
    """The file with one float replaced."""
    at = 20 + 4 * place
    return data[:at] + struct.pack("<f", value) + data[at + 4 :]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda d: d + b"\0\0\0\0", "expected 486 floats for {cfg}, got 487: 1 too many"),
        (lambda d: d[:-4], "got 485: 1 too few, it ends within {cfg}:14: layer 2 [convolutional]"),
        (
            lambda d: d[: 20 + 4 * 130],
            "got 130: 356 too few, it ends within {cfg}:9: layer 1 [convolutional]",
        ),
        (lambda d: d + b"\0\0", "got 486 and 2 bytes: 0 and 2 bytes too many"),
        (lambda d: d[:-1], "got 485 and 3 bytes: 1 too few"),
        (lambda d: d[:20], "got 0: 486 too few, it ends within {cfg}:5: layer 0"),
        (lambda d: d[:19], "got 19 bytes in all"),
        (lambda d: b"", "got 0 bytes in all"),
        (lambda d: b"[net]\nwidth=3", "got the text of a .cfg"),
        (
            lambda d: put(d, 0, math.nan),
            "expected finite numbers as bias of {cfg}:5: layer 0 [convolutional], got nan (1 such",
        ),
        (
            lambda d: put(d, 485, math.inf),
            "weights of {cfg}:14: layer 2 [convolutional], got inf (1 such, the first is float 485 ",
        ),
        (lambda d: put(d, 12, -1), "at least 0 as variance of {cfg}:5: layer 0 [convolutional], got -1.0"),
    ],
)
def test_wrong_weights_are_refused(small, tmp_path, change, wanted):
    cfg, weights = small
    weights.write_bytes(change(weights.read_bytes()))
    with pytest.raises(ModelError) as problem:
        convert(cfg, weights, tmp_path / "out.onnx")
    assert wanted.format(cfg=cfg) in str(problem.value)
    assert str(weights) in str(problem.value)
    assert not (tmp_path / "out.onnx").exists()


def test_header_of_32_and_64_bits(tmp_path):
    path = tmp_path / "net.weights"
    assert header_length(struct.pack("<4i", 0, 1, 0, 77) + b"1234", path) == 16
    assert header_length(struct.pack("<3iQ", 0, 2, 5, 1 << 40), path) == 20


def test_missing_weights(small, tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        convert(small[0], tmp_path / "none.weights", tmp_path / "out.onnx")


# --- the door


def test_convert_writes_the_model_and_gives_its_card(small, tmp_path):
    out = tmp_path / "out.onnx"
    card = convert(*small, out)
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert (model.opset_import[0].version, model.graph.input[0].name) == (13, "images")
    session = ort.InferenceSession(out)
    assert session.get_inputs()[0].shape == ["batch", 3, 64, 64]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("yolo0", ["batch", 18, 16, 16])]
    assert (card.task, card.head.name, card.classes, card.score, card.nms_iou) == (
        "detect",
        "yolov3",
        ("0",),
        0.001,
        0.45,
    )
    assert card.head.options == {
        "outputs": ("yolo0",),
        "anchors": (((10, 13), (16, 30), (33, 23)),),
        "strides": (4,),
        "scale_xy": (1.0,),
    }
    assert (card.input.size, card.input.policy, card.input.colour, card.input.scale) == (
        Size(64, 64),
        "stretch",
        "rgb",
        1 / 255,
    )
    first = out.read_bytes()
    convert(*small, out)
    assert out.read_bytes() == first


def test_size_names_and_letter_box(small, tmp_path):
    cfg, weights = small
    cfg.write_text(cfg.read_text().replace("channels=3", "channels=3\nletter_box=1"))
    names = tmp_path / "my.names"
    names.write_text("stop sign\n\n")
    out = tmp_path / "out.onnx"
    card = convert(cfg, weights, out, names, Size(96, 32))
    assert (card.classes, card.input.size, card.input.policy, card.input.pad) == (
        ("stop sign",),
        Size(96, 32),
        "letterbox",
        127,
    )
    assert ort.InferenceSession(out).get_outputs()[0].shape == ["batch", 18, 8, 24]
    names.write_text("a\nb\n")
    with pytest.raises(CardError, match=r"expected 1 names, .* got 2"):
        convert(cfg, weights, out, names)
    with pytest.raises(CardError, match="no such file"):
        convert(cfg, weights, out, tmp_path / "none.names")


def test_eighty_classes_are_cocos(small, tmp_path):
    cfg, weights = small
    cfg.write_text(TEXT.replace("filters=18", "filters=255").replace("classes=1", "classes=80"))
    weights.write_bytes(weights.read_bytes()[: 20 + 4 * 324] + bytes(4 * 255 * 9))
    card = convert(cfg, weights, tmp_path / "out.onnx")
    assert len(card.classes) == 80
    assert (card.classes[0], card.classes[11], card.classes[79]) == ("person", "stop sign", "toothbrush")


def test_an_output_that_cannot_be_written(small, tmp_path):
    with pytest.raises(OutputError, match="could not write the ONNX file"):
        convert(*small, tmp_path / "no" / "folder.onnx")
    (tmp_path / "taken.onnx").mkdir()
    with pytest.raises(OutputError, match="could not write"):
        convert(*small, tmp_path / "taken.onnx")
    assert not list(tmp_path.glob("*.part"))
