"""Execution providers of ONNX Runtime: named, passed on, part of the key; missing ones are errors."""

import json

import pytest

from helpers.models import blob_coco, detector
from holdfast.core.errors import InputError, ModelError
from holdfast.core.fingerprint import of_function
from holdfast.graph import session
from holdfast.graph.load import load_model
from holdfast.stages import infer
from holdfast.stages.deployed import DeployedInference, with_providers, with_rewrite, with_runtime

CPU = "CPUExecutionProvider"


class FakeRuntime:
    """An ONNX Runtime with a GPU."""

    @staticmethod
    def get_available_providers():
        return ["TensorrtExecutionProvider", "CUDAExecutionProvider", CPU]


def test_names_are_those_of_the_installed_build(monkeypatch):
    monkeypatch.setattr(session, "runtime", lambda: FakeRuntime)
    assert session.providers_named(["cuda", "CPU"]) == ("CUDAExecutionProvider", CPU)
    with pytest.raises(InputError, match=r"has cpu, cuda, tensorrt, got 'openvino'; .*onnxruntime-openvino"):
        session.providers_named(["cuda", "openvino"])
    with pytest.raises(InputError, match=r"got 'gpu'$"):
        session.providers_named(["gpu"])


def test_providers_are_part_of_the_key_and_survive_rewrites():
    plain, chosen = DeployedInference(), with_providers("onnxruntime", ["cpu"])
    assert chosen.providers == (CPU,)
    assert of_function(plain) != of_function(chosen)
    assert with_rewrite(chosen, "fp16").providers == (CPU,)
    assert with_runtime(chosen, "onnxruntime") == chosen
    assert with_runtime(chosen, "openvino").providers == ()


def test_providers_reach_the_session_and_must_start(tmp_path, monkeypatch):
    model, opened = load_model(detector(tmp_path)), []

    class Session:
        def get_providers(self):
            return [CPU]

    def open_session(source, **options):
        opened.append(options["providers"])
        return Session()

    monkeypatch.setattr(infer, "open_session", open_session)
    with pytest.raises(ModelError, match="could not start CUDAExecutionProvider; install its driver"):
        DeployedInference(providers=("CUDAExecutionProvider", CPU))(model)
    assert opened == [("CUDAExecutionProvider", CPU)]


def test_evaluate_and_noise_with_providers(holdfast, tmp_path):
    net, data = str(detector(tmp_path)), str(blob_coco(tmp_path / "data", 4))
    for name, more in (("plain", ()), ("cpu", ("--provider", "cpu"))):
        done = holdfast("evaluate", net, data, "--jobs", "1", "--json", f"{name}.json", *more)
        assert done.code == 0
    numbers = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plain", "cpu")]
    assert numbers[0]["AP"] == numbers[1]["AP"]
    assert numbers[0]["run"] != numbers[1]["run"]
    only = ("--only", "resize=pillow-nearest,runtime=openvino")
    assert holdfast("noise", net, data, *only, "--jobs", "1", "--provider", "cpu").code == 0
    failed = holdfast("evaluate", net, data, "--provider", "cuda")
    assert failed.code == 2
    assert "pip install onnxruntime-gpu" in failed.err
