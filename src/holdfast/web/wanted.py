"""An audit somebody wants: what the form says, checked, and the command that does it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from holdfast.audit.gates import check, gate_of
from holdfast.audit.plan import budget_of
from holdfast.core.errors import InputError
from holdfast.core.processes import python
from holdfast.data.embedded import NAMES
from holdfast.graph.load import shipped
from holdfast.web.paths import inside

UPLOADED = "upload:"  # before the name of an uploaded model
_EMBEDDED = re.compile(rf"({'|'.join(NAMES)})(:[0-9]{{1,9}}){{0,2}}")
MOST_GATES = 50


@dataclass(frozen=True)
class Asked:
    """The fields of the form, as they were typed."""

    model: str
    data: str
    budget: str = "10m"
    gates: str = ""


@dataclass(frozen=True)
class Wanted:
    """An audit that can be started: absolute paths or shipped names, and where it is to write."""

    model: str
    data: str
    budget: str
    gates: tuple[str, ...]
    runs: Path
    page: Path


@dataclass(frozen=True)
class Places:
    """The folders a request may lead to."""

    root: Path
    runs: Path

    @property
    def uploads(self) -> Path:
        """Where uploaded files lie."""
        return self.runs / "uploads"

    @property
    def started(self) -> Path:
        """Where each audit that was started from the page keeps its output."""
        return self.runs / "started"


def wanted_of(asked: Asked, places: Places, page: Path) -> Wanted:
    """What the form asks for; InputError if something is missing, outside the root, or no value."""
    budget = asked.budget.strip()[:40]
    budget_of(budget)
    return Wanted(
        model=_model(asked.model.strip(), places),
        data=_data(asked.data.strip(), places),
        budget=budget,
        gates=_gates(asked.gates),
        runs=places.runs.resolve(),
        page=page,
    )


def command_of(wanted: Wanted) -> list[str]:
    """The audit as a list of arguments: no shell, and nothing a form says can become an option."""
    gates = [f"--fail-if={gate}" for gate in wanted.gates]
    where = ["--runs", str(wanted.runs), "-o", str(wanted.page)]
    head = python("-m", "holdfast", "audit", f"--budget={wanted.budget}", *where, *gates)
    return [*head, "--", wanted.model, wanted.data]


def _model(text: str, places: Places) -> str:
    if not text:
        raise InputError("model: expected a shipped model or an .onnx file below the root, got nothing")
    if text in shipped():
        return text
    base = places.root
    if text.startswith(UPLOADED):
        base, text = places.uploads, text.removeprefix(UPLOADED)
    found = inside(base, text)
    if found.suffix.lower() != ".onnx" or not found.is_file():
        raise InputError(f"model {text[:200]!r}: expected an .onnx file")
    return str(found)


def _data(text: str, places: Places) -> str:
    if not text:
        raise InputError("data: expected `signs` or a data set below the root, got nothing")
    return text if _EMBEDDED.fullmatch(text) else str(inside(places.root, text))


def _gates(text: str) -> tuple[str, ...]:
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if len(lines) > MOST_GATES:
        raise InputError(f"gates: expected at most {MOST_GATES} lines, got {len(lines)}")
    if any(not line.isprintable() for line in lines):
        raise InputError("gates: expected lines of printable text")
    check([gate_of(line, "gates") for line in lines])
    return lines
