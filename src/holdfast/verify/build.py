"""Build the problem of a property for the engines: its network lowered, its cases over the free inputs."""

import dataclasses
import itertools
from math import exp, log, nextafter
from typing import Any

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.property import LinearConstraints, Property
from holdfast.core.types import Floats
from holdfast.graph.inspect import load_proto
from holdfast.graph.ir import Net
from holdfast.verify.problem import Case, InputDomain, VerificationProblem, domain_of
from holdfast.verify.replay import Runner, runner_of, violations
from holdfast.verify.rounding import TYPES, rounding_of

_LIMIT = 10_000  # cases that one conjunction may become
_ROUNDING_MARGIN = 1e-9  # added to every logarithm: more than its rounding
Row = tuple[Floats, float]


def problem_of(
    question: Property,
    domain: InputDomain | None = None,
    runner: Runner | None = None,
    as_evaluated: bool = False,
) -> VerificationProblem:
    """The verification problem of a property; raise ModelError naming a node that cannot be lowered.

    Inputs with one number of their type between their bounds are fixed at it. Bounds of rows are widened by
    two units in the last place: the specification's decimals were rounded to the nearest float64. With
    `as_evaluated` the net has a `roundoff`: a proof holds for every evaluation in the file's own precision.
    """
    from holdfast.graph.lower.curves import SeveralSoftmaxes

    domain = domain or domain_of(question)
    runner = runner or runner_of(question, domain)
    softmax = last_softmax(load_proto(question.model.path))
    try:
        return _build(question, domain, runner, softmax, as_evaluated)
    except SeveralSoftmaxes:
        return _build(question, domain, runner, "", as_evaluated)


def _build(
    question: Property, domain: InputDomain, runner: Runner, softmax: str, as_evaluated: bool
) -> VerificationProblem:
    """The problem, with the last softmax dropped if `softmax` names one."""
    from holdfast.graph.lower import lower_onnx

    cases = cases_of(_before_softmax(question, softmax) if softmax else question.unsafe, domain)
    lower, upper = domain.box.lower.ravel().copy(), domain.box.upper.ravel().copy()
    fixed = np.ones(len(lower), np.bool_)
    fixed[domain.free] = False
    lower[fixed] = upper[fixed] = domain.template[fixed]
    net = lower_onnx(question.model.path, lower, upper, drop_softmax=bool(softmax), as_evaluated=as_evaluated)
    if not np.array_equal(net.free, domain.free):
        raise ModelError(f"{question.model.path}: expected {len(domain.free)} free inputs, got {net.inputs}")
    judged = cases if not softmax else cases_of(question.unsafe, domain)
    if as_evaluated:
        cases = raise_bounds(net, cases, domain, softmax)
    return VerificationProblem(net, cases, violations(question, domain, runner, judged), domain.dtype)


def raise_bounds(net: Net, cases: tuple[Case, ...], domain: InputDomain, softmax: str) -> tuple[Case, ...]:
    """The cases with bounds raised by the effect of underflow, and of a dropped softmax, in a runtime.

    Raise ModelError if a value may exceed the range of the floating-point type, where no bound is known.
    """
    rounding, kind = rounding_of(net, *domain.within(None)), TYPES[net.roundoff]
    if not rounding.largest < float(kind.max) / 2:
        raise ModelError(f"values may exceed the range of {kind.dtype.name}")
    if not np.isfinite(rounding.underflow).all():
        raise ModelError(f"what underflows in {kind.dtype.name} is not bounded")
    spread = 0.0
    if softmax:
        # p_i <= p_j of computed shares says z_i - z_j <= spread, unless both are rounded to 0.
        spread = 4 * net.roundoff * (8 * rounding.outputs + net.outputs + 16)
        compared = all((np.abs(case.bound) < 1e-300).all() for case in cases)
        if not compared or 2 * rounding.outputs > -0.9 * np.log(float(kind.tiny)):
            raise ModelError(f"the rounding of the last {softmax} is not bounded")
    bounds = [case.bound + np.abs(case.rows) @ rounding.underflow + spread for case in cases]
    return tuple(dataclasses.replace(case, bound=bound) for case, bound in zip(cases, bounds, strict=True))


def _before_softmax(question: Property, kind: str) -> tuple[LinearConstraints, ...]:
    cases = [without_softmax(rows, kind) for rows in question.unsafe]
    if any(case is None for case in cases):
        raise ModelError(
            f"{question.model.path}: its last layer is {kind}; expected constraints that compare two "
            "outputs, or one with a number"
        )
    return tuple(itertools.chain.from_iterable(case for case in cases if case is not None))


