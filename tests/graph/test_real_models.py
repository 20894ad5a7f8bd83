"""The real detectors on real photographs: each finds the large objects with the card guessed for it."""

from pathlib import Path

import numpy as np
import pytest

from holdfast.core.model import Input
from holdfast.core.pipeline import place
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.load import load_model
from holdfast.graph.nms import ious, nms

pytestmark = pytest.mark.shared
IMAGES, LARGE = 16, 96 * 96
FLOORS = {"yolox_nano": 0.85, "nanodet_m": 0.85, "FastestDet": 0.7}


def resize(image: np.ndarray, size: Size) -> np.ndarray:
    import cv2

    return cv2.resize(image, tuple(size), interpolation=cv2.INTER_LINEAR)


def tensor_of(image: np.ndarray, wanted: Input) -> np.ndarray:
    pixels = (image[:, :, ::-1] if wanted.colour == "bgr" else image).astype(np.float32)
    return ((pixels * wanted.scale - wanted.mean) / wanted.std).astype(np.float32).transpose(2, 0, 1)[None]


def predict(session, model, image):
    wanted = model.card.input
    small, frame = place(image, wanted, resize)
    names = [o.name for o in session.get_outputs()]
    values = session.run(None, {session.get_inputs()[0].name: tensor_of(small, wanted)})
    found = part("head", model.card.head.name).function(dict(zip(names, values, strict=True)), model.card)
    kept = nms(found.boxes, found.scores, found.classes, model.card.nms_iou, max_detections=100)
    return frame.to_original(found.boxes[kept]), found.classes[kept]


def truth(label_file: Path, width: int, height: int):
    rows = np.loadtxt(label_file, ndmin=2).reshape(-1, 5) if label_file.is_file() else np.zeros((0, 5))
    centre, side = rows[:, 1:3] * [width, height], rows[:, 3:5] * [width, height]
    return np.concatenate([centre - side / 2, centre + side / 2], axis=1), rows[:, 0].astype(int)


@pytest.mark.parametrize("name", FLOORS)
def test_large_objects_are_found(shared_data, name):
    import onnxruntime
    from PIL import Image

    model = load_model(shared_data / "models" / f"{name}.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.read(), options, providers=["CPUExecutionProvider"])
    hits, total = 0, 0
    for path in sorted((shared_data / "coco128" / "images" / "val2017").glob("*.jpg"))[:IMAGES]:
        with Image.open(path) as opened:
            image = np.asarray(opened.convert("RGB"))
        boxes, classes = truth(
            shared_data / "coco128" / "labels" / "val2017" / f"{path.stem}.txt", *image.shape[1::-1]
        )
        found, labels = predict(session, model, image)
        for box, label in zip(boxes, classes, strict=True):
            if (box[2] - box[0]) * (box[3] - box[1]) >= LARGE:
                total += 1
                hits += bool((ious(box[None], found[labels == label]) >= 0.5).any())
    assert total > 20
    assert hits / total >= FLOORS[name], f"{hits} of {total} large objects"


@pytest.mark.parametrize("name", ["efflite0", "squeezenet10"])
def test_classifiers_are_recognised(shared_data, name):
    model = load_model(shared_data / "models" / f"{name}.onnx")
    assert (model.card.task, len(model.card.classes)) == ("classify", 1000)
    assert model.guessed
