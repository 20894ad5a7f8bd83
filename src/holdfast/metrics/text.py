"""Answers from likelihoods by named rules; accuracy, and its change between two systems.

plain: the ending with the highest sum of log-likelihoods (acc of lm-evaluation-harness).
per-byte: the sum divided by the ending's bytes in UTF-8. (The harness's acc_norm divides by characters: as
much for ASCII, but it can differ where an ending has other letters.)  per-token: divided by its tokens.
greedy: the only ending is the model's own continuation, token by token (LAMBADA's acc).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.random import Generator

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.language import ScoredQuestion, TextKind
from holdfast.core.types import Bools
from holdfast.metrics.intervals import Flips, Interval, flips, mean_difference

TextRule: TypeAlias = Literal["plain", "per-byte", "per-token", "greedy"]
RULES: tuple[TextRule, ...] = get_args(TextRule)
NOTHING = -1  # no pick: a likelihood is NaN, or the greedy continuation differs


@dataclass(frozen=True)
class TextChange:
    """Two runs on the same questions. drop = before − after, from 0 to 1: positive is a loss."""

    before: float
    after: float
    drop: Interval  # paired
    flips: Flips  # right before and wrong after, and vice versa
    changed: int  # questions with another pick


def rules_for(kind: TextKind) -> tuple[TextRule, ...]:
    """The rules that apply to a kind of set, the default first."""
    return ("greedy",) if kind == "lambada" else ("plain", "per-byte", "per-token")


DEFAULT_RULES: Mapping[TextKind, TextRule] = {kind: rules_for(kind)[0] for kind in get_args(TextKind)}


def picked(scored: ScoredQuestion, rule: TextRule) -> int:
    """The ending a model picks by a rule; −1 if a sum is NaN or the greedy continuation differs.

    With a NaN for one ending, the model has not compared it with the others.
    """
    if rule not in RULES:
        raise UnknownName("scoring rule", rule, RULES)
    if rule == "greedy":
        if len(scored.sums) != 1:
            got = f"got {len(scored.sums)}; use plain, per-byte or per-token"
            raise InputError(f"{scored.name}: the rule 'greedy' needs questions with one ending, {got}")
        return 0 if scored.greedy[0] else NOTHING
    if len(scored.sums) < 2:
        raise InputError(f"{scored.name}: the rule {rule!r} compares endings, got only one; use greedy")
    weights = {"plain": (1,) * len(scored.sums), "per-byte": scored.length, "per-token": scored.tokens}[rule]
    scores = [total / weight for total, weight in zip(scored.sums, weights, strict=True)]
    if any(map(math.isnan, scores)) or max(scores) == -math.inf:
        return NOTHING
    return scores.index(max(scores))


def hits(scored: Sequence[ScoredQuestion], answers: Sequence[int], rule: TextRule) -> Bools:
    """Whether each question is answered right, (n,); of equal endings the first is picked."""
    if len(scored) != len(answers):
        raise InputError(f"expected one answer per question, got {len(scored)} and {len(answers)}")
    return np.array([picked(s, rule) == a for s, a in zip(scored, answers, strict=True)], dtype=bool)


def accuracy(right: Bools) -> float:
    """The share of correct answers; NaN without questions."""
    return float(right.mean()) if len(right) else float("nan")


def compare(
    before: Sequence[ScoredQuestion],
    after: Sequence[ScoredQuestion],
    answers: Sequence[int],
    rule: TextRule,
    rng: Generator,
) -> TextChange:
    """Changes between two runs on the same questions, with the paired bootstrap interval of the drop."""
    if [s.name for s in before] != [s.name for s in after]:
        raise InputError("expected two runs on the same questions in the same order, got different ones")
    first, second = hits(before, answers, rule), hits(after, answers, rule)
    changed = sum(picked(a, rule) != picked(b, rule) for a, b in zip(before, after, strict=True))
    drop = mean_difference(second, first, rng, bound=1.0)  # the second minus the first of its arguments
    return TextChange(accuracy(first), accuracy(second), drop, flips(first, second), changed)
