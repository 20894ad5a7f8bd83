"""Answers of square maps under other deployments: what was not run is never called proven."""

import contextlib
import dataclasses

import numpy as np
import pytest

from helpers import squares as squaring
from helpers.squares import squares
from holdfast.audit.recheck import recheck
from holdfast.audit.squares import SquaresPlan
from holdfast.core.errors import ImageError, InputError, ModelError
from holdfast.core.pipeline import pipeline_of
from holdfast.core.types import Boxes
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.stages.decode.libjpeg import pillow
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.families import option
from holdfast.stages.infer import onnxruntime


class Odd:
    """An infer stage that changes what the model says of some tensors; a name tells it from others."""

    def __init__(self, name, change):
        self.name, self.change, self.calls = name, change, 0

    def fingerprint(self):
        return self.name

    def __call__(self, model, threads=0):
        run = onnxruntime(model, threads)

        def odd(tensor):
            self.calls += 1
            return {name: self.change(tensor, value) for name, value in run(tensor).items()}

        return odd


def is_black(tensor, pixel):
    return tensor[0, 0, pixel[1], pixel[0]] == 0


def lost_under_poison(tensor, value):
    return np.full_like(value, -20.0) if is_black(tensor, squaring.POISON) else value


def planned(tmp_path, images=1, **detector):
    model = load_model(squaring.pixel_detector(tmp_path, **detector))
    data = open_dataset(squaring.scenes(tmp_path / "data", images))
    plan = EvaluationPlan(model, data, runs=tmp_path / "runs")
    return SquaresPlan(plan, pipeline_of(model.card), share=0.2, most=80)


def asked(plan, change, most=400, name="precision=odd"):
    infer = Odd(name, change)
    maps = squares(plan)
    (row,) = recheck(plan, maps, {name: plan.pipeline.replace(infer=infer)}, most=most)
    assert (row.threat, row.image, row.deployment) == ("square", "000.png", name)
    assert row.was == maps[0].answer
    return row, maps[0], infer


def test_proven_here_and_broken_there_is_a_finding(tmp_path):
    row, one, _ = asked(planned(tmp_path, watched=False), lost_under_poison)
    assert (row.was, row.now) == ("holds", "violated")
    assert row.finding
    assert 1 <= row.tried <= one.scores.size
    x, y = (int(word.strip(".,")) for word in row.note.split() if word.strip(".,").isdigit())
    assert x <= squaring.POISON[0] < x + one.grid.side
    assert y <= squaring.POISON[1] < y + one.grid.side


def test_it_holds_there_only_if_every_place_was_run(tmp_path):
    plan = planned(tmp_path, watched=False)
    row, one, infer = asked(plan, lambda tensor, value: value)
    assert (row.now, row.tried, row.note) == ("holds", one.scores.size, "")
    assert infer.calls == one.scores.size + 1  # and once without a square
    fewer, *_ = asked(plan, lambda tensor, value: value, most=one.scores.size - 1)
    assert (fewer.now, fewer.tried) == ("unknown", one.scores.size - 1)
    assert not fewer.finding


def test_a_witness_is_replayed_first(tmp_path):
    row, _, infer = asked(planned(tmp_path), lambda tensor, value: value, most=1)
    assert (row.was, row.now, row.tried) == ("violated", "violated", 1)
    assert infer.calls == 3  # without a square, with it, and again from the bytes


def test_a_witness_that_fails_there_does_not_prove_that_it_holds(tmp_path):
    plan = planned(tmp_path)

    def immune(tensor, value):
        found = value.copy()
        found[0, 4, 2, 4] = 5.0
        return found

    row, *_ = asked(plan, immune, most=1)
    assert (row.now, row.tried, row.finding) == ("unknown", 1, False)
    assert "the worst square" in row.note
    whole, one, _ = asked(plan, immune)
    assert (whole.was, whole.now, whole.tried) == ("violated", "holds", one.scores.size)
    assert whole.finding
    assert "no square" in whole.note


def test_a_target_lost_without_a_square_counts_as_violated_and_is_said(tmp_path):
    row, *_ = asked(planned(tmp_path, watched=False), lambda tensor, value: np.full_like(value, -20.0))
    assert (row.now, row.tried) == ("violated", 0)
    assert "without any square" in row.note


def test_numbers_that_are_none_leave_it_open(tmp_path):
    def poisoned(tensor, value):
        return value * np.nan if is_black(tensor, squaring.POISON) else value

    plan = planned(tmp_path, watched=False)
    row, one, _ = asked(plan, poisoned)
    assert row.now == "unknown"
    assert row.tried < one.scores.size
    assert "NaN" in row.note
    everywhere, *_ = asked(plan, lambda tensor, value: value * np.nan, name="precision=none")
    assert (everywhere.now, everywhere.tried) == ("unknown", 0)


