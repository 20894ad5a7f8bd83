"""A new long-running command is its options, its work and its result: about twenty lines, nothing else."""

from dataclasses import dataclass
from typing import Annotated

import jsonschema
import pytest

from holdfast.config.form import inputs_of, table_schema
from holdfast.config.options import Argument, Option, fields_of
from holdfast.config.parser import command_line, help_of, parse
from holdfast.config.toml import read_value
from holdfast.core.errors import InputError
from holdfast.core.registry import lookup
from holdfast.data.open import open_dataset
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.manifest import Manifest
from holdfast.engine.pipelines import content_of
from holdfast.engine.store import FolderStore
from holdfast.evaluate.options import RunOptions


@dataclass(frozen=True, kw_only=True)
class BrightnessOptions(RunOptions, command="brightness"):
    data: Annotated[str, Argument("A dataset.")]
    decode: Annotated[str, Option("Decoder.")] = "pillow"
    percent: Annotated[int, Option("Unit of the result.", least=1, most=100)] = 100


@dataclass(frozen=True)
class Brightness(ItemWork):
    decode: str

    def setups(self):
        return [Setup("evaluate", ["brightness", self.decode])]

    def contents(self, item):
        return [content_of(item)]

    def open(self, threads):
        return lookup("decode", self.decode)

    def compute_item(self, state, item):
        return float(state(item.load().data).mean())


@dataclass(frozen=True)
class Result:
    means: tuple[float, ...]
    command: str


MANIFEST = Manifest("brightness.json", "brightness", Result, "a brightness run")


def brightness(options, progress):
    entries = open_dataset(options.data, task="detect").entries
    cells = run(
        Brightness(options.decode),
        entries,
        FolderStore(options.runs / "cells"),
        jobs=options.jobs,
        progress=progress,
    )
    result = Result(tuple(value * options.percent / 100 for value in cells.read()), command_line(options))
    MANIFEST.save(result, options.runs / "brightness")
    return result


WORDS = ["signs:0:5", "--decode", "fast-idct", "--percent", "50"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_it_runs_resumes_and_saves(tmp_path, jobs):
    options, steps = parse(BrightnessOptions, [*WORDS, "--jobs", jobs, "--runs", str(tmp_path)]), []
    first = brightness(options, lambda *step: steps.append(step))
    assert len(set(first.means)) == 5
    next((tmp_path / "cells").glob("*/*.json")).unlink()
    again = brightness(options, lambda *step: steps.append(step))
    assert again == first == MANIFEST.open(tmp_path / "brightness")
    assert [sum(column) for column in zip(*steps, strict=True)] == [10, 4]


def test_it_has_help_and_a_command_line_that_recreates_it():
    assert "--percent N" in help_of(BrightnessOptions, "Measure how bright images are.")
    options = parse(BrightnessOptions, WORDS)
    assert command_line(options) == "holdfast brightness signs:0:5 --decode fast-idct --percent 50"
    with pytest.raises(InputError, match="--percent"):
        parse(BrightnessOptions, ["signs:0:5", "--percent", "101"])


def test_it_has_toml_keys_a_schema_and_a_form(tmp_path):
    specs = {spec.key: spec for spec in fields_of(BrightnessOptions)}
    assert read_value(specs["percent"], 50, tmp_path) == 50
    schema = table_schema(BrightnessOptions)
    jsonschema.validate({"data": "signs", "percent": 50}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"data": "signs", "percent": 101}, schema)
    assert [one.name for one in inputs_of(BrightnessOptions, ("decode", "percent"), {})] == [
        "decode",
        "percent",
    ]
