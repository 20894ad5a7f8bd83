"""Model files of other formats than ONNX: one line that says what to do with each; export of .pt files."""

import subprocess
import sys
from pathlib import Path

from holdfast.core.errors import ModelError
from holdfast.core.extras import is_installed

_SOURCE = "give the ONNX file that it was converted from"
_BESIDE = f"{_SOURCE}, and this file by --deploy-model"
_PAIR = {".xml": ".bin", ".param": ".bin"}
# ending -> what the file is, and what to do
FORMATS = {
    ".xml": ("an OpenVINO model", _BESIDE),
    ".param": ("an ncnn model", _BESIDE),
    ".tflite": ("a TensorFlow Lite model", _BESIDE),
    ".engine": (
        "a TensorRT engine, which runs only with TensorRT and the GPU it was built for",
        f"{_SOURCE}, and compare predictions of the target by `holdfast diagnose --predictions FILE`",
    ),
}
FORMATS |= {".plan": FORMATS[".engine"], ".trt": FORMATS[".engine"]}
EXPORT_SECONDS = 900
_EXPORT = "import sys; from ultralytics import YOLO; YOLO(sys.argv[1]).export(format='onnx')"


def check_format(path: Path) -> None:
    """Raise ModelError, with what to do, if the ending is that of another format than ONNX."""
    ending = path.suffix.lower()
    if ending == ".bin":  # the weights of a network that is described by the file next to it
        described = [path.with_suffix(other) for other in _PAIR if path.with_suffix(other).is_file()]
        if described:
            what, advice = FORMATS[described[0].suffix]
            raise ModelError(f"{path}: expected an ONNX model, got the weights of {what}; {advice}")
    if ending in (".pt", ".pth"):
        raise ModelError(f"{path}: expected an ONNX model, got a PyTorch file; {_how_to_export(path)}")
    if ending in FORMATS:
        what, advice = FORMATS[ending]
        raise ModelError(f"{path}: expected an ONNX model, got {what}; {advice}")


def _how_to_export(path: Path) -> str:
    if path.suffix.lower() == ".pth":
        return "export it by torch.onnx.export"
    command = f"pip install ultralytics && yolo export model={path} format=onnx"
    return f"export it by ultralytics: {command}; other networks by torch.onnx.export"


def onnx_of(path: Path) -> Path:
    """The file itself; of a .pt file, the ONNX file next to it, exported by ultralytics if it is missing.

    Loading a .pt file can run code that is in it, in a process of its own.
    """
    if path.suffix.lower() != ".pt":
        return path
    exported = path.with_suffix(".onnx")
    if exported.is_file() and exported.stat().st_mtime >= path.stat().st_mtime:
        return exported
    if not is_installed("ultralytics"):
        return path  # refused with the command by `check_format`
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _EXPORT, str(path.resolve())],
            capture_output=True, timeout=EXPORT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ModelError(f"{path}: ultralytics cannot export it: {problem}") from problem
    if done.returncode or not exported.is_file():
        lines = done.stderr.decode(errors="replace").split("\n")
        reason = next((line.strip() for line in reversed(lines) if line.strip()), "no ONNX file was written")
        raise ModelError(f"{path}: ultralytics cannot export it: {reason[:300]}")
    return exported
