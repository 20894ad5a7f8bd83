"""Which deployments threats are put to."""

import dataclasses

import pytest

from helpers import models as making
from holdfast.audit.matrix import matrix
from holdfast.audit.replay import TOGETHER, deployments_of, label_of
from holdfast.audit.result import NO_THREAT, TRAINED
from holdfast.core.errors import InputError
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.result import ModelNoise, NoiseRow
from holdfast.noise.vision.run import NoisePlan, measure, prepare
from holdfast.stages.families import NoiseOption, applied, option

ONLY = (
    "decode=fast-idct", "decode=opencv", "colour=nv12", "colour=yuv444", "precision=bf16", "precision=fp16",
    "precision=int8-minmax", "precision=int8-mixed", "precision=int8-percentile", "ceil",
    "runtime=opencv-dnn",
)  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A tiny detector on eight scenes, everything built that can be."""
    folder = tmp_path_factory.mktemp("deployments")
    model = load_model(str(making.detector(folder)))
    data = open_dataset(making.blob_coco(folder / "blobs", 8))
    return prepare(
        NoisePlan(EvaluationPlan(model, data, runs=folder / "runs"), NoiseSelection(ONLY), replicates=20)
    )


def measured(prepared, **rows):
    """A suite that found these: label -> outcome, drop, changed images."""
    asked = {one.option.label for one in prepared.candidates}
    assert set(rows) <= asked
    kept = [option(label) for label in rows]
    made = tuple(
        NoiseRow(o.family, o.name, outcome, "said so", 0.5, drop, 0.0, drop, changed, 8)
        for o, (outcome, drop, changed) in zip(kept, rows.values(), strict=True)
    )
    return ModelNoise("blobs", "ab", "detect", "mAP", 0.9, 8, made, None, {})


SOME = {
    "decode=fast-idct": ("measured", 1.0, 3),
    "decode=opencv": ("identical", 0.0, 0),
    "colour=nv12": ("measured", 2.0, 3),
    "colour=yuv444": ("measured", 2.0, 4),
    "precision=bf16": ("measured", 9.0, 8),
    "precision=fp16": ("measured", 0.0, 1),
    "precision=int8-minmax": ("measured", 3.0, 5),
    "precision=int8-mixed": ("measured", 0.5, 2),
    "precision=int8-percentile": ("measured", 2.0, 2),
}


def titles(found):
    return [label_of(one) for one in found]


def test_as_trained_then_the_worst_of_each_family_the_named_precisions_and_all_together(prepared):
    found = deployments_of(measured(prepared, **SOME), prepared)
    assert titles(found) == [
        TRAINED, "decode=fast-idct", "colour=yuv444", "precision=bf16", "precision=fp16",
        "precision=int8-minmax", "precision=int8-mixed", TOGETHER,
    ]  # fmt: skip
    assert found[0].variant.pipeline == prepared.context.clean
    together = found[-1]
    chosen = [option(label) for label in ("decode=fast-idct", "colour=yuv444", "precision=bf16")]
    assert together.note == "decode=fast-idct + colour=yuv444 + precision=bf16"
    expected = applied(prepared.context.clean, chosen)
    there = together.variant.pipeline
    assert (there.decode, there.colour, there.infer.rewrites) == (
        expected.decode, expected.colour, expected.infer.rewrites,
    )  # fmt: skip
    assert together.option.noise(prepared.context.clean) == expected


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, [TRAINED]),
        (2, [TRAINED, TOGETHER]),
        (3, [TRAINED, "precision=bf16", TOGETHER]),
        (5, [TRAINED, "colour=yuv444", "precision=bf16", "precision=int8-minmax", TOGETHER]),
    ],
)
def test_where_there_is_little_room_the_costliest_stay(prepared, most, expected):
    assert titles(deployments_of(measured(prepared, **SOME), prepared, most)) == expected


def test_room_for_none_is_told(prepared):
    with pytest.raises(InputError, match="at least one deployment, got 0"):
        deployments_of(measured(prepared, **SOME), prepared, 0)


def test_one_family_alone_is_not_combined_and_what_has_no_effect_is_no_deployment(prepared):
    rows = {
        "decode=fast-idct": ("no effect", 0.0, 0),
        "decode=opencv": ("identical", 0.0, 0),
        "colour=nv12": ("measured", 2.0, 3),
        "runtime=opencv-dnn": ("measured", 0.0, 1),
    }
    assert titles(deployments_of(measured(prepared, **rows), prepared)) == [
        TRAINED, "colour=nv12", "runtime=opencv-dnn",
    ]  # fmt: skip


def test_what_cannot_be_built_stays_with_its_reason_if_it_is_all_its_family_has(prepared):
    rows = {
        "colour=nv12": ("impossible", None, None),
        "colour=yuv444": ("impossible", None, None),
        "decode=fast-idct": ("impossible", None, None),
        "decode=opencv": ("identical", 0.0, 0),
        "precision=fp16": ("measured", 0.1, 1),
        "precision=int8-minmax": ("impossible", None, None),
    }
    found = deployments_of(measured(prepared, **rows), prepared)
    assert titles(found) == [TRAINED, "colour=nv12", "precision=fp16", "precision=int8-minmax"]
    assert [one.variant is None for one in found] == [False, True, False, True]
    assert found[1].note == "said so"
    made = matrix(prepared, found, [], replicates=10)
    assert made.at(NO_THREAT, "precision=int8-minmax").note == "said so"
    assert made.at(NO_THREAT, "precision=fp16").value is not None


def test_a_combination_that_cannot_be_built_says_why(prepared, monkeypatch):
    from holdfast.audit import replay

    real = replay.build_variant

    def refused(ground, chosen):
        return dataclasses.replace(real(ground, chosen), status="impossible", note="no", variant=None)

    monkeypatch.setattr(replay, "build_variant", refused)
    found = deployments_of(measured(prepared, **SOME), prepared)[-1]
    assert label_of(found) == TOGETHER
    assert found.note == "decode=fast-idct + colour=yuv444 + precision=bf16: no"
    assert matrix(prepared, [found], [], replicates=10).at(NO_THREAT, TOGETHER).note == found.note


def test_a_suite_of_another_plan_is_told(prepared):
    row = NoiseRow("resize", "opencv-nearest", "measured", points_lost=1.0)
    other = dataclasses.replace(measured(prepared), rows=(row,))
    with pytest.raises(InputError, match="resize=opencv-nearest: in the suite but not in the plan"):
        deployments_of(other, prepared)


def test_a_real_suite_s_deployments_cost_nothing_more_without_a_threat(prepared):
    suite = measure(prepared)
    found = deployments_of(suite, prepared)
    assert titles(found)[0] == TRAINED
    redone = []

    class Watch:
        def __call__(self, what, total):
            return self

        def __enter__(self):
            return lambda done, reused: redone.append(done - reused)

        def __exit__(self, *problem):
            return None

    made = matrix(prepared, found, [], Watch(), replicates=20)
    assert sum(redone) == 0
    for row in suite.rows:
        met = made.at(NO_THREAT, row.label)
        if met is not None and row.outcome == "measured" and row.images == met.images:
            assert met.value == pytest.approx(row.value, abs=1e-12)


def test_an_option_without_a_variant_is_called_by_its_label(prepared):
    from holdfast.noise.vision.choose import ImageCandidate

    assert label_of(ImageCandidate(NoiseOption("ceil", "ceil", lambda p: p), "impossible")) == "ceil=ceil"
