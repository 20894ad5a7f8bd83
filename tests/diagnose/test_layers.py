"""Layers of a small convolutional network in 8 bits, in half precision and on another runtime."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers import models as making
from holdfast.core.errors import InputError
from holdfast.core.pipeline import pipeline_of
from holdfast.diagnose.layers import diagnose_layers
from holdfast.graph.load import load_model
from holdfast.noise.vision.choose import with_calibration
from holdfast.noise.vision.show import SingleImage
from holdfast.stages.deployed import Calibration
from holdfast.stages.families import applied, options_of


@pytest.fixture
def model(tmp_path):
    """Three convolutions; a channel of `wide` is a thousand times the others, which 8 bits cannot hold."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32) for name in ("wide", "last")}
    weights["first"] = rng.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32)
    weights["first"][0] *= 1000
    weights["wide"][:, 0] /= 1000
    weights["w"] = rng.normal(0, 0.3, (4, 2)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "wide"], ["b"], "wide", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["b", "last"], ["c"], "last", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["y"], "gemm"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    path = making.save_graph(tmp_path / "net.onnx", nodes, [x], [y], weights)
    path.with_suffix(".toml").write_text(making.CLASS_CARD)
    return load_model(str(path))


def pictures(count):
    rng = np.random.default_rng(1)
    return [making.jpeg(rng.integers(0, 255, (20, 20, 3)).astype(np.uint8)) for _ in range(count)]


def layers(model, deploy, folder):
    train = pipeline_of(model.card)
    images = tuple(SingleImage(f"{k}.jpg", data) for k, data in enumerate(pictures(6)))
    target = with_calibration(applied(train, options_of(deploy)), Calibration(images, train), folder)
    return diagnose_layers(model, train, target, pictures(2), deploy)


def test_the_layer_that_eight_bits_break_is_named_and_kept_in_float(model, tmp_path):
    found = layers(model, "precision=int8-minmax", tmp_path / "built")
    assert [layer.name for layer in found.layers] == ["first", "wide", "last", "gemm"]
    costliest = min(found.layers, key=lambda layer: layer.alone)
    assert costliest.name == "wide"
    assert costliest.alone < 0.5
    assert found.gains[0].layers == ("wide",)
    assert found.gains[0].error == pytest.approx(costliest.alone * found.output)
    assert found.gains[-1].error < 0.05 * found.output
    assert "The first layer that differs beyond rounding is first (Conv, 1 of 4)" in found.verdict


def test_half_precision_has_errors_but_no_layers_to_restore(model, tmp_path):
    found = layers(model, "precision=fp16", tmp_path / "built")
    assert found.first.name == "first"
    assert 1e-4 < found.output < 1e-2
    assert found.gains == ()
    assert {layer.alone for layer in found.layers} == {None}


def test_another_runtime_differs_by_rounding_only(model, tmp_path):
    pytest.importorskip("openvino", reason="the extra [noise] is not installed")
    found = layers(model, "runtime=openvino", tmp_path / "built")
    assert found.first is None
    assert "No layer of 4 differs beyond rounding" in found.verdict


def test_a_deployment_of_the_same_network_is_refused(model, tmp_path):
    with pytest.raises(InputError, match="expected --deploy with a precision or a runtime"):
        layers(model, "decode=zune", tmp_path / "built")


def test_the_command_prints_the_costliest_layers(holdfast, model, tmp_path):
    data = making.image_folder(tmp_path / "data", 8, size=20)
    words = ("diagnose", model.path, data, "--deploy", "precision=int8-minmax", "--layers")
    done = holdfast(*words, "--json", "d.json", "-o", "d.html", "--jobs", 1)
    assert done.code == 0
    assert "Relative error of each layer under precision=int8-minmax" in done.out
    assert len(json.loads((tmp_path / "d.json").read_text())["layers"]["layers"]) == 4
    assert "Relative error of each layer" in (tmp_path / "d.html").read_text()
    done = holdfast("diagnose", model.path, data, "--input", "x.npy", "--layers")
    assert done.code == 2
    assert "--layers: expected --deploy" in done.err
