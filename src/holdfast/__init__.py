"""Measure whether a perception model still works where it is deployed.

The names load on first use, so `import holdfast` costs next to nothing.
"""

# The public names are listed once: as imports in __init__.pyi, which type checkers read as well.
from holdfast._version import __version__ as __version__

# Importing a package binds its name here, over a function of the same name. Import these (empty) packages
# first and drop the names, so that `holdfast.evaluate` is the function.
for _package in (
    "attack", "audit", "certify", "compare", "contest", "diagnose", "evaluate", "noise", "patchbench",
    "verify",
):  # fmt: skip
    __import__(f"holdfast.{_package}")
    del globals()[_package]


def _homes() -> dict[str, str]:
    """Public name -> module:name, read from the imports of the stub file."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_bytes())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: f"{one.module}:{alias.name}" for one in imports for alias in one.names
    }


def __getattr__(name: str) -> object:
    if name.startswith("__") and name != "__all__":  # what Python itself looks for
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    import importlib

    homes = _homes()
    if name == "__all__":
        return sorted(homes)
    if name not in homes:
        from difflib import get_close_matches

        near = get_close_matches(name, homes, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}{hint}", name=name, obj=None)
    module, _, inside = homes[name].partition(":")
    found = importlib.import_module(module)
    value: object = getattr(found, inside, None) or importlib.import_module(f"{module}.{inside}")
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted(_homes())
