"""Versions of everything that can change a number."""

from __future__ import annotations

import contextlib
import platform
from functools import cache
from importlib import metadata

# The libraries under test and those the numbers pass through.
LIBRARIES = (
    "holdfast", "numpy", "onnx", "onnxruntime", "opencv-python-headless", "pillow", "av", "simplejpeg",
)  # fmt: skip
# Decoders of the extras: named only where they are installed.
OPTIONAL = (
    "jpeglib", "kornia-rs",
    "nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "tensorflow", "tensorflow-cpu",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Name -> version of Python and of the libraries the numbers depend on."""
    return dict(_found())


@cache  # to ask takes longer than most of what is asked for
def _found() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    for name in OPTIONAL:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
