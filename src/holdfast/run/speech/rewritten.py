"""The graphs of an acoustic model in another precision: encoder, decoder and postnet, each for itself."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core import fingerprint
from holdfast.core.registry import part
from holdfast.core.speech import SpeechModel
from holdfast.graph import rewrite
from holdfast.graph.inspect import load_proto, runtime
from holdfast.graph.rewrite.types import CannotRewrite, Context, Rewritten
from holdfast.run.store import to_json, write_atomic
from holdfast.stages.speech.acoustic import Feed, feeds_of, open_voice


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
    about = folder / f"{key[:32]}.json"
    roles = {role: folder / f"{key[:32]}-{role}.onnx" for role in model.roles}
    if not (about.exists() and all(path.exists() for path in roles.values())):
        feeds = feeds_of(open_voice(model), texts) if calibrated else {}
        if calibrated and not all(feeds.values()):
            raise CannotRewrite("8-bit integers need texts to calibrate on; give some that are not tested on")
        said: list[str] = []
        changed = False
        for role, file in zip(model.roles, model.files, strict=True):
            made = _rewritten(file, precision, feeds.get(role))
            write_atomic(roles[role], made.model.SerializeToString(), durable=False)
            said.append(f"{role}: {made.how or 'nothing to change'}" if len(roles) > 1 else made.how)
            changed = changed or bool(made.changed)
        write_atomic(about, to_json({"how": "; ".join(said), "changed": changed}), durable=False)
    told = json.loads(about.read_text())
    return Graphs(tuple(roles.items()), str(told["how"]), bool(told["changed"]), key)


def _rewritten(file: Path, precision: str, feeds: list[Feed] | None) -> Rewritten:
    given: Any = None if feeds is None else lambda: iter(feeds)
    context = Context(None, given, "input")
    made: Rewritten = part("rewrite", precision).function(load_proto(file), context)
    return made


def _key(model: SpeechModel, precision: str, texts: tuple[str, ...]) -> str:
    import onnx

    versions = [onnx.__version__, runtime().__version__]
    function = part("rewrite", precision).function
    return fingerprint.of(
        [model.sha256, model.card, precision, function, texts, code_of_rewrites(), versions]
    )


@functools.cache
def code_of_rewrites() -> str:
    """A hash of all the package's code for rewrites: a part calls functions of other files."""
    return code_in(Path(rewrite.__file__).parent)


def code_in(folder: Path) -> str:
    """A hash of all Python files of a folder."""
    files = sorted(folder.rglob("*.py"))
    return fingerprint.of([[str(p.relative_to(folder)), fingerprint.of_file(p)] for p in files])
