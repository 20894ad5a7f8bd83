"""Noise options added one by one, the most harmful first, as in the paper's Fig. 3."""

import dataclasses
from collections.abc import Mapping
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

    An effect is overlapping if this step loses significantly fewer points than the option does alone, and
    amplified if it loses significantly more. All intervals are paired 95% intervals.
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
    rows = [r for r in distinct_rows(suite.rows) if r.family not in NOT_COMBINED]
    candidates = [known[r.label] for r in rows] if every else worst_options(suite.rows, known)
    if not candidates:
        raise InputError("no noise option has an effect here: there is nothing to combine")
    plan = prepared.noise.plan
    clean = _score(prepared, {CLEAN: Variant(CLEAN, prepared.context.clean)}, watch, "no noise")[CLEAN]
    before, chosen, alone = clean, list[NoiseOption](), dict[str, ScoredRun]()
    steps: list[CombineStep] = []
    skipped: list[str] = []
    while candidates and len(steps) != most:
        built = [(c, build_variant(prepared.context, [*chosen, c])) for c in candidates]
        skipped += [f"{c.label}: {a.note}" for c, a in built if a is not None and a.variant is None]
        able = {c.label: a.variant for c, a in built if a is not None and a.variant is not None}
        try:
            runs = _score(prepared, able, watch, f"step {len(steps) + 1}, {many(len(able), 'option')}")
        except BudgetSpent:
            skipped += [f"{c.label}: time budget reached" for c in candidates]
            break
        if not runs:
            break
        alone = alone or runs
        worst = min(runs, key=lambda label: compare(clean, runs[label], replicates=1).interval.estimate)
        scored = (clean, alone[worst], before, runs[worst])
        steps.append(_step(known[worst], scored, prepared.noise.replicates))
        before = runs[worst]
        chosen.append(known[worst])
        gone = {known[worst].family} | {c.family for c, a in built if a is None or a.variant is None}
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


def _score(
    prepared: PreparedNoise, variants: Mapping[str, Variant], watch: Watch, what: str
) -> dict[str, ScoredRun]:
    """The scored variants by their keys, without those in which every image failed."""
    plan, runs = prepared.noise.plan, {}
    name = f"combine {plan.model.name}, {what}"
    results = run_variants(prepared, tuple(variants.values()), watch, name)
    for key, variant in variants.items():
        records = results[variant.name].read().records  # none of a variant with a problem
        if not all(isinstance(r, FailedImage) for r in records):
            runs[key] = scored_run(plan, prepared.alignment, records)
    return runs


def _step(
    option: NoiseOption, runs: tuple[ScoredRun, ScoredRun, ScoredRun, ScoredRun], replicates: int
) -> CombineStep:
    """The step from four runs: clean, this option alone, the options before it, and all of them."""
    clean, single, before, after = runs
    whole = compare(clean, after, replicates=replicates)
    common = set(common_images(clean, single)) & set(common_images(before, after))
    names = [record.name for record in clean.records if record.name in common]
    if not names:
        raise InputError(f"{option.label}: no image ran in all of: clean, alone, before and after this step")
    first, other, base, last = (bootstrap_values(run, names, replicates=replicates) for run in runs)
    lost, extra, alone = whole.points_lost, paired(last, base), paired(other, first)
    beyond = paired(first - other, base - last, bound=2.0)  # a difference of two differences
    effect: Interaction = "overlapping" if beyond.high < 0 else "amplified" if beyond.low > 0 else "additive"
    effect = effect if len(names) >= FEWEST else "additive"
    return CombineStep(
        added=option.label,
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


def describe_combination(combination: Combination) -> str:
    """Which effects are overlapping, amplified or additive, in a sentence."""
    parts = []
    for effect, text in _INTERACTIONS.items():
        if names := [step.added for step in combination.steps if step.effect == effect]:
            parts.append(f"{', '.join(names)}: {text}")
    return "; ".join(parts) + "." if parts else "Only one option has an effect."


def as_plain(combination: Combination) -> dict[str, Any]:
    """The combination as JSON values."""
    plain = dataclasses.asdict(combination)
    return {"holdfast": 1, "kind": "combine", **plain, "words": describe_combination(combination)}
