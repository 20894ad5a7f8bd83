"""Open a language model: find its files, check that they belong together, probe how it behaves."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import DataError, ModelError, UnknownName
from holdfast.core.fingerprint import of, of_file
from holdfast.core.model import read_onnx
from holdfast.graph.inspect import external_files, load_proto
from holdfast.graph.nodes import needed, part_of
from holdfast.graph.session import condense, open_session
from holdfast.noise.language.graph import CausalGraph, Runner, causal_graph, feeds_of
from holdfast.noise.language.model import MOST_ROWS, LanguageModel, Tokenizer, find_tokenizer, open_tokenizer
from holdfast.noise.language.questions import SHIPPED

# What Optimum calls the graph in a model's folder, the one that needs the least of its inputs first.
FILES = ("model.onnx", "decoder_model.onnx", "decoder_model_merged.onnx")
CONFIGS = ("config.json", "tokenizer_config.json")
LIMIT = (1 << 31) - 1  # bytes that protobuf, and so a rewritten ONNX file, can hold
_TOKENS = 4  # that positions are counted on
_MOST_NODES = 400  # what makes the numbers of positions is small; anything larger is no such thing
_PROBE = "The road is long, and the sky over it is wide and blue."
# How far logits may differ, of their spread, when the same tokens are read in another way.
_TOLERANCE = {"float16": 3e-2}
_FINE = 3e-3
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length")


def open_language(
    path: Path, tokenizer: Path | None = None, threads: int = 1, graph: Path | None = None
) -> LanguageModel:
    """A causal language model of an ONNX file (or a shipped one by name) with its tokenizer.json.

    The tokenizer is looked for next to the model unless it is given; `graph` is a rewritten graph to run
    instead of the file's own. ModelError for what does not behave as a causal language model.
    """
    file = find_language(path)
    tokens = open_tokenizer(tokenizer if tokenizer is not None else find_tokenizer(file))
    used = file if graph is None else graph
    proto = load_proto(used)
    causal = causal_graph(proto, str(used))
    _check_vocabulary(tokens, causal.vocabulary, file)  # before hundreds of megabytes are loaded for nothing
    bounds = (_configured_positions(file), positions_of(proto, causal), causal.length)
    del proto  # hundreds of megabytes that the session holds again
    source = read_onnx(used) if used.suffix == ".gz" else used
    try:
        session = open_session(source, threads=threads, inter_threads=1)
    except Exception as problem:
        raise ModelError(f"{used}: ONNX Runtime cannot load it: {condense(problem, 300)}") from problem
    runner = Runner(causal, session, str(used))
    _check_vocabulary(tokens, causal.vocabulary or int(runner.logits([[0]]).shape[2]), file)
    positions = min((n for n in bounds if n is not None), default=None)
    return LanguageModel(file, tokens, runner, positions=positions, **_probe(runner, tokens))


def find_language(path: Path) -> Path:
    """The file of a shipped language model or of the user's, or an error that names the nearest one."""
    if path.is_file():
        return path
    known = shipped()
    if str(path) in known:
        return known[str(path)]
    if len(path.parts) == 1 and not path.suffix and not path.is_dir():
        raise UnknownName("language model", str(path), known)
    what, names = "is a folder" if path.is_dir() else "no such file", ", ".join(known) or "none"
    raise ModelError(f"{path}: {what}; give the path of an .onnx file or one of: {names}")


def _check_vocabulary(tokens: Tokenizer, words: int | None, file: Path) -> None:
    if words is not None and tokens.size > words:
        numbers = f"has token numbers up to {tokens.size - 1}, but the model has {words}"
        raise ModelError(
            f"{file}: the tokenizer {tokens.path} {numbers}: the tokenizer belongs to another model"
        )


def _configured_positions(file: Path) -> int | None:
    folder = file.absolute().parent
    for place in (folder / "config.json", folder.parent / "config.json"):
        try:
            content = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        values = [content.get(name) for name in _POSITIONS] if isinstance(content, dict) else []
        return next((n for n in values if isinstance(n, int) and n > 0), None)
    return None


def _probe(runner: Runner, tokens: Tokenizer) -> dict[str, Any]:
    """Words, rows, shares and notes of the model; ModelError if a later token changes earlier logits."""
    text = (*tokens.first, *tokens.encode(_PROBE)) or (0,)
    ids = (text * 8)[: min(8, runner.causal.length or 8)]
    other = (*ids[:-1], (ids[-1] + 1) % tokens.size)
    causal, rows, notes, logits = runner.causal, 1, list[str](), None
    if causal.alone:
        notes.append("its 8-bit ranges are computed at run time: each ending runs alone, without padding")
    elif causal.batch != 1:
        with suppress(DataError):
            logits, rows = runner.logits([ids, other]), causal.batch or MOST_ROWS
        if logits is None:
            notes.append("runs one row at a time: the graph does not take several")
    if logits is None:
        logits = np.concatenate([runner.logits([ids]), runner.logits([other])])
    whole, changed = (np.asarray(part, np.float64) for part in logits)
    if not causal.alone and _differ(whole[:-1], changed[:-1], logits.dtype.name):
        raise ModelError(
            f"{runner.where}: not a causal language model: a token changes the logits before it. "
            "(A graph for one token behind a past cannot read a text: give the one without past, or merged)"
        )
    shares = False
    if causal.continues and not causal.alone:
        behind = np.full(1, np.nan)
        with suppress(DataError):
            behind = np.asarray(runner.logits([ids[3:]], runner.read(ids[:3]))[0], np.float64)
        shares = not _differ(behind, whole[3:], logits.dtype.name)
        if not shares:
            notes.append("its cached past changes the logits: endings are read without it")
    words = int(logits.shape[2])
    if tokens.size < 0.9 * words:
        sizes = f"the model has {words} words, its tokenizer {tokens.size}"
        notes.append(f"{sizes}: check that they belong together")
    return {"words": words, "rows": rows, "shares": shares, "notes": tuple(notes)}


