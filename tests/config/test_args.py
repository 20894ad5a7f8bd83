"""What a signature becomes on the command line."""

from pathlib import Path
from typing import Annotated, Literal

import pytest

from holdfast.cli.app import COMMANDS, Group, load, walk
from holdfast.cli.help import command_help
from holdfast.config.args import Argument, Option, parse, slots_of
from holdfast.core.errors import InputError


def command(
    first: Annotated[str, Argument("One.")],
    second: Annotated[Path | None, Argument("Two.")] = None,
    out: Annotated[Path, Option("To.", short="-o")] = Path("x"),
    count: Annotated[int, Option("How many.", least=1, most=9)] = 3,
    share: Annotated[float | None, Option("How much.", least=0, most=1)] = None,
    force: Annotated[bool, Option("Do it.")] = False,
    names: Annotated[tuple[str, ...], Option("Each.", name="--name")] = (),
    kind: Annotated[Literal["red", "green"], Option("Which.", group="Colours")] = "red",
) -> int:
    """Do something.

    More about it.
    """
    return 0


SLOTS = slots_of(command)


def parsed(*words):
    return parse("holdfast x", SLOTS, words)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["a"], {"first": "a"}),
        (["a", "b"], {"first": "a", "second": Path("b")}),
        (
            ["--count", "4", "a", "--force", "b"],
            {"count": 4, "first": "a", "force": True, "second": Path("b")},
        ),
        (["a", "--count=4", "--share", "1e-1"], {"first": "a", "count": 4, "share": 0.1}),
        (["a", "-o", "y"], {"first": "a", "out": Path("y")}),
        (["a", "-oy"], {"first": "a", "out": Path("y")}),
        (["a", "--out", "-y", "-"], {"first": "a", "out": Path("-y"), "second": Path("-")}),
        (["--", "--force", "-o"], {"first": "--force", "second": Path("-o")}),
        (["a", "--force", "--no-force"], {"first": "a", "force": False}),
        (["a", "--name", "p", "--name=q=r"], {"first": "a", "names": ("p", "q=r")}),
        (["a", "--kind", "green", "--kind", "red"], {"first": "a", "kind": "red"}),
        (["a", "--out="], {"first": "a", "out": Path()}),
    ],
)
def test_words_become_values(words, wanted):
    assert parsed(*words) == wanted


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["a", "--count", "4", "-h"], ["--help", "--nonsense"]])
def test_help_is_asked_for(words):
    assert parsed(*words) is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "expected FIRST; not given"),
        (["a", "b", "c"], "unexpected argument 'c'; expected FIRST SECOND"),
        (["a", "--cuont", "4"], "unknown option '--cuont'. Did you mean '--count'?"),
        (["a", "-x"], "unknown option '-x'"),
        (["a", "--count", "0"], "--count: expected a whole number from 1 to 9, got '0'"),
        (["a", "--count", "1.5"], "--count: expected a whole number from 1 to 9, got '1.5'"),
        (["a", "--share", "nan"], "--share: expected a number from 0 to 1, got 'nan'"),
        (["a", "--count"], "--count: expected N behind it, got nothing"),
        (["a", "--out", "--force"], "--out: expected FILE behind it, got the option --force"),
        (["a", "--force=yes"], "--force takes no value, got 'yes'"),
        (["a", "--kind", "grene"], "--kind: expected red or green, got 'grene'. Did you mean 'green'?"),
        (["a", "--handed-over", "1"], "unknown option '--handed-over'"),
    ],
)
def test_a_wrong_word_is_named(words, problem):
    with pytest.raises(InputError) as caught:
        parsed(*words)
    assert str(caught.value).startswith(problem)
    assert str(caught.value).endswith("(see holdfast x --help)")


def test_the_last_place_may_take_all_that_follow():
    def score(files: Annotated[tuple[Path, ...], Argument("Files.")]) -> None:
        """Score."""

    assert parse("x", slots_of(score), ["a", "b", "c"]) == {"files": (Path("a"), Path("b"), Path("c"))}
    with pytest.raises(InputError, match="expected FILES"):
        parse("x", slots_of(score), [])


def test_help_shows_all_of_it():
    text = command_help("holdfast x", command.__doc__, SLOTS)
    assert text.startswith("Usage: holdfast x FIRST [SECOND] [OPTIONS]\n\nDo something.\n\nMore about it.\n")
    for row in ("-o, --out FILE", "--count N", "--force", "--name TEXT", "Colours", "--kind red|green"):
        assert row in text
    assert "How many. [1 ≤ N ≤ 9; default: 3]" in text
    assert "handed" not in text


def homes(group, path=()):
    for word, node in group.items():
        if isinstance(node, Group):
            yield from homes(node.commands, (*path, word))
        else:
            yield (*path, word)


@pytest.mark.parametrize("path", list(homes(COMMANDS)), ids=" ".join)
def test_every_command_has_help_and_sound_defaults(holdfast, path):
    done = holdfast(*path, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: holdfast {' '.join(path)}")
    for slot in slots_of(load(walk(list(path))[1])):
        assert slot.name in done.out
        assert slot.about.about.endswith(".")
        assert slot.kind in (str, Path, int, float, bool)
        if isinstance(slot.default, int | float) and isinstance(slot.about, Option):
            assert slot.about.least is None or slot.default >= slot.about.least


def test_only_the_module_of_the_command_is_imported():
    import subprocess
    import sys

    code = (
        "import sys\n"
        "from holdfast.cli import run\n"
        "run(['doctor', '--help'])\n"
        "others = {'holdfast.evaluate.cli', 'holdfast.cli.model', 'holdfast.cli.data'} & set(sys.modules)\n"
        "sys.exit(f'imported too: {sorted(others)}' if others else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
