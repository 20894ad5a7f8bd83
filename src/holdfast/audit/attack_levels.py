"""The attacks of an audit: a printable patch per object, and scattered pixels at several budgets.

The smallest pixel budget runs on all images, larger ones on those not yet broken: a success with 100 pixels
is also a success with 300 and 1000.
"""

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.attack.plan import AttackPlan, apart
from holdfast.attack.result import AttackResult, Attempt, effect_of, points_of
from holdfast.attack.run import attack
from holdfast.attack.shapes import STICKER, size_of
from holdfast.attack.types import Limits, Method
from holdfast.audit.options import AuditSettings
from holdfast.audit.plan import AuditPlan
from holdfast.audit.result import AttackLevel
from holdfast.core.errors import BudgetSpent, DataError
from holdfast.core.extras import is_installed
from holdfast.core.text import printable
from holdfast.engine.manifest import slug
from holdfast.evaluate.difference import scored_run
from holdfast.evaluate.run import alignment_of
from holdfast.noise.suite import Watch

SHORT = 60.0  # seconds within which one process attacks more images than several
QUERIES = 400  # of the black-box search that replaces gradients without torch
PATCH = "patch"  # the name of the threat
PATCH_SHARE = 0.7  # of the time of the attacks; scattered pixels are found faster


@dataclass(frozen=True)
class LevelResult:
    """The attack at one pixel budget: its numbers, and the attempt on every image."""

    level: AttackLevel
    attempts: tuple[Attempt, ...]


def name_of(pixels: int) -> str:
    """The name of the threat: 300px."""
    return f"{pixels}px"


def method_of() -> Method:
    """Gradient search, or a black-box search without torch; not shrunk, because the budget is given."""
    return Method(black_box=not is_installed("torch"), shrink=False)


def patch_method(options: AuditSettings) -> Method:
    """The method of the printable patch: InputError if the options are not a size of one."""
    sign = options.sign_size or ""
    method = Method(shape=options.shape, size=options.size, sign_size=sign, shrink=False, transforms=STICKER)
    size_of(method)
    return method


def attack_levels(
    plan: AuditPlan, images: Sequence[str], watch: Watch, until: float = math.inf, most: int | None = None
) -> tuple[AttackResult, tuple[LevelResult, ...], dict[str, str]]:
    """Attack with all budgets: the outcome at the largest, every level, and the folders of the attacks.

    It stops at `until` (of time.monotonic): the images are those finished at the smallest budget, and a
    larger budget counts only if it was finished on all that are not yet broken. `most` is the number of
    budgets finished in an earlier run, if any.
    """
    attempts: dict[str, Attempt] = {}
    todo, levels, runs = list(images), list[LevelResult](), dict[str, str]()
    first: AttackResult | None = None
    budgets = plan.options.pixels[:most]
    for number, pixels in enumerate(budgets):
        if todo:
            now = time.monotonic()
            end = now + (until - now) / (len(budgets) - number)  # all have the same part of the time left
            try:
                folder, outcome = _scattered(plan, todo, pixels, end, watch)
            except BudgetSpent:
                if first is not None:
                    break  # the results of the smaller budgets remain
                folder, outcome = _scattered(plan, todo[:1], pixels, until, watch)  # one image at least
            except DataError:  # none of those left can be read any more
                if first is None:
                    raise
                break
            if first is not None and len(outcome.attempts) + len(outcome.failed) < len(todo):
                break
            runs[f"attack {name_of(pixels)}"] = folder
            first = first or outcome
            attempts = carry_over(attempts, outcome.attempts)
        if first is None:
            break
        everything = tuple(attempts.values())
        engine = _engine(plan, len(todo), len(everything))
        levels.append(LevelResult(_level(plan, first, pixels, everything, engine), everything))
        todo = [a.name for a in attempts.values() if a.targets and not a.success]
    if first is None:
        raise DataError("expected at least one image to attack, got none")
    # The outcome within the largest budget, as a single attack would report it.
    final, largest = levels[-1].attempts, levels[-1].level.pixels
    alignment, settings = first.alignment, plan.plan.settings
    effect = effect_of(final, plan.plan.model.name, [a.model for a in final], alignment, settings)
    about = {**first.about, "limits": {**first.about["limits"], "pixels": largest}}
    points = points_of(final, alignment, settings, largest)
    whole = dataclasses.replace(first, attempts=final, effects=(effect,), points=points, about=about)
    return whole, tuple(levels), runs


