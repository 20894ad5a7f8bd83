"""Noise options added one by one, the most harmful first, as in the paper's Fig. 3."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.core.errors import BudgetSpent, InputError
from holdfast.engine.records import FailedImage
from holdfast.evaluate.difference import ScoredRun, bootstrap_values, common_images, compare, scored_run
from holdfast.metrics.intervals import FEWEST, paired
from holdfast.metrics.points import points
from holdfast.noise.suite import Watch, distinct_rows
from holdfast.noise.vision.choose import build_variant
from holdfast.noise.vision.result import ModelNoise
from holdfast.noise.vision.run import NOT_COMBINED, PreparedNoise, run_variants, worst_options
from holdfast.noise.vision.sweep import CLEAN, Variant
from holdfast.report.tables import many
from holdfast.stages.families import NoiseOption

Interaction: TypeAlias = Literal["first", "overlapping", "amplified", "additive"]
_INTERACTIONS = {
    "overlapping": "loses fewer points on top of the others than alone (overlapping)",
    "amplified": "loses more points on top of the others than alone (amplified)",
    "additive": "loses about as many points as alone (additive: no significant difference)",
}


@dataclass(frozen=True)
class CombineStep:
    """One more option: points lost by all so far, by this step, and by this option alone.

    All in percentage points with paired 95% intervals. An effect is overlapping if this step loses
    significantly fewer points than the option does alone, and amplified if it loses significantly more.
    """

    added: str  # family=option
    value: float  # the metric with all options so far
    points_lost: float
    low: float
    high: float
    extra: float
    extra_low: float
    extra_high: float
    alone: float
    beyond_low: float  # 95% interval of extra − alone
    beyond_high: float
    changed: int
    images: int
    effect: Interaction


@dataclass(frozen=True)
class Combination:
    """The steps from the clean metric down, and the options that were skipped."""

    model: str
    data: str
    metric: str
    clean: float
    steps: tuple[CombineStep, ...]
    skipped: tuple[str, ...] = ()
    command: str = ""
    task: str = ""
    rule: str = ""


def combine(
    prepared: PreparedNoise, suite: ModelNoise, watch: Watch, every: bool = False, most: int | None = None
) -> Combination:
    """The greedy combination of a finished suite's options, in at most this many steps.

    Each family takes part with its worst option, or with `every` one of its options at each step. When the
    plan's time is over, the steps so far are the result.
    """
    known = prepared.options
    distinct = distinct_rows(suite.rows)
    alone_rows = [r for r in distinct if r.family not in NOT_COMBINED and not r.hypothetical]
    candidates = [known[r.label] for r in alone_rows] if every else worst_options(suite.rows, known)
    if not candidates:
        raise InputError("no noise option has an effect here: there is nothing to combine")
    plan = prepared.noise.plan
    clean = _sides(prepared, [Variant(CLEAN, prepared.context.clean)], watch, "no noise")[CLEAN]
    before, chosen = clean, list[NoiseOption]()
    steps: list[CombineStep] = []
    skipped: list[str] = []
    alone: dict[str, ScoredRun] = {}
    while candidates and len(steps) != most:
        built = [(c, build_variant(prepared.context, [*chosen, c])) for c in candidates]
        skipped += [f"{c.label}: {a.note}" for c, a in built if a is not None and a.variant is None]
        able = [(c, a.variant) for c, a in built if a is not None and a.variant is not None]
        try:
            sides = _sides(
                prepared, [v for _, v in able], watch, f"step {len(steps) + 1}, {many(len(able), 'option')}"
            )
        except BudgetSpent:
            skipped += [f"{c.label}: time budget reached" for c in candidates]
            break
        if not chosen:
            alone = {c.label: sides[v.name] for c, v in able if v.name in sides}
        ran = [(c, v) for c, v in able if v.name in sides]
        if not ran:
            break
        gains = [compare(clean, sides[v.name], replicates=1).interval.estimate for _, v in ran]
        one, variant = ran[gains.index(min(gains))]
        after = sides[variant.name]
        steps.append(_step(one, (clean, alone[one.label], before, after), prepared.noise.replicates))
        before = after
        chosen.append(one)
        gone = {one.family} | {c.family for c, a in built if a is None or a.variant is None}
        candidates = [c for c in candidates if c.family not in gone]
    return Combination(
        model=plan.model.name,
        data=plan.dataset.name,
        metric=suite.metric,
        clean=clean.value,
        steps=tuple(steps),
        skipped=tuple(skipped),
        task=suite.task,
        rule=suite.settings.get("rule", ""),
    )


def _sides(
    prepared: PreparedNoise, variants: Sequence[Variant], watch: Watch, what: str
) -> dict[str, ScoredRun]:
    """The finished variants by name, without those in which every image failed."""
    plan = prepared.noise.plan
    found = {}
    for name, made in run_variants(
        prepared, tuple(variants), watch, f"combine {plan.model.name}, {what}"
    ).items():
        records = made.read().records  # none of a variant with a problem
        if not all(isinstance(r, FailedImage) for r in records):
            found[name] = scored_run(plan, prepared.alignment, records)
    return found


def _step(
    one: NoiseOption, sides: tuple[ScoredRun, ScoredRun, ScoredRun, ScoredRun], replicates: int
) -> CombineStep:
    """The step from four runs: clean, this option alone, the options before it, and all of them."""
    clean, single, before, after = sides
    whole = compare(clean, after, replicates=replicates)
    held = set(common_images(clean, single)) & set(common_images(before, after))
    names = [record.name for record in clean.records if record.name in held]
    if not names:
        raise InputError(f"{one.label}: no image ran in all of: clean, alone, before and after this step")
    first, other, base, last = (bootstrap_values(side, names, replicates=replicates) for side in sides)
    lost, extra, alone = whole.points_lost, paired(last, base), paired(other, first)
    beyond = paired(first - other, base - last, bound=2.0)  # a difference of two differences
    effect: Interaction = "overlapping" if beyond.high < 0 else "amplified" if beyond.low > 0 else "additive"
    effect = effect if len(names) >= FEWEST else "additive"
    return CombineStep(
        added=one.label,
        value=whole.after,
        points_lost=lost.estimate,
        low=lost.low,
        high=lost.high,
        extra=points(extra.estimate),
        extra_low=points(extra.low),
        extra_high=points(extra.high),
        alone=points(alone.estimate),
        beyond_low=points(beyond.low),
        beyond_high=points(beyond.high),
        changed=whole.changed,
        images=whole.images,
        effect="first" if before is clean else effect,
    )


def describe_combination(staircase: Combination) -> str:
    """Which effects are overlapping, amplified or additive, in a sentence."""
    parts = []
    for effect, text in _INTERACTIONS.items():
        names = [step.added for step in staircase.steps if step.effect == effect]
        parts += [f"{', '.join(names)}: {text}"] if names else []
    return "; ".join(parts) + "." if parts else "Only one option has an effect."


def as_plain(staircase: Combination) -> dict[str, Any]:
    """The staircase as JSON values."""
    return {
        "holdfast": 1,
        "kind": "combine",
        **dataclasses.asdict(staircase),
        "words": describe_combination(staircase),
    }
