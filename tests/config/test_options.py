"""One declaration of options: flags, keywords, TOML keys, schema, form, and the command line again."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import jsonschema
import pytest

from holdfast.config.form import inputs_of, table_schema, values_of
from holdfast.config.options import Argument, InvalidValue, Option, Options, carry, changed, fields_of
from holdfast.config.parser import command_line, command_words, help_of, parse
from holdfast.config.toml import read_value
from holdfast.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Paint(Options):
    command: ClassVar[str] = "paint"

    first: Annotated[str, Argument("One.")]
    second: Annotated[Path | None, Argument("Two.")] = None
    count: Annotated[int, Option("How many.", least=1, most=9)] = 3
    share: Annotated[float | None, Option("How much.", least=0, most=1)] = None
    force: Annotated[bool, Option("Do it.")] = False
    keep: Annotated[bool, Option("Keep it.")] = True
    name: Annotated[tuple[str, ...], Option("Each.")] = ()
    only: Annotated[tuple[str, ...], Option("These.", commas=True)] = ()
    sizes: Annotated[tuple[int, ...], Option("Sizes.", least=1)] = (1, 2)
    map: Annotated[Mapping[str, str], Option("Names.", example="a=b")] = field(default_factory=dict)
    kind: Annotated[Literal["red", "green"], Option("Which.", group="Colours")] = "red"
    out: Annotated[Path, Option("To.", short="-o")] = Path("x")


NAMES = tuple(spec.name for spec in fields_of(Paint))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["a"], {}),
        (["a", "b"], {"second": Path("b")}),
        (["--count", "4", "a", "--force", "b"], {"count": 4, "force": True, "second": Path("b")}),
        (["a", "--count=4", "--share", "1e-1"], {"count": 4, "share": 0.1}),
        (["a", "-o", "y"], {"out": Path("y")}),
        (["a", "-oy"], {"out": Path("y")}),
        (["a", "--out=-y", "-"], {"out": Path("-y"), "second": Path("-")}),
        (["--", "--force", "-o"], {"first": "--force", "second": Path("-o")}),
        (["a", "--force", "--no-force", "--no-keep"], {"keep": False}),
        (["a", "--name", "p", "--name=q=r"], {"name": ("p", "q=r")}),
        (["a", "--only", "p, q", "--only", "r"], {"only": ("p", "q", "r")}),
        (["a", "--sizes", "7"], {"sizes": (7,)}),
        (["a", "--map", "p=q", "--map=r=s=t"], {"map": {"p": "q", "r": "s=t"}}),
        (["a", "--kind", "green", "--kind", "red"], {}),
        (["a", "--out="], {"out": Path()}),
    ],
)
def test_words_become_options(words, values):
    assert parse(Paint, words) == Paint(**{"first": "a", **values})


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["a", "--count", "4", "-h"], ["--help", "--nonsense"]])
def test_help_comes_before_everything_else(words):
    assert parse(Paint, words) is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "missing FIRST"),
        (["a", "b", "c"], "unexpected argument 'c'; expected FIRST SECOND"),
        (["a", "--cuont", "4"], "unknown option '--cuont'. Did you mean '--count'?"),
        (["a", "--coun", "4"], "unknown option '--coun'. Did you mean '--count'?"),
        (["a", "-x"], "unknown option '-x'"),
        (["a", "--count", "0"], "--count: expected a whole number from 1 to 9, got 0"),
        (["a", "--count", "1.5"], "--count: expected a whole number from 1 to 9, got '1.5'"),
        (["a", "--share", "nan"], "--share: expected a number from 0 to 1, got nan"),
        (["a", "--count"], "--count: expected N after it, got nothing"),
        (["a", "--out", "--force"], "--out: expected FILE after it, got '--force'; write --out=VALUE"),
        (["a", "--force=yes"], "--force takes no value, got 'yes'"),
        (["a", "--kind", "grene"], "--kind: expected red or green, got 'grene'; did you mean 'green'?"),
        (["a", "--map", "p"], "--map: expected NAME=VALUE such as 'a=b', got 'p'"),
        (["a", "--sizes", "99999999999"], "--sizes: expected a whole number from 1, got 99999999999"),
    ],
)
def test_a_wrong_word_is_one_line_that_says_where_to_look(words, problem):
    with pytest.raises(InputError) as caught:
        parse(Paint, words)
    assert str(caught.value).startswith(problem)
    assert str(caught.value).endswith("(see holdfast paint --help)")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"count": 10}, "count: expected a whole number from 1 to 9, got 10"),
        ({"count": True}, "count: expected a whole number from 1 to 9, got true"),
        ({"kind": "blue"}, "kind: expected red or green, got 'blue'"),
        ({"sizes": ()}, "sizes: expected a whole number from 1, got nothing"),
        ({"sizes": (0,)}, "sizes: expected a whole number from 1, got 0"),
        ({"name": (1,)}, "name: expected text, got 1"),
    ],
)
def test_keywords_are_checked_like_words(values, problem):
    with pytest.raises(InputError) as caught:
        Paint(first="a", **values)
    assert str(caught.value).startswith(problem)


def test_keywords_become_the_types_of_their_fields():
    made = Paint(first="a", second="b", share=1, sizes=[3, 4], name="x")
    assert (made.second, made.share, made.sizes, made.name) == (Path("b"), 1.0, (3, 4), ("x",))
    assert isinstance(made.share, float)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"count": 9, "share": 0.25, "force": True, "keep": False, "kind": "green", "out": Path("-")},
        {"second": Path("--force"), "name": ("-x", "--y", "a b", "")},
        {"first": "-o", "only": ("p", "q"), "map": {"-a": "b=c", "d": ""}, "out": Path("--help")},
    ],
)
def test_the_command_line_gives_the_options_again(values):
    made = Paint(**{"first": "a", **values})
    assert parse(Paint, command_words(made)[1:]) == made


def test_the_command_line_leaves_out_defaults():
    assert command_line(Paint(first="a b", count=3, out=Path("x"))) == "holdfast paint 'a b'"
    line = command_line(Paint(first="a", only=("p", "q"), out=Path("y")))
    assert line == "holdfast paint a --only p,q -o y"


def test_fields_that_two_classes_have_are_carried():
    @dataclass(frozen=True, kw_only=True)
    class Other(Options):
        count: Annotated[int, Option("How many.")] = 1
        out: Annotated[Path, Option("To.")] = Path()
        more: Annotated[int, Option("More.")] = 0

    assert carry(Paint(first="a", count=7), Other, more=2) == Other(count=7, out=Path("x"), more=2)
    assert changed(Other(more=2)) == {"more": 2}


def test_help_shows_every_field_under_its_group():
    text = help_of(Paint, "Do something.\n\n    More about it.")
    assert text.startswith("Usage: holdfast paint FIRST [SECOND] [OPTIONS]\n")
    assert "\n\nDo something.\n\nMore about it.\n" in text
    for row in ("--out FILE", "--count N", "--force ", "Colours:", "--kind red|green"):
        assert row in text
    assert "How many. [1 to 9; default: 3]" in text
    assert "Sizes. [default: 1, 2]" in text


def test_a_value_of_a_file_is_read_by_the_same_field(tmp_path):
    specs = {spec.name: spec for spec in fields_of(Paint)}
    assert read_value(specs["sizes"], 3, tmp_path) == (3,)
    assert read_value(specs["map"], {"a": "b"}, tmp_path) == {"a": "b"}
    wrong = {"count": 0, "share": float("inf"), "name": [" "], "map": {"a": 1}, "out": "no"}
    for name, value in wrong.items():
        with pytest.raises(InvalidValue, match="expected"):
            read_value(specs[name], value, tmp_path)


def test_a_command_of_ten_lines_has_flags_keys_schema_form_and_line(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Blur(Options):
        command: ClassVar[str] = "blur"
        image: Annotated[Path, Argument("A picture.")]
        radius: Annotated[float, Option("Radius in pixels.", least=0, most=50)] = 2.0
        edge: Annotated[Literal["wrap", "reflect"], Option("What lies beyond the border.")] = "reflect"

    options = parse(Blur, ["a.png", "--radius", "3"])
    assert options == Blur(image=Path("a.png"), radius=3.0)
    assert command_line(options) == "holdfast blur a.png --radius 3.0"
    assert "What lies beyond the border." in help_of(Blur, "Blur a picture.")
    (tmp_path / "a.png").touch()
    table = {"image": "a.png", "radius": 3}
    jsonschema.validate(table, table_schema(Blur))
    given = [spec for spec in fields_of(Blur) if spec.key in table]
    read = {spec.name: read_value(spec, table[spec.key], tmp_path) for spec in given}
    assert Blur(**read) == dataclasses.replace(options, image=tmp_path / "a.png")
    assert [(one.name, one.kind) for one in inputs_of(Blur, ("radius", "edge"), {})] == [
        ("radius", "number"), ("edge", "select"),
    ]  # fmt: skip
    sent = values_of(Blur, ("radius", "edge"), {"radius": "3", "edge": "wrap"})
    assert Blur(image="a.png", **sent) == Blur(image=Path("a.png"), radius=3.0, edge="wrap")


@pytest.mark.parametrize(
    "given", [{}, {"count": "9", "sizes": "4\n5\n", "force": "on", "map": "a=b\nc=d", "kind": "green"}]
)
def test_a_form_sends_what_it_was_filled_with(given):
    names = tuple(name for name in NAMES if name not in ("first", "second", "out"))
    filled = {one.name: one.value for one in inputs_of(Paint, names, given)}
    expected = {"count": 9, "sizes": (4, 5), "force": True, "map": {"a": "b", "c": "d"}, "kind": "green"}
    made = Paint(first="a", **values_of(Paint, names, filled))
    assert made == Paint(first="a", **(expected if given else {}))


def test_a_form_with_a_wrong_value_is_told_by_the_same_words():
    with pytest.raises(InputError, match="count: expected a whole number from 1 to 9, got 12"):
        values_of(Paint, ("count",), {"count": "12"})
