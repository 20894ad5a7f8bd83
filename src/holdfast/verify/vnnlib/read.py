"""VNN-LIB files, read: the many plain commands of large ones by two patterns, the rest list by list.

VNN-LIB 2.0 is read by the `vnnlib` package and turned into the same cases as 1.0.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, MissingExtra
from holdfast.core.model import found_file
from holdfast.core.types import Floats
from holdfast.verify.vnnlib.formulas import (
    TOKEN,
    All,
    Bound,
    Formula,
    Found,
    Misfit,
    Row,
    Term,
    Variable,
    add,
    compare,
    conjoin,
    multiply,
    read_command,
)
from holdfast.verify.vnnlib.spec import Disjunct, Spec

LIMIT_BYTES = 1 << 29
_SPACE = re.compile(r"(?>\s+|;[^\n]*)*+")
_INDEX = r"(?:0|[1-9]\d{0,8})"
_NUMBER = r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d{1,4})?"
# Runs of the two commands that make up large files.
_DECLARATIONS = re.compile(rf"(?>\s+|;[^\n]*|\(\s*+declare-const\s++[XY]_{_INDEX}\s++Real\s*+\))*+")
_BOUNDS = re.compile(rf"(?>\s+|;[^\n]*|\(\s*+assert\s*+\(\s*+[<>]=\s++X_{_INDEX}\s++{_NUMBER}\s*+\)\s*+\))*+")
_COMMENT = re.compile(r";[^\n]*")
_TWO = re.compile(r"\(\s*(?:vnnlib-version|declare-network)\b")
_KINDS = ("Real", "F32", "F64")
_SIGNS = {"LessEqual": "<=", "LessThan": "<", "GreaterEqual": ">=", "GreaterThan": ">", "Equal": "="}


@dataclass
class PlainBounds:
    """Bounds that hold in every case, gathered in bulk: of which inputs, which values, whether from above."""

    inputs: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    upper: list[bool] = field(default_factory=list)


def spec_of(inputs: int, outputs: int, asserted: list[Formula], plain: PlainBounds) -> Spec:
    """The specification of all asserted formulas together, its cases multiplied out."""
    lower, upper = np.full(inputs, -np.inf), np.full(inputs, np.inf)
    which, values, above = (
        np.array(plain.inputs, np.int64),
        np.array(plain.values),
        np.array(plain.upper, bool),
    )
    np.maximum.at(lower, which[~above], values[~above] + 0.0)
    np.minimum.at(upper, which[above], values[above] + 0.0)
    always = [formula[0] for formula in asserted if len(formula) == 1]
    for case in always:
        _narrow(lower, upper, case.bounds)
    rows = tuple(row for case in always for row in case.rows)
    factors = [formula for formula in asserted if len(formula) != 1]
    cases = [All(case.bounds, rows + case.rows) for case in conjoin(factors)]
    return _boxed((inputs, outputs), (lower, upper), cases)


def _narrow(lower: Floats, upper: Floats, bounds: tuple[Bound, ...]) -> None:
    for bound in bounds:
        if bound.side == "lower":
            lower[bound.input] = max(lower[bound.input], bound.value)
        else:
            upper[bound.input] = min(upper[bound.input], bound.value)


def _boxed(sizes: tuple[int, int], common: tuple[Floats, Floats], cases: list[All]) -> Spec:
    """The specification of the cases, each with its own box within the common one; empty ones are dropped."""
    boxes: dict[int, tuple[Floats, Floats] | None] = {}
    tables: dict[int, tuple[Floats, Floats, NDArray[np.bool_], Floats | None]] = {}
    kept, empty = [], 0
    for case in cases:
        # `cases` keeps every tuple alive, so that its id is its own.
        if id(case.bounds) not in boxes:
            boxes[id(case.bounds)] = _box(common, case.bounds)
        box = boxes[id(case.bounds)]
        if box is None:
            empty += 1
            continue
        if id(case.rows) not in tables:
            tables[id(case.rows)] = _table(*sizes, case.rows)
        rows, bound, strict, inputs = tables[id(case.rows)]
        kept.append(Disjunct(*box, rows, bound, strict, inputs))
    which = "the only case" if len(cases) == 1 else f"{empty} of {len(cases)} cases"
    notes = (f"{which} dropped: its lower bound is above its upper bound",) if empty else ()
    return Spec(*sizes, tuple(kept), notes)


def _box(common: tuple[Floats, Floats], bounds: tuple[Bound, ...]) -> tuple[Floats, Floats] | None:
    """The common box narrowed by these bounds; None if nothing is in it."""
    lower, upper = common if not bounds else (common[0].copy(), common[1].copy())
    _narrow(lower, upper, bounds)
    if (lower > upper).any():
        return None
    for side, values in (("lower", lower), ("upper", upper)):
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            others = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
            raise Misfit(f"expected a bounded input set, got no {side} bound of X_{missing[0]}{others}")
    return lower, upper


def _table(
    width: int, outputs: int, rows: tuple[Row, ...]
) -> tuple[Floats, Floats, NDArray[np.bool_], Floats | None]:
    matrix = np.zeros((len(rows), outputs))
    tied = any(variable >= 0 for row in rows for variable, _ in row.weights)
    inputs = np.zeros((len(rows), width)) if tied else None
    for i, row in enumerate(rows):
        for variable, weight in row.weights:
            if variable < 0:
                matrix[i, -1 - variable] = weight
            elif inputs is not None:
                inputs[i, variable] = weight
    bound = np.array([row.bound for row in rows], np.float64)
    return matrix, bound, np.array([row.strict for row in rows], np.bool_), inputs


def read_vnnlib(path: Path | str, limit: int = LIMIT_BYTES) -> Spec:
    """The specification in a VNN-LIB file, 1.0 or 2.0, of at most `limit` bytes unpacked.

    The file may be a .gz; if only NAME.gz is there, that is read for NAME.
    """
    path = found_file(Path(path)) or Path(path)
    return parse_vnnlib(_content(path, limit), str(path))


def _content(path: Path, limit: int) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such specification; give the path of a .vnnlib file") from None
    except (OSError, EOFError, zlib.error) as problem:
        said = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
        raise InputError(f"{path}: expected a readable VNN-LIB file, got: {said}") from problem
    if len(data) > limit:
        raise InputError(f"{path}: has more than {limit >> 20} MB; expected a VNN-LIB file of less")
    if not data.strip():
        raise InputError(f"{path}: the file is empty; expected a VNN-LIB specification")
    return data.decode("utf-8-sig", errors="replace")


def parse_vnnlib(text: str, where: str = "<text>") -> Spec:
    """The specification a VNN-LIB text states; errors begin with where:line:column."""
    if _TWO.match(text, _end(_SPACE, text, 0)):
        return parse_two(text, where)
    try:
        return _parse(text)
    except Misfit as problem:
        line = text.count("\n", 0, problem.item) + 1
        column = problem.item - text.rfind("\n", 0, problem.item)
        raise InputError(f"{where}:{line}:{column}: {problem}") from None


def _parse(text: str, quick: bool = True) -> Spec:
    """The specification; without `quick` every command goes the general way, to the same result."""
    found, plain, at = Found(), PlainBounds(), 0
    while True:
        if quick:
            at = _declarations(text, at, found)
            at = _bounds(text, at, plain)
        at = _end(_SPACE, text, at)
        if at == len(text):
            break
        if text[at] != "(":
            raise Misfit(f"expected '(', got {text[at : at + 40].split()[0]!r}", at)
        at = read_command(text, at, found)
    return spec_of(*_sizes(text, found, plain), found.asserted, plain)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern that may match nothing ends."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _split(run: str) -> list[str]:
    """The words of a run of plain commands."""
    if ";" in run:
        run = _COMMENT.sub("", run)
    return run.replace("(", " ").replace(")", " ").split()


def _declarations(text: str, at: int, found: Found) -> int:
    """Where the run of plain declarations ends that begins here; they are in `found`."""
    end = _end(_DECLARATIONS, text, at)
    for name in _split(text[at:end])[1::3]:
        index = int(name[2:])
        found.declared.append(index if name[0] == "X" else -1 - index)
    return end


def _bounds(text: str, at: int, plain: PlainBounds) -> int:
    """Where the run of plain bounds ends that begins here; they are in `plain`."""
    end = _end(_BOUNDS, text, at)
    words = _split(text[at:end])
    values = list(map(float, words[3::4]))
    if not all(map(isfinite, values)):
        huge = words[3::4][[isfinite(value) for value in values].index(False)]
        place = next(token.start() for token in TOKEN.finditer(text, at) if token[0] == huge)
        raise Misfit(f"expected a number of float64, got {huge!r}, which is too large", place)
    plain.upper += [sign == "<=" for sign in words[1::4]]
    plain.inputs += [int(name[2:]) for name in words[2::4]]
    plain.values += values
    return end


def _sizes(text: str, found: Found, plain: PlainBounds) -> tuple[int, int]:
    """How many inputs and outputs are declared: all from X_0 and Y_0 on, and all that are used."""
    declared = set(found.declared)
    inputs = sum(variable >= 0 for variable in declared)
    sizes = inputs, len(declared) - inputs
    for letter, size, gap in (
        ("X", sizes[0], next((i for i in range(sizes[0]) if i not in declared), None)),
        ("Y", sizes[1], next((i for i in range(sizes[1]) if -1 - i not in declared), None)),
    ):
        if not size:
            raise Misfit(f"expected (declare-const {letter}_0 Real), got no {letter} variable", len(text))
        if gap is not None:
            raise Misfit(f"expected {letter}_{gap} to be declared: {size} {letter} variables are", len(text))
    used = next((name for name, variable in found.names.items() if variable not in declared), None)
    highest = max(plain.inputs, default=-1)
    if used is None and highest >= sizes[0]:
        used = f"X_{highest}"
    if used is not None:
        place = next(token.start() for token in TOKEN.finditer(text) if token[0] == used)
        raise Misfit(f"expected a declared variable, got {used}, which is not declared", place)
    return sizes


def parse_two(text: str, where: str) -> Spec:
    """The specification of a VNN-LIB 2.0 text that speaks of one network with one input."""
    try:
        import vnnlib
    except ImportError:
        raise MissingExtra("reading VNN-LIB 2.0", "vnnlib", "vnnlib2") from None
    if not hasattr(vnnlib, "parse_query_string"):
        raise InputError(f"{where}: is VNN-LIB 2.0, which needs vnnlib 1.0 or newer: pip install -U vnnlib")
    try:
        query = vnnlib.parse_query_string(text)
    except vnnlib.VNNLibException as problem:
        raise InputError(f"{where}{_report(str(problem))}") from None
    offsets, inputs, outputs = _offsets(query, where)
    try:
        asserted = [_formula(assertion.expr, offsets) for assertion in query.assertions]
        return spec_of(inputs, outputs, asserted, PlainBounds())
    except Misfit as problem:
        raise InputError(f"{where}: {problem}") from None


def _report(report: str) -> str:
    """The first error of the package's report as :LINE: TEXT."""
    try:
        first = json.loads(report)["errors"][0]
        return f":{first['line']}: {first['message']} {first['offendingSymbol']!r}: {first['hint']}"
    except (ValueError, LookupError, TypeError):
        return ": " + " ".join(report.split())


