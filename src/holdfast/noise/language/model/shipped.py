"""The language models that come with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def shipped() -> dict[str, Path]:
    """The files of the shipped language models, by name."""
    folder = Path(str(resources.files("holdfast"))) / "models" / "language"
    return {f.stem: f for f in sorted(folder.glob("*.onnx"))} if folder.is_dir() else {}
