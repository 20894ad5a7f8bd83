"""The attack of an audit: the largest budget of pixels first, then anew what needed more than a smaller one.

An attack that is shrunk to 70 pixels is an attack within 100, 300 and 1000 too; only images it did not bring
below a budget are attacked again within it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.attack.types import Limits, Method
from holdfast.noise.families import is_installed
from holdfast.run.attack.attempt import Attempt
from holdfast.run.attack.measure import attack
from holdfast.run.attack.plan import AttackPlan, apart
from holdfast.run.attack.result import Outcome
from holdfast.run.audit.plan import AuditPlan
from holdfast.run.audit.result import Strike
from holdfast.run.difference import side_of
from holdfast.run.evaluate import alignment_of
from holdfast.run.noise.suite import Watch
from holdfast.run.store import printable

QUERIES = 400  # of a search from predictions alone, where torch is missing


@dataclass(frozen=True)
class Struck:
    """One budget: the strike in numbers, and what became of every image within it."""

    strike: Strike
    attempts: tuple[Attempt, ...]
    again: int  # images that were attacked anew within it

    def with_command(self, command: str) -> Struck:
        """The same with the line that gives its numbers again."""
        return dataclasses.replace(self, strike=dataclasses.replace(self.strike, command=command))


def name_of(pixels: int) -> str:
    """The threat's name: 300px."""
    return f"{pixels}px"


def method_of() -> Method:
    """By gradient; from predictions alone where torch is missing."""
    return Method(black_box=not is_installed("torch"))


def attack_plan(plan: AuditPlan, images: Sequence[str], pixels: int, first: bool) -> AttackPlan:
    """The attack on these images within one budget; its folder lies in the audit's."""
    names, dataset = set(map(printable, images)), plan.plan.dataset  # as attempts are named
    entries = tuple(e for e in dataset.entries if printable(e.name) in names)
    some = dataclasses.replace(dataset, entries=entries)
    method = method_of()
    limits = Limits(pixels=pixels, steps=QUERIES if method.black_box else plan.wish.steps)
    name = f"attack-{name_of(pixels)}" if first else f"attack-{name_of(pixels)}-anew"
    given = dataclasses.replace(plan.plan, dataset=some)
    wanted = AttackPlan(given, plan.folder / name, method, limits, plan.wish.seed, features="", shared=True)
    return apart(wanted, alignment_of(given))


def strikes(plan: AuditPlan, images: Sequence[str], watch: Watch) -> tuple[Outcome, tuple[Struck, ...]]:
    """The outcome of the largest budget, and all budgets from the smallest on."""
    budgets = sorted(set(plan.wish.pixels), reverse=True)
    outcome = _attacked(attack_plan(plan, images, budgets[0], first=True), watch)
    held = {a.name: a for a in outcome.attempts}
    found = [_struck(plan, outcome, budgets[0], tuple(held.values()), 0)]
    for pixels in budgets[1:]:
        again = [a.name for a in held.values() if a.targets and not (a.success and a.pixels <= pixels)]
        if again:
            anew = _attacked(attack_plan(plan, again, pixels, first=False), watch)
            # One that fails now says nothing of this budget: what it took before is more than that.
            held = {n: a for n, a in held.items() if n not in again} | {a.name: a for a in anew.attempts}
        found.append(_struck(plan, outcome, pixels, tuple(held.values()), len(again)))
    return outcome, tuple(reversed(_grown(plan, outcome, found)))


def _attacked(wanted: AttackPlan, watch: Watch) -> Outcome:
    with watch(f"attack {name_of(wanted.limits.pixels)}", len(wanted.plan.dataset)) as step:
        return attack(wanted, step)


def _grown(plan: AuditPlan, outcome: Outcome, found: Sequence[Struck]) -> list[Struck]:
    """The strikes, each with whatever a smaller budget broke that the larger search did not."""
    made: list[Struck] = []
    for larger, one in enumerate(found):
        best = {a.name: a for a in one.attempts}
        for smaller in found[larger + 1 :]:
            best |= {a.name: a for a in smaller.attempts if a.success and not best[a.name].success}
        made.append(_struck(plan, outcome, one.strike.pixels, tuple(best.values()), one.again))
    return made


def _struck(
    plan: AuditPlan, outcome: Outcome, pixels: int, attempts: tuple[Attempt, ...], again: int
) -> Struck:
    before, after = (_metric(plan, outcome, attempts, after) for after in (False, True))
    aimed = [a for a in attempts if a.targets]
    method = method_of()
    how = f"{QUERIES} queries" if method.black_box else f"gradient, {method.mask}, {plan.wish.steps} steps"
    strike = Strike(
        name_of(pixels), pixels, before, after, len(aimed), sum(a.success for a in aimed),
        len(attempts), sum(a.pixels for a in aimed) / len(aimed) if aimed else None,
        f"{how}, {again} image{'' if again == 1 else 's'} anew within this budget" if again else how,
    )  # fmt: skip
    return Struck(strike, attempts, again)


def _metric(plan: AuditPlan, outcome: Outcome, attempts: Sequence[Attempt], after: bool) -> float:
    """The audit's own metric of the attacked images, before or after; 0 where there is nothing to measure."""
    records = [a.record(a.model, after) for a in attempts]
    value = side_of(plan.plan, outcome.alignment, records).value if attempts else 0.0
    return 0.0 if math.isnan(value) else value
