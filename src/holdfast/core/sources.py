"""What a cache key says of the software: library versions, and every holdfast module that work runs through.

Each kind of work that keeps results declares the packages and modules it runs through; they are hashed whole,
except a feature's options, commands and pages, which do not change results.
A test traces every kind of work and fails if it calls a module that is not declared.
"""

import contextlib
import functools
import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from holdfast.core import fingerprint

PACKAGE = Path(__file__).parents[1]
# Modules of a feature that read options or show results: they never change a result.
SHOWING = frozenset({"cli", "options", "page", "pages"})

_KERNEL = ("core", "data", "graph", "stages")  # images through pipelines and models
_REWRITE = ("graph.inspect", "graph.artifacts", "graph.nodes", "graph.rewrite", "graph.session")
_CELLS = ("engine.cells", "engine.store")
_EVALUATE = (
    *_KERNEL, *_CELLS, "metrics.classification", "engine.pipelines", "engine.preprocess", "engine.records",
)  # fmt: skip
_ATTACK = (*_EVALUATE, "attack", "metrics", "evaluate.classes")

# Kind of work -> the packages and modules below `holdfast` that can change its results.
SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "signs": ("core.fingerprint", "core.types", "data.embedded", "data.signs"),  # the embedded images
        "rewrite": _KERNEL,  # rewritten and calibrated graphs
        "evaluate": _EVALUATE,  # noise, audit, contest and compare share these cells
        "patched": (*_KERNEL, "audit.threats", "engine.store"),  # images with a patch on them
        "attack": _ATTACK,
        "squares": (*_ATTACK, "audit.recheck", "audit.result", "audit.square_map", "audit.squares"),
        "verify": (
            "core", "graph", "verify", "verify.cli", "verify.options", "audit.result", "audit.specs", *_CELLS,
        ),
        "contest": (
            *_EVALUATE, "metrics", "contest", "evaluate.classes", "evaluate.result", "evaluate.score",
        ),
        "language": ("core", *_CELLS, *_REWRITE, "metrics", "noise.language"),
        "speech": (
            "core", *_CELLS, *_REWRITE, "graph.card", "metrics", "noise.speech", "noise.speech.options",
        ),
        "train": (*_KERNEL, *_CELLS, "train", "evaluate.classes", "engine.executor", "engine.records"),
    }
)  # fmt: skip

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


@functools.cache
def code_of(kind: str) -> str:
    """The hash of the source that work of this kind runs through."""
    return fingerprint.of([[name, _hash(name)] for name in SOURCES[kind]])


@functools.cache
def _hash(name: str) -> str:
    """The hash of a package with all below it, or of a module."""
    place = PACKAGE.joinpath(*name.split("."))
    digest = hashlib.sha256()
    module = f"{place}.py"
    for file in [module] if os.path.isfile(module) else _below(str(place)):  # noqa: PTH113
        with open(file, "rb") as stream:  # noqa: PTH123 - of hundreds of files; pathlib takes twice as long
            data = stream.read()
        digest.update(f"{file[len(str(PACKAGE)) :]} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def _below(folder: str) -> list[str]:
    """All Python files below a folder that can change a result, sorted."""
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SHOWING]
        found += [f"{at}/{n}" for n in names if n.endswith(".py") and n[:-3].split("_")[-1] not in SHOWING]
    return sorted(found)


@functools.cache  # asking takes longer than most of what is asked for
def versions(kind: str = "") -> dict[str, str]:
    """Name -> version of Python and of the libraries the numbers of a kind of work depend on."""
    there = installed((*LIBRARIES, *OPTIONAL, *MORE.get(kind, ())))
    return {"python": platform.python_version(), **dict.fromkeys(LIBRARIES, "not installed"), **there}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Name -> version of those of the packages that are installed."""
    found = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