def _differ(a: Any, b: Any, dtype: str) -> bool:
    """Whether logits differ by more than rounding; NaN on one side only is a difference."""
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return True
    both = np.isfinite(b)
    if not both.any():
        return False
    spread = float(b[both].max() - b[both].min())
    return bool(np.abs(a[both] - b[both]).max() > _TOLERANCE.get(dtype, _FINE) * max(spread, 1e-6))


def shipped() -> dict[str, Path]:
    """The files of the shipped language models, by name."""
    return {f.stem: f for f in sorted(SHIPPED.glob("*.onnx"))}


@dataclass(frozen=True)
class LanguageSubject:
    """A language model under test; `sha256` is of its graph, its weights and its tokenizer with settings."""

    name: str
    path: Path
    tokenizer: Path
    sha256: str
    bytes: int


def file_of(word: str) -> Path | None:
    """The ONNX file a word of the command line stands for; None if it is no model."""
    path = Path(word)
    if path.name.removesuffix(".gz").endswith(".onnx"):
        return path
    if path.is_dir():
        return next((path / name for name in FILES if (path / name).is_file()), None)
    return None if path.is_file() else shipped().get(word)


def language_subject(file: Path) -> LanguageSubject:
    """The model of a file, hashed with all that decides what it says; ModelError if it cannot be one."""
    if not file.is_file():
        raise ModelError(f"{file}: no such model file; give the path of an .onnx file")
    proto = load_proto(file)
    weights = [file, *(file.parent / name for name in sorted(external_files(proto)))]
    tokenizer = find_tokenizer(file)
    home = file.parent.resolve()  # the file itself may be a link: caches keep the content elsewhere
    folders = dict.fromkeys([home, home.parent, tokenizer.parent])
    configs = [folder / name for folder in folders for name in CONFIGS if (folder / name).is_file()]
    digest = of([of_file(path) for path in (*weights, tokenizer, *configs)])
    stem = file.name.removesuffix(".gz").removesuffix(".onnx")
    name = home.name if file.name in FILES else stem  # exporters call the file in every folder the same
    return LanguageSubject(name, file, tokenizer, digest, sum(p.stat().st_size for p in weights))


def positions_of(proto: Any, causal: CausalGraph) -> int | None:
    """The most tokens the graph's tables of positions have rows for; None if it has no such table.

    A table of positions is a constant of two dimensions whose rows are looked up (Gather) by numbers that
    count the tokens. Which lookups these are, and at which row they begin (OPT begins at 2), is found by
    running the few nodes that make the numbers, on four tokens.
    """
    sizes = {w.name: tuple(w.dims) for w in proto.graph.initializer if len(w.dims) == 2}
    lookups = {
        (node.input[0], node.input[1])
        for node in proto.graph.node
        if node.op_type == "Gather" and node.input[0] in sizes and not any(a.i for a in node.attribute)
    }
    last = {numbers: _last_number(proto, causal, numbers) for _, numbers in lookups}
    bounds = [
        sizes[table][0] - (n - (_TOKENS - 1)) for table, name in lookups if (n := last[name]) is not None
    ]
    return min((bound for bound in bounds if bound > 0), default=None)


def _last_number(proto: Any, causal: CausalGraph, numbers: str) -> int | None:
    """The number of the last of four tokens, when they are counted up one by one; None if they are not."""
    if causal.positions is not None and numbers == causal.positions.name:
        return _TOKENS - 1
    feeds = feeds_of(causal, [[0] * min(_TOKENS, causal.length or _TOKENS)])
    if not 0 < len(needed(proto.graph, [numbers], feeds)) <= _MOST_NODES:
        return None
    try:
        session = open_session(part_of(proto, feeds, [numbers]).SerializeToString(), threads=1)
        inputs = {entry.name: feeds[entry.name] for entry in session.get_inputs()}
        value = np.asarray(session.run([numbers], inputs)[0])
    except Exception:  # noqa: BLE001 - then it is not a table of positions
        return None
    last = value.reshape(-1, value.shape[-1])[0] if value.size >= _TOKENS else np.zeros(0)
    counted = len(last) == _TOKENS and np.array_equal(np.diff(last), [1] * (_TOKENS - 1))
    return int(last[-1]) if counted else None
