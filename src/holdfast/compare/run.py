"""Two runs of one kind compared: what became better or worse, with intervals where the records allow."""

from __future__ import annotations

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
    body = _compare(kinds[0], first, second)
    runs = [_about(path, _plain(manifest)) for path, manifest in ((a, first), (b, second))]
    return comparison_of(kinds[0], runs[0], runs[1], body, same=first.resolve() == second.resolve())


def _compare(kind: Kind, a: Path, b: Path) -> Body:
    """What two manifests of one kind have to say."""
    folders = (a.resolve().parent, b.resolve().parent)
    if kind == "evaluation":
        from holdfast.compare.evaluations import compare_evaluations
        from holdfast.evaluate.result import open_run

        return compare_evaluations(open_run(a), open_run(b))
    if kind == "attack":
        from holdfast.compare.evaluations import compare_attacks, open_attack

        return compare_attacks(open_attack(a), open_attack(b))
    if kind == "audit":
        from holdfast.audit.result import open_audit
        from holdfast.compare.audits import compare_audits

        return compare_audits(open_audit(a), open_audit(b), folders)
    from holdfast.compare import suites
    from holdfast.noise.language import result as language
    from holdfast.noise.speech import result as speech
    from holdfast.noise.vision import result as vision

    if kind == "noise":
        return suites.compare_suites(vision.open_suite(a), vision.open_suite(b), folders)
    if kind == "language noise":
        return suites.compare_language(language.open_suite(a), language.open_suite(b))
    return suites.compare_speech(speech.open_suite(a), speech.open_suite(b))


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


def _about(path: Path, plain: dict[str, Any]) -> Run:
    """Where a run is, its model and its data, and how it was made, from its manifest."""
    about = plain.get("about", plain)
    if "models" in about:  # a suite; one of language names its sets with each model
        model = ", ".join(one["model"] for one in about["models"])
        data = about["data"] if "data" in about else ", ".join(s["data"] for s in about["models"][0]["sets"])
    else:
        model, data = (str(about[part].get("name")) for part in ("model", "data"))
    return Run(str(path), model, str(data), str(about.get("created", "")), str(about.get("command", "")))
