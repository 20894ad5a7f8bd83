"""The parts of an audit that put others' results to one another: the matrix and the rechecks."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Collection, Sequence

from holdfast.attack.types import Rule
from holdfast.audit.deployments import deployments_of
from holdfast.audit.made import Made, Ran
from holdfast.audit.matrix import matrix
from holdfast.audit.plan import LATE, Clock
from holdfast.audit.recheck import recheck
from holdfast.audit.replay import Threatened
from holdfast.audit.result import Matrix
from holdfast.audit.sandwich import SQUARE
from holdfast.audit.specs import recheck_specs
from holdfast.audit.squares.map import worst
from holdfast.audit.squares.work import SquaresPlan
from holdfast.core.errors import BudgetSpent, DataError
from holdfast.engine.store import printable
from holdfast.noise.suite import Watch
from holdfast.noise.vision.choose import ImageCandidate

RULE = Rule()
SPEC = 60.0  # seconds for a specification, at most
RECHECKED = ("precision", "runtime")  # families under which proofs and witnesses are tried again


def fewer(count: int, whole: int, given: int | None = None) -> str:
    """What was skipped of a part, in words; empty if nothing."""
    why = LATE if given is None or count < min(given, whole) else f"{given} asked for"
    return f"{whole - count} of {whole} images: {why}" if count < whole else ""


def squares_plan(made: Made, count: int, until: float = math.inf) -> SquaresPlan:
    """The square on the first images, as the audit planned its places."""
    options, plan = made.plan.options, dataclasses.replace(made.plan.plan, until=until)
    names = tuple(e.name for e in plan.dataset.entries[:count])
    places = made.places or options.places
    return SquaresPlan(plan, made.pipeline, RULE, share=options.square, most=places, names=names)


def matrix_part(made: Made, clock: Clock, watch: Watch) -> Ran:
    """Run every threat under every deployment, on as many images as the time allows."""
    if made.prepared is None or made.noise is None:
        return Ran(0, "no noise was measured")
    tested = made.prepared.noise.plan.dataset.entries
    threats = _threats(made, {printable(e.name) for e in tested})
    chosen = deployments_of(made.noise, made.prepared, most=12)
    names = _both_met(made, {printable(e.name) for e in tested})
    cost = len(chosen) * (1 + len(threats)) * made.seconds_an_image  # of an image
    affordable = clock.seconds("matrix") / cost
    if names:
        count = clock.number("matrix images", None, affordable, 0, len(names))
    else:  # no threat: all that met the noises, since by them the deployments were chosen
        count = len(tested) * clock.number("matrix", None, affordable / len(tested), 0, 1)
    before, until = clock.finished("matrix"), clock.until("matrix")
    counts = [count if before is None else before]
    if names and until < math.inf:
        counts.insert(0, count // 3)  # should the time not suffice for all of them
    found, count = _met(made, chosen, threats, names, counts, until, watch)
    if not clock.ended("matrix", count) or found is None:
        return Ran(0, f"{1 + len(threats)} threats × {len(chosen)} deployments: {LATE}")
    places = {printable(e.name): n for n, e in enumerate(made.plan.plan.dataset.entries, 1)}
    again = made.again("matrix", places[printable(names[count - 1])] if names else None)
    made.matrix = dataclasses.replace(
        found, meetings=tuple(dataclasses.replace(m, command=again) for m in found.meetings)
    )
    return Ran(count, fewer(count, len(names) or count))


def _met(
    made: Made, chosen: Sequence[ImageCandidate], threats: Sequence[Threatened], names: Sequence[str],
    counts: Sequence[int], until: float, watch: Watch,
) -> tuple[Matrix | None, int]:  # fmt: skip
    """The matrix on the largest of these numbers of images that the time allows, and that number."""
    found, done = None, 0
    if made.prepared is None:
        return None, 0
    prepared = made.prepared.within(until)
    with contextlib.suppress(BudgetSpent):
        for count in filter(None, dict.fromkeys(counts)):
            try:
                found = matrix(prepared, chosen, threats, watch, names[:count] or None, made.plan.replicates)
            except DataError:  # nothing to measure on these few
                if count == counts[-1]:
                    raise
            else:
                done = count
    return found, done


def _both_met(made: Made, there: Collection[str]) -> list[str]:
    """The images with threats that met the noises too, in order; of two threats those that met both."""
    names = [a.name for a in made.struck[0].attempts] if made.struck else [m.image for m in made.maps]
    names = [name for name in names if printable(name) in there]
    if made.struck and made.maps:
        covered = {printable(e.name) for e in made.plan.plan.dataset.entries[: made.counts["square"]]}
        names = [name for name in names if printable(name) in covered] or names
    return names


def _threats(made: Made, there: Collection[str]) -> tuple[Threatened, ...]:
    """Every threat that was made as trained: the square at its worst place, the attack within each budget.

    Of the images that met the noises only: more may have been attacked.
    """
    found = []
    if made.maps:
        squares = {name: patch for name, patch in worst(made.maps).items() if printable(name) in there}
        found.append(Threatened(SQUARE, squares, "a black square at its worst place", "any"))
    for one in made.struck:
        patches = {a.name: a.patch for a in one.attempts if a.pixels and printable(a.name) in there}
        found.append(Threatened(one.strike.threat, patches, f"{one.strike.pixels} pixels"))
    return tuple(found)


def recheck_part(made: Made, clock: Clock, watch: Watch) -> Ran:
    """Put every proof and witness to other precisions and runtimes."""
    if made.prepared is None:
        return Ran(0, "no precision or runtime was built")
    under = {
        a.variant.name: a.variant.pipeline
        for a in made.prepared.candidates
        if a.variant is not None and a.option.family in RECHECKED
    }
    if not under or not made.proofs:
        why = "no precision or runtime applies" if made.proofs else "nothing was proven or refuted"
        return Ran(0, why, False)
    allowed = clock.seconds("recheck") / (max(1, len(made.maps)) * len(under) * made.seconds_an_image)
    places = clock.number("recheck places", None, allowed, 8, made.places or made.plan.options.places)
    asked = len([one for one in made.maps if one.answer != "unknown"]) * len(under)
    until = clock.until("recheck")
    if made.maps:
        given = squares_plan(made, len(made.plan.plan.dataset), until)
        with contextlib.suppress(BudgetSpent):
            made.rechecks += recheck(given, made.maps, under, watch, places, clock.finished("recheck"))
    done = clock.ended("recheck", len(made.rechecks))
    if made.decided:
        seconds = min(clock.seconds("recheck"), SPEC)
        made.rechecks += recheck_specs(made.plan.plan.model, made.decided, under, seconds)
    said = [f"{asked - done} of {asked} rechecks: {LATE}"] if done < asked else []
    said += [f"only the {places} tightest places of every square"] if places < made.places else []
    return Ran(len(made.maps), "; ".join(said))
