"""Versions of everything that can change a number."""

from __future__ import annotations

import platform
from importlib import metadata

# The libraries under test and those the numbers pass through.
LIBRARIES = (
    "holdfast", "numpy", "onnx", "onnxruntime", "opencv-python-headless", "pillow", "av", "simplejpeg",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Name -> version of Python and of the libraries the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
