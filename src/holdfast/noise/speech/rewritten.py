"""The graphs of an acoustic model in another precision: encoder, decoder and postnet, each for itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core import fingerprint
from holdfast.core.registry import part
from holdfast.core.sources import code_of
from holdfast.graph.inspect import load_proto
from holdfast.graph.kept import Made, kept
from holdfast.graph.rewrite.types import CannotRewrite, Context, Rewritten
from holdfast.graph.session import runtime
from holdfast.noise.speech.model.acoustic import Feed, feeds_of, open_voice
from holdfast.noise.speech.system import SpeechModel


@dataclass(frozen=True)
class Graphs:
    """Rewritten files by role, what was done to each in words, and whether anything was."""

    paths: tuple[tuple[str, Path], ...]
    how: str
    changed: bool
    key: str


def graphs_of(model: SpeechModel, precision: str, texts: tuple[str, ...], folder: Path) -> Graphs:
    """The graphs in that precision, made now unless they are there; CannotRewrite if one cannot be.

    Static integers are calibrated on `texts`, said by the clean model.
    """
    chosen = part("rewrite", precision)
    calibrated = bool(chosen.facts.get("calibrated", False))
    key = _key(model, precision, texts if calibrated else ())
    said = texts if calibrated else None
    paths, facts = kept(folder / key[:32], key, lambda: _made(model, precision, said))
    roles = tuple((role, paths[_ending(role)]) for role in model.roles)
    return Graphs(roles, str(facts["how"]), bool(facts["changed"]), key)


def _ending(role: str) -> str:
    return f"-{role}.onnx"


def _made(model: SpeechModel, precision: str, texts: tuple[str, ...] | None) -> Made:
    """Every graph rewritten; `texts` are said by the clean model to calibrate, None: not calibrated."""
    feeds = {} if texts is None else feeds_of(open_voice(model), texts)
    if texts is not None and not all(feeds.values()):
        raise CannotRewrite("8-bit integers need texts to calibrate on; give some that are not tested on")
    made = {
        role: _rewritten(file, precision, feeds.get(role))
        for role, file in zip(model.roles, model.files, strict=True)
    }
    several = len(made) > 1
    how = [f"{role}: {m.how or 'nothing to change'}" if several else m.how for role, m in made.items()]
    facts = {"how": "; ".join(how), "changed": any(m.changed for m in made.values())}
    return Made({_ending(role): m.model.SerializeToString() for role, m in made.items()}, facts)


def _rewritten(file: Path, precision: str, feeds: list[Feed] | None) -> Rewritten:
    given: Any = None if feeds is None else lambda: iter(feeds)
    context = Context(None, given, "input")
    made: Rewritten = part("rewrite", precision).function(load_proto(file), context)
    return made


def _key(model: SpeechModel, precision: str, texts: tuple[str, ...]) -> str:
    import onnx

    versions = [onnx.__version__, runtime().__version__]
    function = part("rewrite", precision).function
    return fingerprint.of([model.sha256, model.card, precision, function, texts, code_of("speech"), versions])
