"""Fixtures every test may use."""

import os
from pathlib import Path

import pytest

from holdfast.core import registry


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models and images, or a skip with the reason."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("HOLDFAST_DATA", root.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real models and images at {folder}; set HOLDFAST_DATA to their folder")
    return folder


@pytest.fixture(autouse=True)
def parts_of_a_test_are_forgotten():
    """What a test registers or loads is not known to the next; holdfast's own parts stay, once loaded."""
    parts, files = set(registry._PARTS), set(registry._FILES)
    yield
    for key, part in list(registry._PARTS.items()):
        if key not in parts and not part.function.__module__.startswith("holdfast."):
            del registry._PARTS[key]
    for name in set(registry._FILES) - files:
        del registry._FILES[name]
