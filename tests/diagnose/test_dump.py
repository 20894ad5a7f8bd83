"""Choices of equal result: the plainest is shown, the others are named."""

import numpy as np
import pytest

from helpers import models as making
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.diagnose.dump import DumpMatch, OptionTrial, match_output, match_table, rank_trials
from holdfast.diagnose.page import match_text
from holdfast.diagnose.stages import ValueDifference
from holdfast.graph.load import load_model
from holdfast.noise.vision.choose import with_calibration
from holdfast.noise.vision.show import SingleImage
from holdfast.stages.deployed import Calibration
from holdfast.stages.families import applied, options_of

EXACT, NEAR = ValueDifference(0.0, 0.0, 0.0), ValueDifference(2.0, 0.5, 0.1)


def tried(text, result, apart=NEAR, changes=0, odd=0):
    return OptionTrial({o.split("=")[0]: o for o in text.split()}, apart, result, changes, odd)


@pytest.fixture
def model(tmp_path):
    return load_model(str(making.classifier(tmp_path)))


@pytest.fixture
def picture():
    """A JPEG without subsampling: decoders that differ in the upsampling of colour alone give the same."""
    rough = np.random.default_rng(1).integers(0, 255, (9, 11, 3)).astype(np.uint8)
    return making.jpeg(np.kron(rough, np.ones((7, 7, 1), np.uint8)), quality=80, subsampling=0)


def test_the_fewest_changes_lead_and_the_equals_are_named():
    found = rank_trials([
        tried("decode=odd resize=a", "x", changes=2, odd=1), tried("decode=b resize=a", "x", changes=2),
        tried("decode=card resize=a", "x", changes=1), tried("decode=card resize=b", "y", EXACT, 1),
    ])  # fmt: skip
    assert [(one.choices, one.same, one.tried) for one in found] == [
        ("decode=card, resize=b", (), 1),
        ("decode=card, resize=a", ("decode=b", "decode=odd"), 3),
    ]
    assert found[0].exact


def test_at_equal_distance_the_fewer_changes_come_first():
    found = rank_trials([tried("decode=a", "x", changes=1), tried("decode=card", "y", changes=0)])
    assert [(one.choices, one.same) for one in found] == [("decode=card", ()), ("decode=a", ())]


def test_differences_put_together_are_not_named_again_but_those_that_are_only_together_are():
    found = rank_trials([
        tried("a=0 b=0", "x"), tried("a=1 b=0", "x", changes=1), tried("a=0 b=1", "x", changes=1),
        tried("a=1 b=1", "x", changes=2), tried("a=2 b=2", "x", changes=2),
    ])  # fmt: skip
    assert [one.same for one in found] == [("b=1", "a=1", "a=2 + b=2")]
    assert rank_trials([tried("a=1 b=1", "x"), tried("a=1", "x", changes=1)])[0].same == ("no b=1",)


def test_equals_of_a_dumped_output_are_one_row(model, picture):
    train = pipeline_of(model.card)
    machine = load_pipeline(applied(train, options_of("resize=opencv-nearest,decode=opencv")), model)
    (dump,) = machine.run(machine.prepare(picture).tensor).values()
    found = match_output(model, train, picture, dump, lambda pipeline: pipeline)
    assert found[0].choices == "resize=opencv-nearest"
    assert {"decode=opencv", "decode=no-fancy-upsampling"} <= set(found[0].same)
    assert sum(one.exact for one in found) == 1
    everything = [text for one in found for text in (one.choices, *one.same)]
    assert not any("decode=pillow" in text or "colour=rgb" in text for text in everything)


def test_the_terminal_names_equals_below_a_table_that_stays_narrow():
    many = tuple(f"resize=number-{n}" for n in range(12))
    rows = [DumpMatch("decode=a", EXACT, many, 13), DumpMatch("b=b", NEAR), DumpMatch("c=c", NEAR, many, 13)]
    table = match_table(rows, "input")
    assert table.rows[0][-1] == ", ".join(many)
    text = match_text(table).splitlines()
    assert "of 27 combinations" in text[0]
    assert max(map(len, text[1:6])) < 80
    assert text[-1] == f"note     equivalent to row 1, 3: {', '.join(many[:8])} and 4 more (all in --json)"


def test_rewrites_that_change_nothing_are_no_choice_beside_others(model, picture, tmp_path):
    train = pipeline_of(model.card)
    half = applied(train, options_of("precision=fp16"))

    def ready(pipeline):
        return with_calibration(
            pipeline, Calibration((SingleImage("a.jpg", picture),), train), tmp_path / "kept"
        )

    machine = load_pipeline(ready(half), model)
    (dump,) = machine.run(machine.prepare(picture).tensor).values()
    best = match_output(model, train, picture, np.asarray(dump), ready)[0]
    assert best.exact
    assert best.choices == "precision=fp16"
    assert not any("upsample" in same or "ceil" in same for same in best.same)
