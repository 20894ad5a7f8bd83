"""What the words of VNN-LIB mean: numbers, linear terms, and formulas as a disjunction of conjunctions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from math import inf, isfinite, nextafter
from typing import Literal, TypeAlias

from holdfast.core.errors import InputError

# X_3 is 3 and Y_3 is -4: one whole number names any variable.
Variable: TypeAlias = int
# A linear term: the weight of each variable, the constant under None. Exact until it becomes a row.
Term: TypeAlias = dict[Variable | None, Fraction]

VARIABLE = re.compile(r"([XY])_(0|[1-9]\d{0,8})")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
LIMIT = 1 << 20  # cases of one specification


class Misfit(InputError):
    """Something that cannot stand where it stands; `item` says at which place of its list."""

    def __init__(self, message: str, item: int = 0) -> None:
        super().__init__(message)
        self.item = item


@dataclass(frozen=True, slots=True)
class Bound:
    """One input is at least, or at most, a value."""

    input: int
    side: Literal["lower", "upper"]
    value: float


@dataclass(frozen=True, slots=True)
class Row:
    """The weights times the variables sum up to at most `bound`, or to less if `strict`."""

    weights: tuple[tuple[Variable, float], ...]
    bound: float
    strict: bool


@dataclass(frozen=True, slots=True)
class All:
    """A conjunction; equal tuples are shared, so that cases of one box can share its arrays."""

    bounds: tuple[Bound, ...] = ()
    rows: tuple[Row, ...] = ()


# One of these must hold: the empty list is false, and [All()] is true.
Formula: TypeAlias = list[All]


def number(text: str) -> float | None:
    """The nearest float64 of a decimal, or None if the text is no decimal; it must be finite."""
    if NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    if not isfinite(value):
        raise Misfit(f"expected a number of float64, got {text!r}, which is too large")
    return value + 0.0  # no negative zero


def variable_of(text: str) -> Variable | None:
    """The variable a word names, or None."""
    found = VARIABLE.fullmatch(text)
    if found is None:
        return None
    index = int(found[2])
    return index if found[1] == "X" else -1 - index


def add(terms: list[Term], signs: list[int]) -> Term:
    """The sum of the terms, each with its sign."""
    total: Term = {}
    for term, sign in zip(terms, signs, strict=True):
        for name, weight in term.items():
            total[name] = total.get(name, Fraction(0)) + sign * weight
    return total


def multiply(terms: list[Term]) -> Term:
    """The product of the terms, of which at most one may have variables."""
    factor, rest = Fraction(1), None
    for at, term in enumerate(terms, 1):
        if term.keys() <= {None}:
            factor *= term.get(None, Fraction(0))
        elif rest is None:
            rest = term
        else:
            raise Misfit("expected a linear term, got a product of two terms with variables", at)
    return {None: factor} if rest is None else {name: weight * factor for name, weight in rest.items()}


def divide(terms: list[Term]) -> Term:
    """The first term divided by the others, which must be constants."""
    result = terms[0]
    for at, term in enumerate(terms[1:], 2):
        divisor = term.get(None, Fraction(0))
        if not term.keys() <= {None} or not divisor:
            raise Misfit("expected a constant other than 0 to divide by", at)
        result = {name: weight / divisor for name, weight in result.items()}
    return result


def compare(sign: str, left: Term, right: Term) -> Formula:
    """The formula of left <= right, or of another comparison by its sign."""
    if sign == "=":
        return conjoin([compare("<=", left, right), compare(">=", left, right)])
    difference = add([left, right], [1, -1] if sign[0] == "<" else [-1, 1])
    constant = -difference.pop(None, Fraction(0))
    weights = {name: weight for name, weight in difference.items() if weight and name is not None}
    strict = len(sign) == 1
    if not weights:
        met = constant > 0 if strict else constant >= 0
        return [All()] if met else []
    if len(weights) == 1:
        (name, weight), *_ = weights.items()
        if name >= 0:
            return [bound_of(name, "upper" if weight > 0 else "lower", _near(constant / weight), strict)]
    row = Row(tuple((name, _near(weight)) for name, weight in weights.items()), _near(constant), strict)
    return [All(rows=(row,))]


def bound_of(name: int, side: Literal["lower", "upper"], value: float, strict: bool) -> All:
    """The conjunction of one bound; an input is a float, so below a value is at most the float before it."""
    if strict:
        value = nextafter(value, -inf if side == "upper" else inf)
    return All(bounds=(Bound(name, side, value),))


def _near(value: Fraction) -> float:
    try:
        return float(value) + 0.0
    except OverflowError:
        raise Misfit("expected numbers of float64, got one that is too large") from None


def conjoin(parts: list[Formula]) -> Formula:
    """All of the formulas: the product of their cases, refused when it has more than LIMIT."""
    result: Formula = [All()]
    for group in _grouped(parts):
        if len(result) * len(group) > LIMIT:
            raise Misfit(
                f"expected at most {LIMIT:,} cases after multiplying out, got {len(result):,} times "
                f"{len(group):,}; split the specification"
            )
        result = [_both(a, b) for a in result for b in group]
    return result


def _grouped(parts: list[Formula]) -> Iterator[Formula]:
    """The formulas with neighbours of one case each made one: a box of many inputs is joined at once."""
    for single, group in groupby(parts, lambda part: len(part) == 1):
        if not single:
            yield from group
            continue
        cases = [part[0] for part in group]
        bounds = tuple(bound for case in cases for bound in case.bounds)
        rows = tuple(row for case in cases for row in case.rows)
        yield [All(bounds, rows)]


def _both(a: All, b: All) -> All:
    bounds = a.bounds + b.bounds if a.bounds and b.bounds else a.bounds or b.bounds
    rows = a.rows + b.rows if a.rows and b.rows else a.rows or b.rows
    return All(bounds, rows)
