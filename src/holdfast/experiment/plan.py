"""An experiment as data, read from its TOML file, and the JSON schema of such files.

The fields are the keys of the file; most are those of the commands. The reader reports all problems at once,
each with its line.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from holdfast.attack.options import AttackSettings
from holdfast.audit.gates import FAIL_IF, MIN_IMAGES, Gate, check, gates_of, min_images_of
from holdfast.audit.options import AuditSettings
from holdfast.config import completions
from holdfast.config.form import table_schema
from holdfast.config.options import FieldSpec, InvalidValue, Option, Options, fields_of, format_value
from holdfast.config.toml import read_value, unknown_key
from holdfast.config.toml_lines import Path as Where
from holdfast.config.toml_lines import line_of, lines_of
from holdfast.core.errors import InputError
from holdfast.core.limits import parse_toml
from holdfast.evaluate.options import (
    CardOptions,
    ClassOptions,
    DefenceOptions,
    ReadingOptions,
    ScoreOptions,
    SliceOptions,
    StageOptions,
)
from holdfast.metrics.points import ENOUGH
from holdfast.noise.options import AllOptions, CalibrationOptions, RuleOptions, SuiteNameOptions
from holdfast.verify.options import TimeoutOptions

LARGEST = 1 << 20  # bytes of a file
TABLES = ("model", "data", "condition", "gates")
DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, kw_only=True)
class ModelEntry(CardOptions, ClassOptions):
    """A [[model]]."""

    path: Annotated[str, Option("ONNX file, or name of a shipped model.", refers_to="model")]
    name: Annotated[str, Option("Name in the results (default: the file name).")] = ""


@dataclass(frozen=True, kw_only=True)
class DatasetEntry(ReadingOptions):
    """A [[data]]."""

    path: Annotated[str, Option("Folder or file, or signs:SEED:COUNT (embedded).", refers_to="data")]
    name: Annotated[str, Option("Name in the results (default: from the path).")] = ""


@dataclass(frozen=True, kw_only=True)
class Evaluate(ScoreOptions, SliceOptions, StageOptions, DefenceOptions, CalibrationOptions):
    """do = "evaluate"."""

    noise: Annotated[
        tuple[str, ...],
        Option(
            "Noise options, combined.",
            names=completions.noise_options,
            problem=completions.missing_library,
            example="precision=int8-minmax",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Noise(
    AllOptions, SuiteNameOptions, RuleOptions, SliceOptions, StageOptions, DefenceOptions, CalibrationOptions
):
    """do = "noise": every option alone, then the worst of each family together."""


@dataclass(frozen=True, kw_only=True)
class Verify(TimeoutOptions):
    """do = "verify": prove that no input of a set violates a property. It needs no data."""

    spec: Annotated[tuple[Path, ...], Option("VNN-LIB files.", refers_to="file")]
    seconds: Annotated[float | None, Option("Earlier name of timeout.", least=0)] = None


Work: TypeAlias = Evaluate | Noise | AttackSettings | AuditSettings | Verify
DOES: dict[str, type[Work]] = {
    "evaluate": Evaluate, "noise": Noise, "attack": AttackSettings, "audit": AuditSettings, "verify": Verify,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Condition(Options):
    """A [[condition]]: run for each model on each dataset."""

    do: Annotated[Literal["evaluate", "noise", "attack", "audit", "verify"], Option("What to run.")]
    name: Annotated[str, Option("Name in the results (default: the value of do).")] = ""
    work: Work = field(default_factory=Evaluate)


@dataclass(frozen=True, kw_only=True)
class Experiment(Options):
    """An experiment file. Its paths are relative to its folder, and absolute here."""

    file: Path
    models: tuple[ModelEntry, ...] = ()
    data: tuple[DatasetEntry, ...] = ()
    conditions: tuple[Condition, ...] = ()
    title: Annotated[str, Option("Title of the results.")] = ""
    seed: Annotated[int, Option("Random seed of attacks.", least=0)] = 0
    gates: tuple[Gate, ...] = ()


def read_experiment(file: Path) -> Experiment:
    """The experiment in a TOML file; raise InputError with file, line, field and values of every problem."""
    text = _text(file)
    try:
        document = parse_toml(text)
    except tomllib.TOMLDecodeError as problem:  # with the line in the same place as other errors
        message, _, position = str(problem).rpartition(" (at ")
        line, _, column = position.removeprefix("line ").rstrip(")").partition(", ")
        if not position.startswith("line "):
            raise InputError(f"{file}: expected TOML, got: {problem}") from None
        raise InputError(f"{file}:{line}: expected TOML, got: {message} ({column})") from None
    reader = _Reader(file, file.resolve().parent, lines_of(text))
    experiment = reader.experiment(document)
    if not reader.problems:
        return experiment
    problems = [line for _, line in sorted(reader.problems, key=lambda item: item[0])]
    many = f"{len(problems)} problems in {file}:\n" if len(problems) > 1 else ""
    raise InputError(many + "\n".join(problems))


def _text(file: Path) -> str:
    try:
        if file.is_dir():
            raise InputError(f"{file}: expected a TOML file, got a folder")
        size = file.stat().st_size
        if size > LARGEST:
            raise InputError(f"{file}: expected at most {LARGEST} bytes of TOML, got {size}")
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; docs/how-to/experiments.md shows one") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{file}: expected a readable TOML file, got: {problem}") from None


@dataclass
class _Reader:
    """The reader of an experiment file, and the problems so far by line."""

    file: Path
    folder: Path
    lines: Mapping[Where, int]
    problems: list[tuple[int, str]] = field(default_factory=list)

    def report(self, where: Where, what: str) -> None:
        line = line_of(self.lines, where)
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")
        location = f"{self.file}:{line}" if line else str(self.file)
        self.problems.append((line, ": ".join(filter(None, (location, name, what)))))

    def experiment(self, document: Mapping[str, Any]) -> Experiment:
        """The experiment; a value that cannot be read is reported and gets its default."""
        settings = {key: value for key, value in document.items() if key not in TABLES}
        experiment = Experiment(
            file=self.file,
            **self.table(Experiment, settings, (), TABLES),
            models=self.entries(document, "model", ModelEntry),
            data=self.entries(document, "data", DatasetEntry, needed=False),
            conditions=self.conditions(document),
            gates=tuple(self.gates(document.get("gates", {}))),
        )
        rows = document.get("condition", [])
        does = [str(row.get("do")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        if set(does) != {"verify"} and "data" not in document:
            self.report((), "expected at least one table [[data]], got none")
        if experiment.gates and "audit" not in does:
            self.report(("gates",), 'gates need an audit: add a [[condition]] with do = "audit"')
        return experiment

    def table(
        self, shape: type[Options], given: Mapping[str, Any], where: Where, also: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The values of a table that the fields of `shape` accept, by the names of the fields."""
        specs = keys_of(shape)
        values: dict[str, Any] = {}
        for key, value in given.items():
            if key not in specs:
                owner = _owners(key)
                foreign = f"not a key of this table; it belongs to {owner}"
                self.report((*where, key), foreign if owner else unknown_key(key, (*specs, *also)))
                continue
            try:
                values[specs[key].name] = read_value(specs[key], value, self.folder)
            except InvalidValue as problem:
                inside = () if problem.place is None else (problem.place,)
                self.report((*where, key, *inside), str(problem))
        for key, spec in specs.items():
            if spec.required and key not in given:
                self.report(where, f"{key} is missing: {spec.option.help}")
        return values

    def rows(self, document: Mapping[str, Any], name: str, needed: bool = True) -> list[Any]:
        tables = document.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(row, dict) for row in tables):
            single = "one table; write [[ ]] around its name, with two brackets"
            got = single if isinstance(tables, dict) else format_value(tables)
            self.report((name,), f"expected tables [[{name}]], got {got}")
            return []
        if not tables and (needed or name in document):
            where = (name,) if name in document else ()
            self.report(where, f"expected at least one table [[{name}]], got none")
        return tables

    def entries(self, document: Mapping[str, Any], name: str, shape: type[Any], needed: bool = True) -> Any:
        entries = []
        for index, row in enumerate(self.rows(document, name, needed)):
            entry = shape(**{"path": "", **self.table(shape, row, (name, index))})
            if entry.path and "name" not in row:
                last = entry.path.replace("\\", "/").rstrip("/").rpartition("/")[2]
                entry = replace(entry, name=last.removesuffix(".gz").removesuffix(".onnx") or entry.path)
            entries.append(entry)
        self.check_unique(name, {index: entry.name for index, entry in enumerate(entries)})
        return tuple(entries)

    def conditions(self, document: Mapping[str, Any]) -> tuple[Condition, ...]:
        conditions, names = [], dict[int, str]()
        for index, row in enumerate(self.rows(document, "condition")):
            where: Where = ("condition", index)
            common = keys_of(Condition)
            rest = {key: value for key, value in row.items() if key not in common}
            values = self.table(Condition, {k: v for k, v in row.items() if k in common}, where)
            if "do" not in values:  # the other keys depend on `do`
                continue
            names[index] = values.get("name", "" if "name" in row else values["do"])
            work = self.work(values["do"], rest, where)
            if work is not None:
                conditions.append(Condition(do=values["do"], name=names[index], work=work))
        self.check_unique("condition", names)
        return tuple(conditions)

    def work(self, does: str, rest: Mapping[str, Any], where: Where) -> Work | None:
        """The settings of a condition; None if they are invalid or incomplete."""
        shape, before = DOES[does], len(self.problems)
        foreign = {key: _owners(key) for key in sorted(rest.keys() - keys_of(shape).keys())}
        for key, owners in foreign.items():
            if owners:
                self.report((*where, key), f'not valid for do = "{does}"; it belongs to {owners}')
        own = {key: value for key, value in rest.items() if not foreign.get(key)}
        values = self.table(shape, own, where, ("do", "name"))
        if values.get("calibration") and shape is Evaluate and not values.get("noise"):
            self.report((*where, "calibration"), "needs `noise`")
        if isinstance(values.get("stage"), tuple):
            kinds = [text.partition("=")[0] for text in values["stage"]]
            for kind in sorted({k for k in kinds if kinds.count(k) > 1}):
                self.report((*where, "stage"), f"the stage {kind!r} is replaced twice")
        return shape(**values) if len(self.problems) == before else None

    def gates(self, given: Any) -> Iterator[Gate]:
        """Yield the gates of [gates], each read and checked separately."""
        if not isinstance(given, dict) or not given.get(FAIL_IF, True):
            self.report(("gates",), f'expected a table with {FAIL_IF} = ["…"], got {format_value(given)}')
            return
        try:
            least = min_images_of(given.get(MIN_IMAGES), MIN_IMAGES)
        except InputError as problem:
            self.report(("gates", MIN_IMAGES), str(problem).partition(": ")[2])
            least = None
        for key, value in given.items():
            if key == MIN_IMAGES:
                continue
            items = value if key == FAIL_IF and isinstance(value, list) else [value]
            for index, item in enumerate(items):
                where: Where = ("gates", key, index) if items is value else ("gates", key)
                try:
                    gates = gates_of({key: item}, "gates")
                    check(gates)
                    yield from (replace(gate, min_images=least) for gate in gates)
                except InputError as problem:
                    text = str(problem)
                    self.report(where, text.partition(": ")[2] if text.startswith("gates.") else text)

    def check_unique(self, name: str, names: Mapping[int, str]) -> None:
        first_index: dict[str, int] = {}
        for index, value in names.items():
            first = first_index.setdefault(value, index)
            if value and first != index:
                message = f"{value!r} is the name of {name}[{first}] already; give it another `name`"
                self.report((name, index, "name"), message)


