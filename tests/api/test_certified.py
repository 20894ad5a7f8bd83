"""`holdfast.certify` and wrapped detectors in the other functions."""

import numpy as np
import pytest

import holdfast as hf
from helpers import models as making
from holdfast.config.options import fields_of
from holdfast.core.errors import InputError
from holdfast.evaluate.options import EvaluationOptions
from holdfast.stages.defence import MaskDefence
from holdfast.stages.masks import HalfPlanes, PatchSize, SquareMasks

TEXT = "lines=5,squares=2,patch=8,alpha=0.3,beta=0,score=0.25,prune=0.6,join=0.9,where=scene"


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subject")
    return hf.load(making.detector(folder)), making.blob_coco(folder / "data", 4), folder / "runs"


@pytest.fixture(scope="module")
def result(subject):
    model, data, runs = subject
    return hf.certify(model, data, runs=runs, patch="8", lines=5, squares=2, alpha=0.3)


def test_a_defence_is_written_as_it_is_read():
    families = (HalfPlanes(5), SquareMasks(PatchSize(8), 2))
    assert MaskDefence.parse(TEXT) == MaskDefence(families, alpha=0.3, beta=0.0)
    assert str(MaskDefence.parse(TEXT)) == TEXT
    assert MaskDefence.parse(str(MaskDefence())) == MaskDefence()
    assert MaskDefence.parse("") == MaskDefence()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("line=5", "unknown setting of a defence 'line'. Did you mean 'lines'"),
        ("lines=0", "with lines or squares, got none"),
        ("lines=-1", "lines: expected a whole number from 0 to 500, got '-1'"),
        ("lines=501", "lines: expected a whole number from 0 to 500, got '501'"),
        ("alpha=2", "alpha: expected a number from 0 to 1, got '2'"),
        ("alpha=nan", "alpha: expected a number from 0 to 1, got 'nan'"),
        ("squares=2,patch=0", "expected a side in pixels"),
        ("where=moon", "unknown place of masks 'moon'"),
    ],
)
def test_a_defence_that_cannot_be_is_one_line(text, problem):
    with pytest.raises(InputError, match=problem):
        MaskDefence.parse(text)


def test_a_result_wraps_the_model_it_was_computed_for(subject, result):
    model, _, _ = subject
    wrapped = model.defended(result)
    assert str(wrapped.pipeline.defence) == TEXT == result.about["defence"]
    assert wrapped.deployment == (f"defend=masks:{TEXT}",)
    assert model.defended(lines=5, squares=2, patch="8", alpha=0.3, beta=0.0) == wrapped
    assert wrapped.defended("lines=2").deployment == (f"defend=masks:{MaskDefence((HalfPlanes(2),))}",)


def test_a_wrapped_model_predicts_what_the_certificate_counts_on(subject, result):
    model, data, _ = subject
    wrapped = model.defended(result)
    for sample in hf.dataset(data):
        both = [m.predict(sample.data, score=0.0) for m in (model, wrapped)]
        assert len(both[1].boxes) >= len(both[0].boxes)
        np.testing.assert_array_equal(both[1].boxes[: len(both[0].boxes)], both[0].boxes)


def test_a_patch_at_a_certified_place_does_not_hide_the_object(subject, result):
    model, data, _ = subject
    wrapped = model.defended(result)
    sample, proof = hf.dataset(data)[0], result.images[0]
    pixels, rng = wrapped.pipeline, np.random.default_rng(0)
    image = hf.load(model.path)._machine().decode(sample.data)
    assert pixels.defence is not None
    x1, y1, x2, y2 = proof.objects[0].box
    places = np.array([(x, y) for x in range(0, 57, 4) for y in range(0, 57, 4)])
    certified = places[proof.is_certified(0, places, 8)]
    assert len(certified) > 100
    for x, y in certified[:: max(1, len(certified) // 20)]:
        patched = image.copy()
        patched[y : y + 8, x : x + 8] = rng.integers(0, 256, (8, 8, 3))
        boxes = wrapped.predict(patched, score=0.25).boxes
        inner = np.minimum(boxes[:, 2:], (x2, y2)) - np.maximum(boxes[:, :2], (x1, y1))
        assert (inner > 0).all(axis=1).any()


def test_evaluate_runs_the_wrapped_model_and_says_so(subject, result):
    model, data, runs = subject
    wrapped = hf.evaluate(model, data, runs=runs, defend=str(result.folder))
    assert wrapped.about.pipeline["defence"].startswith("holdfast.stages.defence.MaskDefence")
    assert wrapped.map50 == hf.evaluate(model.defended(result), data, runs=runs).map50
    assert wrapped.folder != hf.evaluate(model, data, runs=runs).folder
    assert "defence" not in hf.evaluate(model, data, runs=runs).about.pipeline
    assert result.clean.objects == 4


def test_noise_runs_on_the_wrapped_model(subject, result):
    model, data, runs = subject
    suite = hf.noise(model.defended(result), data, runs=runs, only=["resize=opencv-nearest", "boxes"])
    assert "defence" in suite.models[0].pipeline


@pytest.mark.parametrize("text", ["maks", "masks:lines=x", "/nowhere"])
def test_a_defence_that_is_none_is_one_line(subject, text):
    model, data, runs = subject
    with pytest.raises(InputError, match="--defend"):
        hf.evaluate(model, data, runs=runs, defend=text)


def test_only_detectors_and_classifiers_are_wrapped():
    with pytest.raises(
        InputError, match="expected a detector or a classifier, got a model of task 'segment'"
    ):
        hf.load("signs-seg").defended()


def test_the_page_shows_every_number_and_rectangle(result, tmp_path):
    page = result.save(tmp_path / "page.html").read_text()
    assert "What is not proven" in page
    assert "Vulnerable places" in page
    assert f"patch of {result.about['patch']}" in page
    assert len(result.to_pandas()) == len(result.rows)


def test_every_command_with_a_model_takes_the_defence():
    assert "defend" in {spec.name for spec in fields_of(EvaluationOptions)}
