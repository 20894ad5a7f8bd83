"""The source tree: every feature has its modules, as docs/design.md lists them, and no folder is too wide."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.app import find_command, root

HOME = Path(holdfast.__file__).parent
DESIGN = HOME.parents[1] / "docs" / "design.md"
KERNEL = {"core", "metrics", "data", "graph", "stages", "engine", "config", "report"}
SHELL = {"api", "cli", "web", "models"}
LIMIT = 24  # files of one folder


def features():
    """Rows of the table of features: folder, public function, commands."""
    row = re.compile(r"^\| [^|]+ \| `([a-z/]+)/` \| `([a-z_.]+)` \| (`.+`) \|$", re.MULTILINE)
    return row.findall(DESIGN.read_text(encoding="utf-8"))


def test_every_package_is_kernel_shell_or_a_listed_feature():
    packages = {path.parent.name for path in HOME.glob("*/__init__.py")}
    assert packages | SHELL == KERNEL | SHELL | {folder.split("/")[0] for folder, _, _ in features()}


@pytest.mark.parametrize(
    ("folder", "function", "commands"), features(), ids=lambda value: value.split("`")[0]
)
def test_a_feature_has_its_modules_and_commands(folder, function, commands):
    place = HOME / folder
    assert ast.get_docstring(ast.parse((place / "__init__.py").read_text(encoding="utf-8")))
    module, _, name = function.rpartition(".")
    assert module == f"{folder.replace('/', '.')}.run"
    tree = ast.parse((place / "run.py").read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert (place / "cli.py").is_file() or (place.parent / "cli.py").is_file()
    assert (
        any((place / f"{room}.py").is_file() for room in ("page", "tables")) or (place / "vnncomp").is_dir()
    )
    for command in re.findall(r"`(?:holdfast )?([a-z]+(?: [a-z]+)?)[^`]*`", commands):
        home = find_command(command.split())[1]
        assert home != root(), command
        homes = [home] if isinstance(home, str) else [*home.commands.values(), home.itself or ""]
        assert any(text.startswith(folder.split("/")[0]) for text in homes if isinstance(text, str)), command


def test_no_folder_has_too_many_files():
    widths = Counter(str(path.parent.relative_to(HOME)) for path in HOME.rglob("*.py"))
    assert {folder: width for folder, width in widths.items() if width > LIMIT} == {}


def test_constructors_name_their_arguments_beyond_the_fifth():
    places = [
        f"{path.relative_to(HOME)}:{call.lineno} {call.func.id}"
        for path in HOME.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and len(call.args) > 5
        if re.match(r"_?[A-Z][a-z]|cls$", call.func.id)
    ]
    assert places == []