def keys_of(shape: type[Options]) -> dict[str, FieldSpec]:
    """The fields of an options class by their keys."""
    return {spec.key: spec for spec in fields_of(shape)}


def _owners(key: str) -> str:
    """The tables that accept a key, in words; empty if there is none."""
    does = [f'"{does}"' for does, shape in DOES.items() if key in keys_of(shape)]
    tables: dict[str, type[Options]] = {"model": ModelEntry, "data": DatasetEntry}
    inside = [f"[[{name}]]" for name, shape in tables.items() if key in keys_of(shape)]
    return " or ".join([*([f"do = {' or '.join(does)}"] if does else []), *inside])


def schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of an experiment's file, with the names that are registered."""
    conditions = []  # one table of a condition per `do`
    for does, shape in DOES.items():
        shared, table = table_schema(Condition), table_schema(shape)
        own = shared["properties"]
        own["do"] = {"const": does, "description": own["do"]["description"]}
        table["properties"] = {**own, **table["properties"]}
        table["required"] = [*shared["required"], *table["required"]]
        conditions.append({**table, "title": does})
    condition = {"type": "object", "required": ["do"], "oneOf": conditions}
    text = {"type": "string", "minLength": 1, "examples": ["noise.map50.points_lost > 2"]}
    least = {
        "type": "integer", "minimum": 1, "default": ENOUGH,
        "description": "Minimum number of images for a gate to be decided.",
    }  # fmt: skip
    texts = {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    gates = {  # the list, or metric names with their limits
        "type": "object",
        "properties": {FAIL_IF: texts, MIN_IMAGES: least},
        "additionalProperties": {"type": ["string", "object"]},
        "description": "An audit fails if one of these is true: see docs/how-to/gate-a-release.md.",
    }
    optional = "The datasets; optional if every condition is do = 'verify'."
    return {
        "$schema": DRAFT,
        "title": "holdfast experiment",
        "description": "Models × datasets × conditions, for `holdfast run`.",
        "type": "object",
        "properties": {
            **table_schema(Experiment)["properties"],
            "model": _rows(table_schema(ModelEntry), "The models."),
            "data": _rows(table_schema(DatasetEntry), optional),
            "condition": _rows(condition, "Each condition runs for each model on each dataset."),
            "gates": gates,
        },
        "required": ["model", "condition"],
        "additionalProperties": False,
    }


def _rows(items: dict[str, Any], about: str) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items, "description": about}