def carry_over(smaller: Mapping[str, Attempt], larger: Iterable[Attempt]) -> dict[str, Attempt]:
    """The attempts of a larger budget over those of a smaller one: what loses more objects counts."""
    attempts = dict(smaller)
    for attempt in larger:
        before = attempts.get(attempt.name)
        if before is None or attempt.success or attempt.left <= before.left:
            attempts[attempt.name] = attempt
    return attempts


def attack_patch(
    plan: AuditPlan, images: Sequence[str], deployments: Sequence[str], watch: Watch, until: float = math.inf
) -> tuple[AttackResult, LevelResult, dict[str, str]]:
    """Attack with one printable patch per object: the outcome, its level, and the folder of the attack.

    The patch must also work under the deployments, each FAMILY=OPTION, and under random views.
    """
    method = patch_method(plan.options)
    limits = Limits(steps=plan.options.steps)
    end = time.monotonic() + PATCH_SHARE * (until - time.monotonic())
    folder, outcome = _attacked(plan, images, method, limits, PATCH, tuple(deployments), end, watch)
    attempts = outcome.attempts
    sides = sorted(sticker.side for attempt in attempts for sticker in attempt.stickers)
    engine = f"gradient, {limits.steps} steps, over {', '.join(method.transforms)}"
    engine += f" and {', '.join(deployments)}" if deployments else ""
    level = _level(plan, outcome, max((a.pixels for a in attempts), default=0), attempts, engine)
    level = dataclasses.replace(
        level,
        threat=PATCH,
        broken=sum(a.targets > 0 and a.left == 0 for a in attempts),  # whether or not under the deployments
        shape=method.shape,
        size=method.size,
        sides=tuple(sides),
        survival=outcome.survival,
        deployments=tuple(deployments),
    )
    return outcome, LevelResult(level, attempts), {f"attack {PATCH}": folder}


def _scattered(
    plan: AuditPlan, images: Sequence[str], pixels: int, until: float, watch: Watch
) -> tuple[str, AttackResult]:
    """The folder and the result of the attack at one pixel budget."""
    method = method_of()
    limits = Limits(pixels=pixels, steps=QUERIES if method.black_box else plan.options.steps)
    return _attacked(plan, images, method, limits, name_of(pixels), (), until, watch)


def _attacked(
    plan: AuditPlan, images: Sequence[str], method: Method, limits: Limits, threat: str,
    deployments: tuple[str, ...], until: float, watch: Watch,
) -> tuple[str, AttackResult]:  # fmt: skip
    """The folder and the result of an attack: a run of its own that all audits share."""
    names, dataset = set(map(printable, images)), plan.plan.dataset
    entries = tuple(e for e in dataset.entries if printable(e.name) in names)  # as attempts are named
    part = dataclasses.replace(dataset, entries=entries)
    # One process is faster in a short time, because each process must load torch.
    jobs = 1 if until - time.monotonic() < SHORT else plan.plan.jobs
    attacked = dataclasses.replace(plan.plan, dataset=part, until=until, jobs=jobs)
    out = attacked.runs / f"attack-{slug(f'{attacked.model.name}-on-{dataset.name}')}-{threat}"
    planned = AttackPlan(
        attacked, out, method, limits, plan.options.seed, deployments=deployments, features="", shared=True
    )
    planned = apart(planned, alignment_of(attacked))
    with watch(f"attack {threat}", len(images)) as step:
        return planned.out.name, attack(planned, step)


def _level(
    plan: AuditPlan, outcome: AttackResult, pixels: int, attempts: tuple[Attempt, ...], engine: str
) -> AttackLevel:
    metrics = []  # the audit's own, before and after; 0 where there is nothing to measure
    for patched in (False, True):
        records = [a.record(a.model, patched) for a in attempts]
        value = scored_run(plan.plan, outcome.alignment, records).value if attempts else 0.0
        metrics.append(0.0 if math.isnan(value) else value)
    aimed = [a for a in attempts if a.targets]
    return AttackLevel(
        threat=name_of(pixels),
        pixels=pixels,
        before=metrics[0],
        after=metrics[1],
        aimed=len(aimed),
        broken=sum(a.success for a in aimed),
        images=len(attempts),
        mean_pixels=sum(a.pixels for a in aimed) / len(aimed) if aimed else None,
        engine=engine,
    )


def _engine(plan: AuditPlan, attacked: int, images: int) -> str:
    """How scattered pixels were found, and on how many of the images at this budget."""
    method = method_of()
    engine = f"gradient, {method.mask}, {plan.options.steps} steps"
    if method.black_box:
        engine = f"black box, {QUERIES} queries"
    if attacked < images:
        others = "the others were broken with a smaller budget"
        engine += f", on {attacked} of {images} images ({others})"
    return engine
