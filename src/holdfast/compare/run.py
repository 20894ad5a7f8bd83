"""Compare two runs of one kind, with paired intervals where the records are available."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from holdfast.audit.result import open_audit
from holdfast.compare import audits, evaluations, suites
from holdfast.compare.result import Comparison, ComparisonContent, Kind, RunSummary, order
from holdfast.core.errors import InputError
from holdfast.core.result import Result
from holdfast.evaluate.result import Evaluation, open_run
from holdfast.noise.language.result import open_suite as open_language
from holdfast.noise.speech.result import open_suite as open_speech
from holdfast.noise.vision.result import open_suite

# An audit's folder first: it may hold the others' files too.
MANIFESTS = ("audit.json", "noise.json", "language.json", "speech.json", "attack.json", "run.json")
_STATED: dict[str, Kind] = {  # as manifests state it
    "audit": "audit", "noise": "noise", "noise-language": "language noise", "noise of speech": "speech noise",
}  # fmt: skip
_WITH_ARTICLE: dict[Kind, str] = {
    "evaluation": "an evaluation", "attack": "an attack", "audit": "an audit", "noise": "a noise suite",
    "language noise": "a language noise suite", "speech noise": "a speech noise suite",
}  # fmt: skip
_OPENERS: dict[Kind, Callable[[Path], Result]] = {
    "evaluation": open_run, "noise": open_suite, "language noise": open_language,
    "speech noise": open_speech, "audit": open_audit,
}  # fmt: skip


def compare_runs(a: Path, b: Path) -> Comparison:
    """The comparison of B with A; InputError if the two cannot be compared."""
    first, second = manifest_of(a), manifest_of(b)
    kind, other = kind_of(first), kind_of(second)
    if kind != other:
        raise InputError(
            f"A is {_WITH_ARTICLE[kind]}, B is {_WITH_ARTICLE[other]}: "
            "expected two runs of one kind (evaluation, noise, attack or audit)"
        )
    folders = (first.resolve().parent, second.resolve().parent)
    match kind:
        case "evaluation":
            body = evaluations.compare_evaluations(open_run(first), open_run(second))
        case "attack":
            body = evaluations.compare_attacks(*map(evaluations.open_attack, (first, second)))
        case "audit":
            body = audits.compare_audits(open_audit(first), open_audit(second), folders)
        case "noise":
            body = suites.compare_suites(open_suite(first), open_suite(second), folders)
        case "language noise":
            body = suites.compare_language(open_language(first), open_language(second))
        case "speech noise":
            body = suites.compare_speech(open_speech(first), open_speech(second))
    same = first.resolve() == second.resolve()
    return _comparison(kind, body, _summary(a, _plain(first)), _summary(b, _plain(second)), same)


def _comparison(kind: Kind, body: ComparisonContent, a: RunSummary, b: RunSummary, same: bool) -> Comparison:
    content = {**vars(body), "changes": order(body.changes)}
    return Comparison(**content, kind=kind, a=a, b=b, main=next(iter(body.changes), None), same=same)


def compare_results(a: Result | str | Path, b: Result | str | Path) -> Comparison:
    """What is better and worse in B than in A, each a result or a run folder."""
    if not isinstance(a, Evaluation) and not isinstance(b, Evaluation):
        return compare_runs(_folder(a), _folder(b))
    # Of evaluations the records are at hand: a folder may have been written again since.
    first, second = _evaluation(a), _evaluation(b)
    body = evaluations.compare_evaluations(first, second)
    before, after = (_summary(run.folder or "", vars(run.about)) for run in (first, second))
    return _comparison("evaluation", body, before, after, first is second)


def open_result(path: Path) -> Result:
    """The result in a run folder or of a manifest: an evaluation, a noise suite or an audit."""
    kind = kind_of(path)
    if kind not in _OPENERS:
        raise InputError(f"{path}: holds {_WITH_ARTICLE[kind]}, which cannot be opened from Python")
    return _OPENERS[kind](manifest_of(path))


def _folder(run: Result | str | Path) -> Path:
    if not isinstance(run, Result):
        return Path(run)
    if run.folder is None:
        raise InputError(f"{run!r} was not saved; compare the folders of two runs")
    return run.folder


def _evaluation(run: Result | str | Path) -> Evaluation:
    result = run if isinstance(run, Result) else open_result(Path(run))
    if not isinstance(result, Evaluation):
        raise InputError(f"expected two evaluations, got {result!r}")
    return result


def manifest_of(run: Path) -> Path:
    """The manifest of a run, given its folder or the manifest itself; InputError if there is none."""
    if run.is_file():
        return run
    if not run.is_dir():
        raise InputError(
            f"{run}: no such run; expected the folder of an evaluation, a noise suite, an attack or an audit"
        )
    manifest = next((run / name for name in MANIFESTS if (run / name).is_file()), None)
    if manifest is None:
        raise InputError(f"{run}: expected the folder of a run with one of {', '.join(MANIFESTS)}")
    return manifest


def kind_of(path: Path) -> Kind:
    """The kind of a run, from its manifest."""
    plain = _plain(manifest_of(path))
    if plain.get("kind") in _STATED:
        return _STATED[plain["kind"]]
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
        raise InputError(f"{manifest}: expected the manifest of a run, got JSON that is not an object")
    return plain


def _summary(path: str | Path, plain: dict[str, Any]) -> RunSummary:
    about = plain.get("about", plain)
    if "models" in about:  # a suite; one of language names its sets with each model
        model = ", ".join(entry["model"] for entry in about["models"])
        data = about["data"] if "data" in about else ", ".join(s["data"] for s in about["models"][0]["sets"])
    else:
        model, data = (str(about[part].get("name")) for part in ("model", "data"))
    created, command = (str(about.get(key, "")) for key in ("created", "command"))
    return RunSummary(str(path), model, str(data), created, command)
