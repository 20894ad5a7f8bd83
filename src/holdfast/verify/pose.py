"""A property posed to the engines: its network lowered, its cases over the free inputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.property import Property, Rows
from holdfast.core.types import Floats
from holdfast.graph.inspect import load_proto
from holdfast.graph.ir import Net
from holdfast.verify.domain import Domain, domain_of
from holdfast.verify.problem import Case, Problem
from holdfast.verify.replay import Runner, runner_of, violations
from holdfast.verify.rounding import TYPES, rounding_of
from holdfast.verify.softmax import last_softmax, without_softmax


def problem_of(
    question: Property,
    domain: Domain | None = None,
    runner: Runner | None = None,
    as_evaluated: bool = False,
) -> Problem:
    """The problem an engine is given; ModelError names a node that cannot be lowered.

    Inputs with one number of their type between their bounds are fixed at it. Bounds of rows are widened by
    two units in the last place: the specification's decimals were rounded to the nearest float64. With
    `as_evaluated` the net has a `roundoff`: a proof holds for every evaluation in the file's own precision.
    """
    from holdfast.graph.lower.curves import SeveralSoftmaxes

    domain = domain or domain_of(question)
    runner = runner or runner_of(question, domain)
    softmax = last_softmax(load_proto(question.model.path))
    if softmax:
        try:
            return _posed(question, domain, runner, softmax, as_evaluated)
        except SeveralSoftmaxes:
            pass
    return _posed(question, domain, runner, "", as_evaluated)


def _posed(question: Property, domain: Domain, runner: Runner, softmax: str, as_evaluated: bool) -> Problem:
    """The problem with the last softmax taken off, if it is named."""
    from holdfast.graph.lower import lower_onnx

    unsafe = _before_softmax(question, softmax) if softmax else question.unsafe
    cases = cases_of(unsafe, domain)
    lower, upper = domain.box.lower.ravel().copy(), domain.box.upper.ravel().copy()
    fixed = np.ones(len(lower), np.bool_)
    fixed[domain.free] = False
    lower[fixed] = upper[fixed] = domain.template[fixed]
    net = lower_onnx(question.model.path, lower, upper, drop_softmax=bool(softmax), as_evaluated=as_evaluated)
    if not np.array_equal(net.free, domain.free):
        raise ModelError(f"{question.model.path}: expected {len(domain.free)} free inputs, got {net.inputs}")
    judged = cases if not softmax else cases_of(question.unsafe, domain)
    if as_evaluated:
        cases = _raised(net, cases, domain, softmax)
    return Problem(net, cases, violations(question, domain, runner, judged), domain.dtype)


def _raised(net: Net, cases: tuple[Case, ...], domain: Domain, softmax: str) -> tuple[Case, ...]:
    """The cases with bounds raised by what underflow, and a softmax taken off, can change in a runtime.

    ModelError if a value may leave the range of the floating-point type: nothing is then known of it.
    """
    found, kind = rounding_of(net, *domain.within(None)), TYPES[net.roundoff]
    if not found.largest < float(kind.max) / 2:
        raise ModelError(f"values may exceed the range of {kind.dtype.name}")
    if not np.isfinite(found.underflow).all():
        raise ModelError(f"what underflows in {kind.dtype.name} is not bounded")
    spread = 0.0
    if softmax:
        # p_i <= p_j of computed shares says z_i - z_j <= spread, unless both are rounded to 0.
        spread = 4 * net.roundoff * (8 * found.outputs + net.outputs + 16)
        compared = all((np.abs(case.bound) < 1e-300).all() for case in cases)
        if not compared or 2 * found.outputs > -0.9 * np.log(float(kind.tiny)):
            raise ModelError(f"the rounding of the last {softmax} is not bounded")
    return tuple(
        dataclasses.replace(case, bound=case.bound + np.abs(case.rows) @ found.underflow + spread)
        for case in cases
    )


def _before_softmax(question: Property, kind: str) -> tuple[Rows, ...]:
    """The unsafe sets in terms of the values before the last softmax."""
    found: list[Rows] = []
    for rows in question.unsafe:
        cases = without_softmax(rows, kind)
        if cases is None:
            raise ModelError(
                f"{question.model.path}: its last layer is {kind}; expected constraints that compare two "
                "outputs, or one with a number"
            )
        found += cases
    return tuple(found)


def cases_of(unsafe: tuple[Rows, ...], domain: Domain) -> tuple[Case, ...]:
    """The unsafe sets as cases over the free inputs; those of one box share its arrays."""
    fixed = domain.template.astype(np.float64)
    fixed[domain.free] = 0.0
    boxes: dict[int, tuple[Floats, Floats]] = {}
    cases = []
    for rows in unsafe:
        if id(rows.within) not in boxes:
            boxes[id(rows.within)] = domain.within(rows.within)
        lower, upper = boxes[id(rows.within)]
        bound, inputs = rows.bound, None
        if rows.inputs is not None:
            shift, size = rows.inputs @ fixed, np.abs(rows.inputs) @ np.abs(fixed) + np.abs(bound)
            bound = bound - shift + size * (len(fixed) + 2) * np.finfo(np.float64).eps
            inputs = rows.inputs[:, domain.free]
        bound = np.nextafter(np.nextafter(bound, np.inf), np.inf)
        cases.append(Case(lower, upper, rows.matrix, bound, inputs if _any(inputs) else None))
    return tuple(cases)


def _any(values: Any) -> bool:
    return values is not None and bool(values.any())
