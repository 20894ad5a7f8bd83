"""Diagnosis: where two systems part, what each difference costs, and which choices a dump looks like."""

import contextlib
import dataclasses

import numpy as np
import pytest

from helpers import models as making
from holdfast.core.errors import InputError
from holdfast.core.pipeline import load_pipeline, open_preparation, pipeline_of
from holdfast.core.types import Detections
from holdfast.data.open import open_dataset
from holdfast.diagnose.dump import match_output, read_dump
from holdfast.diagnose.losses import measure_losses
from holdfast.diagnose.stages import compare_stages, compare_values, first_difference
from holdfast.diagnose.target import diagnose_input
from holdfast.evaluate.difference import difference
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.graph.load import load_model
from holdfast.noise.vision.run import NoisePlan, prepare_context
from holdfast.stages.families import applied, options_of


@contextlib.contextmanager
def quiet(what, total):
    """No progress."""
    yield lambda done, reused: None


@pytest.fixture
def plan(tmp_path):
    model = load_model(str(making.detector(tmp_path)))
    data = open_dataset(making.blob_coco(tmp_path / "blobs", 10))
    return EvaluationPlan(model, data, runs=tmp_path / "runs", jobs=1)


def pictures(plan):
    return [(e.name, e.load().data) for e in plan.dataset.entries]


@pytest.mark.parametrize(
    ("deploy", "stage"),
    [
        ("decode=fast-idct", "decode"), ("colour=nv12", "colour"), ("precision=fp16", "infer"),
        ("boxes=offset", "post"), ("colour=nv12,boxes=offset", "colour"),
    ],
)  # fmt: skip
def test_the_first_stage_that_differs_is_the_one_that_was_exchanged(plan, deploy, stage):
    train = pipeline_of(plan.model.card)
    stages = compare_stages(plan.model, train, applied(train, options_of(deploy)), pictures(plan))
    first = first_difference(stages)
    assert first is not None
    assert first.stage == stage
    assert first.differ == 10
    before = stages[: [s.stage for s in stages].index(stage)]
    assert all(s.differ == 0 and s.largest == 0.0 for s in before)


def test_a_system_is_alike_itself_at_every_stage(plan):
    train = pipeline_of(plan.model.card)
    stages = compare_stages(plan.model, train, train, pictures(plan))
    assert first_difference(stages) is None
    assert [s.images for s in stages] == [10] * 6


def test_values_are_apart_by_what_differs_in_them():
    one = np.zeros((2, 4))
    other = one.copy()
    other[0, 0] = 3.0
    assert compare_values(one, other).largest == 3.0
    assert compare_values(one, other).mean == pytest.approx(3 / 8)
    assert compare_values(one, other).share == pytest.approx(1 / 8)
    assert compare_values(one, np.zeros((2, 5))).share == 1.0
    assert compare_values({"a": one, "b": one}, {"a": other, "b": one}).share == pytest.approx(1 / 16)
    none = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    box = Detections(np.array([[0.0, 0, 4, 4]]), np.ones(1), np.zeros(1, np.int64))
    assert compare_values(none, none).same
    assert not compare_values(none, box).same
    assert compare_values(none, box).share == 1.0
    both = Detections(
        np.array([[50.0, 50, 60, 60], [0, 0, 4, 4]]), np.array([0.9, 1.0]), np.zeros(2, np.int64)
    )
    moved = compare_values(both, box)  # the second box is its partner: only the first is alone
    assert (moved.largest, moved.share) == (0.0, 0.5)


def test_each_difference_costs_what_evaluations_say(plan):
    chosen = options_of("resize=opencv-nearest,boxes=offset")
    found = measure_losses(prepare_context(NoisePlan(plan, replicates=200)), chosen, quiet)
    train = pipeline_of(plan.model.card)

    def run(*options):
        return evaluate(dataclasses.replace(plan, pipeline=applied(train, options)))

    clean, deploy = run(), run(*chosen)
    assert found.points_lost == pytest.approx(-100 * difference(clean, deploy).interval.estimate)
    assert (found.train, found.deploy) == pytest.approx(
        (clean.result["metrics"]["AP"], deploy.result["metrics"]["AP"])
    )
    for share, option, other in zip(found.differences, chosen, chosen[::-1], strict=True):
        assert share.label == option.label
        assert share.points_lost == pytest.approx(-100 * difference(clean, run(option)).interval.estimate)
        assert share.points_recovered == pytest.approx(100 * difference(deploy, run(other)).interval.estimate)


def test_fixing_the_only_difference_recovers_all_points(plan):
    found = measure_losses(
        prepare_context(NoisePlan(plan, replicates=200)), options_of("boxes=offset"), quiet
    )
    (share,) = found.differences
    assert share.points_lost == pytest.approx(found.points_lost)
    assert share.points_recovered == pytest.approx(found.points_lost)


@pytest.mark.parametrize(
    "made_by", ["decode=zune,resize=opencv-area", "colour=nv12-opencv,resize=pillow-lanczos"]
)
def test_a_dumped_input_is_recognised(tmp_path, made_by):
    model = load_model(str(making.classifier(tmp_path)))
    rng = np.random.default_rng(1)
    rough = rng.integers(0, 255, (9, 11, 3)).astype(np.uint8)
    data = making.jpeg(np.kron(rough, np.ones((8, 8, 1), np.uint8)), quality=80)
    train = pipeline_of(model.card)
    target = applied(train, options_of(made_by))
    np.save(tmp_path / "dump.npy", open_preparation(target, model)(data).tensor)
    found = diagnose_input(model, [data], [read_dump(tmp_path / "dump.npy")])
    assert found.remainder.largest < 0.01
    named = " ".join(cause.text for cause in found.causes)
    assert all(word in named for word in made_by.split(","))
    assert len(found.causes) == 2


def test_a_dumped_output_is_recognised(tmp_path):
    model = load_model(str(making.classifier(tmp_path)))
    rng = np.random.default_rng(1)
    data = making.jpeg(rng.integers(0, 255, (41, 37, 3)).astype(np.uint8), quality=60)
    train = pipeline_of(model.card)
    target = applied(train, options_of("colour=yuv444-fixed,resize=opencv-nearest"))
    machine = load_pipeline(target, model)
    (dump,) = machine.run(machine.prepare(data).tensor).values()
    found = match_output(model, train, data, dump, lambda pipeline: pipeline)
    assert found[0].exact
    assert "opencv-nearest" in found[0].choices


@pytest.mark.parametrize("content", [b"", b"not numpy", b"PK\x03\x04"])
def test_what_is_no_dump_is_refused(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.npy: expected"):
        read_dump(tmp_path / "x.npy")


def test_dumps_with_objects_nan_or_another_shape_are_refused(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "n.npy", np.array([np.nan], np.float32))
    np.save(tmp_path / "s.npy", np.zeros((3, 4, 4), np.float32))
    for name, said in (("o", "expected an array"), ("n", "NaN or infinite")):
        with pytest.raises(InputError, match=said):
            read_dump(tmp_path / f"{name}.npy")
    model = load_model(str(making.classifier(tmp_path)))
    picture = making.jpeg(np.zeros((20, 20, 3), np.uint8))
    with pytest.raises(InputError, match="the dump is 3×4×4; expected an input of at least 8×8 pixels"):
        diagnose_input(model, [picture], [read_dump(tmp_path / "s.npy")])
