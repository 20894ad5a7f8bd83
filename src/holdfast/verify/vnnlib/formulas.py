"""What VNN-LIB's lists mean: numbers, linear terms, and formulas as a disjunction of conjunctions.

A list is replaced by what it means as soon as it is closed: no recursion, no tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby, pairwise
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
TOKEN = re.compile(r"[()]|[^\s();]+|;[^\n]*")
_COMPARISONS = frozenset(("<=", ">=", "<", ">", "="))
_SUMS = frozenset("+-*/")
_IDLE = frozenset(("set-logic", "set-info", "set-option", "check-sat", "get-model", "get-value", "exit"))


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


# What a list becomes: a word stays text, a term is a dict, a formula a list, and () or a command is a tuple.
Item: TypeAlias = str | Term | Formula | tuple[str, ...]


@dataclass
class Found:
    """What the commands read so far have said."""

    declared: list[Variable] = field(default_factory=list)
    asserted: list[Formula] = field(default_factory=list)
    names: dict[str, Variable] = field(default_factory=dict)  # every variable used, in order of first use


def read_command(text: str, begin: int, found: Found) -> int:
    """Where the command that begins at the parenthesis `begin` ends; what it says is put into `found`."""
    lists: list[list[Item]] = []
    opened: list[int] = []
    for token in TOKEN.finditer(text, begin):
        word = token[0]
        if word == "(":
            lists.append([])
            opened.append(token.start())
        elif word == ")":
            try:
                item = _meaning(lists.pop(), found, outermost=not lists)
            except Misfit as problem:
                raise Misfit(str(problem), _place(text, opened[-1], problem.item)) from None
            opened.pop()
            if not lists:
                return token.end()
            lists[-1].append(item)
        elif word[0] != ";":
            lists[-1].append(word)
    raise Misfit("expected ')' to close this list, got the end of the file", opened[-1])


def _place(text: str, opened: int, item: int) -> int:
    """Where the item of the list opened there stands: 0 the first, found by reading the list again."""
    depth, seen = 0, -1
    for token in TOKEN.finditer(text, opened):
        if token[0][0] == ";":
            continue
        if token[0] == ")":
            depth -= 1
            continue
        if depth == 1:
            seen += 1
            if seen == item:
                return token.start()
        depth += token[0] == "("
    return opened


def _meaning(items: list[Item], found: Found, *, outermost: bool) -> Item:
    head = items[0] if items else ""
    if outermost:
        return _command(head, items, found)
    if not items:
        return ()
    if not isinstance(head, str):
        raise Misfit("expected an operator such as <=, and, or, +, got a list")
    if head in _COMPARISONS:
        return _comparison(head, items, found)
    if head == "and":
        return conjoin(list(_formulas(items)))
    if head == "or":
        return [case for formula in _formulas(items) for case in formula]
    if head in _SUMS:
        return _sum(head, items, found)
    raise Misfit(f"expected one of <= >= < > = and or + - * /, got {head!r}")


def _command(head: Item, items: list[Item], found: Found) -> Item:
    if isinstance(head, str) and head in _IDLE:
        return ()
    if not isinstance(head, str) or head not in _COMMANDS:
        got = repr(head) if isinstance(head, str) and head else "a list" if items else "an empty list"
        raise Misfit(f"expected declare-const, declare-fun or assert, got {got}")
    _COMMANDS[head](items, found)
    return ()


def _declare(items: list[Item], found: Found) -> None:
    if items[0] == "declare-fun":
        if len(items) != 4 or items[2] != ():
            raise Misfit("expected (declare-fun NAME () Real)")
        items = [items[0], items[1], items[3]]
    name = items[1] if len(items) == 3 else None
    if not isinstance(name, str):
        raise Misfit("expected (declare-const NAME Real)")
    variable = variable_of(name)
    if variable is None:
        raise Misfit(f"expected a variable X_0, X_1, ... or Y_0, Y_1, ..., got {name!r}", 1)
    if items[2] != "Real":
        raise Misfit(f"expected {name} to be Real, got {items[2]!r}", 2)
    found.declared.append(variable)


def _assert(items: list[Item], found: Found) -> None:
    if len(items) != 2:
        raise Misfit(f"expected one formula to assert, got {len(items) - 1}")
    found.asserted.extend(_formulas(items))


_COMMANDS: dict[str, Callable[[list[Item], Found], None]] = {
    "assert": _assert,
    "declare-const": _declare,
    "declare-fun": _declare,
}


def _formulas(items: list[Item]) -> Iterator[Formula]:
    for at, item in enumerate(items[1:], 1):
        if isinstance(item, list):
            yield item
        elif item == "true":
            yield [All()]
        elif item == "false":
            yield []
        else:
            got = repr(item) if isinstance(item, str) else "a term"
            raise Misfit(f"expected a formula such as (<= Y_0 Y_1), got {got}", at)


def _comparison(sign: str, items: list[Item], found: Found) -> Formula:
    if len(items) < 3:
        raise Misfit(f"expected two terms to compare with {sign}, got {len(items) - 1}")
    if len(items) == 3:
        quick = _plain(sign, items[1], items[2], found)
        if quick is not None:
            return quick
    terms = [_term(item, at, found) for at, item in enumerate(items[1:], 1)]
    return conjoin([compare(sign, left, right) for left, right in pairwise(terms)])


def _plain(sign: str, left: Item, right: Item, found: Found) -> Formula | None:
    """The formula of a known variable and a number or another variable, as nearly all are; else None."""
    name = found.names.get(left) if isinstance(left, str) else None
    if name is None or not isinstance(right, str) or sign == "=":
        return None
    below, strict = sign[0] == "<", len(sign) == 1
    other = found.names.get(right)
    if other is not None:
        if other == name:
            return None
        pair = ((name, 1.0), (other, -1.0)) if below else ((name, -1.0), (other, 1.0))
        return [All(rows=(Row(pair, 0.0, strict),))]
    value = number(right)
    if value is None:
        return None
    if name >= 0:
        return [bound_of(name, "upper" if below else "lower", value, strict)]
    row = Row(((name, 1.0),), value, strict) if below else Row(((name, -1.0),), 0.0 - value, strict)
    return [All(rows=(row,))]


def _sum(sign: str, items: list[Item], found: Found) -> Term:
    terms = [_term(item, at, found) for at, item in enumerate(items[1:], 1)]
    if not terms:
        raise Misfit(f"expected terms after {sign}, got none")
    if sign == "*":
        return multiply(terms)
    if sign == "/":
        return divide(terms)
    if sign == "-":
        return add(terms, [-1] if len(terms) == 1 else [1, *[-1] * (len(terms) - 1)])
    return add(terms, [1] * len(terms))


def _term(item: Item, at: int, found: Found) -> Term:
    if isinstance(item, dict):
        return item
    if not isinstance(item, str):
        raise Misfit("expected a number, a variable or a sum, got a formula", at)
    name = found.names.get(item)
    if name is None:
        name = variable_of(item)
        if name is not None:
            found.names[item] = name
    if name is not None:
        return {name: Fraction(1)}
    try:
        if number(item) is not None:
            return {None: Fraction(item)}
    except Misfit as problem:
        raise Misfit(str(problem), at) from None
    raise Misfit(f"expected a number, X_i or Y_i, got {item!r}", at)
