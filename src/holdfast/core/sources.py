"""Software part of cache keys: library versions, and every holdfast module that a kind of work uses.

Each kind of work with cached results declares the packages and modules it uses. They are hashed completely,
except a feature's options, commands and pages, which do not affect results.
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
# Modules of a feature that read options or present results: they never affect a result.
SHOWING = frozenset({"cli", "options", "page", "pages"})

_KERNEL = ("core", "data", "graph", "stages")  # images through pipelines and models
_REWRITE = (
    "graph.inspect", "graph.artifacts", "graph.formats", "graph.nodes", "graph.quantised", "graph.rewrite",
    "graph.session",
)  # fmt: skip
_CELLS = ("engine.cells", "engine.store")
_EVALUATE = (*_KERNEL, *_CELLS, "metrics.classification", "engine.pipelines", "engine.records")
_ATTACK = (*_EVALUATE, "attack", "metrics", "evaluate.classes")

# Kind of work -> the packages and modules below `holdfast` that can affect its results.
SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "signs": ("core.fingerprint", "core.types", "data.embedded", "data.signs"),  # the embedded images
        "rewrite": _KERNEL,  # rewritten and calibrated graphs
        "evaluate": _EVALUATE,  # noise, audit, contest and compare share these cells
        "patched": (*_KERNEL, "audit.threats", "engine.store"),  # images with a patch on them
        "attack": _ATTACK,
        "certify": (*_EVALUATE, "certify.work"),
        "certify attack": (*_ATTACK, "certify.attacked", "certify.certificate", "certify.work"),
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
# Additional libraries of some kinds of work.
MORE = {
    "attack": ("torch",), "train": ("torch",), "verify": ("torch", "numba", "highspy"),
    "language": ("tokenizers",), "speech": ("scipy", "librosa", "torch"),
}  # fmt: skip


@functools.cache
def code_of(kind: str) -> str:
    """The hash of the source code that work of this kind uses."""
    return fingerprint.of([[name, _hash(name)] for name in SOURCES[kind]])


@functools.cache
def _hash(name: str) -> str:
    """The hash of a package with all below it, or of a module."""
    place = PACKAGE.joinpath(*name.split("."))
    digest = hashlib.sha256()
    module = f"{place}.py"
    for file in [module] if os.path.isfile(module) else _files_of(str(place)):  # noqa: PTH113
        with open(file, "rb") as stream:  # noqa: PTH123 - of hundreds of files; pathlib takes twice as long
            data = stream.read()
        digest.update(f"{file[len(str(PACKAGE)) :]} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _files_of(folder: str) -> list[str]:
    files = []  # that can affect a result
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SHOWING]
        files += [f"{at}/{n}" for n in names if n.endswith(".py") and n[:-3].split("_")[-1] not in SHOWING]
    return sorted(files)


@functools.cache  # the lookup is slow
def versions(kind: str = "") -> dict[str, str]:
    """Name -> version of Python and of the libraries the numbers of a kind of work depend on."""
    there = installed((*LIBRARIES, *OPTIONAL, *MORE.get(kind, ())))
    return {"python": platform.python_version(), **dict.fromkeys(LIBRARIES, "not installed"), **there}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Name -> version of those of the packages that are installed."""
    by_name = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            by_name[name] = metadata.version(name)
    return by_name
