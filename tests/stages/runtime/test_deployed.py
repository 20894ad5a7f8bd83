"""A model as deployed: rewritten once, kept by content, named by all that can change its numbers."""

import dataclasses

import numpy as np
import pytest

from helpers.models import classifier, image_folder
from holdfast.core import fingerprint
from holdfast.core.errors import ModelError
from holdfast.core.pipeline import pipeline_of
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.stages import deployed
from holdfast.stages.deployed import Calibration, DeployedInference, with_rewrite, with_runtime

X = np.random.default_rng(0).random((1, 3, 16, 16)).astype(np.float32)


@pytest.fixture
def model(tmp_path):
    return load_model(classifier(tmp_path))


@pytest.fixture
def calibration(tmp_path, model):
    entries = open_dataset(image_folder(tmp_path / "images", 8)).entries
    return Calibration(entries[:6], pipeline_of(model.card))


def test_a_rewrite_is_made_once_and_kept(tmp_path, model, calibration):
    deployed = DeployedInference(("int8-minmax",), calibration=calibration, folder=tmp_path / "kept")
    first = deployed.built(model)
    assert first.how[0].startswith("6 images, min-max, per channel")
    stamp = first.path.stat().st_mtime_ns
    assert deployed.built(model) == first
    assert first.path.stat().st_mtime_ns == stamp
    loose = dataclasses.replace(deployed, folder=None)
    assert np.array_equal(deployed(model, 1)(X)["y"], loose(model, 1)(X)["y"])
    assert not np.array_equal(deployed(model, 1)(X)["y"], DeployedInference()(model, 1)(X)["y"])


def test_int8_without_calibration_is_one_line(model):
    with pytest.raises(ModelError, match="calibration images"):
        DeployedInference(("int8-minmax",))(model, 1)


def test_calibration_counts_only_for_those_that_look_at_it(model, calibration):
    def key(name, images):
        return DeployedInference((name,), calibration=images).key(model)

    fewer = dataclasses.replace(calibration, entries=calibration.entries[:3])
    assert key("int8-minmax", calibration) != key("int8-minmax", fewer)
    assert key("fp16", calibration) == key("fp16", fewer) == key("fp16", None)


def test_a_fixed_batch_is_rewritten_and_run(tmp_path, calibration):
    import onnx

    path = classifier(tmp_path, "four")
    graph = onnx.load(path)
    for tensor in (*graph.graph.input, *graph.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(graph, path)
    four, free = load_model(path), load_model(classifier(tmp_path))
    for rewrites in (("int8-minmax",), ("fp16",)):
        one, other = (
            DeployedInference(rewrites, calibration=calibration)(m, 1)(X)["y"] for m in (four, free)
        )
        assert one.shape == other.shape == (1, 2)
        assert np.array_equal(one, other)


def test_images_that_cannot_be_read_are_all_alike(tmp_path, model, calibration):
    keys = []
    for number in (0, 1):
        (tmp_path / "images" / calibration.entries[number].name).unlink()
        keys.append(calibration.key())
    swapped = dataclasses.replace(
        calibration, entries=(*calibration.entries[1::-1], *calibration.entries[2:])
    )
    assert keys[0] != keys[1] == swapped.key()
    assert (
        DeployedInference(("int8-minmax",), calibration=calibration, folder=tmp_path).built(model).how[0][:8]
        == "4 images"
    )


def test_one_precision_and_it_comes_last():
    chosen = with_rewrite(with_rewrite(with_rewrite("onnxruntime", "int8-minmax"), "ceil"), "fp16")
    assert chosen.rewrites == ("ceil", "fp16")
    assert with_runtime(chosen, "opencv-dnn").runtime == "opencv-dnn"


def test_the_version_of_a_runtime_is_part_of_its_name(monkeypatch):
    before = fingerprint.of_function(DeployedInference(runtime="ncnn"))
    monkeypatch.setattr("holdfast.core.sources.metadata.version", lambda name: f"{name} of tomorrow")
    assert fingerprint.of_function(DeployedInference(runtime="ncnn")) != before
    assert fingerprint.of_function(DeployedInference()) == fingerprint.of_function(
        DeployedInference(folder=None)
    )


def test_a_calibration_is_named_by_the_code_that_prepares_its_images(calibration, monkeypatch):
    before = calibration.key()
    assert dataclasses.replace(calibration).key() == before

    def other(image, size):
        return image[: size.height, : size.width]

    real = deployed.lookup
    monkeypatch.setattr(
        deployed, "lookup", lambda kind, name: other if kind == "resize" else real(kind, name)
    )
    assert calibration.key() != before
