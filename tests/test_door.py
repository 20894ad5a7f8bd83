"""The public door: sorted, complete, lazy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast


def test_the_door_is_sorted_complete_and_opens():
    assert holdfast.__all__ == sorted(holdfast.__all__, key=lambda n: (not n.isupper(), n))
    assert set(holdfast.__all__) == {*holdfast._HOMES, "__version__"}
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None


def test_what_type_checkers_see_is_what_opens():
    tree = ast.parse(Path(holdfast.__file__).read_text())
    seen = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast."):
            for alias in node.names:
                inside = f":{alias.name}" if alias.asname else ""
                seen[alias.asname or alias.name] = node.module.removeprefix("holdfast.") + inside
    seen.pop("__version__")
    assert seen == holdfast._HOMES


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = holdfast.no_such_name


def test_start_up_loads_nothing_heavy():
    code = (
        "import sys, holdfast\n"
        "from holdfast.cli import run\n"
        "named = {'torch', 'onnxruntime', 'onnx', 'cv2', 'PIL', 'jinja2', 'rich'}\n"
        "assert run(['--help']) == 0\n"
        "heavy = {*named, 'numpy'} & set(sys.modules)\n"
        "assert run(['evaluate', '--help']) == 0\n"
        "heavy |= named & set(sys.modules)\n"
        "sys.exit(f'loaded at start: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
