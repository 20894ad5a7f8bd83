"""The verifier: engines are chosen by the structure of the problem, and their results are checked."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

import numpy as np

from holdfast.core.errors import HoldfastError, MissingExtra, ModelError
from holdfast.core.property import Budget, Property, Verdict, confirm
from holdfast.graph.inspect import read_proto
from holdfast.graph.ir import Activation
from holdfast.graph.nodes import check_deterministic
from holdfast.verify.problem import (
    Deadline,
    EngineResult,
    InputDomain,
    Tell,
    VerificationProblem,
    domain_of,
    relus_only,
    silent,
)
from holdfast.verify.replay import Runner, runner_of, search_randomly

FEW = 20  # free inputs up to which splitting inputs beats splitting neurons
SMALL = 1000  # relus up to which affine forms of all neurons become exact quickly
AS_EVALUATED = 0.8  # share of the time for a proof that covers rounding; the rest is for real arithmetic
_DECIDED = ("holds", "violated")
Engines: TypeAlias = Iterator[Callable[[], EngineResult]]


def verify(question: Property, budget: Budget | None = None, tell: Tell = silent) -> Verdict:
    """Whether an input of the property's set violates it: proven, refuted by a replayed witness, or open.

    An exception gives the verdict `error`, never `holds`.
    """
    clock = Deadline(budget or Budget(), time.monotonic(), tell)
    try:
        verdict = _decide(question, clock)
    except MemoryError:
        verdict = Verdict("unknown", "none", 0.0, note="out of memory")
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is no proof
        verdict = Verdict("error", "none", 0.0, note=_describe(problem))
    note = "; ".join(part for part in (verdict.note, question.note) if part)
    return dataclasses.replace(verdict, seconds=time.monotonic() - clock.started, note=note)


def _describe(problem: Exception) -> str:
    line = " ".join(str(problem).split())
    return line if isinstance(problem, HoldfastError) else f"{type(problem).__name__}: {line}"


def _decide(question: Property, clock: Deadline) -> Verdict:
    from holdfast.verify.enumerate import enumerated
    from holdfast.verify.finite import NotFinite

    if not question.unsafe:
        return Verdict("holds", "none", 0.0, note="the set of inputs is empty")
    proto = read_proto(question.model.path)
    check_deterministic(proto, str(question.model.path))
    domain = domain_of(question)
    runner = cache(lambda: runner_of(question, domain))
    try:
        answer: EngineResult | None = enumerated(question, proto, domain, runner, clock)
    except NotFinite:  # the free inputs are not all rounded
        answer = None
    if answer is None or answer.status not in (*_DECIDED, "timeout"):
        before = answer.note if answer is not None else ""
        answer = _search(question, domain, runner(), clock)
        answer = dataclasses.replace(answer, note="; ".join(part for part in (answer.note, before) if part))
    witness = None if answer.witness is None else domain.whole(answer.witness[None])[0]
    status, engine, bound, note = answer.status, answer.engine, answer.margin, answer.note
    verdict = Verdict(status, engine, 0.0, witness, bound=bound, note=note, real_only=answer.real_only)
    return confirm(question, verdict, runner().run, domain.dtype) if answer.status == "violated" else verdict


def _search(question: Property, domain: InputDomain, runner: Runner, clock: Deadline) -> EngineResult:
    """The result of the first engine that decides; otherwise an undecided result with the reasons."""
    from holdfast.verify.build import problem_of

    rng = np.random.default_rng(clock.budget.seed)
    why = ""
    try:
        rounded = problem_of(question, domain, runner, as_evaluated=True)
    except ModelError as reason:
        rounded, why = None, _describe(reason)
    if rounded is not None:
        part = _part(clock, AS_EVALUATED)
        answer = _first(_engines(rounded, part, rng), part, thorough=False)
        if answer.status in _DECIDED:
            return _add_note(answer, f"proven for every evaluation in {domain.dtype.name}")
    try:
        problem = problem_of(question, domain, runner)
    except ModelError as reason:
        result = search_randomly(question, domain, runner, clock, min(clock.left / 2, 30.0), rng)
        return dataclasses.replace(result, note=f"{result.note}; no proof was attempted: {_describe(reason)}")
    real = _first(_engines(problem, clock, rng), clock)
    return _real_only(real, rounded, domain, why) if real.status == "holds" else real


def _real_only(
    answer: EngineResult, rounded: VerificationProblem | None, domain: InputDomain, why: str
) -> EngineResult:
    """A proof for real arithmetic only, with a note on the size of the rounding error."""
    from holdfast.verify.rounding import rounding_of

    kind = domain.dtype.name
    if rounded is not None:
        error = rounding_of(rounded.net, *domain.within(None)).error
        rows = np.concatenate([case.rows for case in rounded.cases])
        with np.errstate(invalid="ignore"):  # 0 times an error without a bound
            most = np.where(rows == 0, 0.0, np.abs(rows) * error).sum(axis=1).max(initial=0.0)
        why = f"rounding may reach {most:.3g}"
        why += "" if answer.margin is None else f", margin is {answer.margin:.3g}"
    note = f"proven for real arithmetic, not for {kind}: {why}"
    return dataclasses.replace(_add_note(answer, note), real_only=True)


def _first(engines: Engines, clock: Deadline, thorough: bool = True) -> EngineResult:
    """The first decisive result; otherwise the last result with all notes; raise the first failure if any.

    Unless `thorough`, stop after an engine that only rounding prevented from deciding.
    """
    last, notes, failed = EngineResult("unknown", "none"), [], ""
    for engine in engines:
        try:
            answer = engine()
        except MemoryError:
            raise
        except ImportError as missing:
            raise MissingExtra("a proof", str(missing.name), "verify") from missing
        except ModelError as limit:  # a step this engine has no bounds for
            notes.append(str(limit))
            continue
        except Exception as trouble:  # noqa: BLE001 - another engine may still have an answer
            failed = failed or _describe(trouble)
            continue
        if answer.status in _DECIDED:
            return answer
        last = answer
        notes.append(f"{answer.engine}: {answer.note}" if answer.note else answer.engine)
        if answer.at_limit and not thorough:
            break
    if failed:
        raise RuntimeError(failed)
    late = last.status == "timeout" or clock.left <= 0
    return dataclasses.replace(last, status="timeout" if late else "unknown", note="; ".join(notes))


def _add_note(answer: EngineResult, note: str) -> EngineResult:
    """The answer with one more note if it is `holds`."""
    both = "; ".join(part for part in (answer.note, note) if part)
    return dataclasses.replace(answer, note=both) if answer.status == "holds" else answer


def _engines(problem: VerificationProblem, clock: Deadline, rng: np.random.Generator) -> Engines:
    """The engines that suit the problem, in order, each with its share of the time."""
    from holdfast.verify.sweep import piecewise

    few = problem.net.inputs <= FEW
    relus = sum(prod(step.shape) for step in problem.net.steps if isinstance(step, Activation))
    if piecewise(problem.net):
        yield lambda: _run_engine("sweep:search", problem, clock)
    if few and relus_only(problem.net) and relus <= SMALL and clock.left > 0:
        yield lambda: _run_engine("lowdim.search:search", problem, _part(clock, 0.7))
    if few and clock.left > 0:
        # Sufficient for many problems, and faster than a search for a counterexample.
        yield lambda: _run_engine("split.search:search", problem, _part(clock, 0.05))
    if clock.left > 0:
        seconds = min(max(0.5, 0.01 * clock.left), 3.0)
        yield lambda: _run_engine("falsify:falsify", problem, clock, seconds, rng)
    if few and clock.left > 0:
        yield lambda: _run_engine("split.search:search", problem, _part(clock, 0.5))
    if clock.left > 0:
        yield lambda: _run_engine("bab.decide:decide", problem, clock)


def _part(clock: Deadline, share: float) -> Deadline:
    """A deadline after this share of the remaining time."""
    spent = time.monotonic() - clock.started
    seconds = min(clock.budget.seconds, spent + share * max(0.0, clock.left))
    return dataclasses.replace(clock, budget=dataclasses.replace(clock.budget, seconds=seconds))


def _run_engine(engine: str, problem: VerificationProblem, clock: Deadline, *more: Any) -> EngineResult:
    """Import and run an engine, "module:function"; the import is lazy because most need torch or numba."""
    module, function = engine.split(":")
    run = getattr(import_module(f"holdfast.verify.{module}"), function)
    answer: EngineResult = run(problem, clock, *more)
    return answer
