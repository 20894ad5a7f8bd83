"""How heads take the exponential of a predicted side, and how deployed systems do (SysNoise, appendix A).

A head that does so has the fact `exp`: a function of its options that says "plain", "clamped" (by the
equations' limit) or "" when the graph has done it already. Such a head takes the function as `exp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import part
from holdfast.core.types import Floats, Tensor
from holdfast.graph.anchors import LARGEST
from holdfast.graph.candidates import bounded_exp
from holdfast.graph.outputs import options_of

Exp: TypeAlias = Callable[[Tensor], Floats]
Kind: TypeAlias = Literal["", "plain", "clamped"]

LARGEST_HALF = 65504.0  # the largest finite number of binary16


def half_exp(x: Tensor) -> Floats:
    """exp(x) as binary16 arithmetic gives it: x rounded to binary16, the result rounded to it again.

    The result is the nearest half to exp of the rounded x. What overflows is the largest half, not infinite:
    on a box, which is cut at the border of the image, that is the same.
    """
    with np.errstate(over="ignore"):
        rounded = np.asarray(x, np.float64).astype(np.float16).astype(np.float64)
        found = np.exp(np.minimum(rounded, 12.0)).astype(np.float16).astype(np.float64)
    return np.minimum(found, LARGEST_HALF)


def clamped_exp(x: Tensor) -> Floats:
    """exp(min(x, log(1000/16))): a side is at most 62.5 times its anchor or stride."""
    return bounded_exp(np.minimum(x, LARGEST))


def clamped_half_exp(x: Tensor) -> Floats:
    """exp(min(x, log(1000/16))) as binary16 arithmetic gives it."""
    return half_exp(np.minimum(x, LARGEST))


def exp_of(card: Card) -> Kind:
    """How the card's head takes exp of sides; empty if it takes none."""
    head = part("head", card.head.name)
    kind: Callable[[object], Kind] | None = head.facts.get("exp")
    return kind(options_of(head.facts["options"], card)) if kind else ""
