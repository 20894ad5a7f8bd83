"""VNN-LIB files, read: the many plain commands of large ones by two patterns, the rest list by list."""

from __future__ import annotations

import gzip
import re
import zlib
from math import isfinite
from pathlib import Path

from holdfast.core.errors import InputError
from holdfast.core.model import found_file
from holdfast.verify.vnnlib.algebra import Misfit
from holdfast.verify.vnnlib.cases import PlainBounds, spec_of
from holdfast.verify.vnnlib.spec import Spec
from holdfast.verify.vnnlib.words import TOKEN, Found, read_command

LIMIT_BYTES = 1 << 29
_SPACE = re.compile(r"(?>\s+|;[^\n]*)*+")
_INDEX = r"(?:0|[1-9]\d{0,8})"
_NUMBER = r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d{1,4})?"
# Runs of the two commands that make up large files.
_DECLARATIONS = re.compile(rf"(?>\s+|;[^\n]*|\(\s*+declare-const\s++[XY]_{_INDEX}\s++Real\s*+\))*+")
_BOUNDS = re.compile(rf"(?>\s+|;[^\n]*|\(\s*+assert\s*+\(\s*+[<>]=\s++X_{_INDEX}\s++{_NUMBER}\s*+\)\s*+\))*+")
_COMMENT = re.compile(r";[^\n]*")
_TWO = re.compile(r"\(\s*(?:vnnlib-version|declare-network)\b")


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
        from holdfast.verify.vnnlib.two import parse_two

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
