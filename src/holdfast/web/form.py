"""The form that starts an audit: its inputs, its values as options, and the command that runs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.audit.gates import check, gate_of
from holdfast.audit.options import AuditedOptions, AuditOptions
from holdfast.config.form import Input, inputs_of, values_of
from holdfast.config.options import fields_of
from holdfast.config.parser import command_words
from holdfast.core.errors import InputError
from holdfast.core.processes import python
from holdfast.data.embedded import NAMES
from holdfast.graph.load import shipped
from holdfast.web.paths import inside

UPLOADED = "upload:"  # before the name of an uploaded model
_EMBEDDED = re.compile(rf"({'|'.join(NAMES)})(:[0-9]{{1,9}}){{0,2}}")
MOST_LINES = 50
MAIN = ("model", "data", "budget", "fail_if")
# Files other than the model and the data are not for the form: it reads nothing outside the root.
MORE = tuple(
    spec.name
    for spec in fields_of(AuditedOptions)
    if spec.kind is not Path and not spec.option.refers_to and spec.name not in MAIN
)
FIRST = {"model": "signs-yolo", "data": "signs"}  # what the form is filled with at first


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


def form_inputs(values: Mapping[str, str]) -> tuple[list[Input], list[Input]]:
    """The inputs that are always shown, and the others, filled with values."""
    return inputs_of(AuditOptions, MAIN, values), inputs_of(AuditOptions, MORE, values)


def known_values(given: Mapping[str, str]) -> dict[str, str]:
    """What is given for inputs of the form; empty ones are left out."""
    keys = {one.name for group in form_inputs({}) for one in group}
    return {key: value for key, value in given.items() if key in keys and value.strip()}


def options_of(values: Mapping[str, str], places: Places, page: Path) -> AuditOptions:
    """The options of an audit; InputError if a value is missing, outside the root, or not accepted."""
    for key, text in values.items():
        lines = text.splitlines()
        if len(lines) > MOST_LINES:
            raise InputError(f"{key}: expected at most {MOST_LINES} lines, got {len(lines)}")
        if not all(line.isprintable() for line in lines):
            raise InputError(f"{key}: expected lines of printable text")
    subject = {
        "model": _model(values.get("model", "").strip(), places),
        "data": _data(values.get("data", "").strip(), places),
    }
    found = values_of(AuditOptions, (*MAIN, *MORE), {**values, **subject})
    check([gate_of(line, "gates") for line in found.get("fail_if", ())])
    return AuditOptions(**{**found, **subject}, runs=places.runs.resolve(), out=page)


def command_of(options: AuditOptions) -> list[str]:
    """The audit as a list of arguments: no shell, and nothing a form says can become an option."""
    return python("-m", "holdfast", *command_words(options))


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
