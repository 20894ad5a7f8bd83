"""What each family of noise costs a model after each mitigation: the numbers of the paper's Fig. 4."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.core.dataset import Dataset
from holdfast.core.model import Model
from holdfast.evaluate.run import Plan
from holdfast.noise.vision.choose import Wanted
from holdfast.noise.vision.result import ModelNoise, Suite
from holdfast.noise.vision.run import NoisePlan, Watch, measure, prepare, unwatched
from holdfast.train.mitigate.training import Trained, Training

FAMILIES: Final = ("decode", "resize", "colour", "precision", "ceil")


@dataclass(frozen=True)
class Trial:
    """What trained models are tested on: images, families of noise, where finished cells are kept."""

    data: Dataset
    runs: Path
    families: tuple[str, ...] = FAMILIES
    jobs: int = 1


def families(training: Training, models: Trained, test: Trial, watch: Watch = unwatched) -> Suite:
    """The noise suite of the model after each row, by the row's name; nothing that is finished is redone."""
    named = [dataclasses.replace(model, name=order.row.name) for order, model in models.items()]
    return Suite(test.data.name, tuple(suite_of(model, training.data, test, watch) for model in named))


def suite_of(model: Model, spare: Dataset, test: Trial, watch: Watch = unwatched) -> ModelNoise:
    """The noise of one model; integer precisions are calibrated on images of `spare`."""
    plan = Plan(model, test.data, runs=test.runs, jobs=test.jobs)
    return measure(prepare(NoisePlan(plan, Wanted(test.families), spare)), watch)
