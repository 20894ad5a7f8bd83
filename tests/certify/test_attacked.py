"""Attacks and the audit's squares run on the wrapped detector like on any other."""

import numpy as np
import pytest

import holdfast as hf
from helpers import models as making
from holdfast.attack.judge import open_judge
from holdfast.attack.types import Rule


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subject")
    return hf.load(making.detector(folder)), making.blob_coco(folder / "data", 2), folder


def test_the_judge_of_an_attack_sees_the_wrapped_detector(subject):
    model, data, _ = subject
    wrapped, rule = model.defended(lines=7, alpha=0.3, beta=0.0), Rule()
    image = wrapped._machine().decode(hf.dataset(data)[0].data)
    bare, judged = (open_judge(model, one.pipeline, rule) for one in (model, wrapped))
    assert len(judged(image)) >= len(bare(image)) > 0
    # A patch that hides the object from the bare detector, next to it where a mask covers the patch.
    x1, y1 = bare(image).boxes[0, :2].astype(int)
    hidden = image.copy()
    hidden[y1 : y1 + 8, x1 : x1 + 16] = 0
    np.testing.assert_array_equal(
        judged(hidden).boxes, wrapped.pipeline.defence(judged.machine.undefended, hidden).boxes
    )


def test_a_black_box_attack_queries_the_wrapped_detector(subject):
    model, data, folder = subject
    wrapped = model.defended(lines=3, alpha=0.3, beta=0.0)
    known = {
        "black_box": True,
        "steps": 3,
        "pixels": 20,
        "contiguous": False,
        "features": "none",
        "page": False,
    }
    result = hf.attack(wrapped, data, out=folder / "attacked", **known)
    assert result.about["pipeline"]["defence"].startswith("holdfast.stages.defence.MaskDefence")
    named = hf.attack(model, data, out=folder / "named", defend="masks:lines=3,alpha=0.3,beta=0", **known)
    assert [a.success for a in named.attempts] == [a.success for a in result.attempts]
