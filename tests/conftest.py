"""Fixtures every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models and images, or a skip with the reason."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("HOLDFAST_DATA", root.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real models and images at {folder}; set HOLDFAST_DATA to their folder")
    return folder
