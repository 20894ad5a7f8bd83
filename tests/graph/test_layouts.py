"""Each known layout of a detector's outputs: recognised without a card, and the boxes in it are found."""

import dataclasses
import io

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image

from helpers.layouts import (
    BOXES,
    CELLS,
    CLASSES,
    LABELS,
    NAMES,
    SCORES,
    SIDE,
    Layout,
    centres,
    f32,
    filled,
    grid_maps,
    logits,
    save,
    scores,
    with_background,
)
from holdfast.core.errors import CardError
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.graph.card import read_card
from holdfast.graph.load import load_model, write_guess
from holdfast.graph.rules.maps import COCO_ANCHORS, TINY_ANCHORS, V4_ANCHORS
from holdfast.stages.deployed import rewritten
from holdfast.stages.infer import open_onnx

INT = np.int64
STRIDES = (8, 16, 32)
COCO, V4 = ([table[s] for s in STRIDES] for table in (COCO_ANCHORS, V4_ANCHORS))
TINY = [TINY_ANCHORS[s] for s in (16, 32)]
SMALL = np.array([[1.0, 1, 3, 3]])


def corners(count: int, unit: float = 1.0) -> np.ndarray:
    """The boxes xyxy and small ones after them."""
    return np.concatenate([BOXES, np.repeat(SMALL, count - 2, axis=0)])[None].astype(np.float32) / unit


def queries(count: int) -> np.ndarray:
    return f32(filled(centres(), count) / SIDE)


def square_of(maps: list) -> list:
    """Maps (1, A·(5+k), h, w) of maps (1, A, h, w, 5+k)."""
    return [m.transpose(0, 1, 4, 2, 3).reshape(1, -1, *m.shape[2:4]) for m in maps]


def named(maps: list, names: str = "abc") -> dict:
    return dict(zip(names, maps, strict=True))


