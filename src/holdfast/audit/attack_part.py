"""The part of an audit that attacks: a printable patch first, scattered pixels in the time that is left."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.audit.attack_levels import attack_levels, attack_patch
from holdfast.audit.plan import LATE, UNDER, Clock, skipped_images
from holdfast.audit.replay import deployments_of
from holdfast.audit.state import AuditState, PartOutcome
from holdfast.core.errors import BudgetSpent, DataError, MissingExtra, NoGradients
from holdfast.core.model import MODEL_KINDS
from holdfast.noise.suite import Watch

# Families that change the gradient: not the decoder before the patch, other precisions or runtimes.
OPTIMISED = ("resize", "colour", "ceil", "upsample")
PROBLEMS = (DataError, MissingExtra, NoGradients)  # the part's reason; the other parts still run


def attack_part(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    """Attack with one patch per object, then with scattered pixels on the same images."""
    plan = state.plan.plan
    task = plan.model.card.task
    if task not in ("detect", "single"):
        return PartOutcome(0, f"attacks need a detector; this model is a {MODEL_KINDS[task]}", False)
    names, given = [e.name for e in plan.dataset.entries], state.plan.options.attack_images
    until = clock.until("attack")
    notes = [_patch(state, clock, watch, names[:given], until)]
    chosen = names[: state.counts.get("attack", given)]
    notes.append(_levels(state, clock, watch, chosen, until))
    count = state.counts.get("attack", 0)
    clock.ended("attack", count)
    again = state.repeat_line("attack")
    state.levels = tuple(replace(r, level=replace(r.level, command=again)) for r in state.levels)
    if state.patch:
        state.patch = replace(state.patch, level=replace(state.patch.level, command=state.patch_line()))
    if count:
        notes.insert(0, skipped_images(count, len(names), given))
    return PartOutcome(count, "; ".join(dict.fromkeys(filter(None, notes))))


def _patch(state: AuditState, clock: Clock, watch: Watch, names: Sequence[str], until: float) -> str:
    """Attack with patches; returns what was skipped and why."""
    done = clock.finished("attack patch")
    try:
        if done == 0:
            raise BudgetSpent(LATE)
        deployments = _deployments(state, clock)
        outcome, level, runs = attack_patch(state.plan, names[:done], deployments, watch, until)
    except BudgetSpent:
        clock.ended("attack patch", 0)
        return f"the patch ({LATE} before the first image was finished)"
    except PROBLEMS as problem:
        return str(problem)
    state.patched, state.patch = outcome, level
    state.counts["attack"] = clock.ended("attack patch", len(outcome.attempts) + len(outcome.failed))
    state.runs |= runs
    return ""


def _levels(state: AuditState, clock: Clock, watch: Watch, names: Sequence[str], until: float) -> str:
    """Attack with scattered pixels at each budget; returns what was skipped and why."""
    done, budgets = clock.finished("attack pixels"), clock.finished("attack budgets")
    try:
        if done == 0:
            raise BudgetSpent(LATE)
        state.outcome, state.levels, runs = attack_levels(state.plan, names[:done], watch, until, budgets)
    except BudgetSpent:
        clock.ended("attack pixels", 0)
        return f"scattered pixels ({LATE} before the first image was finished)"
    except PROBLEMS as problem:
        return str(problem)
    count = clock.ended("attack pixels", len(state.outcome.attempts) + len(state.outcome.failed))
    state.counts["attack"] = max(count, state.counts.get("attack", 0))
    state.runs |= runs
    larger = state.plan.options.pixels[clock.ended("attack budgets", len(state.levels)) :]
    notes = [f"scattered pixels on {len(names) - count} of {len(names)} images ({LATE})"]
    notes = notes if count < len(names) else []
    notes += [f"pixel budgets {', '.join(map(str, larger))} ({LATE})"] if larger else []
    return "; ".join(notes)


def _deployments(state: AuditState, clock: Clock) -> list[str]:
    """The deployments of the matrix that an attack can optimise for; chosen once, then kept."""
    kept = sorted(name.removeprefix(UNDER) for name in clock.planned if name.startswith(UNDER))
    if kept or clock.finished("attack patch") is not None or not state.prepared or not state.noise:
        return kept
    options = [d.option for d in deployments_of(state.noise, state.prepared) if d.variant is not None]
    chosen = sorted(o.label for o in options if o.family in OPTIMISED and not o.calibrated)
    for label in chosen:
        clock.number(f"{UNDER}{label}", None, 1, 1, 1)
    return chosen