def test_what_breaks_only_once_is_no_violation(tmp_path):
    seen = set()

    def forgetful(tensor, value):
        again = tensor.tobytes() in seen
        seen.add(tensor.tobytes())
        return value if again else lost_under_poison(tensor, value)

    row, one, _ = asked(planned(tmp_path, watched=False), forgetful)
    assert (row.now, row.tried) == ("unknown", one.scores.size)
    assert "a second run" in row.note


def test_a_deployment_that_cannot_be_opened_does_not_stop_the_others(tmp_path):
    plan = planned(tmp_path, images=2, watched=False)

    def broken(model, threads=0):
        raise ModelError("this runtime is no good")

    deployments = {
        "runtime=broken": plan.pipeline.replace(infer=broken),
        "resize=gone": plan.pipeline.replace(resize="gone"),
        "precision=same": plan.pipeline.replace(infer=Odd("same", lambda tensor, value: value)),
    }
    rows = recheck(plan, squares(plan), deployments)
    assert [(r.deployment, r.image, r.now) for r in rows] == [
        (name, image, now)
        for name, now in zip(deployments, ("unknown", "unknown", "holds"), strict=True)
        for image in ("000.png", "001.png")
    ]
    assert "no good" in rows[0].note
    assert "unknown resize 'gone'" in rows[2].note


def test_what_is_not_decided_is_not_asked_again(tmp_path):
    plan = planned(tmp_path, watched=False, poison=True)
    assert recheck(plan, squares(plan), {"precision=same": plan.pipeline}) == ()


def test_a_decoder_that_gives_another_size_leaves_it_open(tmp_path):
    plan = planned(tmp_path, watched=False)

    def half(data):
        return pillow(data)[::2, ::2].copy()

    (row,) = recheck(plan, squares(plan), {"decode=half": plan.pipeline.replace(decode=half)})
    assert (row.now, row.tried) == ("unknown", 0)
    assert "32×24 pixels, not of 64×48" in row.note


def test_an_image_that_is_gone_leaves_it_open(tmp_path):
    plan = planned(tmp_path, watched=False)
    maps = squares(plan)
    (tmp_path / "data" / "images" / "000.png").unlink()
    (row,) = recheck(plan, maps, {"precision=same": plan.pipeline})
    assert (row.now, row.tried) == ("unknown", 0)
    with pytest.raises(ImageError):
        plan.plan.dataset.entries[0].load()


def test_rechecks_are_kept_and_another_map_is_another_question(tmp_path):
    plan = planned(tmp_path, watched=False)
    infer = Odd("counted", lambda tensor, value: value)
    deployments = {"precision=counted": plan.pipeline.replace(infer=infer)}
    first = recheck(plan, squares(plan), deployments)
    calls, told = infer.calls, []

    def watch(what, total):
        return contextlib.nullcontext(lambda done, found: told.append((done, found)))

    assert recheck(plan, squares(plan), deployments, watch) == first
    assert (infer.calls, told) == (calls, [(1, 1)])
    (one,) = squares(plan)
    other = dataclasses.replace(one, targets=Boxes([[0, 0, 8, 8]], [0]))
    (row,) = recheck(plan, [other], deployments)
    assert (row.now, infer.calls) == ("violated", calls + 1)  # nothing is found there


def test_real_precisions_and_runtimes_are_asked_and_calibration_is_told(tmp_path):
    plan = planned(tmp_path, images=2)
    maps = squares(plan)
    names = ["precision=fp16", "precision=int8"]
    deployments = {name: option(name).noise(plan.pipeline) for name in names}
    infer = deployments["precision=int8"].infer
    assert isinstance(infer, DeployedInference)
    calibration = Calibration(plan.plan.dataset.entries[1:], plan.pipeline)
    given = dataclasses.replace(infer, calibration=calibration, folder=tmp_path / "rewritten")
    rows = recheck(plan, maps, deployments | {"precision=int8": plan.pipeline.replace(infer=given)}, most=1)
    assert [r.now for r in rows] == ["violated"] * 4
    assert ["used for calibration" in r.note for r in rows] == [False, False, False, True]
    # The graph is kept by model and card: the rule's thresholds must not make another of it.
    assert list((tmp_path / "rewritten").glob("*.onnx")) == [given.built(plan.plan.model).path]
    bare = recheck(plan, maps, deployments, most=1)
    assert [r.now for r in bare] == ["violated", "violated", "unknown", "unknown"]
    assert "calibration images" in bare[2].note


def test_no_place_at_all_is_refused(tmp_path):
    with pytest.raises(InputError, match="at least 1 place"):
        recheck(planned(tmp_path), (), {}, most=0)
