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


# What some kinds of work run through besides.
MORE = {
    "attack": ("torch",), "train": ("torch",), "verify": ("torch", "numba", "highspy"),
    "language": ("tokenizers",), "speech": ("scipy", "librosa", "torch"),
}  # fmt: skip


def versions(kind: str = "") -> dict[str, str]:
    """Name -> version of Python and of the libraries the numbers of a kind of work depend on."""
    return dict(_found(kind))


@cache  # asking takes longer than most of what is asked for
def _found(kind: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    for name in (*OPTIONAL, *MORE.get(kind, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
