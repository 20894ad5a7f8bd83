"""The plan of an attack, and the task of one worker."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.attack.types import CONTIGUOUS, Limits, Method
from holdfast.core.errors import InputError
from holdfast.core.extras import check
from holdfast.core.model import MODEL_KINDS, Model
from holdfast.core.patch import Patch
from holdfast.core.pipeline import Pipeline, check_names, pipeline_of
from holdfast.core.registry import part
from holdfast.core.types import Ints, plain_name
from holdfast.engine.cells import Setup
from holdfast.engine.execution import cell_store
from holdfast.engine.pipelines import ImagePipeline
from holdfast.engine.store import Store
from holdfast.evaluate.classes import Alignment
from holdfast.evaluate.run import EvaluationPlan, work_for
from holdfast.stages.families import applied, options_of

CELLS = "cells"


@dataclass(frozen=True)
class AttackPlan:
    """A model on a dataset and how to attack it; attacked images and results are written to `out`."""

    plan: EvaluationPlan
    out: Path
    method: Method = field(default_factory=Method)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    surrogates: tuple[Model, ...] = ()  # attacked together with the model
    deployments: tuple[str, ...] = ()  # noise options under which the attack must work too
    unseen: tuple[Model, ...] = ()  # evaluated before and after, never attacked
    features: str = "signs"  # network of the Fréchet distance; "none" (stored as ""): no distance
    universal: Literal["none", "spot", "boxes"] = "none"
    shared: bool = False  # whether `out` may contain more images of this attack than the plan

    def __post_init__(self) -> None:
        if self.features == "none":
            object.__setattr__(self, "features", "")


@dataclass(frozen=True)
class AttackTask:
    """An attack with everything a worker needs for any image. Built by `task_of`."""

    attack: AttackPlan
    pipeline: Pipeline
    deployments: tuple[Pipeline, ...]
    to_model: Ints  # per class of the data its number in the model, or -1
    patch: Patch | None  # the universal one
    facts: Mapping[str, Any]  # everything that can change a result, except the image

    @property
    def model(self) -> Model:
        """The attacked model."""
        return self.attack.plan.model

    @property
    def origin(self) -> dict[str, str | int]:
        """The origin of patches, for their files."""
        return {"model": self.model.name, "sha256": self.model.sha256, "seed": self.attack.seed}

    @property
    def store(self) -> Store:
        """Where results are stored."""
        return cell_store(self.attack.out / CELLS)

    @property
    def setup(self) -> Setup:
        """The setup of the cells."""
        return Setup("attack", self.facts)


def task_of(attack: AttackPlan, alignment: Alignment, patch: Patch | None = None) -> AttackTask:
    """The task with all it depends on: models, pipelines, classes, method, limits and seed."""
    from holdfast.stages.features import open_features

    check_attack(attack)
    clean = attack.plan.pipeline or pipeline_of(attack.plan.model.card)
    deployed = tuple(applied(clean, options_of(text)) for text in attack.deployments)
    pipelines = work_for(attack.plan, *map(ImagePipeline, (clean, *deployed)))
    others = [(m.name, m.sha256, m.card) for m in (*attack.surrogates, *attack.unseen)]
    classes = to_model(alignment)
    facts = {
        "pipelines": [setup.facts for setup in pipelines.setups()],
        "others": [len(attack.surrogates), others],
        "classes": classes,
        "method": attack.method,
        "limits": attack.limits,
        "seed": attack.seed,
        # With the hash: another file behind the same name is another distance.
        "features": [attack.features, open_features(attack.features).sha256 if attack.features else ""],
        "patch": None if patch is None else [patch.pixels, patch.mask, patch.where],
    }
    return AttackTask(attack, clean, deployed, classes, patch, facts)


def apart(attack: AttackPlan, alignment: Alignment) -> AttackPlan:
    """The attack with the hash of its setup in the folder name, separate from other versions."""
    digest = task_of(attack, alignment).setup.name.rpartition(".")[2]
    return dataclasses.replace(attack, out=attack.out.with_name(f"{attack.out.name}-{digest[:8]}"))


def check_attack(attack: AttackPlan) -> None:
    """Raise InputError if options contradict each other or do not fit the model."""
    plan = attack.plan
    if plan.model.card.task not in ("detect", "single"):
        raise InputError(f"{plan.model.name}: expected a detector, got a {MODEL_KINDS[plan.model.card.task]}")
    if plan.pipeline:
        check_names(plan.pipeline)
    for other in attack.surrogates:
        if not set(map(plain_name, other.card.classes)) & set(map(plain_name, plan.model.card.classes)):
            raise InputError(
                f"--surrogate {other.name}: none of its {len(other.card.classes)} classes is a class of "
                f"{plan.model.name}; correct the names in its card"
            )
    for deployment in (option for text in attack.deployments for option in options_of(text)):
        if deployment.calibrated:
            raise InputError(
                f"--deployment {deployment.label}: needs calibration images, which an attack does not have; "
                "use fp16 or bf16, or attack a quantised model"
            )
    check("an attack", "cv2", extra="attack")
    if not attack.method.black_box:
        check("a gradient attack (--black-box works without)", "torch", extra="attack")
    names = [m.name for m in attack.unseen]
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise InputError(f"--unseen: two models are called {duplicates[0]!r}; rename one of the files")
    conflicts = [f"{option}: {why}" for option, given, why in _conflicts(attack) if given]
    if conflicts:
        raise InputError(conflicts[0])
    part("mask", attack.method.mask)  # UnknownName before the folder is created
    for name in attack.method.transforms:
        part("transform", name)


def _conflicts(attack: AttackPlan) -> Iterator[tuple[str, object, str]]:
    """Options that contradict --black-box or --universal: the option, whether it is given, and why."""
    method, limits, universal = attack.method, attack.limits, attack.universal != "none"
    if method.black_box:
        gradients = "needs gradients; omit --black-box"
        yield "--surrogate", attack.surrogates, gradients
        yield "--universal", universal, gradients
        yield "--transform", method.transforms, gradients
        yield "--diverse", method.diversity, gradients
        only_vanish = "a black-box attack under deployments supports only --goal vanish"
        yield "--deployment", attack.deployments and method.goal != "vanish", only_vanish
    if universal:
        yield "--mask", method.mask != Method.mask, "a universal patch is a square; omit --mask"
        yield "--regions", limits.regions, "a universal patch is one square; omit --regions"
        yield "--amplitude", limits.amplitude < 255, "a universal patch may have any colour; omit --amplitude"
        position = "--universal determines the position of the patch; omit --anywhere"
        yield "--anywhere", not method.inside, position


def is_scattered(attack: AttackPlan) -> bool:
    """Whether the attack changes scattered pixels, not contiguous regions or one universal patch."""
    scattered = attack.method.mask not in CONTIGUOUS and not attack.limits.regions
    return scattered and attack.universal == "none"


def contiguous_plan(attack: AttackPlan) -> AttackPlan:
    """The same attack with one contiguous square per target instead of scattered pixels."""
    method = dataclasses.replace(attack.method, mask="square", shrink=False)
    return dataclasses.replace(attack, out=attack.out / "contiguous", method=method, features="")


def to_model(alignment: Alignment) -> Ints:
    """Per class of the data its number in the model, -1 where the model has none."""
    number = {int(position): index for index, position in enumerate(alignment.of_model) if position >= 0}
    return np.array([number.get(int(position), -1) for position in alignment.of_data], np.int64)
