"""Reader of VNN-LIB files: two patterns for the plain commands of large files, lists for the rest.

VNN-LIB 2.0 is read by the `vnnlib` package and turned into the same cases as 1.0.
"""

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.extras import require
from holdfast.core.limits import limit, too_large
from holdfast.core.model import existing_file, read_unpacked
from holdfast.core.types import Floats
from holdfast.verify.vnnlib import formulas
from holdfast.verify.vnnlib.formulas import All, Bound, Formula, InvalidFormula, LinearRow, Script, Term
from holdfast.verify.vnnlib.spec import Disjunct, Spec

_SPACE = re.compile(r"(?>\s+|;[^\n]*)*+")
_INDEX = r"(?:0|[1-9]\d{0,8})"
_NUMBER = r"-?(?:\d{1,20}+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d\d?)?"  # finite in float64
# Runs of the two commands that make up large files.
_DECLARATIONS = re.compile(rf"(?>\s+|;[^\n]*|\(\s*+declare-const\s++[XY]_{_INDEX}\s++Real\s*+\))*+")
_BOUNDS = re.compile(rf"(?>\s+|;[^\n]*|\(\s*+assert\s*+\(\s*+[<>]=\s++X_{_INDEX}\s++{_NUMBER}\s*+\)\s*+\))*+")
_TWO = re.compile(r"\(\s*(?:vnnlib-version|declare-network)\b")
_KINDS = ("Real", "F32", "F64")
_SIGNS = {"LessEqual": "<=", "LessThan": "<", "GreaterEqual": ">=", "GreaterThan": ">", "Equal": "="}


def spec_of(inputs: int, outputs: int, asserted: list[Formula]) -> Spec:
    """The specification of all asserted formulas together, its cases multiplied out, empty ones dropped."""
    always = [formula[0] for formula in asserted if len(formula) == 1]
    rows = tuple(row for case in always for row in case.rows)
    common = np.full(inputs, -np.inf), np.full(inputs, np.inf)
    _narrow(*common, [bound for case in always for bound in case.bounds])
    factors = [formula for formula in asserted if len(formula) != 1]
    cases = [All(case.bounds, rows + case.rows) for case in formulas.conjoin(factors)]
    # `cases` keeps every tuple alive, so that its id is its own.
    boxes = {key: _box(common, own) for key, own in {id(case.bounds): case.bounds for case in cases}.items()}
    tables = {key: _table(inputs, outputs, own) for key, own in {id(c.rows): c.rows for c in cases}.items()}
    pairs = [(boxes[id(case.bounds)], tables[id(case.rows)]) for case in cases]
    disjuncts = tuple(Disjunct(*box, *table) for box, table in pairs if box is not None)
    empty = len(cases) - len(disjuncts)
    which = "the only case" if len(cases) == 1 else f"{empty} of {len(cases)} cases"
    notes = (f"{which} dropped: its lower bound is above its upper bound",) if empty else ()
    return Spec(inputs, outputs, disjuncts, notes)


def _narrow(lower: Floats, upper: Floats, bounds: Sequence[Bound]) -> None:
    for bound in bounds:
        if bound.side == "lower":
            lower[bound.input] = max(lower[bound.input], bound.value)
        else:
            upper[bound.input] = min(upper[bound.input], bound.value)


def _box(common: tuple[Floats, Floats], bounds: tuple[Bound, ...]) -> tuple[Floats, Floats] | None:
    """The common box narrowed by these bounds; None if it is empty."""
    lower, upper = common[0].copy(), common[1].copy()
    _narrow(lower, upper, bounds)
    if (lower > upper).any():
        return None
    for side, values in (("lower", lower), ("upper", upper)):
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            others = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
            which = f"{side} bound of X_{missing[0]}{others}"
            raise InvalidFormula(f"expected a bounded input set, got no {which}")
    return lower, upper


