"""Opening a language model: its graph, its tokenizer, whether they fit, and whether it behaves as one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import DataError, ModelError, UnknownName
from holdfast.core.model import read_onnx
from holdfast.graph.inspect import load_proto
from holdfast.noise.language.graph.causal import causal_of
from holdfast.noise.language.graph.positions import positions_of
from holdfast.noise.language.model.model import MOST_ROWS, LanguageModel
from holdfast.noise.language.model.runner import Runner, open_runner
from holdfast.noise.language.model.shipped import shipped
from holdfast.noise.language.model.tokens import Tokens, find_tokenizer, open_tokens

_PROBE = "The road is long, and the sky over it is wide and blue."
# How far logits may differ, of their spread, when the same tokens are read in another way.
_TOLERANCE = {"float16": 3e-2}
_FINE = 3e-3
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length")


@dataclass(frozen=True)
class _Behaviour:
    """What a probe found: the number of words, rows at once, whether a prompt can be read once for all."""

    words: int
    rows: int
    shares: bool
    notes: tuple[str, ...]


def open_language(
    path: Path, tokenizer: Path | None = None, threads: int = 1, graph: bytes | Path | None = None
) -> LanguageModel:
    """A causal language model of an ONNX file (or a shipped one by name) with its tokenizer.json.

    The tokenizer is looked for beside the model unless it is given. `graph` is a rewritten graph to run
    instead of the file's own. What does not behave as a causal language model is a ModelError of one line.
    """
    file = find_language(path)
    tokens = open_tokens(tokenizer if tokenizer is not None else find_tokenizer(file))
    proto, source, where = _source(file, graph)
    causal = causal_of(proto, where)
    _fit(tokens, causal.vocabulary, file)  # before hundreds of megabytes are loaded for nothing
    known = [n for n in (_configured(file), positions_of(proto, causal), causal.length) if n is not None]
    del proto  # hundreds of megabytes that the session holds again
    runner = open_runner(causal, source, where, threads)
    words = causal.vocabulary or int(runner.logits([[0]]).shape[2])
    _fit(tokens, words, file)
    behaviour = _probed(runner, tokens)
    return LanguageModel(
        file, tokens, runner, behaviour.words, min(known, default=None), behaviour.rows, behaviour.shares,
        behaviour.notes,
    )  # fmt: skip


def find_language(path: Path) -> Path:
    """The file of a shipped language model or of the user's, or an error that names the nearest one."""
    if path.is_file():
        return path
    known = shipped()
    if str(path) in known:
        return known[str(path)]
    if len(path.parts) == 1 and not path.suffix and not path.is_dir():
        raise UnknownName("language model", str(path), known)
    what = "is a folder" if path.is_dir() else "no such file"
    raise ModelError(
        f"{path}: {what}; give the path of an .onnx file or one of: {', '.join(known) or 'none'}"
    )


def _source(file: Path, graph: bytes | Path | None) -> tuple[Any, bytes | Path, str]:
    """The parsed graph, what ONNX Runtime is to load, and what to call it in messages."""
    if isinstance(graph, bytes):
        return _parsed(graph, f"{file} (rewritten)"), graph, f"{file} (rewritten)"
    used = file if graph is None else graph
    proto = load_proto(used)
    return proto, read_onnx(used) if used.suffix == ".gz" else used, str(used)


def _parsed(graph: bytes, where: str) -> Any:
    import onnx

    try:
        return onnx.load_model_from_string(graph)
    except Exception:  # noqa: BLE001 - protobuf's DecodeError, in whichever of its implementations
        raise ModelError(f"{where}: not an ONNX model: {len(graph)} bytes that cannot be parsed") from None


def _fit(tokens: Tokens, words: int | None, file: Path) -> None:
    if words is not None and tokens.size > words:
        raise ModelError(
            f"{file}: the tokenizer {tokens.path} has token numbers up to {tokens.size - 1}, but the model "
            f"has {words} words: they are not of one model; give the tokenizer that belongs to it"
        )


def _configured(file: Path) -> int | None:
    """The number of positions in the model's config.json, if there is one."""
    folder = file.absolute().parent
    for place in (folder / "config.json", folder.parent / "config.json"):
        try:
            content = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        found = [content.get(name) for name in _POSITIONS] if isinstance(content, dict) else []
        return next((n for n in found if isinstance(n, int) and n > 0), None)
    return None


def _probed(runner: Runner, tokens: Tokens) -> _Behaviour:
    """What running a few tokens tells; ModelError if what comes later changes what was said before."""
    text = (*tokens.first, *tokens.encode(_PROBE)) or (0,)
    ids = (text * 8)[: min(8, runner.causal.length or 8)]
    other = (*ids[:-1], (ids[-1] + 1) % tokens.size)
    causal, rows, notes = runner.causal, 1, []
    if causal.alone or causal.batch == 1:
        logits = np.concatenate([runner.logits([ids]), runner.logits([other])])
        if causal.alone:
            notes.append("its 8-bit ranges are taken at run time: each ending is run alone, without padding")
    else:
        logits, rows = _together(runner, ids, other)
        if rows == 1:
            notes.append("runs one row at a time: the graph does not take several")
    whole, changed = (np.asarray(part, np.float64) for part in logits)
    if not causal.alone and _differ(whole[:-1], changed[:-1], logits.dtype.name):
        raise ModelError(
            f"{runner.where}: not a causal language model: a token changes what is said before it. "
            "(A graph for one token behind a past cannot read a text: give the one without past, or merged)"
        )
    shares = False
    if causal.continues and not causal.alone:
        shares = not _differ(_split(runner, ids), whole[3:], logits.dtype.name)
        if not shares:
            notes.append("behind a past it says other than when it reads the whole: endings are read whole")
    words = int(logits.shape[2])
    if tokens.size < 0.9 * words:
        notes.append(f"the model has {words} words, its tokenizer {tokens.size}: are they of one model?")
    return _Behaviour(words, rows, shares, tuple(notes))


def _together(runner: Runner, ids: tuple[int, ...], other: tuple[int, ...]) -> tuple[Any, int]:
    """The logits of two rows, run at once if the graph can."""
    try:
        return runner.logits([ids, other]), runner.causal.batch or MOST_ROWS
    except DataError:
        return np.concatenate([runner.logits([ids]), runner.logits([other])]), 1


def _split(runner: Runner, ids: tuple[int, ...]) -> Any:
    """The logits of all but three tokens, read behind those three."""
    try:
        return np.asarray(runner.logits([ids[3:]], runner.read(ids[:3]))[0], np.float64)
    except DataError:
        return np.full(1, np.nan)


def _differ(a: Any, b: Any, dtype: str) -> bool:
    """Whether logits differ by more than rounding; NaN on one side only is a difference."""
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return True
    both = np.isfinite(b)
    if not both.any():
        return False
    spread = float(b[both].max() - b[both].min())
    return bool(np.abs(a[both] - b[both]).max() > _TOLERANCE.get(dtype, _FINE) * max(spread, 1e-6))