def yolov4(activated: bool) -> list:
    """Maps with the place in a cell scaled by 1.2, whose boxes are otherwise those of YOLOv3."""
    maps = grid_maps(STRIDES, V4, "exp")
    for (cx, cy, _, _), m in zip(centres(), [maps[0]] * 2, strict=True):
        x, y = int(cx // 8), int(cy // 8)
        at = (np.array([cx / 8 - x, cy / 8 - y]) + 0.1) / 1.2
        m[0, 2, y, x, :2] = logits(at)
    if activated:
        for m in maps:
            m[..., 4:] = 1 / (1 + np.exp(-m[..., 4:]))
    return maps


def columns(first: np.ndarray, *more: np.ndarray, rows: int = CELLS) -> np.ndarray:
    """One table (1, rows, columns)."""
    return f32(first, *(np.concatenate([m, np.zeros((rows - len(m), m.shape[1]))]) for m in more))


def turned(table: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(table.transpose(0, 2, 1))


ALL = np.concatenate([centres(), np.tile([9.0, 9, 2, 2], (CELLS - 2, 1))])
ONES = np.ones((CELLS, 1))
PROTOTYPES = np.zeros((1, 32, 16, 16), np.float32)
COEFFICIENTS = np.full((CELLS, 32), -1.5)
V5 = np.concatenate([centres(), np.tile([2.0, 2, 2, 2], (3 * CELLS - 2, 1))])
FACES = np.concatenate([SCORES[:, None], np.full((4418, 1), 0.01)])
TIGHT = np.concatenate([BOXES, SCORES[:, None]], axis=1)


def retinanet() -> dict:
    sizes = [8, 4, 2, 1, 1]
    score = [np.full((1, 9 * CLASSES, n, n), -9.0, np.float32) for n in sizes]
    delta = [np.zeros((1, 36, n, n), np.float32) for n in sizes]
    for (cx, cy, w, h), label, p in zip(centres(), LABELS, SCORES, strict=True):
        x, y = int(cx // 8), int(cy // 8)  # anchor 3 of 9 is 32 × 32 around (8x, 8y)
        score[0][0, 3 * CLASSES + label, y, x] = logits(p)
        delta[0][0, 12:16, y, x] = [(cx - 8 * x) / 32, (cy - 8 * y) / 32, np.log(w / 32), np.log(h / 32)]
    return {f"s{i}": m for i, m in enumerate(score)} | {f"d{i}": m for i, m in enumerate(delta)}


def centernet() -> dict:
    heat = np.full((1, CLASSES, 16, 16), 0.01, np.float32)
    wh, reg = np.zeros((1, 2, 16, 16), np.float32), np.zeros((1, 2, 16, 16), np.float32)
    for (cx, cy, w, h), label, p in zip(centres(), LABELS, SCORES, strict=True):
        x, y = int(cx // 4), int(cy // 4)
        heat[0, label, y, x], heat[0, label, y, x - 1] = p, p / 2  # the neighbour is no peak
        wh[0, :, y, x], reg[0, :, y, x] = (w / 4, h / 4), (cx / 4 - x, cy / 4 - y)
    return {"hm": heat, "reg": reg, "wh": wh}


V3_TINY = grid_maps((16, 32), TINY, "exp")
FEEDS = {"im_shape": (TensorProto.FLOAT, [1, 2]), "scale_factor": (TensorProto.FLOAT, ["n", 2])}
LAYOUTS = {
    "YOLO-NAS": Layout(
        {"boxes": corners(CELLS), "scores": f32(scores(CELLS))},
        *("boxes-scores", CLASSES, {"form": "xyxy", "normalised": False, "activation": "none"}),
    ),
    "boxes and logits, classes first": Layout(
        {"a": turned(f32(logits(scores(CELLS)))), "b": f32(ALL)},
        *("boxes-scores", CLASSES, {"form": "cxcywh", "normalised": False, "activation": "sigmoid"}),
        metadata={"names": NAMES},
    ),
    "SSD": Layout(
        {"boxes": corners(1200, SIDE), "scores": f32(with_background(scores(1200, quiet=0.001), True))},
        *("boxes-scores", CLASSES, {"normalised": True, "background": "first"}),
    ),
    "UltraFace": Layout(
        {"scores": f32(1 - FACES, FACES), "boxes": corners(4420, SIDE)},
        *("boxes-scores", 1, {"normalised": True, "background": "first"}),
        labels=(0, 0),
    ),
    "YOLOv4 in PyTorch": Layout(
        {"boxes": corners(3 * CELLS, SIDE)[:, :, None], "confs": f32(scores(3 * CELLS))},
        *("boxes-scores", CLASSES, {"normalised": True, "form": "xyxy"}),
    ),
    "batch of four": Layout(
        {"boxes": corners(CELLS).repeat(4, axis=0), "scores": f32(scores(CELLS)).repeat(4, axis=0)},
        *("boxes-scores", CLASSES),
        input=(4, 3, SIDE, SIDE),
    ),
    "DETR": Layout(
        {"logits": f32(np.log(with_background(scores(100), False))), "pred_boxes": queries(100)},
        *("detr", CLASSES, {"activation": "softmax", "background": "last"}),
    ),
    "RT-DETR": Layout(
        {"logits": f32(logits(scores(300))), "boxes": queries(300)},
        *("detr", CLASSES, {"activation": "sigmoid"}),
        metadata={"names": NAMES},
    ),
    "RF-DETR": Layout(
        {"dets": queries(300), "labels": f32(logits(scores(300, 91)))},
        *("detr", 91, {"activation": "sigmoid"}),
        unused=["GridSample"],
    ),
    "RT-DETR of Ultralytics": Layout(
        {"o": f32(filled(centres(), 300) / SIDE, scores(300))},
        *("rtdetr", CLASSES),
    ),
    "RT-DETR with orig_target_sizes": Layout(
        {"labels": LABELS[None].astype(INT), "boxes": corners(2, SIDE), "scores": SCORES[None].astype("f4")},
        *("boxes", 80),
        more={"orig_target_sizes": (TensorProto.INT64, ["n", 2])},
        scaled="orig_target_sizes",
    ),
    "PaddleDetection": Layout(
        {"t": np.c_[LABELS, SCORES, BOXES].astype("f4"), "n": np.array([2], np.int32)},
        *("boxes", 80),
        more=FEEDS,
    ),
    "mmdeploy": Layout(
        {"dets": TIGHT[None].astype("f4"), "labels": LABELS[None].astype(INT)},
        *("dets-labels", 80),
    ),
    "mmdeploy, grey": Layout(
        {"dets": TIGHT[None].astype("f4"), "labels": LABELS[None].astype(INT)},
        *("dets-labels", 80),
        input=(1, 1, SIDE, SIDE),
    ),
    "YOLOv7 end-to-end": Layout(
        {"o": np.c_[[0, 0], BOXES, LABELS, SCORES].astype("f4")},
        *("boxes", 80, {"columns": ("-", "x1", "y1", "x2", "y2", "label", "score")}),
        unused=["TopK"],
    ),
    "YOLOv3 of the model zoo": Layout(
        {
            "yolonms": corners(9)[:, :, [1, 0, 3, 2]],
            "yolonms:1": turned(f32(scores(9))),
            "yolonms:2": np.array([[[0, 2, 0], [0, 0, 1]]], np.int32),
        },
        *("selected", CLASSES),
        more={"image_shape": (TensorProto.FLOAT, [1, 2])},
    ),
    "YOLOv5 maps": Layout(named(grid_maps(STRIDES, COCO, "square"), "cab"), "yolov5-maps"),
    "YOLOv5 maps of four axes": Layout(
        named(square_of(grid_maps(STRIDES, COCO, "square"))),
        "yolov5-maps",
        unused=["Sigmoid", "Mul"] * 10,
    ),
    "YOLOv5 and its maps": Layout(
        {"o": columns(V5, SCORES[:, None], scores(quiet=0.0) > 0, rows=3 * CELLS)}
        | named(grid_maps(STRIDES, COCO, "square")),
        *("yolov5", CLASSES, {"outputs": ("o",)}),
    ),
    "YOLOv3-tiny": Layout(
        named(square_of(V3_TINY), "ab"),
        *("yolov3", CLASSES, {"strides": (16, 32)}),
    ),
    "YOLOv4": Layout(
        named(square_of(yolov4(False))),
        *("yolov3", CLASSES, {"scale_xy": (1.2, 1.1, 1.05)}),
        unused=["Softplus", "Tanh"] * 10,
    ),
    "YOLOv4 in TensorFlow": Layout(
        named([m.transpose(0, 2, 3, 1, 4) for m in yolov4(True)]),
        *("yolov3", CLASSES, {"activation": "none", "scale_xy": (1.2, 1.1, 1.05)}),
        input=(1, SIDE, SIDE, 3),
        unused=["Softplus", "Tanh"] * 10,
    ),
    "YOLOv6": Layout({"o": f32(ALL, ONES, scores(CELLS))}, "yolov5"),
    "YOLO-seg": Layout(
        {"o": turned(f32(ALL, scores(CELLS), COEFFICIENTS)), "p": PROTOTYPES},
        *("yolov8", CLASSES, {"outputs": ("o",), "trailing": 32}),
    ),
    "YOLO-pose": Layout(
        {"o": turned(f32(ALL, scores(CELLS)[:, :3].max(axis=1, keepdims=True), np.full((CELLS, 51), 7.0)))},
        *("yolov8", 1, {"trailing": 51}),
        labels=(0, 0),
    ),
    "YOLO-obb": Layout(
        {"o": turned(f32(ALL, scores(CELLS), np.r_[0.0, 0.0, np.full(CELLS - 2, -0.5)][:, None]))},
        *("yolov8", CLASSES, {"trailing": 1, "angle": True}),
    ),
    "YOLOv5-seg": Layout(
        {
            "o": f32(V5, np.ones((3 * CELLS, 1)), scores(3 * CELLS), np.full((3 * CELLS, 32), -1.5)),
            "p": PROTOTYPES,
        },
        *("yolov5", CLASSES, {"outputs": ("o",), "trailing": 32}),
    ),
    "RetinaNet, level by level": Layout(retinanet(), "anchors"),
    "CenterNet": Layout(centernet(), "centernet", CLASSES, {"outputs": ("hm", "wh", "reg")}),
}


def picture() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((SIDE, SIDE, 3), 90, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_boxes_of_every_layout_are_found_without_a_card(name, tmp_path):
    layout = LAYOUTS[name]
    model = load_model(save(layout, tmp_path / "net.onnx"))
    card = model.card
    assert (card.task, card.head.name, len(card.classes)) == ("detect", layout.head, layout.classes)
    assert layout.options.items() <= card.head.options.items()
    machine = load_pipeline(pipeline_of(card), model)
    found = machine.predict(machine.prepare(picture()))
    strong = found.take(found.scores > 0.5)
    assert strong.classes.tolist() == list(layout.labels)
    np.testing.assert_allclose(strong.boxes, BOXES, atol=0.01)
    np.testing.assert_allclose(strong.scores, SCORES, atol=1e-3)
    assert read_card(write_guess(model.path)[0]) == card


def test_deltas_are_not_taken_for_boxes(tmp_path):
    """SSD without its last layer: the priors are not in the file."""
    deltas = np.random.default_rng(0).normal(0, 1, (1, 1200, 4)).astype(np.float32)
    net = Layout({"loc": deltas, "conf": f32(with_background(scores(1200), True))}, head="")
    with pytest.raises(CardError, match=r"no known head fits the outputs 'loc' \(1, 1200, 4\), 'conf'"):
        load_model(save(net, tmp_path / "net.onnx"))


@pytest.mark.parametrize("shape", [(480, 640), (1200, 500)])
def test_any_size_is_taken_with_the_ratio_kept(shape, tmp_path):
    """The boxes are in parts of an input whose size differs from image to image."""
    detr = LAYOUTS["DETR"]
    free = dataclasses.replace(detr, input=(1, 3, "h", "w"))
    model = load_model(save(free, tmp_path / "net.onnx"))
    image = model.card.input
    assert (image.policy, image.short_side, image.long_side) == ("short-side", 800, 1333)
    machine = load_pipeline(pipeline_of(model.card), model)
    stream = io.BytesIO()
    Image.fromarray(np.zeros((*shape, 3), np.uint8)).save(stream, "PNG")
    ready = machine.prepare(stream.getvalue())
    ratio = min(800 / min(shape), 1333 / max(shape))
    assert ready.tensor.shape[2:] == tuple(int(side * ratio + 0.5) for side in shape)
    found = machine.predict(ready)
    whole = np.array([shape[1], shape[0]] * 2) / SIDE
    np.testing.assert_allclose(found.boxes[found.scores > 0.5], BOXES * whole, rtol=1e-5)
    assert read_card(write_guess(model.path)[0]) == model.card


def test_one_size_and_the_policy_short_side_contradict_each_other(tmp_path):
    path = save(LAYOUTS["DETR"], tmp_path / "net.onnx")
    card, _ = write_guess(path)
    card.write_text(card.read_text().replace('policy = "stretch"', 'policy = "short-side"\nshort_side = 800'))
    with pytest.raises(CardError, match='policy "short-side" needs an input of any height and width'):
        load_model(path)


def test_a_second_input_that_nobody_knows_must_be_in_the_card(tmp_path):
    layout = dataclasses.replace(LAYOUTS["mmdeploy"], more={"angle": (TensorProto.FLOAT, [1])})
    path = save(layout, tmp_path / "net.onnx")
    with pytest.raises(
        CardError, match=r"the card does not feed the input angle float32 \(1\); write in the card"
    ):
        load_model(path)
    path.with_suffix(".toml").write_text(
        'task = "detect"\nclasses = "coco80"\n[input]\nsize = [64, 64]\n[head]\nname = "dets-labels"\n'
        '[feeds]\nangle = "ones"\n'
    )
    assert load_model(path).card.feeds == {"angle": "ones"}
    card = path.with_suffix(".toml")
    card.write_text(card.read_text() + 'scale = "ones"\n')
    with pytest.raises(CardError, match=r"feeds\.scale: expected the name of an input other than the image"):
        load_model(path)
    card.write_text(card.read_text().replace('"ones"', '"zeros"'))
    with pytest.raises(CardError, match=r"feeds\.angle: expected 'width-height' or 'height-width' or 'ones'"):
        load_model(path)


@pytest.mark.parametrize("name", ["RT-DETR with orig_target_sizes", "YOLOv3 of the model zoo"])
def test_rewrites_see_second_inputs_as_constants(name, tmp_path):
    model = load_model(save(LAYOUTS[name], tmp_path / "net.onnx"))
    graph = rewritten(model, (), None).model.graph
    assert [i.name for i in graph.input] == ["image"]
    plain, fixed = (
        open_onnx(s, model, 1)
        for s in (str(model.path), rewritten(model, (), None).model.SerializeToString())
    )
    tensor = np.zeros((1, 3, SIDE, SIDE), np.float32)
    for output, value in plain(tensor).items():
        np.testing.assert_array_equal(fixed(tensor)[output], value)