def _offsets(query: Any, where: str) -> tuple[dict[str, Variable], int, int]:
    """The variable of each tensor's first entry, and how many inputs and outputs there are."""
    if len(query.networks) != 1:
        raise InputError(
            f"{where}: expected one network, got {len(query.networks)}; holdfast decides one at a time"
        )
    (network,) = query.networks
    if network.hidden:
        raise InputError(
            f"{where}: expected inputs and outputs alone, got the hidden node {network.hidden[0].name!r}"
        )
    if len(network.inputs) != 1:
        raise InputError(f"{where}: expected a network with one input, got {len(network.inputs)}")
    for tensor in (*network.inputs, *network.outputs):
        if tensor.dtype.name not in _KINDS:
            raise InputError(
                f"{where}: expected {tensor.name!r} to be real or float, got {tensor.dtype.name}"
            )
    offsets: dict[str, Variable] = {network.inputs[0].name: 0}
    outputs = 0
    for tensor in network.outputs:
        offsets[tensor.name] = -1 - outputs
        outputs += prod(tensor.shape)
    return offsets, prod(network.inputs[0].shape), outputs


def _formula(node: Any, offsets: dict[str, Variable]) -> Formula:
    kind = type(node).__name__
    if kind == "And":
        return conjoin([_formula(part, offsets) for part in node.args])
    if kind == "Or":
        return [case for part in node.args for case in _formula(part, offsets)]
    if kind in _SIGNS:
        return compare(_SIGNS[kind], _term(node.lhs, offsets), _term(node.rhs, offsets))
    if kind == "NotEqual":
        left, right = _term(node.lhs, offsets), _term(node.rhs, offsets)
        return compare("<", left, right) + compare(">", left, right)
    raise Misfit(f"expected comparisons, and, or, got {kind}: {node}")


def _term(node: Any, offsets: dict[str, Variable]) -> Term:
    kind = type(node).__name__
    if kind == "Var":
        flat = 0
        for index, size in zip(node.indices, node.shape, strict=True):
            flat = flat * size + index
        first = offsets[node.name]
        return {first + flat if first >= 0 else first - flat: Fraction(1)}
    if kind == "Negate":
        return add([_term(node.expr, offsets)], [-1])
    if kind == "Plus":
        return add([_term(part, offsets) for part in node.args], [1] * len(node.args))
    if kind == "Minus":
        parts = [node.head, *node.rest]
        return add([_term(part, offsets) for part in parts], [1, *[-1] * len(node.rest)])
    if kind == "Multiply":
        return multiply([_term(part, offsets) for part in node.args])
    if hasattr(node, "lexeme"):
        return {None: Fraction(node.lexeme)}
    raise Misfit(f"expected a linear term, got {kind}: {node}")
