"""What a noise suite found: one row an option, one line a family, one model or many. Saved as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson

from holdfast.core.errors import InputError
from holdfast.engine.cells import CellSet
from holdfast.engine.store import Store, to_json, write_atomic

MANIFEST = "noise.json"
Outcome: TypeAlias = Literal["measured", "identical", "no effect", "impossible", "not installed"]


@dataclass(frozen=True)
class Row:
    """One option. Δ = clean − noised in points of the metric (1 point = 0.01): positive is a loss."""

    family: str
    option: str
    outcome: Outcome
    note: str = ""  # how it was done, or why not
    value: float | None = None  # the metric under the noise, 0 to 1
    drop: float | None = None
    low: float | None = None  # paired 95 % interval of the drop
    high: float | None = None
    changed: int | None = None  # images whose prediction is another
    images: int = 0
    same_inputs: int = 0  # of those, images whose input tensor is the clean one bit for bit
    failed: int = 0
    alike: str = ""  # another option of the family with the same inputs throughout
    setup: str = field(default="", repr=False)  # the name of its cells in the store beside the run
    skipped: tuple[int, ...] = field(default=(), repr=False)  # places of the clean images it is not tested on

    @property
    def label(self) -> str:
        """family=option, as the command line takes it."""
        return f"{self.family}={self.option}"

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0: more than the choice of images."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Line:
    """A family of one model: mean and worst Δ over its distinct options, as the paper's tables have it."""

    family: str
    mean: float | None
    worst: float | None
    option: str  # the worst one; empty if it changes neither the metric nor a prediction
    distinct: int  # options with inputs or graphs of their own
    words: str = ""  # when there is nothing to measure


@dataclass(frozen=True)
class ModelNoise:
    """The noise of one model: its clean metric, every option, and all families' worst options together."""

    model: str
    sha256: str
    task: str
    metric: str
    clean: float
    images: int
    rows: tuple[Row, ...]
    combined: Row | None
    pipeline: dict[str, str]
    calibration: str = ""
    rule: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # why the clean predictions may be read wrongly
    failed: tuple[str, ...] = ()
    setup: str = field(default="", repr=False)  # the name of the clean cells
    items: tuple[str, ...] = field(default=(), repr=False)  # the hash of each image
    alignment: dict[str, Any] = field(default_factory=dict, repr=False)  # as Alignment.to_plain has it
    settings: dict[str, Any] = field(default_factory=dict)  # name of the rule, iou, score

    def cells(self, store: Store, row: Row | None = None) -> CellSet:
        """The cells of a row's records, or of the clean ones."""
        if row is None:
            return CellSet(store, self.setup, self.items)
        skipped = set(row.skipped)
        return CellSet(store, row.setup, tuple(h for n, h in enumerate(self.items) if n not in skipped))

    def of(self, family: str) -> tuple[Row, ...]:
        """The rows of a family."""
        return tuple(r for r in self.rows if r.family == family)

    @property
    def worst(self) -> Row | None:
        """Of the options that change the metric or a prediction, the one that costs most; else None."""
        return max((r for r in self.rows if r.drop is not None and moves(r)), key=harm, default=None)


@dataclass(frozen=True)
class Suite:
    """One run of the suite: models on one data set."""

    data: str
    models: tuple[ModelNoise, ...]
    command: str = ""
    created: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


def harm(row: Row) -> tuple[float, int]:
    """What makes one option worse than another: the points it costs, then the predictions it changes."""
    return row.drop or 0.0, row.changed or 0


def moves(row: Row) -> bool:
    """Whether an option changes anything: the metric, or a prediction."""
    return row.outcome == "measured" and bool(row.drop or row.changed)


def line(rows: Sequence[Row], family: str) -> Line:
    """The family's line: options with the same inputs as another or as the clean ones count once or not."""
    own = [r for r in rows if r.family == family]
    measured = [r for r in own if r.outcome == "measured" and r.drop is not None and not r.alike]
    if not measured:
        return Line(family, None, None, "", 0, _words(own))
    worst = max(measured, key=harm)
    drops = [r.drop or 0.0 for r in measured]
    named = worst.option if moves(worst) else ""
    return Line(family, sum(drops) / len(drops), worst.drop, named, len(measured))


def _words(own: Sequence[Row]) -> str:
    outcomes = {r.outcome for r in own}
    for outcome in ("identical", "no effect", "impossible", "not installed"):
        if outcome in outcomes:
            return outcome
    return "not run"


def as_plain(suite: Suite) -> dict[str, Any]:
    """The suite as JSON values, with the line of every family beside the rows."""
    plain = dataclasses.asdict(suite)
    for model, made in zip(plain["models"], suite.models, strict=True):
        names = dict.fromkeys(r.family for r in made.rows)
        model["families"] = [dataclasses.asdict(line(made.rows, name)) for name in names]
    return {"holdfast": 1, "kind": "noise", **plain}


def save(suite: Suite, folder: Path) -> Path:
    """The path of the written manifest."""
    path = folder / MANIFEST
    write_atomic(path, to_json(as_plain(suite), indent=True))
    return path


def open_suite(path: Path) -> Suite:
    """The suite that `save` wrote; InputError if there is none."""
    file = path / MANIFEST if path.is_dir() else path
    try:
        plain = orjson.loads(file.read_bytes())
        models = tuple(_model(m) for m in plain["models"])
        kept = {f.name: plain[f.name] for f in dataclasses.fields(Suite) if f.name != "models"}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{file}: expected the {MANIFEST} of a noise run, got: {problem}") from problem
    return Suite(models=models, **kept)


def _model(plain: dict[str, Any]) -> ModelNoise:
    known = {f.name for f in dataclasses.fields(ModelNoise)}
    values = {key: value for key, value in plain.items() if key in known}
    values["rows"] = tuple(_row(r) for r in plain["rows"])
    values["combined"] = None if plain["combined"] is None else _row(plain["combined"])
    for name in ("notes", "warnings", "failed", "items"):
        values[name] = tuple(values.get(name, ()))
    return ModelNoise(**values)


def _row(plain: dict[str, Any]) -> Row:
    return Row(**{**plain, "skipped": tuple(plain["skipped"])})


def suite_folder(suite: Suite, runs: Path) -> Path:
    """Where a suite is kept: by its models, its data and the options that were asked for."""
    from holdfast.core import fingerprint

    models = "-".join(m.model for m in suite.models)
    name = f"noise-{models}-on-{suite.data}"
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    same = [
        [m.sha256, m.images, m.rule, m.pipeline, m.calibration, [r.label for r in m.rows]]
        for m in suite.models
    ]
    return runs / f"{plain[:120]}-{fingerprint.of([name, same])[:6]}"
