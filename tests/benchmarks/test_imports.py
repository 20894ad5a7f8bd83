"""The benchmarks import what exists: they are run rarely, so a renamed function would go unnoticed."""

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_imported_name_of_the_package_exists(script):
    imports = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith("holdfast")]
    missing = []
    for node in ours:
        module = importlib.import_module(node.module)
        for name in (alias.name for alias in node.names):
            if not hasattr(module, name):
                try:
                    importlib.import_module(f"{node.module}.{name}")
                except ImportError:
                    missing.append(f"{node.module}.{name}")
    assert missing == []
