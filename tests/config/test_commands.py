"""Every command: its fields have help, and its options survive the command line, the schema and TOML."""

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.app import Group, find_command, load, root
from holdfast.config.form import value_schema
from holdfast.config.options import LARGEST, fields_of
from holdfast.config.parser import command_words, parse
from holdfast.experiment.cli import ExperimentOptions
from holdfast.experiment.plan import DOES, DatasetEntry, Experiment, ModelEntry, read_experiment, schema

# Options of one run of a command that have no meaning for all pieces of an experiment.
TABLES = {"csv", "markdown", "latex", "strict"}
RECORDS = {"predictions_out", "per_image"}
ALONE = {
    "evaluate": {
        *TABLES, *RECORDS, "model", "data", "truth", "predictions", "explain", "class_", "against", "top",
        "all_classes", "deploy_model", "provider",
    },
    "noise": TABLES | RECORDS | {"models_data", "task", "use", "deploy_model", "provider"},
    "attack": {"model", "data", "page"},
    "audit": RECORDS | {"model", "data", "gates", "fail_if", "min_images", "junit", "sarif"},
    "verify": {"net", "prop", "witness", "memory", "check"},
}  # fmt: skip


def homes(group=None, path=()):
    for word, node in (group or root()).commands.items():
        if isinstance(node, Group):
            yield from [((*path, word), node.itself)] if node.itself else []
            yield from homes(node, (*path, word))
        else:
            yield (*path, word), node


COMMANDS = dict(homes())
paths = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


@paths
def test_every_command_has_help_for_every_field(holdfast, path):
    done = holdfast(*path, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: holdfast {' '.join(path)}")
    shape = load(COMMANDS[path]).options
    assert shape.command == " ".join(path)
    text = "".join(done.out.split())
    for spec in fields_of(shape):
        assert spec.label in done.out
        assert spec.option.help.endswith(".")
        assert "".join(spec.option.help.split()) in text
        assert spec.required or spec.check(spec.default) == spec.default


@paths
def test_a_flag_is_the_name_of_its_field(path):
    for spec in fields_of(load(COMMANDS[path]).options):
        assert spec.positional or spec.label == "--" + spec.name.rstrip("_").replace("_", "-")


def values(spec):
    """Values that a field accepts."""
    texts = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=9)
    words = texts.filter(lambda text: "," not in text) if spec.option.commas else texts
    bounds = (spec.option.least or 0, spec.option.most if spec.option.most is not None else LARGEST)
    one = {
        bool: st.booleans(),
        int: st.integers(*bounds),
        float: st.floats(*bounds),
        Path: texts.map(Path),
        dict: st.dictionaries(texts.filter(lambda text: "=" not in text), texts, max_size=3),
        str: st.sampled_from(["90s", "1h30m", "none"]) if spec.name == "budget" else words,
    }[spec.kind]
    one = st.sampled_from(spec.choices) if spec.choices else one
    many = st.lists(one, min_size=1 if spec.required or spec.default else 0, max_size=3).map(tuple)
    found = many if spec.many else one
    return st.none() | found if spec.optional else found


@paths
@given(data=st.data())
def test_the_command_line_of_options_parses_to_the_same_options(path, data):
    shape = load(COMMANDS[path]).options
    specs = fields_of(shape)
    drawn = data.draw(st.sets(st.sampled_from([s.name for s in specs]))) if specs else set()
    places = [spec.name for spec in specs if spec.positional]
    given = {
        spec.name: data.draw(values(spec), label=spec.name)
        for spec in specs
        if spec.required or spec.name in drawn or spec.positional
    }
    if any(given[name] is None or given[name] == "" for name in places):  # a place that nothing follows
        given |= {name: None for name in places if not next(s for s in specs if s.name == name).required}
        given = {n: v for n, v in given.items() if v is not None or n not in places}
    options = shape(**given)
    assert parse(shape, command_words(options)[len(path) :]) == options


@pytest.mark.parametrize("does", DOES)
def test_every_flag_of_a_command_is_a_key_of_an_experiment(does):
    shape = load(COMMANDS[(does,)]).options
    elsewhere = (DOES[does], ModelEntry, DatasetEntry, Experiment, ExperimentOptions)
    known = {spec.name for one in elsewhere for spec in fields_of(one)}
    assert {spec.name for spec in fields_of(shape)} - known == ALONE[does]


@pytest.mark.parametrize("does", DOES)
def test_the_default_of_a_key_is_that_of_the_flag(does):
    flags = {spec.name: spec for spec in fields_of(load(COMMANDS[(does,)]).options)}
    for spec in fields_of(DOES[does]):
        if spec.name in flags:
            assert spec == flags[spec.name]


def toml(value):
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


@pytest.mark.parametrize("does", DOES)
def test_the_schema_accepts_what_the_reader_accepts(does, tmp_path):
    (tmp_path / "a.vnnlib").write_text("")
    lines = []
    for spec in fields_of(DOES[does]):
        if spec.kind is Path:
            lines.append(f'{spec.key} = "a.vnnlib"')
        elif spec.default not in (None, ()):
            lines.append(f"{spec.key} = {toml(spec.default)}")
        elif spec.kind in (int, float):
            lines.append(f"{spec.key} = {spec.option.least}")
    text = '[[model]]\npath = "signs-yolo"\n[[data]]\npath = "signs"\n[[condition]]\n' + "\n".join(
        [f'do = "{does}"', *lines]
    )
    (tmp_path / "e.toml").write_text(text)
    (condition,) = read_experiment(tmp_path / "e.toml").conditions
    assert condition.do == does
    jsonschema.validate(tomllib.loads(text), schema())
    for spec in fields_of(DOES[does]):
        assert value_schema(spec)["description"]


def test_only_the_module_of_the_command_is_imported():
    code = (
        "import sys\n"
        "from holdfast.cli import run\n"
        "run(['doctor', '--help'])\n"
        "others = {'holdfast.evaluate.cli', 'holdfast.audit.cli', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported too: {sorted(others)}' if others else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from holdfast.cli import run\n"
        "run(['--help'])\n"
        "run(['audit', '--help'])\n"
        "sys.exit(','.join({'numpy', 'onnx', 'torch', 'rich', 'jinja2'} & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_class_has_one_command_and_a_command_one_class():
    shapes = [load(home).options for home in COMMANDS.values()]
    assert len({shape.command for shape in shapes}) == len(shapes)
    assert all(dataclasses.is_dataclass(shape) and find_command(shape.command.split())[1] for shape in shapes)
