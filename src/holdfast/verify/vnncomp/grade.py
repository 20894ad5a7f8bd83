"""Whether a counterexample stands: inside the box, its outputs replayed, in the tolerances of the rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.verify.vnncomp.judge import Grade
from holdfast.verify.vnncomp.protocol import Counterexample
from holdfast.verify.vnncomp.rules import Rules
from holdfast.verify.vnnlib import Disjunct, Spec

Numbers = NDArray[np.floating]


def grade(
    rules: Rules, spec: Spec, found: Counterexample, point: Numbers, replayed: Numbers
) -> tuple[Grade, str]:
    """The grade of a counterexample and why it is not better (empty if it is valid).

    `point` (n,) are its inputs in the network's own precision, `replayed` (m,) ONNX Runtime's outputs of it.
    """
    if point.size != spec.inputs or replayed.size != spec.outputs:
        return "invalid", (
            f"expected {spec.inputs} inputs and {spec.outputs} outputs, got {point.size} and {replayed.size}"
        )
    if not (np.isfinite(point).all() and np.isfinite(replayed).all()):
        return "invalid", "not all of its numbers are finite"
    outputs = replayed
    if rules.declared is not None:
        error = declared_error(found.outputs, replayed, relative=rules.relative)
        if not error <= rules.declared:
            return "invalid", f"its outputs differ from ONNX Runtime's by {error:.3g}"
        outputs = found.outputs
    why = _why_not(spec, point, outputs, rules.box, rules.output)
    if why:
        return "invalid", why
    why = _why_not(spec, point, replayed, 0.0, 0.0)
    return ("tolerated", f"only within the tolerance: {why}") if why else ("valid", "")


def declared_error(declared: Numbers, replayed: Numbers, *, relative: bool) -> float:
    """The largest difference of the declared outputs from the replayed ones; infinite if shapes differ."""
    if declared.shape != replayed.ravel().shape:
        return float("inf")
    if not declared.size:
        return 0.0
    error = float(np.abs(replayed.ravel() - declared).max())
    if not relative:
        return error
    scale = float(np.abs(declared).max())
    return 0.0 if scale < 1e-6 else error / scale  # as the organisers do it


def _why_not(spec: Spec, point: Numbers, outputs: Numbers, box: float, output: float) -> str:
    """Why the point violates no case of the specification; empty if it does."""
    flat, y = point.ravel(), outputs.astype(np.float64).ravel()
    inside = False
    best = np.inf
    outside = np.inf
    for case in spec.cases:
        # The one value of a fixed input may be none the network can be given: then its nearest is meant.
        fixed = (case.lower == case.upper) & (flat == case.lower.astype(flat.dtype))
        x = np.where(fixed, case.lower, flat.astype(np.float64))
        away = float(max((case.lower - x).max(initial=0.0), (x - case.upper).max(initial=0.0)))
        outside = min(outside, away)
        if away > box:
            continue
        inside = True
        left = _slack(case, x, y)
        if ((left < 0) | ((left == 0) & ~case.strict) | (left <= output) & (output > 0)).all():
            return ""
        best = min(best, float(left.max()))
    if inside:
        return f"the outputs are safe, by {best:.3g}"
    return f"the inputs are outside the box, by {outside:.3g}"


def _slack(case: Disjunct, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each row of a case is from being met: at most 0 where it is."""
    left = case.rows @ y - case.bound
    return left if case.inputs is None else left + case.inputs @ x
