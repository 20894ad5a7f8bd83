"""Counterexamples found on disk and replayed in ONNX Runtime on the benchmark's own files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import found_file, read_onnx
from holdfast.graph.session import condense, open_session
from holdfast.verify.vnncomp.grade import grade
from holdfast.verify.vnncomp.judge import Grade
from holdfast.verify.vnncomp.ledger import remembered
from holdfast.verify.vnncomp.protocol import read_counterexample
from holdfast.verify.vnncomp.results import Row
from holdfast.verify.vnncomp.rules import Rules
from holdfast.verify.vnnlib import Spec, read_vnnlib

# Flat inputs in, the inputs in the network's precision and its flat outputs out.
Replay: TypeAlias = Callable[[NDArray[np.float64]], tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True)
class Library:
    """Where benchmark files may lie: folders by category, and others; what was opened stays open."""

    known: Mapping[str, Path] = field(default_factory=dict)
    roots: tuple[Path, ...] = ()
    replays: Any = field(default_factory=lambda: lru_cache(maxsize=8)(open_replay), compare=False)
    specs: Any = field(default_factory=lambda: lru_cache(maxsize=2)(read_vnnlib), compare=False)

    def find(self, category: str, name: str) -> Path | None:
        """The file of that name in a table, by as much of its path as is the same here; None if absent."""
        parts = Path(name.removesuffix(".gz")).parts
        places = self._places(category)
        for first in range(len(parts)):
            for place in places:
                file = found_file(place.joinpath(*parts[first:]))
                if file is not None:
                    return file
        return None

    def _places(self, category: str) -> list[Path]:
        """Folders that belong to the category; any, if none does: names like prop_1 are in many."""
        own = [root / category for root in self.roots] + [r for r in self.roots if r.name == category]
        if category in self.known:
            own.insert(0, self.known[category])
        return [place for place in own if place.is_dir()] or list(self.roots)


def graded(rules: Rules, row: Row, table: Path, library: Library, *, ours: bool) -> tuple[Grade, str]:
    """The grade of the counterexample of a row that says violated, and why it is not better.

    Our results name its file; for others it is looked for where the organisers put it. A table of another
    tool without such files is unchecked, one of ours without is missing.
    """
    file = table.parent / row.witness if row.witness else _published(row, table)
    if file is None or not file.is_file():
        if ours or row.witness:
            return "missing", f"no counterexample at {row.witness}" if row.witness else "no counterexample"
        return "unchecked", "no counterexample at hand"
    network, spec = (library.find(row.category, name) for name in (row.network, row.spec))
    if network is None or spec is None:
        return "unchecked", f"no file {row.network if network is None else row.spec}: give --benchmarks"
    try:
        return _graded(rules, _content(file), library.replays(network), library.specs(spec), file)
    except ModelError as problem:  # says nothing of the counterexample
        return "unchecked", str(problem)


def _graded(rules: Rules, text: str, replay: Replay, spec: Spec, file: Path) -> tuple[Grade, str]:
    if not text.strip():
        return "missing", f"{file.name} is empty"
    try:
        found = read_counterexample(text, file.name)
    except InputError as problem:
        return "invalid", str(problem)
    if found.inputs.size != spec.inputs:
        return "invalid", f"expected {spec.inputs} inputs, got {found.inputs.size}"
    point, outputs = replay(found.inputs)
    return grade(rules, spec, found, point, outputs[: spec.outputs])


def _published(row: Row, table: Path) -> Path | None:
    """Where the organisers put a counterexample: <category>/<network>_<spec>.counterexample(.gz)."""
    network, spec = (Path(name.removesuffix(".gz")) for name in (row.network, row.spec))
    name = f"{network.stem}_{spec.stem}.counterexample"
    names = [name, f"{network.parent.name}_{name}"]  # where one name lies in several folders
    folders = [table.parent, *sorted(p for p in table.parent.glob(f"*{row.category}") if p.is_dir())]
    for folder in folders:
        for one in names:
            file = found_file(folder / one)
            if file is not None:
                return file
    return None


def _content(file: Path) -> str:
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as problem:
        raise InputError(f"{file}: expected a counterexample, got: {problem}") from None
    return data.decode("utf-8", "replace")


def open_replay(path: Path) -> Replay:
    """A function that runs flat inputs through an ONNX file in ONNX Runtime; ModelError if it cannot."""
    try:
        session = open_session(read_onnx(path) if path.suffix == ".gz" else path)
    except Exception as problem:
        raise ModelError(f"{path}: ONNX Runtime cannot load it: {condense(problem)}") from problem
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise ModelError(f"{path}: expected one input, got {len(inputs)}")
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in inputs[0].shape]
    kind = np.float64 if "double" in inputs[0].type else np.float32

    def replay(values: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        point = values.astype(kind)
        try:
            outputs = session.run(None, {inputs[0].name: point.reshape(shape)})
        except Exception as problem:
            raise ModelError(f"{path}: ONNX Runtime cannot run it: {condense(problem)}") from problem
        return point, np.concatenate([np.asarray(v, np.float64).ravel() for v in outputs])

    return replay


def library_of(tables: Sequence[Path], folders: Sequence[Path]) -> Library:
    """The library of these benchmark folders, of those our own runs remember, and of what lies around."""
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--benchmarks: expected a folder, got {folder}")
    known = {category: place for table in tables for category, place in remembered(table).items()}
    around = [*folders, *(table.parent for table in tables), Path.cwd()]
    return Library(known, tuple(dict.fromkeys(path.resolve() for path in around)))
