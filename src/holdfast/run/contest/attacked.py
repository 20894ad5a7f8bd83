"""Our own attack as a baseline of a contest: white box on the single model, a few steps an image."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast.attack.types import Limits, Method, Rule
from holdfast.core.dataset import Dataset
from holdfast.metrics.rules import rule_named
from holdfast.run.attack.measure import attack
from holdfast.run.attack.plan import AttackPlan
from holdfast.run.attack.work import IMAGES
from holdfast.run.contest.contest import Contest
from holdfast.run.contest.pool import Phase
from holdfast.run.evaluate import Plan
from holdfast.run.score import Settings

STEPS = 25  # gradient steps an image: what anyone can afford for a thousand of them


def attacked(contest: Contest, folder: Path, phase: Phase, jobs: int) -> None:
    """Nothing; the attacked images 1.png … N.png are in the folder. A killed run goes on."""
    rules = contest.rules
    data = Dataset(rules.name, "contest", "detect", contest.classes, contest.shots)
    settings = Settings(rule_named(rules.ap), rules.iou, rules.score)
    plan = Plan(contest.models[contest.single], data, settings=settings, jobs=jobs)
    wanted = AttackPlan(
        plan,
        folder.with_name(f"{folder.name}-attack"),
        Method(rule=Rule(rules.score, rules.iou, rules.nms_iou)),
        Limits(rules.pixels, steps=STEPS),
        rules.seed,
        features="",
    )
    with phase(f"{folder.name} images", len(contest.shots)) as step:
        attack(wanted, step)
    folder.mkdir(parents=True, exist_ok=True)
    for shot in contest.shots:
        shutil.copyfile(wanted.out / IMAGES / shot.name, folder / shot.name)
    shutil.rmtree(wanted.out)