def cases_of(unsafe: tuple[LinearConstraints, ...], domain: InputDomain) -> tuple[Case, ...]:
    """The unsafe sets as cases over the free inputs; those of one box share its arrays."""
    fixed = domain.template.astype(np.float64)
    fixed[domain.free] = 0.0
    own = {id(rows.within): rows.within for rows in unsafe}
    boxes = {key: domain.within(box) for key, box in own.items()}
    cases = []
    for rows in unsafe:
        lower, upper = boxes[id(rows.within)]
        bound, inputs = rows.bound, None
        if rows.inputs is not None:
            shift, size = rows.inputs @ fixed, np.abs(rows.inputs) @ np.abs(fixed) + np.abs(bound)
            bound = bound - shift + size * (len(fixed) + 2) * np.finfo(np.float64).eps
            inputs = rows.inputs[:, domain.free]
        bound = np.nextafter(np.nextafter(bound, np.inf), np.inf)
        tied = inputs is not None and inputs.any()
        cases.append(Case(lower, upper, rows.matrix, bound, inputs if tied else None))
    return tuple(cases)


def last_softmax(proto: Any) -> str:
    """Name of the last layer if it is Softmax or LogSoftmax, else an empty string."""
    if len(proto.graph.output) != 1:
        return ""
    name = proto.graph.output[0].name
    last = next((node for node in proto.graph.node if name in node.output), None)
    return str(last.op_type) if last is not None and last.op_type in ("Softmax", "LogSoftmax") else ""


def without_softmax(rows: LinearConstraints, kind: str) -> list[LinearConstraints] | None:
    """The conjunctions on the values before the softmax, one of which must hold; None if none are known.

    With p = softmax(z) over k outputs:
      p_i <= p_j  is  z_i <= z_j;
      p_i >= c    implies  z_j - z_i <= log((1 - c) / c) for every j;
      p_i <= c    implies  z_i - z_j <= log((k - 1) c / (1 - c)) for some j.
    The first is exact, as are the others for two outputs. Otherwise they are relaxations: `holds` remains a
    proof, and a violation counts only if it replays.
    """
    if rows.inputs is not None and rows.inputs.any():
        return None
    alternatives = [_row(*row, kind) for row in zip(rows.matrix, rows.bound.tolist(), strict=True)]
    choices = [options for options in alternatives if options is not None]
    if len(choices) < len(alternatives) or np.prod([float(len(options)) for options in choices]) > _LIMIT:
        return None
    result = []
    for options in itertools.product(*choices):
        chosen = [row for option in options for row in option]
        matrix = np.array([weights for weights, _ in chosen]).reshape(len(chosen), rows.matrix.shape[1])
        result.append(LinearConstraints(matrix, np.array([bound for _, bound in chosen]), None, rows.within))
    return result


def _row(weights: Floats, bound: float, kind: str) -> list[list[Row]] | None:
    """The alternatives under which one row holds, each a conjunction of rows before the softmax."""
    named = np.flatnonzero(weights)
    if len(named) == 2 and weights.sum() == 0 and abs(bound) < 1e-300:
        return [[(np.sign(weights), 0.0)]]
    if len(named) != 1 or len(weights) < 2:
        return None
    i, limit = int(named[0]), bound / float(weights[named[0]])
    if kind == "LogSoftmax":
        limit = exp(min(limit, 1.0))
    others = [j for j in range(len(weights)) if j != i]
    if weights[i] < 0:  # p_i >= limit; a probability that rounds to 1 counts
        limit = min(limit, 1 - 1e-6)
        if limit <= 0:
            return [[]]
        most = log((1 - limit) / limit) + _ROUNDING_MARGIN
        return [[(_difference(len(weights), j, i), most) for j in others]]
    limit = max(limit, nextafter(0, 1) if limit < 0 else 1e-30)  # as does one that rounds to 0
    if limit >= 1:
        return [[]]
    most = log(len(others) * limit / (1 - limit)) + _ROUNDING_MARGIN
    return [[(_difference(len(weights), i, j), most)] for j in others]


def _difference(size: int, plus: int, minus: int) -> Floats:
    row = np.zeros(size)
    row[plus], row[minus] = 1.0, -1.0
    return row
