import dataclasses

import numpy as np
import pytest

from holdfast.core.errors import ImageError, InputError, UnknownName
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.pipeline import Pipeline, load_pipeline, pipeline_of
from holdfast.core.types import Scores, Size


def test_a_pipeline_is_frozen_and_replaced_by_name():
    first = Pipeline()
    second = first.replace(resize="opencv-area")
    assert (first.resize, second.resize) == ("pillow-bilinear", "opencv-area")
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.resize = "x"
    with pytest.raises(UnknownName, match=r"unknown stage 'rezise'. Did you mean 'resize'\?"):
        first.replace(rezise="opencv-area")
    with pytest.raises(InputError, match="expected a name or a function, got int"):
        first.replace(resize=3)


def card():
    return Card("classify", Input(Size(4, 2), scale=1 / 255), Head("classifier"), ("a", "b"))


def fake(tmp_path, run):
    model = Model("fake", tmp_path / "fake.onnx", card(), "")
    row = pipeline_of(model.card).replace(
        decode=lambda data: np.frombuffer(data, np.uint8).reshape(2, 4, 3),
        infer=lambda model, threads: run,
        post=lambda raw, frame, card: Scores(raw["y"].ravel()),
    )
    return load_pipeline(row, model)


def test_functions_stand_in_for_any_stage(tmp_path):
    machine = fake(tmp_path, lambda x: {"y": x.mean(axis=(2, 3))})
    data = bytes(range(24))
    scores = machine.predict(machine.prepare(data))
    want = np.arange(24).reshape(8, 3).mean(axis=0) / 255
    np.testing.assert_allclose(scores.values, want, rtol=1e-6)
    assert machine.prepare(data).tensor.shape == (1, 3, 2, 4)


def test_nan_outputs_are_an_image_error(tmp_path):
    machine = fake(tmp_path, lambda x: {"y": np.array([[np.nan, 1.0]])})
    with pytest.raises(ImageError, match="output 'y' has 1 values that are NaN or infinite"):
        machine.predict(machine.prepare(bytes(24)))


def test_a_trace_shows_every_stage(tmp_path):
    machine = fake(tmp_path, lambda x: {"y": x.mean(axis=(2, 3))})
    assert list(machine.trace(bytes(24))) == ["decode", "colour", "resize", "normalise", "infer", "post"]


def test_a_description_tells_functions_apart():
    one = Pipeline().replace(resize=lambda image, size: image)
    two = Pipeline().replace(resize=lambda image, size: image[::-1])
    assert one.describe()["resize"] != two.describe()["resize"]
    assert one.describe()["decode"] == "pillow"
