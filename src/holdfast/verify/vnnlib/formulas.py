"""Meaning of VNN-LIB's lists: numbers, linear terms, and formulas as a disjunction of conjunctions.

A list is replaced by its meaning as soon as it is closed, without recursion or a tree.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby, pairwise
from math import inf, isfinite, nextafter
from typing import Literal, NamedTuple, TypeAlias

from holdfast.core.errors import InputError

# X_3 is 3 and Y_3 is -4: one integer identifies any variable.
Variable: TypeAlias = int
# A linear term: the weight of each variable, the constant under None. Exact until it becomes a row.
Term: TypeAlias = dict[Variable | None, Fraction]

VARIABLE = re.compile(r"([XY])_(0|[1-9]\d{0,8})")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
LIMIT = 1 << 20  # cases of one specification
TOKEN = re.compile(r"[()]|[^\s();]+|;[^\n]*")
_COMPARISONS = frozenset(("<=", ">=", "<", ">", "="))
_IDLE = frozenset(("set-logic", "set-info", "set-option", "check-sat", "get-model", "get-value", "exit"))


class InvalidFormula(InputError):
    """A misplaced item; `item` is its position in the list."""

    def __init__(self, message: str, item: int = 0) -> None:
        super().__init__(message)
        self.item = item


class Bound(NamedTuple):
    """One input is at least, or at most, a value."""

    input: int
    side: Literal["lower", "upper"]
    value: float


class LinearRow(NamedTuple):
    """The weights times the variables sum up to at most `bound`, or to less if `strict`."""

    weights: tuple[tuple[Variable, float], ...]
    bound: float
    strict: bool


class All(NamedTuple):
    """A conjunction; equal tuples are shared, so that cases of one box can share its arrays."""

    bounds: tuple[Bound, ...] = ()
    rows: tuple[LinearRow, ...] = ()


# One of these must hold: the empty list is false, and [All()] is true.
Formula: TypeAlias = list[All]


def number(text: str, at: int) -> float | None:
    """The nearest float64 of a decimal, which must be finite; None if item `at` is no decimal."""
    if NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    if not isfinite(value):
        raise InvalidFormula(f"expected a number of float64, got {text!r}, which is too large", at)
    return value + 0.0  # no negative zero


def variable_of(text: str) -> Variable | None:
    """The variable a word names, or None."""
    match = VARIABLE.fullmatch(text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "X" else -1 - int(match[2])


def add(terms: list[Term], sign: int = 1) -> Term:
    """The sum of the first term and of the others times the sign."""
    total = dict(terms[0])
    for term in terms[1:]:
        for name, weight in term.items():
            total[name] = total.get(name, Fraction(0)) + sign * weight
    return total


def subtract(terms: list[Term]) -> Term:
    """The first term less the others; a single one is negated."""
    return add(terms if len(terms) > 1 else [{}, *terms], -1)


def multiply(terms: list[Term]) -> Term:
    """The product of the terms, of which at most one may have variables."""
    factor, rest = Fraction(1), None
    for at, term in enumerate(terms, 1):
        if term.keys() <= {None}:
            factor *= term.get(None, Fraction(0))
        elif rest is None:
            rest = term
        else:
            raise InvalidFormula("expected a linear term, got a product of two terms with variables", at)
    return {None: factor} if rest is None else {name: weight * factor for name, weight in rest.items()}


def divide(terms: list[Term]) -> Term:
    """The first term divided by the others, which must be constants."""
    result = terms[0]
    for at, term in enumerate(terms[1:], 2):
        divisor = term.get(None, Fraction(0))
        if not term.keys() <= {None} or not divisor:
            raise InvalidFormula("expected a constant other than 0 to divide by", at)
        result = {name: weight / divisor for name, weight in result.items()}
    return result


_SUMS: dict[str, Callable[[list[Term]], Term]] = {"+": add, "-": subtract, "*": multiply, "/": divide}


def compare(sign: str, left: Term, right: Term) -> Formula:
    """The formula of left <= right, or of another comparison by its sign."""
    if sign == "=":
        return conjoin([compare("<=", left, right), compare(">=", left, right)])
    difference = subtract([left, right] if sign[0] == "<" else [right, left])
    constant = -difference.pop(None, Fraction(0))
    weights = {name: weight for name, weight in difference.items() if weight and name is not None}
    strict = len(sign) == 1
    if not weights:
        return [All()] if constant > 0 or (constant == 0 and not strict) else []
    (name, weight), *others = weights.items()
    if name >= 0 and not others:
        return [bound_of(name, "upper" if weight > 0 else "lower", _near(constant / weight), strict)]
    row = LinearRow(tuple((name, _near(weight)) for name, weight in weights.items()), _near(constant), strict)
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
        raise InvalidFormula("expected numbers of float64, got one that is too large") from None


def conjoin(parts: list[Formula]) -> Formula:
    """All of the formulas: the product of their cases, refused when it has more than LIMIT."""
    result: Formula = [All()]
    for single, group in groupby(parts, lambda part: len(part) == 1):
        factors = list(group)
        if single:  # a box of many inputs is joined at once
            cases = [part[0] for part in factors]
            bounds = tuple(bound for case in cases for bound in case.bounds)
            factors = [[All(bounds, tuple(row for case in cases for row in case.rows))]]
        for factor in factors:
            if len(result) * len(factor) > LIMIT:
                got = f"{len(result):,} times {len(factor):,}; split the specification"
                raise InvalidFormula(f"expected at most {LIMIT:,} cases after multiplying out, got {got}")
            result = [All(a.bounds + b.bounds, a.rows + b.rows) for a in result for b in factor]
    return result


# The value of a list: a word stays text, a term is a dict, a formula a list, and () is a tuple.
Item: TypeAlias = str | Term | Formula | tuple[str, ...]


@dataclass
class Script:
    """The declarations and assertions read so far."""

    declared: list[Variable] = field(default_factory=list)
    asserted: list[Formula] = field(default_factory=list)
    names: dict[str, Variable] = field(default_factory=dict)  # every variable used, in order of first use


def read_command(text: str, begin: int, script: Script) -> int:
    """Read the command that begins at the parenthesis `begin` into the script; return where it ends."""
    stack: list[tuple[list[Item], list[int]]] = []  # items, and where the list and each item begin
    for token in TOKEN.finditer(text, begin):
        item: Item = token[0]
        start = token.start()
        if item == "(":
            stack.append(([], [start]))
            continue
        if item == ")":
            items, starts = stack.pop()
            try:
                if not stack:
                    _command(items, script)
                    return token.end()
                item, start = _meaning(items, script), starts[0]
            except InvalidFormula as problem:
                raise InvalidFormula(str(problem), (starts[1:] or starts)[problem.item]) from None
        elif token[0][0] == ";":
            continue
        stack[-1][0].append(item)
        stack[-1][1].append(start)
    raise InvalidFormula("expected ')' to close this list, got the end of the file", stack[-1][1][0])


def _command(items: list[Item], script: Script) -> None:
    match items:
        case [str(head), *_] if head in _IDLE:
            return
        case ["assert", _]:
            script.asserted.extend(_formulas(items))
            return
        case ["assert", *rest]:
            raise InvalidFormula(f"expected one formula to assert, got {len(rest)}")
        case ["declare-const", str(name), kind] | ["declare-fun", str(name), tuple(), kind]:
            variable = variable_of(name)
            if variable is None:
                raise InvalidFormula(f"expected a variable X_0, X_1, ... or Y_0, Y_1, ..., got {name!r}", 1)
            if kind != "Real":
                raise InvalidFormula(f"expected {name} to be Real, got {kind!r}", len(items) - 1)
            script.declared.append(variable)
            return
        case ["declare-const", *_]:
            raise InvalidFormula("expected (declare-const NAME Real)")
        case ["declare-fun", *_]:
            raise InvalidFormula("expected (declare-fun NAME () Real)")
        case [str(head), *_]:
            got = repr(head)
        case _:
            got = "a list" if items else "an empty list"
    raise InvalidFormula(f"expected declare-const, declare-fun or assert, got {got}")


def _meaning(items: list[Item], script: Script) -> Item:
    if not items:
        return ()
    head = items[0]
    if not isinstance(head, str):
        raise InvalidFormula("expected an operator such as <=, and, or, +, got a list")
    if head in _COMPARISONS:
        if len(items) < 3:
            raise InvalidFormula(f"expected two terms to compare with {head}, got {len(items) - 1}")
        plain = _plain(head, items, script)
        if plain is not None:
            return plain
        return conjoin([compare(head, left, right) for left, right in pairwise(list(_terms(items, script)))])
    if head == "and":
        return conjoin(list(_formulas(items)))
    if head == "or":
        return [case for formula in _formulas(items) for case in formula]
    if head not in _SUMS:
        raise InvalidFormula(f"expected one of <= >= < > = and or + - * /, got {head!r}")
    if len(items) == 1:
        raise InvalidFormula(f"expected terms after {head}, got none")
    return _SUMS[head](list(_terms(items, script)))


def _formulas(items: list[Item]) -> Iterator[Formula]:
    for at, item in enumerate(items[1:], 1):
        if isinstance(item, list):
            yield item
        elif item in ("true", "false"):
            yield [All()] if item == "true" else []
        else:
            got = repr(item) if isinstance(item, str) else "a term"
            raise InvalidFormula(f"expected a formula such as (<= Y_0 Y_1), got {got}", at)


def _plain(sign: str, items: list[Item], script: Script) -> Formula | None:
    """The formula of a declared variable and a number or another variable, the common case; else None."""
    _, left, right = items[:3]
    if len(items) > 3 or sign == "=" or not (isinstance(left, str) and isinstance(right, str)):
        return None
    name, other = script.names.get(left), script.names.get(right)
    if name is None or name == other:
        return None
    weight, strict = 1.0 if sign[0] == "<" else -1.0, len(sign) == 1
    if other is not None:
        return [All(rows=(LinearRow(((name, weight), (other, -weight)), 0.0, strict),))]
    value = number(right, 2)
    if value is None:
        return None
    if name >= 0:
        return [bound_of(name, "upper" if weight > 0 else "lower", value, strict)]
    return [All(rows=(LinearRow(((name, weight),), weight * value + 0.0, strict),))]


def _terms(items: list[Item], script: Script) -> Iterator[Term]:
    for at, item in enumerate(items[1:], 1):
        if isinstance(item, dict):
            yield item
        elif not isinstance(item, str):
            raise InvalidFormula("expected a number, a variable or a sum, got a formula", at)
        elif (variable := variable_of(item)) is not None:
            script.names[item] = variable
            yield {variable: Fraction(1)}
        elif number(item, at) is not None:
            yield {None: Fraction(item)}
        else:
            raise InvalidFormula(f"expected a number, X_i or Y_i, got {item!r}", at)