def _table(inputs: int, outputs: int, rows: tuple[LinearRow, ...]) -> tuple[Any, ...]:
    """Weights of the outputs, bounds, which are strict, and weights of the inputs if there are any."""
    weights = np.zeros((len(rows), inputs + outputs))  # Y_0 is the last column
    for line, row in zip(weights, rows, strict=True):
        for variable, weight in row.weights:
            line[variable] = weight
    bound, strict = np.array([row.bound for row in rows]), np.array([row.strict for row in rows], np.bool_)
    tied = weights[:, :inputs].copy() if weights[:, :inputs].any() else None
    return weights[:, inputs:][:, ::-1].copy(), bound, strict, tied


def read_vnnlib(path: Path | str) -> Spec:
    """The specification in a VNN-LIB file, 1.0 or 2.0, or in its .gz."""
    path = existing_file(Path(path)) or Path(path)
    try:
        data = read_unpacked(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such specification; give the path of a .vnnlib file") from None
    except OSError as problem:
        reason = problem.strerror or problem
        raise InputError(f"{path}: expected a readable VNN-LIB file, got: {reason}") from problem
    if len(data) > limit("spec-mb") << 20:
        raise InputError(f"{path}: {too_large('spec-mb', f'{len(data) >> 20} MB')}")
    if not data.strip():
        raise InputError(f"{path}: the file is empty; expected a VNN-LIB specification")
    return parse_vnnlib(data.decode("utf-8-sig", errors="replace"), str(path))


def parse_vnnlib(text: str, where: str = "<text>") -> Spec:
    """The specification a VNN-LIB text states; errors begin with where:line:column."""
    if _TWO.match(text, _end(_SPACE, text, 0)):
        return parse_two(text, where)
    try:
        return _parse(text)
    except InvalidFormula as problem:
        line = text.count("\n", 0, problem.item) + 1
        column = problem.item - text.rfind("\n", 0, problem.item)
        raise InputError(f"{where}:{line}:{column}: {problem}") from None


def _parse(text: str, quick: bool = True) -> Spec:
    """The specification; without `quick` every command uses the general parser, with the same result."""
    script, at = Script(), 0
    while True:
        if quick:
            at = _read_runs(text, at, script)
        at = _end(_SPACE, text, at)
        if at == len(text):
            return spec_of(*_sizes(text, script), script.asserted)
        if text[at] != "(":
            raise InvalidFormula(f"expected '(', got {text[at : at + 40].split()[0]!r}", at)
        at = formulas.read_command(text, at, script)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The end of a pattern that may match the empty string."""
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _split(run: str) -> list[str]:
    """The words of a run of plain commands."""
    return re.sub(r";[^\n]*", "", run).replace("(", " ").replace(")", " ").split()


def _read_runs(text: str, at: int, script: Script) -> int:
    """Read the plain declarations and bounds that begin here into the script; return where they end."""
    middle = _end(_DECLARATIONS, text, at)
    end = _end(_BOUNDS, text, middle)
    declared, words = _split(text[at:middle])[1::3], _split(text[middle:end])
    script.declared += [int(name[2:]) if name[0] == "X" else -1 - int(name[2:]) for name in declared]
    names = {name: int(name[2:]) for name in words[2::4]}
    bounds = tuple(
        Bound(names[name], "upper" if sign == "<=" else "lower", float(value) + 0.0)
        for sign, name, value in zip(words[1::4], words[2::4], words[3::4], strict=True)
    )
    script.names |= names
    script.asserted.append([All(bounds)])
    return end


def _sizes(text: str, script: Script) -> tuple[int, int]:
    """How many inputs and outputs are declared: all from X_0 and Y_0 on, and all that are used."""
    declared = set(script.declared)
    inputs = {variable for variable in declared if variable >= 0}
    outputs = {-1 - variable for variable in declared - inputs}
    for letter, indices in (("X", inputs), ("Y", outputs)):
        size = len(indices)
        gap = next((i for i in range(size) if i not in indices), None)
        if not size:
            message = f"expected (declare-const {letter}_0 Real), got no {letter} variable"
            raise InvalidFormula(message, len(text))
        if gap is not None:
            message = f"expected {letter}_{gap} to be declared: {size} {letter} variables are"
            raise InvalidFormula(message, len(text))
    used = next((name for name, variable in script.names.items() if variable not in declared), None)
    if used is not None:
        place = next(token.start() for token in formulas.TOKEN.finditer(text) if token[0] == used)
        raise InvalidFormula(f"expected a declared variable, got {used}, which is not declared", place)
    return len(inputs), len(outputs)


def parse_two(text: str, where: str) -> Spec:
    """The specification of a VNN-LIB 2.0 text about one network with one input."""
    vnnlib = require("reading VNN-LIB 2.0", "vnnlib")
    if not hasattr(vnnlib, "parse_query_string"):
        raise InputError(f"{where}: is VNN-LIB 2.0, which needs vnnlib 1.0 or newer: pip install -U vnnlib")
    try:
        query = vnnlib.parse_query_string(text)
    except vnnlib.VNNLibException as problem:
        raise InputError(f"{where}{_report(str(problem))}") from None
    try:
        offsets, inputs, outputs = _offsets(query)
        return spec_of(inputs, outputs, [_formula(one.expr, offsets) for one in query.assertions])
    except InvalidFormula as problem:
        raise InputError(f"{where}: {problem}") from None


def _report(report: str) -> str:
    """The first error of the package's report as :LINE: TEXT."""
    try:
        first = json.loads(report)["errors"][0]
        return f":{first['line']}: {first['message']} {first['offendingSymbol']!r}: {first['hint']}"
    except (ValueError, LookupError, TypeError):
        return ": " + " ".join(report.split())


def _offsets(query: Any) -> tuple[dict[str, formulas.Variable], int, int]:
    """The variable of each tensor's first entry, and how many inputs and outputs there are."""
    if len(query.networks) != 1:
        count = len(query.networks)
        raise InvalidFormula(f"expected one network, got {count}; holdfast verifies one network at a time")
    (network,) = query.networks
    if network.hidden:
        hidden = network.hidden[0].name
        raise InvalidFormula(f"expected inputs and outputs only, got the hidden node {hidden!r}")
    if len(network.inputs) != 1:
        raise InvalidFormula(f"expected a network with one input, got {len(network.inputs)}")
    for tensor in (*network.inputs, *network.outputs):
        if tensor.dtype.name not in _KINDS:
            raise InvalidFormula(f"expected {tensor.name!r} to be real or float, got {tensor.dtype.name}")
    offsets: dict[str, formulas.Variable] = {network.inputs[0].name: 0}
    outputs = 0
    for tensor in network.outputs:
        offsets[tensor.name] = -1 - outputs
        outputs += prod(tensor.shape)
    return offsets, prod(network.inputs[0].shape), outputs


def _formula(node: Any, offsets: dict[str, formulas.Variable]) -> Formula:
    match type(node).__name__:
        case "And":
            return formulas.conjoin([_formula(part, offsets) for part in node.args])
        case "Or":
            return [case for part in node.args for case in _formula(part, offsets)]
        case "NotEqual":
            signs = ["<", ">"]
        case kind if kind in _SIGNS:
            signs = [_SIGNS[kind]]
        case kind:
            raise InvalidFormula(f"expected comparisons, and, or, got {kind}: {node}")
    left, right = _term(node.lhs, offsets), _term(node.rhs, offsets)
    return [case for sign in signs for case in formulas.compare(sign, left, right)]


def _term(node: Any, offsets: dict[str, formulas.Variable]) -> Term:
    def terms(nodes: Sequence[Any]) -> list[Term]:
        return [_term(part, offsets) for part in nodes]

    match type(node).__name__:
        case "Var":
            flat = 0
            for index, size in zip(node.indices, node.shape, strict=True):
                flat = flat * size + index
            first = offsets[node.name]
            return {first + flat if first >= 0 else first - flat: Fraction(1)}
        case "Negate":
            return formulas.subtract(terms([node.expr]))
        case "Plus":
            return formulas.add(terms(node.args))
        case "Minus":
            return formulas.subtract(terms([node.head, *node.rest]))
        case "Multiply":
            return formulas.multiply(terms(node.args))
        case _ if hasattr(node, "lexeme"):
            return {None: Fraction(node.lexeme)}
        case kind:
            raise InvalidFormula(f"expected a linear term, got {kind}: {node}")
