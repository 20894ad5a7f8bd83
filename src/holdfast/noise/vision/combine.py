"""Noises on top of one another: at each step the one that costs most is added, as in the paper's Fig. 3."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.core.errors import BudgetSpent, InputError
from holdfast.engine.records import FailedImage
from holdfast.evaluate.difference import Side, common, compare, drawn, side_of
from holdfast.metrics.intervals import FEWEST, paired
from holdfast.noise.suite import Watch, distinct, points
from holdfast.noise.vision.choose import build_variant
from holdfast.noise.vision.result import ModelNoise
from holdfast.noise.vision.run import APART, Prepared, run_variants, worst_options
from holdfast.noise.vision.sweep import CLEAN, Variant
from holdfast.stages.families import NoiseOption

Effect: TypeAlias = Literal["first", "overlaps", "magnified", "adds up"]
_EFFECTS = {
    "overlaps": "less on top of the others than alone (effects overlap)",
    "magnified": "more on top of the others than alone (magnified)",
    "adds up": "adds up, as far as these images can tell",
}


@dataclass(frozen=True)
class Step:
    """One noise more: what all of them cost together, what this one added, and what it costs alone.

    Costs are in points of the metric, with their paired 95 % intervals. An effect overlaps with those before
    if what it adds is clearly less than what it costs alone, and is magnified if it is clearly more: the
    paired interval of the difference of the two leaves out 0.
    """

    added: str  # family=option
    value: float  # the metric with all noises so far
    drop: float
    low: float
    high: float
    extra: float
    extra_low: float
    extra_high: float
    alone: float
    beyond_low: float  # of what it adds less what it costs alone
    beyond_high: float
    changed: int
    images: int
    effect: Effect


@dataclass(frozen=True)
class Staircase:
    """The steps from the clean metric down, and what could not be added."""

    model: str
    data: str
    metric: str
    clean: float
    steps: tuple[Step, ...]
    left_out: tuple[str, ...] = ()
    command: str = ""


def combine(
    prepared: Prepared, suite: ModelNoise, watch: Watch, every: bool = False, most: int | None = None
) -> Staircase:
    """The greedy build-up from a finished suite, of at most so many steps.

    Each family takes part with its worst option, or with `every` one of its options at each step. Where the
    plan's time is over, the steps made so far are the result.
    """
    known = prepared.options
    alone_rows = [r for r in distinct(suite.rows) if r.family not in APART]
    candidates = [known[r.label] for r in alone_rows] if every else worst_options(suite.rows, known)
    if not candidates:
        raise InputError("no noise changes anything here: there is nothing to combine")
    plan = prepared.noise.plan
    clean = _sides(prepared, [Variant(CLEAN, prepared.context.clean)], watch, "clean")[CLEAN]
    before, chosen = clean, list[NoiseOption]()
    steps: list[Step] = []
    left_out: list[str] = []
    alone: dict[str, Side] = {}
    while candidates and len(steps) != most:
        built = [(c, build_variant(prepared.context, [*chosen, c])) for c in candidates]
        left_out += [f"{c.label}: {a.note}" for c, a in built if a is not None and a.variant is None]
        able = [(c, a.variant) for c, a in built if a is not None and a.variant is not None]
        try:
            sides = _sides(prepared, [v for _, v in able], watch, f"step {len(steps) + 1}")
        except BudgetSpent:
            left_out += [f"{c.label}: time budget reached" for c in candidates]
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
    return Staircase(
        model=plan.model.name,
        data=plan.dataset.name,
        metric=suite.metric,
        clean=clean.value,
        steps=tuple(steps),
        left_out=tuple(left_out),
    )


def _sides(prepared: Prepared, variants: Sequence[Variant], watch: Watch, what: str) -> dict[str, Side]:
    """The finished variants by name; one that failed throughout is left out."""
    plan = prepared.noise.plan
    found = {}
    for name, made in run_variants(prepared, tuple(variants), watch, f"{what} {plan.model.name}").items():
        records = made.read().records  # none of a variant with a problem
        if not all(isinstance(r, FailedImage) for r in records):
            found[name] = side_of(plan, prepared.alignment, records)
    return found


def _step(one: NoiseOption, sides: tuple[Side, Side, Side, Side], replicates: int) -> Step:
    """The step from four runs: without any noise, with this one alone, with those before it, and with all."""
    clean, single, before, after = sides
    whole = compare(clean, after, replicates=replicates)
    held = set(common(clean, single)) & set(common(before, after))
    names = [record.name for record in clean.records if record.name in held]
    if not names:
        raise InputError(f"{one.label}: no image could be run with it alone, without it and with all others")
    first, other, base, last = (drawn(side, names, replicates=replicates) for side in sides)
    extra, alone = paired(last, base), paired(other, first)
    beyond = paired(first - other, base - last, bound=2.0)  # a difference of two differences
    effect: Effect = "overlaps" if beyond.high < 0 else "magnified" if beyond.low > 0 else "adds up"
    effect = effect if len(names) >= FEWEST else "adds up"
    return Step(
        added=one.label,
        value=whole.after,
        drop=points(-whole.interval.estimate),
        low=points(-whole.interval.high),
        high=points(-whole.interval.low),
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


def words(staircase: Staircase) -> str:
    """Where effects overlap and where they magnify one another, in a sentence or two."""
    said = []
    for effect, text in _EFFECTS.items():
        names = [step.added for step in staircase.steps if step.effect == effect]
        said += [f"{', '.join(names)}: {text}"] if names else []
    return "; ".join(said) + "." if said else "Only one noise has an effect."


def as_plain(staircase: Staircase) -> dict[str, Any]:
    """The staircase as JSON values."""
    return {"holdfast": 1, "kind": "combine", **dataclasses.asdict(staircase), "words": words(staircase)}
