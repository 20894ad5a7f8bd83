"""Counterexamples on disk, replayed in ONNX Runtime on the benchmark's own files and graded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import existing_file, read_onnx, read_unpacked
from holdfast.graph.session import condense, open_session
from holdfast.verify.vnncomp.results import Counterexample, ResultRow, read_counterexample
from holdfast.verify.vnncomp.rules import Grade, Rules
from holdfast.verify.vnncomp.run import remembered
from holdfast.verify.vnnlib import Spec, read_vnnlib

Numbers = NDArray[np.floating]
# Flat inputs in, the inputs in the network's precision and its flat outputs out.
Replay: TypeAlias = Callable[[NDArray[np.float64]], tuple[NDArray[Any], NDArray[Any]]]


def grade(
    rules: Rules, spec: Spec, counterexample: Counterexample, point: Numbers, replayed: Numbers
) -> tuple[Grade, str]:
    """The grade of a counterexample and why it is not better (empty if it is valid).

    `point` (n,) are its inputs in the network's own precision, `replayed` (m,) ONNX Runtime's outputs of it.
    """
    if point.size != spec.inputs or replayed.size != spec.outputs:
        got = f"{point.size} and {replayed.size}"
        return "invalid", f"expected {spec.inputs} inputs and {spec.outputs} outputs, got {got}"
    if not (np.isfinite(point).all() and np.isfinite(replayed).all()):
        return "invalid", "some of its numbers are not finite"
    outputs = replayed
    if rules.declared is not None:
        error = declared_error(counterexample.outputs, replayed, relative=rules.relative)
        if not error <= rules.declared:
            return "invalid", f"its outputs differ from ONNX Runtime's by {error:.3g}"
        outputs = counterexample.outputs
    why = _why_not(spec, point, outputs, rules.box, rules.output)
    if why:
        return "invalid", why
    why = _why_not(spec, point, replayed, 0.0, 0.0)
    return ("tolerated", f"only within the tolerance: {why}") if why else ("valid", "")


def declared_error(declared: Numbers, replayed: Numbers, *, relative: bool) -> float:
    """The largest difference of the declared outputs from the replayed ones; infinite if shapes differ."""
    if declared.shape != replayed.ravel().shape:
        return float("inf")
    error = float(np.abs(replayed.ravel() - declared).max(initial=0.0))
    scale = float(np.abs(declared).max(initial=0.0))
    if not relative:
        return error
    return 0.0 if scale < 1e-6 else error / scale  # as in the organisers' program


def _why_not(spec: Spec, point: Numbers, outputs: Numbers, box: float, output: float) -> str:
    """Why the point violates no case of the specification; empty if it does."""
    flat, y = point.ravel(), outputs.astype(np.float64).ravel()
    best = outside = np.inf
    for case in spec.cases:
        # The value of a fixed input may not be representable; then its nearest float counts.
        fixed = (case.lower == case.upper) & (flat == case.lower.astype(flat.dtype))
        x = np.where(fixed, case.lower, flat.astype(np.float64))
        away = float(max((case.lower - x).max(initial=0.0), (x - case.upper).max(initial=0.0)))
        outside = min(outside, away)
        if away > box:
            continue
        excess = case.rows @ y - case.bound  # at most 0 where a row is met
        excess = excess if case.inputs is None else excess + case.inputs @ x
        if ((excess < 0) | ((excess == 0) & ~case.strict) | (excess <= output) & (output > 0)).all():
            return ""
        best = min(best, float(excess.max()))
    if outside <= box:
        return f"the outputs are safe, by {best:.3g}"
    return f"the inputs are outside the box, by {outside:.3g}"


@dataclass(frozen=True)
class BenchmarkLibrary:
    """Folders of benchmark files by category, and others; opened sessions stay open."""

    recorded: Mapping[str, Path] = field(default_factory=dict)
    roots: tuple[Path, ...] = ()
    replays: Any = field(default_factory=lambda: lru_cache(maxsize=8)(open_replay), compare=False)
    specs: Any = field(default_factory=lambda: lru_cache(maxsize=2)(read_vnnlib), compare=False)

    def find(self, category: str, name: str) -> Path | None:
        """The file named in a table, matched by the longest trailing part of its path; None if absent."""
        own = [root / category for root in self.roots] + [r for r in self.roots if r.name == category]
        if category in self.recorded:
            own.insert(0, self.recorded[category])
        # Other folders only if none belongs to the category: names like prop_1 are in many.
        places = [place for place in own if place.is_dir()] or self.roots
        parts = Path(name.removesuffix(".gz")).parts
        ends = [parts[first:] for first in range(len(parts))]
        return _first_file(place.joinpath(*end) for end in ends for place in places)


def graded(
    rules: Rules, row: ResultRow, table: Path, library: BenchmarkLibrary, *, ours: bool
) -> tuple[Grade, str]:
    """The grade of the counterexample of a row, and why it is not better; unchecked without a violation.

    Our results name its file; without the file the grade is "missing". Others are looked up where the
    organisers publish them, and are "unchecked" if there is none.
    """
    if row.result != "violated":
        return "unchecked", ""
    file = table.parent / row.witness if row.witness else _published(row, table)
    if file is None or not file.is_file():
        if ours or row.witness:
            return "missing", f"no counterexample at {row.witness}" if row.witness else "no counterexample"
        return "unchecked", "no counterexample available"
    network, spec = (library.find(row.category, name) for name in (row.network, row.spec))
    if network is None or spec is None:
        return "unchecked", f"no file {row.network if network is None else row.spec}: give --benchmarks"
    try:
        text = read_unpacked(file).decode("utf-8", "replace")
    except OSError as problem:
        raise InputError(f"{file}: expected a counterexample, got: {problem}") from None
    try:
        return _graded(rules, text, library.replays(network), library.specs(spec), file)
    except ModelError as problem:  # not evidence about the counterexample
        return "unchecked", str(problem)


def _graded(rules: Rules, text: str, replay: Replay, spec: Spec, file: Path) -> tuple[Grade, str]:
    if not text.strip():
        return "missing", f"{file.name} is empty"
    try:
        counterexample = read_counterexample(text, file.name)
    except InputError as problem:
        return "invalid", str(problem)
    if counterexample.inputs.size != spec.inputs:
        return "invalid", f"expected {spec.inputs} inputs, got {counterexample.inputs.size}"
    point, outputs = replay(counterexample.inputs)
    return grade(rules, spec, counterexample, point, outputs[: spec.outputs])


def _published(row: ResultRow, table: Path) -> Path | None:
    """The published path of a counterexample: <category>/<network>_<spec>.counterexample(.gz)."""
    network, spec = (Path(name.removesuffix(".gz")) for name in (row.network, row.spec))
    name = f"{network.stem}_{spec.stem}.counterexample"
    names = [name, f"{network.parent.name}_{name}"]  # if several folders contain the name
    folders = [table.parent, *sorted(p for p in table.parent.glob(f"*{row.category}") if p.is_dir())]
    return _first_file(folder / one for folder in folders for one in names)


def _first_file(paths: Iterable[Path]) -> Path | None:
    """The first path that exists, plain or packed."""
    return next(filter(None, map(existing_file, paths)), None)


def open_replay(path: Path) -> Replay:
    """A function that runs flat inputs through an ONNX file in ONNX Runtime; raise ModelError on failure."""
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


def library_of(tables: Sequence[Path], folders: Sequence[Path]) -> BenchmarkLibrary:
    """The library of these benchmark folders, those recorded by our runs, and nearby folders."""
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--benchmarks: expected a folder, got {folder}")
    recorded = {category: place for table in tables for category, place in remembered(table).items()}
    around = [*folders, *(table.parent for table in tables), Path.cwd()]
    return BenchmarkLibrary(recorded, tuple(dict.fromkeys(path.resolve() for path in around)))
