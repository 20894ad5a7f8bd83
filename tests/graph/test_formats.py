"""Files of other formats: one line with what to do, and .pt files exported by ultralytics."""

import os

import pytest

from helpers.models import detector
from holdfast.core.errors import ModelError
from holdfast.graph.load import find_model, load_model

FAKE_ULTRALYTICS = """
import shutil
from pathlib import Path

class YOLO:
    def __init__(self, path):
        self.path = Path(path)
        if self.path.read_bytes() != b"weights":
            raise ValueError("no checkpoint")

    def export(self, format):
        assert format == "onnx"
        shutil.copy(self.path.with_name("blobs.onnx.source"), self.path.with_suffix(".onnx"))
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("net.xml", "got an OpenVINO model; give the ONNX file that it was converted from"),
        ("net.bin.xml", "converted from, and this file by --deploy-model"),
        ("net.param", "got an ncnn model; give the ONNX file"),
        ("net.tflite", "got a TensorFlow Lite model; give the ONNX file"),
        ("net.engine", "got a TensorRT engine"),
        ("net.trt", "holdfast diagnose --predictions FILE"),
        ("net.pth", "got a PyTorch file; export it by torch.onnx.export"),
    ],
)
def test_a_file_of_another_format_is_refused_with_what_to_do(name, words, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"<net>")
    with pytest.raises(ModelError) as problem:
        load_model(path)
    assert str(problem.value).startswith(f"{path}: expected an ONNX model, got")
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(("other", "what"), [("net.xml", "OpenVINO"), ("net.param", "ncnn")])
def test_weights_are_named_by_the_file_next_to_them(other, what, tmp_path):
    path = tmp_path / "net.bin"
    path.write_bytes(b"1234")
    with pytest.raises(ModelError, match="not an ONNX model"):
        load_model(path)
    (tmp_path / other).write_bytes(b"net")
    with pytest.raises(ModelError, match=f"got the weights of an {what} model"):
        load_model(path)


def test_a_pt_file_without_ultralytics_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.graph.formats.is_installed", lambda name: False)
    path = tmp_path / "net.pt"
    path.write_bytes(b"weights")
    with pytest.raises(ModelError, match=f"yolo export model={path} format=onnx"):
        load_model(path)


def test_a_pt_file_is_exported_by_ultralytics_once(tmp_path, monkeypatch):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "ultralytics.py").write_text(FAKE_ULTRALYTICS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    source = detector(tmp_path)
    source.rename(tmp_path / "blobs.onnx.source")
    path = tmp_path / "blobs.pt"
    path.write_bytes(b"weights")
    model = load_model(path)
    assert model.path == tmp_path / "blobs.onnx"
    assert model.name == "blobs"
    (tmp_path / "blobs.onnx.source").unlink()  # so that another export would fail
    assert find_model(path) == model.path
    path.write_bytes(b"other")
    os.utime(path, (model.path.stat().st_mtime + 10,) * 2)
    with pytest.raises(ModelError, match="ultralytics cannot export it: ValueError: no checkpoint"):
        find_model(path)
