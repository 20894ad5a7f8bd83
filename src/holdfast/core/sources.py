"""The one rule for source code in cache keys: every holdfast module that the work runs through is in the key.

Each kind of work that keeps results declares the packages and modules it runs through; they are hashed whole.
A test traces every kind of work and fails if it calls a module that is not declared.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from holdfast.core import fingerprint

PACKAGE = Path(__file__).parents[1]

_KERNEL = ("core", "data", "graph", "stages")  # images through pipelines and models
_EVALUATE = (
    *_KERNEL, "metrics.segmentation", "run.answer", "run.job", "run.recording", "run.records", "run.share",
    "run.store", "run.versions", "run.work",
)  # fmt: skip
_ATTACK = (*_EVALUATE, "attack", "metrics", "noise", "run.attack", "run.classes")

# Kind of work -> the packages and modules below `holdfast` that can change its results.
SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "signs": ("core.seeds", "core.types", "data.embedded", "data.signs"),  # the embedded images
        "rewrite": _KERNEL,  # rewritten and calibrated graphs
        "evaluate": _EVALUATE,  # noise, audit, contest and compare share these cells
        "patched": (*_KERNEL, "run.audit.threats", "run.store"),  # images with a patch on them
        "attack": _ATTACK,
        "squares": (
            *_ATTACK, "run.audit.recheck", "run.audit.result", "run.audit.squares_map",
            "run.audit.squares_work",
        ),
        "verify": (
            "core", "graph", "verify", "cli.verify", "cli.watch", "run.audit.result", "run.audit.specs",
            "run.store", "run.versions", "run.vnncomp",
        ),
        "contest": (*_EVALUATE, "metrics", "run.classes", "run.contest", "run.evaluation", "run.score"),
        "language": (*_KERNEL, "metrics", "run.language", "run.store"),
        "speech": (*_KERNEL, "metrics", "noise", "run.speech", "run.store", "run.versions"),
        "train": (*_KERNEL, "train", "run.classes", "run.mitigate", "run.records", "run.store"),
    }
)  # fmt: skip


@functools.cache
def code_of(kind: str) -> str:
    """The hash of the source that work of this kind runs through."""
    return fingerprint.of([[name, _hash(name)] for name in SOURCES[kind]])


@functools.cache
def _hash(name: str) -> str:
    """The hash of a package with all below it, or of a module."""
    place = PACKAGE.joinpath(*name.split("."))
    digest = hashlib.sha256()
    for file in _below(str(place)) if place.is_dir() else [f"{place}.py"]:
        with open(file, "rb") as stream:  # noqa: PTH123 - of hundreds of files; pathlib takes twice as long
            data = stream.read()
        digest.update(f"{file[len(str(PACKAGE)) :]} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def _below(folder: str) -> list[str]:
    """All Python files below a folder, sorted."""
    return sorted(f"{at}/{n}" for at, _, names in os.walk(folder) for n in names if n.endswith(".py"))
