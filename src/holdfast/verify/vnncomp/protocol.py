"""The words and files of the three protocols, written and read.

`document` is the one of the competition's source document ("<sat|unsat|…> <seconds>"), `2021` the final one
of 2021 (holds, violated, …), `2022` that of all later years (sat, unsat, …, the counterexample below sat).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from holdfast.core.errors import InputError, UnknownName

if TYPE_CHECKING:  # numpy takes longer to load than all the rest of what a script of the competition needs
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.core.property import Status

Protocol: TypeAlias = Literal["document", "2021", "2022"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
STATUSES: tuple[Status, ...] = ("holds", "violated", "unknown", "timeout", "error")

_SAT = {"holds": "unsat", "violated": "sat"}
# What result files and the official result tables say for no answer, by how the word begins; the official
# scorer takes `prepare_instance_error_*` and files without a result for unknown.
_BEGINNINGS: tuple[tuple[str, Status], ...] = (
    ("unsat", "holds"),
    ("sat", "violated"),
    ("holds", "holds"),
    ("violated", "violated"),
    ("timeout", "timeout"),
    ("run_instance_timeout", "timeout"),
    ("prepare_instance_timeout", "timeout"),
    ("prepare_instance_error", "unknown"),
    ("no_result_in_file", "unknown"),
    ("error_nonmaximal", "unknown"),
    ("unknown", "unknown"),
    ("error", "error"),
    ("run_single_instance_error", "error"),
)
_PAIR = re.compile(r"\(\s*([XY])_(\d+)\s+([^\s()]+)\s*\)")


@dataclass(frozen=True, eq=False)
class Counterexample:
    """The inputs (n,) that violate a property and the outputs (m,) the tool says they give."""

    inputs: NDArray[np.float64]
    outputs: NDArray[np.float64]


def protocol_named(name: str) -> Protocol:
    """The protocol of that name, or UnknownName with the nearest one."""
    for protocol in PROTOCOLS:
        if name == protocol:
            return protocol
    raise UnknownName("protocol", name, PROTOCOLS)


def status_of(word: str) -> Status | None:
    """What a word of a result file or of an official result table means; None if nobody says it."""
    said = word.strip().lower()
    if not said:
        return "unknown"
    return next((status for beginning, status in _BEGINNINGS if said.startswith(beginning)), None)


def result_text(protocol: Protocol, status: Status, seconds: float, witness: str = "") -> str:
    """The content of a result file; `witness` is the text of the counterexample.

    Where one is due, a violation whose counterexample is none is unknown.
    """
    if protocol == "2021":
        return f"{status}\n"
    word = _SAT.get(status, status)
    if protocol == "document":
        return f"{word} {max(seconds, 0.0):.3f}\n"
    if status != "violated":
        return f"{word}\n"
    try:
        _values(witness, "counterexample")
    except InputError:
        return "unknown\n"
    return f"sat\n{_body(witness)}\n"


def counterexample_text(found: Counterexample) -> str:
    """The counterexample as the result files of 2022 and later hold it, with every digit."""
    rows = [*_rows("X", found.inputs), *_rows("Y", found.outputs)]
    return "(" + "\n".join(rows) + ")\n"


def _rows(letter: str, values: NDArray[np.floating]) -> list[str]:
    flat = values.astype("float64").ravel().tolist()
    return [f"({letter}_{i} {value!r})" for i, value in enumerate(flat)]


def read_counterexample(text: str, where: str = "counterexample") -> Counterexample:
    """The counterexample of such a text, with or without the word sat before it; InputError if it is none.

    Spaces and line ends are free, X and Y may come in any order, but each index from 0 must be there once.
    """
    import numpy as np

    inputs, outputs = _values(text, where)
    return Counterexample(np.array(inputs, np.float64), np.array(outputs, np.float64))


def _body(text: str) -> str:
    """The text without the word sat before it."""
    body = text.strip()
    return body[3:].strip() if body[:3].lower() == "sat" else body


def _values(text: str, where: str) -> tuple[list[float], list[float]]:
    """All X and all Y of a counterexample, in the order of their indices."""
    body = _body(text)
    if not (body.startswith("(") and body.endswith(")")):
        raise InputError(f"{where}: expected ((X_0 value) … (Y_0 value) …), got {body[:40]!r}")
    rest = _PAIR.sub(" ", body[1:-1]).strip()
    if rest:
        raise InputError(f"{where}: expected (X_0 value) or (Y_0 value), got {rest[:40]!r}")
    values: dict[str, dict[int, float]] = {"X": {}, "Y": {}}
    for letter, index, number in _PAIR.findall(body[1:-1]):
        if int(index) in values[letter]:
            raise InputError(f"{where}: {letter}_{int(index)} is given twice")
        values[letter][int(index)] = _number(number, where)
    return _ordered("X", values["X"], where), _ordered("Y", values["Y"], where)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: expected a number, got {text[:40]!r}") from None


def _ordered(letter: str, values: dict[int, float], where: str) -> list[float]:
    for index in range(len(values)):
        if index not in values:
            raise InputError(f"{where}: {letter}_{index} is missing")
    return [values[index] for index in range(len(values))]
