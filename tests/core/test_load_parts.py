"""Parts from a user's file, and what is said of a broken one."""

import pytest

from holdfast.core import registry
from holdfast.core.errors import InputError
from holdfast.core.registry import load_parts, loaded_files, names, part

GOOD = '''
from dataclasses import dataclass

from holdfast import stage


@dataclass(frozen=True)
class Dim:
    by: int = 2


@stage("colour")
def own_dim(image):
    """The pixels, darker."""
    return image // Dim().by


@stage("noise", family="mine")
def own_noise(pipeline):
    """The pipeline, darker."""
    return pipeline.replace(colour="own-dim")
'''


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for kind in registry._HOMES:  # loaded now, or they would be lost with the copy
        registry.names(kind)
    monkeypatch.setattr(registry, "_PARTS", dict(registry._PARTS))
    monkeypatch.setattr(registry, "_FILES", {})


def written(folder, text, name="mine.py"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_a_files_parts_are_registered_under_a_stable_module(tmp_path):
    path = written(tmp_path, GOOD)
    made = load_parts(path)
    assert [(p.kind, p.name) for p in made] == [("colour", "own-dim"), ("noise", "own-noise")]
    assert part("colour", "own-dim").function.__module__ == "holdfast_use_mine"
    assert loaded_files() == {"holdfast_use_mine": path.resolve()}
    assert not list(tmp_path.glob("__pycache__"))


def test_a_file_loaded_again_is_what_it_says_now(tmp_path):
    load_parts(written(tmp_path, GOOD))
    load_parts(written(tmp_path, GOOD.replace("own_dim", "own_dimmer")))
    assert "own-dim" not in names("colour")
    assert "own-dimmer" in names("colour")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (\n", r"mine.py:1: SyntaxError: '\(' was never closed"),
        ("x = 1\ny = x / 0\n", "mine.py:2: ZeroDivisionError: division by zero"),
        ("\nimport no_such_module\n", "mine.py:2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)\n", "mine.py:1: SystemExit: 3"),
        ("x = 1\n", "mine.py: the file registers no part; decorate a function with @stage"),
        (GOOD.replace('"colour"', '"color"'), "unknown kind of part 'color'. Did you mean 'colour'?"),
        (GOOD.replace("own_dim(", "rgb("), r"mine.py:12: colour 'rgb' is already defined by holdfast itself"),
    ],
)
def test_a_broken_file_is_one_line_with_its_place_and_leaves_nothing(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=said) as caught:
        load_parts(path)
    assert "\n" not in str(caught.value)
    assert str(path.resolve()) in str(caught.value)
    assert loaded_files() == {}
    assert "own-dim" not in names("colour")
    assert "rgb" in names("colour")


def test_no_file_and_two_files_of_one_name(tmp_path):
    with pytest.raises(InputError, match="expected a Python file, got: No such file"):
        load_parts(tmp_path / "none.py")
    load_parts(written(tmp_path / "a", GOOD))
    with pytest.raises(InputError, match="is already loaded"):
        load_parts(written(tmp_path / "b", GOOD))
