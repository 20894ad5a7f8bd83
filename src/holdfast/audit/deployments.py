"""Which deployments threats are put to: as trained, what costs most in each family, all of it together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from holdfast.audit.result import TRAINED
from holdfast.core.errors import InputError
from holdfast.core.pipeline import Pipeline
from holdfast.noise.vision.choose import ImageCandidate, build_variant
from holdfast.noise.vision.result import ModelNoise, Row
from holdfast.noise.vision.run import Prepared, worst_options
from holdfast.noise.vision.sweep import Variant
from holdfast.stages.families import Option, applied

TOGETHER = "all together"
# What is proven of fp32 is asked of these by name: the commonest 8 bits, the most careful, and 16 bits.
ALWAYS = ("precision=int8-minmax", "precision=int8-mixed", "precision=fp16")
MOST = 12  # columns a page can show side by side


def deployments_of(suite: ModelNoise, prepared: Prepared, most: int = MOST) -> list[ImageCandidate]:
    """As trained, the option of each family that costs most, the precisions of ALWAYS, all together.

    At most so many, the costliest, in the families' order. An option that cannot be built stays in, with its
    reason, where nothing else of its family can be measured; what has no effect is no deployment.
    """
    if most < 1:
        raise InputError(f"expected at least one deployment, got {most}")
    rows = {row.label: row for row in suite.rows}
    known = {one.option.label: one for one in prepared.candidates}
    unknown = sorted(rows.keys() - known.keys())
    if unknown:
        raise InputError(f"{unknown[0]}: the suite has it, the plan has not; expected one plan for both")
    together = _together(suite, prepared)
    room = most - 1 - (together is not None and most > 1)
    ranked = sorted(_chosen(suite.rows), key=_harm, reverse=True)[:room]
    kept = {row.label for row in ranked}
    alone = [_alone(known[row.label], row) for row in suite.rows if row.label in kept]
    return [trained(prepared), *alone, *([together] if together and most > 1 else [])]


def trained(prepared: Prepared) -> ImageCandidate:
    """The deployment that is none."""
    same = Option("", TRAINED, _as_it_is, "the pipeline the model was trained with")
    return ImageCandidate(same, "measured", "", Variant(TRAINED, prepared.context.clean))


def title(one: ImageCandidate) -> str:
    """What a deployment is called in the matrix: family=option, or what it was named."""
    if one.variant is not None:
        return one.variant.name
    return one.option.label if one.option.family else one.option.name


def _as_it_is(pipeline: Pipeline) -> Pipeline:
    return pipeline


def _chosen(rows: Sequence[Row]) -> list[Row]:
    """The worst measured row of each family, the precisions by name, and why a family has none at all."""
    found: dict[str, Row] = {}
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        measured = [row for row in own if row.outcome == "measured"]
        failed = [row for row in own if row.outcome == "impossible"]
        if measured:
            worst = max(measured, key=_harm)
            found[worst.label] = worst
        elif len(failed) == len(own):
            found[failed[0].label] = failed[0]
    named = (row for row in rows if row.label in ALWAYS and row.outcome in ("measured", "impossible"))
    return list((found | {row.label: row for row in named}).values())


def _harm(row: Row) -> tuple[bool, float, int]:
    """What makes a deployment worth a column: that it can be measured, what it costs, what it changes."""
    return row.outcome == "measured", row.drop or 0.0, row.changed or 0


def _alone(one: ImageCandidate, row: Row) -> ImageCandidate:
    """The option; one that failed on every image of the suite is not put to any threat."""
    if row.outcome == "impossible":
        return dataclasses.replace(one, status="impossible", note=row.note, variant=None)
    return one


def _together(suite: ModelNoise, prepared: Prepared) -> ImageCandidate | None:
    """The worst of every family at once, as the suite combines them; None if fewer than two cost anything."""
    chosen = worst_options(suite.rows, prepared.options)
    made = build_variant(prepared.context, chosen) if len(chosen) > 1 else None
    if made is None:
        return None
    words = " + ".join(one.label for one in chosen)
    option = Option("", TOGETHER, partial(applied, chosen=tuple(chosen)), words)
    variant = made.variant and dataclasses.replace(made.variant, name=TOGETHER)
    note = words if variant else f"{words}: {made.note}"
    return dataclasses.replace(made, option=option, variant=variant, note=note)
