# /// script
# requires-python = ">=3.11"
# dependencies = ["ultralytics", "onnx", "onnxslim"]
# ///
"""Export ONNX files of Ultralytics models with random weights, for `tests/graph/test_ultralytics_exports.py`.

Ultralytics (AGPL-3.0) is not a dependency of holdfast, so this runs in an environment of its own:

    uv run tools/ultralytics_exports.py build/ultralytics
    python -m pytest -m slow tests/graph/test_ultralytics_exports.py

No weights are downloaded: the models are built from their configuration.
"""

import importlib
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

SIDE = 320
# Name of the file -> configuration, and options of the export.
EXPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "yolov5nu": ("yolov5n.yaml", {}),
    "yolov8n": ("yolov8n.yaml", {}),
    "yolov8n-nms": ("yolov8n.yaml", {"nms": True}),
    "yolov8n-dynamic": ("yolov8n.yaml", {"dynamic": True}),
    "yolov8n-seg": ("yolov8n-seg.yaml", {}),
    "yolov8n-pose": ("yolov8n-pose.yaml", {}),
    "yolov8n-obb": ("yolov8n-obb.yaml", {}),
    "yolov8n-cls": ("yolov8n-cls.yaml", {}),
    "yolov10n": ("yolov10n.yaml", {}),
    "yolo11n": ("yolo11n.yaml", {}),
    "yolo26n": ("yolo26n.yaml", {}),
    "rtdetr-l": ("rtdetr-l.yaml", {}),
}


def main(folder: Path) -> None:
    """Write one file per export; a configuration that the installed version does not know is named."""
    ultralytics: Any = importlib.import_module("ultralytics")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, (configuration, options) in EXPORTS.items():
        make = ultralytics.RTDETR if configuration.startswith("rtdetr") else ultralytics.YOLO
        with tempfile.TemporaryDirectory() as scratch, chdir(scratch):  # the exporter writes where it runs
            try:
                written = make(configuration).export(format="onnx", imgsz=SIDE, opset=17, **options)
            except FileNotFoundError as problem:
                sys.stderr.write(f"{name}: not in ultralytics {ultralytics.__version__}: {problem}\n")
                continue
            shutil.copy(written, folder / f"{name}.onnx")
        sys.stdout.write(f"{folder / name}.onnx\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: ultralytics_exports.py FOLDER")
    main(Path(sys.argv[1]))
