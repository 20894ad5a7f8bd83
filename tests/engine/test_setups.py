"""Names of cells: by all that can change a number, not by where files and folders lie."""

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from helpers import models as making
from holdfast.core.pipeline import pipeline_of
from holdfast.data.open import open_dataset
from holdfast.engine.pipelines import ImagePipeline, PipelineWork
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.run import NoisePlan, measure, prepare
from holdfast.stages.deployed import Calibration, DeployedInference


@pytest.fixture
def model(tmp_path):
    return load_model(making.classifier(tmp_path))


@pytest.fixture
def data(tmp_path):
    return open_dataset(making.image_folder(tmp_path / "data", 12))


def setup(model, **infer):
    pipeline = pipeline_of(model.card).replace(infer=DeployedInference(**infer))
    return PipelineWork(model, (ImagePipeline(pipeline),), 2).setups()[0].name


@pytest.mark.parametrize(
    "how", [{"rewrites": ("fp16",)}, {"rewrites": ("int8-minmax",)}, {"runtime": "opencv-dnn"}]
)
def test_the_folder_of_rewritten_models_names_no_cell(model, data, tmp_path, how):
    calibration = Calibration(data.entries[:4], pipeline_of(model.card))
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    moved = Calibration(open_dataset(tmp_path / "moved").entries[:4], calibration.pipeline)
    found = {
        setup(model, **how, folder=folder, calibration=images)
        for folder in (None, Path("rA"), Path("rA").absolute())
        for images in (calibration, moved)
    }
    assert len(found) == 1


def test_two_calibrations_never_share_a_cell(model, data):
    clean = pipeline_of(model.card)
    one = Calibration(data.entries[:4], clean)
    others = (
        dataclasses.replace(one, entries=data.entries[:3]),
        dataclasses.replace(one, entries=data.entries[1:5]),
        dataclasses.replace(one, entries=data.entries[3::-1]),
        dataclasses.replace(one, pipeline=clean.replace(resize="opencv-nearest")),
        None,
    )
    calibrated = [setup(model, rewrites=("int8-minmax",), calibration=c) for c in (one, *others)]
    assert len(set(calibrated)) == 6
    assert len({setup(model, rewrites=("fp16",), calibration=c) for c in (one, *others)}) == 1
    assert (
        len({setup(model, rewrites=(name,), calibration=one) for name in ("int8-minmax", "fp16", "ceil")})
        == 3
    )
    assert len({setup(model, runtime=name) for name in ("onnxruntime", "opencv-dnn")}) == 2


def test_a_run_folder_spelled_otherwise_or_copied_is_taken_up_again(model, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = NoiseSelection(
        only=("precision=fp16", "precision=int8-minmax", "resize=opencv-nearest", "colour=yuv444")
    )

    def run(runs):
        plan = EvaluationPlan(model, data, runs=Path(runs), jobs=1)
        made = measure(prepare(NoisePlan(plan, wanted, replicates=50)))
        return made, {p.name for p in Path(runs).glob("cells/*/*.json")}

    first, cells = run("rA")
    shutil.copytree("rA", "elsewhere/rB")
    for runs in (tmp_path / "rA", f"..{os.sep}{tmp_path.name}/rA", "elsewhere/rB"):
        again, now = run(runs)
        assert now == cells
        assert again == first
