"""Hashes of all a score depends on: rules, models, data, feature net, code."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from holdfast.contest.rules import Rules
from holdfast.core import fingerprint
from holdfast.core.errors import InputError
from holdfast.core.sources import code_of

_LIBRARIES = ("numpy", "onnxruntime", "pillow")  # they do the arithmetic


@dataclass(frozen=True)
class Hashes:
    """The sha256 of each thing a score depends on; only scores that agree in all are ranked together."""

    rules: str
    models: str
    data: str
    features: str
    code: str

    @property
    def whole(self) -> str:
        """One hash of all of them."""
        return fingerprint.of(asdict(self))

    def differing(self, other: Hashes) -> tuple[str, ...]:
        """Which of the things differ."""
        mine, theirs = asdict(self), asdict(other)
        return tuple(name for name in mine if mine[name] != theirs[name])


def hashes_of(folder: Path, rules: Rules) -> Hashes:
    """The hashes of the contest in a folder as it is now; the models are taken by the hashes in the rules."""
    cards = [_content(folder / m.file, ".toml") for m in rules.mimic.members]
    models = [[m.name, m.sha256, card] for m, card in zip(rules.mimic.members, cards, strict=True)]
    return Hashes(
        # Not where the feature net's file lies: its hash is one of its own.
        rules=fingerprint.of(dataclasses.replace(rules, features="")),
        models=fingerprint.of([rules.single.name, models]),
        data=fingerprint.of([_content(folder / "manifest.json"), _content(folder / "truth.json")]),
        features=fingerprint.of([rules.distance, rules.features_sha256]),
        code=code(),
    )


def _content(path: Path, suffix: str = "") -> str:
    try:
        return fingerprint.of_file(path.with_suffix(suffix) if suffix else path)
    except FileNotFoundError:
        return "missing"
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def code() -> str:
    """The hash of the source of everything a score goes through, and of the libraries' versions."""
    return fingerprint.of([code_of("contest"), {name: metadata.version(name) for name in _LIBRARIES}])
