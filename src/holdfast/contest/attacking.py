"""Our own attack as an entry: the single model attacked by gradient on every image of a contest."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast.contest.contest import CACHE, TRUTH, Contest
from holdfast.contest.pool import Phase
from holdfast.core import fingerprint
from holdfast.core.errors import DataError
from holdfast.core.sources import code_of
from holdfast.data.readers.coco import coco
from holdfast.metrics.rules import rule_named

STEPS = 50  # of gradient; most images need fewer


def our_attack(contest: Contest, folder: Path, phase: Phase, jobs: int) -> None:
    """Nothing; the attacked images 1.png … N.png lie in the folder. A killed attack goes on.

    The hidden members are not looked at: it is what a participant could do with what is public. It is not
    shrunk to the fewest pixels, which takes about five times as long (benchmarks/results/attack.md).
    """
    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.run import attack
    from holdfast.attack.types import Limits, Method, Rule
    from holdfast.evaluate.run import Plan
    from holdfast.evaluate.score import Settings

    rules = contest.rules
    # By code and contest, so that what another version began is not gone on with.
    out = contest.folder / CACHE / f"attack-{fingerprint.of([code_of('attack'), contest.hashes.whole])[:12]}"
    data = coco(contest.folder / TRUTH, image_folder=contest.folder / "images")
    settings = Settings(rule_named(rules.ap), rules.iou, rules.score)
    plan = Plan(contest.models[contest.single], data, settings=settings, jobs=jobs, strict=True)
    method = Method(rule=Rule(rules.score, rules.iou, rules.nms_iou), shrink=False)
    limits = Limits(pixels=rules.pixels, steps=STEPS)
    with phase("baseline-attack images", len(data)) as step:
        found = attack(AttackPlan(plan, out, method, limits, seed=rules.seed, features=""), step)
    if found.failed:
        raise DataError(f"baseline-attack: {found.failed[0]}")
    shutil.rmtree(folder, ignore_errors=True)
    (out / "images").replace(folder)
    for old in (contest.folder / CACHE).glob("attack-*"):
        shutil.rmtree(old)
