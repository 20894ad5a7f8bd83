"""What is attacked, with what, and what one process needs of it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.attack.types import Limits, Method
from holdfast.core.errors import InputError
from holdfast.core.extras import check
from holdfast.core.model import Model
from holdfast.core.patch import Patch
from holdfast.core.pipeline import Pipeline, check_names, pipeline_of
from holdfast.core.registry import part
from holdfast.core.types import Ints, plain_name
from holdfast.engine.cells import Setup
from holdfast.engine.pipelines import ImagePipeline
from holdfast.engine.store import Store
from holdfast.evaluate.classes import Alignment
from holdfast.evaluate.run import EvaluationPlan, work_for
from holdfast.stages.families import applied, options_of

CELLS = "cells"


@dataclass(frozen=True)
class AttackPlan:
    """A model on a data set, and how it is attacked; adversarial images and results go to `out`."""

    plan: EvaluationPlan
    out: Path
    method: Method = field(default_factory=Method)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    surrogates: tuple[Model, ...] = ()  # attacked together with the model
    deployments: tuple[str, ...] = ()  # noise options under which the attack must work too
    unseen: tuple[Model, ...] = ()  # asked before and after, never attacked
    features: str = "signs"  # network of the Fréchet distance; "none" (kept as the empty text): no distance
    universal: Literal["none", "spot", "boxes"] = "none"
    shared: bool = False  # whether `out` may hold images of this very attack beyond those of the plan

    def __post_init__(self) -> None:
        if self.features == "none":
            object.__setattr__(self, "features", "")


@dataclass(frozen=True)
class Task:
    """An attack with all that a process needs for any image. `task_of` makes it."""

    attack: AttackPlan
    pipeline: Pipeline
    deployments: tuple[Pipeline, ...]
    to_model: Ints  # per class of the data its number in the model, or -1
    patch: Patch | None  # the universal one
    facts: Mapping[str, Any]  # all that can change a result, but for the image

    @property
    def model(self) -> Model:
        """The attacked model."""
        return self.attack.plan.model

    @property
    def origin(self) -> dict[str, str | int]:
        """Where patches come from, for their files."""
        return {"model": self.model.name, "sha256": self.model.sha256, "seed": self.attack.seed}

    @property
    def store(self) -> Store:
        """Where results are stored."""
        return Store(self.attack.out / CELLS)

    @property
    def setup(self) -> Setup:
        """What the cells depend on, besides the image."""
        return Setup("attack", self.facts)


def task_of(attack: AttackPlan, alignment: Alignment, patch: Patch | None = None) -> Task:
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
    return Task(
        attack=attack, pipeline=clean, deployments=deployed, to_model=classes, patch=patch, facts=facts
    )


def apart(attack: AttackPlan, alignment: Alignment) -> AttackPlan:
    """The attack in a folder named by what it is, so that what another version left is not in the way."""
    setup = task_of(attack, alignment).setup.name
    return dataclasses.replace(attack, out=attack.out.with_name(f"{attack.out.name}-{setup[:8]}"))


def check_attack(attack: AttackPlan) -> None:
    """Raise InputError, one line, for what cannot be done."""
    plan = attack.plan
    if plan.model.card.task not in ("detect", "single"):
        raise InputError(f"{plan.model.name}: expected a detector, got a model to {plan.model.card.task}")
    if plan.pipeline:
        check_names(plan.pipeline)
    for other in attack.surrogates:
        if not set(map(plain_name, other.card.classes)) & set(map(plain_name, plan.model.card.classes)):
            raise InputError(
                f"--surrogate {other.name}: expected a class of {plan.model.name} among its "
                f"{len(other.card.classes)}, got none; correct the names in its card"
            )
    for one in (option for text in attack.deployments for option in options_of(text)):
        if one.calibrated:
            raise InputError(
                f"--deployment {one.label}: needs calibration images, which an attack has not; "
                "take fp16 or bf16, or a model quantised already"
            )
    check("an attack", "cv2", extra="attack")
    if not attack.method.black_box:
        check("an attack by gradient (--black-box does without)", "torch", extra="attack")
    names = [m.name for m in attack.unseen]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"--unseen: two models are called {twice[0]!r}; rename one of the files")
    method, limits, black = attack.method, attack.limits, attack.method.black_box
    lone, gradients = attack.universal != "none", "needs gradients; leave out --black-box"
    several = "a black box under several can only be made to lose targets: --goal vanish"
    useless = (
        ("--surrogate", black and attack.surrogates, gradients),
        ("--universal", black and lone, gradients),
        ("--transform", black and method.transforms, gradients),
        ("--diverse", black and method.diversity, gradients),
        ("--deployment", black and attack.deployments and method.goal != "vanish", several),
        ("--mask", lone and method.mask != Method.mask, "a universal patch is a square; leave it out"),
        ("--regions", lone and limits.regions, "a universal patch is one square; leave it out"),
        ("--amplitude", lone and limits.amplitude < 255, "a universal patch has any colours; leave it out"),
        ("--anywhere", lone and not method.inside, "--universal says where the patch lies; leave it out"),
    )
    for option, given, why in useless:
        if given:
            raise InputError(f"{option}: {why}")
    part("mask", attack.method.mask)  # UnknownName here, not once the folder is taken
    for name in attack.method.transforms:
        part("transform", name)


def to_model(alignment: Alignment) -> Ints:
    """Per class of the data its number in the model, -1 where the model has none."""
    number = {int(place): at for at, place in enumerate(alignment.of_model) if place >= 0}
    return np.array([number.get(int(place), -1) for place in alignment.of_data], np.int64)
