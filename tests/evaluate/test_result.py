"""A run saved, opened again, compared, and its pictures."""

import dataclasses
import os
import shutil
import sys

import numpy as np
import pytest

from helpers import models as making
from holdfast.core.errors import InputError
from holdfast.core.pipeline import pipeline_of
from holdfast.core.types import Detections
from holdfast.data.open import open_dataset
from holdfast.evaluate.difference import difference
from holdfast.evaluate.page import pictures
from holdfast.evaluate.result import open_run
from holdfast.evaluate.run import EvaluationPlan, evaluate, run_folder
from holdfast.graph.load import load_model
from holdfast.stages.deployed import DeployedInference
from holdfast.stages.post import by_card


def plan_of(folder, data="data", source=None):
    model = load_model(folder / "tiny.onnx")
    return EvaluationPlan(
        model, open_dataset(folder / data), runs=folder / "runs", jobs=1, source=source or {}
    )


@pytest.fixture
def folder(tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 8)
    return tmp_path


@pytest.mark.parametrize("path", [".", "run.json", "../tiny-on-data"])
def test_a_run_is_opened_from_wherever_one_stands(folder, monkeypatch, path):
    from pathlib import Path

    done = evaluate(plan_of(folder))
    monkeypatch.chdir(folder / "runs" / "tiny-on-data")
    assert open_run(Path(path)).result == done.result


def test_pictures_need_only_the_path_of_the_data(folder):
    done = evaluate(plan_of(folder, source={"data": str(folder / "data")}))
    name = done.records[0].name
    assert pictures(done)(name) == (folder / "data" / name).read_bytes()
    assert pictures(done)("nothing") is None
    assert pictures(open_run(evaluate(plan_of(folder)).folder))(name) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only here may file names be any bytes")
def test_a_file_name_that_is_no_utf_8(folder):
    shutil.copy(folder / "data" / "dark" / "0000.jpg", os.fsencode(folder) + b"/data/dark/\xbd\xfb.jpg")
    done = evaluate(plan_of(folder, source={"data": str(folder / "data")}))
    name = r"dark/\xbd\xfb.jpg"
    assert name in [r.name for r in done.records]
    assert pictures(done)(name)


def test_runs_on_other_images_of_the_same_names_are_not_compared(folder):
    making.image_folder(folder / "other" / "data", 8, size=30)
    before, after = evaluate(plan_of(folder)), evaluate(plan_of(folder, "other/data"))
    assert difference(before, before).interval.estimate == 0.0
    with pytest.raises(InputError, match=r"\.jpg: the image or its ground truth differs"):
        difference(before, after)


def test_a_long_name_of_a_stage_still_makes_a_folder(folder):
    def dim(image, factors):
        return image

    import functools

    plan = plan_of(folder)
    long = pipeline_of(plan.model.card).replace(colour=functools.partial(dim, factors=list(range(200))))
    plan = dataclasses.replace(plan, pipeline=long)
    evaluate(plan)
    assert open_run(run_folder(plan)).result["images"] == 8
    other = long.replace(colour=functools.partial(dim, factors=list(range(1, 201))))
    assert run_folder(dataclasses.replace(plan, pipeline=other)) != run_folder(plan)


def test_the_difference_is_that_of_the_two_numbers(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 12)
    model = load_model(tmp_path / "blobs.onnx")
    plan = EvaluationPlan(model, open_dataset(tmp_path / "data"), runs=tmp_path / "runs", jobs=1)

    def post(raw, frame, card):
        found = by_card(raw, frame, card)
        return Detections(found.boxes + np.array([3, 0, 3, 0]), found.scores, found.classes)

    shifted = pipeline_of(model.card).replace(post=post)
    before, after = evaluate(plan), evaluate(dataclasses.replace(plan, pipeline=shifted))
    numbers = [done.result["metrics"]["AP"] for done in (before, after)]
    assert numbers[1] < numbers[0]
    assert difference(before, after).interval.estimate == pytest.approx(numbers[1] - numbers[0], abs=1e-12)


def test_a_rewritten_graph_does_not_make_a_long_folder_name(tmp_path):
    model = load_model(str(making.detector(tmp_path)))
    data = open_dataset(str(making.blob_coco(tmp_path / "data", 1)), task="detect")
    clean = pipeline_of(model.card)
    names = [
        run_folder(
            EvaluationPlan(model, data, clean.replace(infer=DeployedInference((name,))), runs=tmp_path)
        ).name
        for name in ("fp16", "bf16")
    ]
    assert len(set(names)) == 2
    assert all(len(name) < 60 for name in names)
