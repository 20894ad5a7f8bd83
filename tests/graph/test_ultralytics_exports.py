"""Real exports of Ultralytics, with random weights: each is read by its metadata, without a card."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.types import Detections
from holdfast.graph.load import load_model

pytestmark = pytest.mark.slow
HOME = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("HOLDFAST_ULTRALYTICS", HOME / "build" / "ultralytics"))
# Name of the file -> task, head, number of classes, policy.
EXPECTED = {
    "yolov5nu": ("detect", "yolov8", 80, "letterbox"),
    "yolov8n": ("detect", "yolov8", 80, "letterbox"),
    "yolov8n-nms": ("detect", "boxes", 80, "letterbox"),
    "yolov8n-dynamic": ("detect", "yolov8", 80, "letterbox"),
    "yolov8n-seg": ("detect", "yolov8", 80, "letterbox"),
    "yolov8n-pose": ("detect", "yolov8", 1, "letterbox"),
    "yolov8n-obb": ("detect", "yolov8", 80, "letterbox"),
    "yolov8n-cls": ("classify", "classifier", 1000, "crop"),
    "yolov10n": ("detect", "boxes", 80, "letterbox"),
    "yolo11n": ("detect", "yolov8", 80, "letterbox"),
    "yolo26n": ("detect", "yolov8", 80, "letterbox"),  # version 8.4: metadata end2end False
    "rtdetr-l": ("detect", "rtdetr", 80, "stretch"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_real_exports_are_read_by_their_metadata(name, tmp_path):
    path = FOLDER / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"no {path}; make it with: uv run tools/ultralytics_exports.py {FOLDER}")
    model = load_model(path)
    card = model.card
    assert (card.task, card.head.name, len(card.classes), card.input.policy) == EXPECTED[name]
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    machine = load_pipeline(pipeline_of(card), model)
    found = machine.predict(machine.prepare((tmp_path / "noise.png").read_bytes()))
    if isinstance(found, Detections):
        assert ((found.boxes >= 0) & (found.boxes <= [400, 300, 400, 300])).all()
        assert (found.classes < len(card.classes)).all()
        assert ((found.scores >= 0) & (found.scores <= 1)).all()
