"""Two runs of one kind compared: what became better or worse, with intervals where the records allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from holdfast.compare.result import Body, Comparison, Kind, Run, comparison_of
from holdfast.core.errors import InputError

MANIFESTS: dict[str, Kind] = {  # an audit's folder first: it may hold the others' files too
    "audit.json": "audit",
    "noise.json": "noise",
    "language.json": "language noise",
    "speech.json": "speech noise",
    "attack.json": "attack",
    "run.json": "evaluation",
}
_KINDS: dict[str, Kind] = {
    "audit": "audit",
    "noise": "noise",
    "noise-language": "language noise",
    "noise of speech": "speech noise",
}


def compare_runs(a: Path, b: Path) -> Comparison:
    """What is better and worse in B than in A; InputError in one line if the two cannot be compared."""
    first, second = manifest_of(a), manifest_of(b)
    kinds = (kind_of(first), kind_of(second))
    if kinds[0] != kinds[1]:
        raise InputError(
            f"A is {_with_article(kinds[0])} and B {_with_article(kinds[1])}: "
            "expected two runs of one kind (evaluation, noise, attack or audit)"
        )
    body, names = _READERS[kinds[0]](first, second)
    about = [
        _about(path, manifest, name)
        for path, manifest, name in zip((a, b), (first, second), names, strict=True)
    ]
    return comparison_of(kinds[0], about[0], about[1], body, same=first.resolve() == second.resolve())


def manifest_of(run: Path) -> Path:
    """The manifest of a run, given its folder or the manifest itself; InputError if there is none."""
    if run.is_file():
        return run
    if not run.is_dir():
        raise InputError(
            f"{run}: no such run; give the folder of an evaluation, a noise suite, an attack or an audit"
        )
    found = next((run / name for name in MANIFESTS if (run / name).is_file()), None)
    if found is None:
        raise InputError(
            f"{run}: expected the folder of a run, with one of {', '.join(MANIFESTS)} in it; found none"
        )
    return found


def kind_of(path: Path) -> Kind:
    """What kind of run a folder or manifest is, by what the manifest holds."""
    plain = _plain(manifest_of(path))
    if plain.get("kind") in _KINDS:
        return _KINDS[plain["kind"]]
    if "effects" in plain and "images" in plain:
        return "attack"
    if "cells" in plain and "result" in plain:
        return "evaluation"
    raise InputError(
        f"{path}: expected the manifest of an evaluation, a noise suite, an attack or an audit, "
        f"got JSON of {'kind ' + repr(plain['kind']) if 'kind' in plain else 'another kind'}"
    )


def _plain(manifest: Path) -> dict[str, Any]:
    try:
        plain = orjson.loads(manifest.read_bytes())
    except OSError as problem:
        raise InputError(f"{manifest}: cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise InputError(f"{manifest}: expected JSON, got: {problem}; the file is damaged") from problem
    if not isinstance(plain, dict):
        raise InputError(f"{manifest}: expected the manifest of a run, got JSON that is no object")
    return plain


def _with_article(kind: Kind) -> str:
    words = {
        "evaluation": "an evaluation",
        "attack": "an attack",
        "audit": "an audit",
        "noise": "a noise suite",
    }
    return words.get(kind, f"a suite of {kind}")


def _about(path: Path, manifest: Path, named: tuple[str, str]) -> Run:
    plain = _plain(manifest)
    inner = plain.get("about", plain)
    return Run(str(path), *named, str(inner.get("created", "")), str(inner.get("command", "")))


_Named = tuple[str, str]  # model and data
_Read = tuple[Body, tuple[_Named, _Named]]


def _evaluations(a: Path, b: Path) -> _Read:
    from holdfast.compare.evaluations import compare_evaluations
    from holdfast.evaluate.result import open_run

    runs = (open_run(a), open_run(b))
    names = [(str(r.about.model.get("name")), str(r.about.data.get("name"))) for r in runs]
    return compare_evaluations(*runs), (names[0], names[1])


def _noise(a: Path, b: Path) -> _Read:
    from holdfast.compare.suites import compare_suites
    from holdfast.noise.vision.result import open_suite

    runs = (open_suite(a), open_suite(b))
    return compare_suites(*runs, (a.resolve().parent, b.resolve().parent)), _suite_names(*runs)


def _language(a: Path, b: Path) -> _Read:
    from holdfast.compare.suites import compare_language
    from holdfast.noise.language.result import open_suite

    runs = (open_suite(a), open_suite(b))
    names = [(", ".join(m.model for m in r.models), ", ".join(r.sets)) for r in runs]
    return compare_language(*runs), (names[0], names[1])


def _speech(a: Path, b: Path) -> _Read:
    from holdfast.compare.suites import compare_speech
    from holdfast.noise.speech.result import open_suite

    runs = (open_suite(a), open_suite(b))
    return compare_speech(*runs), _suite_names(*runs)


def _suite_names(a: Any, b: Any) -> tuple[_Named, _Named]:
    first, second = ((", ".join(m.model for m in r.models), str(r.data)) for r in (a, b))
    return first, second


def _attacks(a: Path, b: Path) -> _Read:
    from holdfast.compare.evaluations import compare_attacks, open_attack

    runs = (open_attack(a), open_attack(b))
    names = [(str(r.about["model"]["name"]), str(r.about["data"]["name"])) for r in runs]
    return compare_attacks(*runs), (names[0], names[1])


def _audits(a: Path, b: Path) -> _Read:
    from holdfast.audit.result import open_audit
    from holdfast.compare.audits import compare_audits

    runs = (open_audit(a), open_audit(b))
    names = [(str(r.model.get("name")), str(r.data.get("name"))) for r in runs]
    return compare_audits(*runs, (a.resolve().parent, b.resolve().parent)), (names[0], names[1])


_READERS: dict[Kind, Callable[[Path, Path], _Read]] = {
    "evaluation": _evaluations,
    "noise": _noise,
    "language noise": _language,
    "speech noise": _speech,
    "attack": _attacks,
    "audit": _audits,
}
