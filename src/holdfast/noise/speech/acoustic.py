"""Acoustic models in ONNX Runtime: text in, log mel spectrogram out, all frames at once or one by one."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError, ModelError
from holdfast.graph.inspect import load_proto
from holdfast.graph.session import condense, open_session
from holdfast.noise.speech.card import SpeechCard, SpeechModel, digest_of
from holdfast.noise.speech.spectrum import Mel


def ids_of(text: str, card: SpeechCard) -> NDArray[np.int64]:
    """The ids (1, t) of a text, longest symbols first; DataError for characters the card does not know."""
    lowered = text.lower() if card.lower else text
    places = {symbol: place for place, symbol in enumerate(card.symbols)}
    known = re.compile("|".join(map(re.escape, sorted(places, key=len, reverse=True))))
    found: list[int] = []
    at = 0
    while at < len(lowered):
        hit = known.match(lowered, at)
        if hit is None:
            raise DataError(
                f"the card has no symbol for {lowered[at]!r} (character {at + 1} of {lowered[:40]!r}); "
                "add it to text.symbols or write the text without it"
            )
        found.append(places[hit.group()])
        at = hit.end()
    if card.end:
        found.append(places[card.end])
    if not found:
        raise DataError("the text is empty")
    return np.array([found], np.int64)


Feed: TypeAlias = dict[str, NDArray[Any]]
Watch: TypeAlias = Callable[[str, Feed], None]  # which graph is run, and on what
NEXT = "next_"  # before the name of a state: its value for the next frame


@dataclass(frozen=True)
class OpenGraph:
    """One graph, opened: its inputs and outputs with their shapes, and the session that runs it."""

    path: Path
    inputs: Mapping[str, tuple[Any, ...]]
    outputs: tuple[str, ...]
    session: Any

    def __call__(self, feed: Feed) -> Feed:
        """The outputs by name; DataError if ONNX Runtime cannot run it on this."""
        try:
            values = self.session.run(self.outputs, feed)
        except Exception as problem:
            what = f"{self.path.name} on it{_invalid_weight(self.path)}"
            raise DataError(f"ONNX Runtime cannot run {what}: {condense(problem, 300)}") from problem
        return {name: np.asarray(value) for name, value in zip(self.outputs, values, strict=True)}


def _invalid_weight(path: Path) -> str:
    """What to say of a file with weights that are no numbers: durations made of them give no frame."""
    import onnx

    try:
        stored = onnx.load(path).graph.initializer
        weights = {one.name: onnx.numpy_helper.to_array(one) for one in stored}
    except Exception:  # noqa: BLE001 - the problem is reported already, this is a hint
        return ""
    floats = {name: value for name, value in weights.items() if value.dtype.kind == "f"}
    names = [name for name, value in floats.items() if not np.isfinite(value).all()]
    return f" (its weight {names[0]!r} has NaN or infinite values)" if names else ""


@dataclass(frozen=True)
class Utterance:
    """A log mel spectrogram as the card's spectrum has it; `stopped` is False if max_frames ended it."""

    mel: Mel
    stopped: bool = True


@dataclass(frozen=True)
class Synthesizer:
    """An acoustic model opened in ONNX Runtime."""

    model: SpeechModel
    nets: Mapping[str, OpenGraph]  # by role: model, or encoder and decoder; postnet

    def speak(self, text: str, watch: Watch = lambda role, feed: None) -> Utterance:
        """The log mel spectrogram (frames, mels) of a text; `watch` sees every input of every graph."""
        card = self.model.card
        feed: Feed = {card.input: ids_of(text, card)}
        if card.kind == "parallel":
            watch("model", feed)
            frames, stopped = _frames(self.nets["model"](feed)[card.mel], card, self.nets["model"]), True
        else:
            watch("encoder", feed)
            frames, stopped = self._decoded(self.nets["encoder"](feed), watch)
        if "postnet" in self.nets:
            net = self.nets["postnet"]
            given = frames if card.layout == "time-first" else frames.T
            feed = {next(iter(net.inputs)): np.ascontiguousarray(given[None], np.float32)}
            watch("postnet", feed)
            frames = _frames(net(feed)[net.outputs[0]], card, net)
        if not np.isfinite(frames).all():
            raise DataError("the model gave NaN or infinite values")
        return Utterance(np.asarray(frames * np.array(card.std) + np.array(card.mean)), stopped)

    def _decoded(self, encoded: Feed, watch: Watch) -> tuple[Mel, bool]:
        card, net = self.model.card, self.nets["decoder"]
        memory = encoded["memory"]
        if memory.ndim != 3 or memory.shape[0] != 1:
            raise ModelError(
                f"{self.nets['encoder'].path}: output 'memory': expected (1, t, d), got {memory.shape}"
            )
        states = [name for name in net.inputs if name not in ("memory", "frame")]
        feed: Feed = {name: _zeros(net, name, memory.shape[1]) for name in states}
        feed |= {"memory": memory, "frame": np.zeros((1, card.spectrum.mels), np.float32)}
        enough = np.log(card.stop_threshold / (1.0 - card.stop_threshold))  # the logit of the threshold
        frames: list[Mel] = []
        while len(frames) < card.max_frames:
            watch("decoder", feed)
            made = net(feed)
            step = np.asarray(made["mel"], np.float32)
            wide = card.frames_per_step * card.spectrum.mels
            if step.shape != (1, wide):
                raise ModelError(
                    f"{net.path}: output 'mel': expected (1, {wide}), got {step.shape}; "
                    "are spectrum.mels and model.frames_per_step of the card right?"
                )
            rows = step.reshape(card.frames_per_step, card.spectrum.mels)
            frames.extend(rows.astype(np.float64))
            frame = rows[-1:]  # the next step is shown the last of them
            if float(made["stop"].reshape(-1)[0]) > enough:
                return np.stack(frames), True
            feed = {"memory": memory, "frame": frame, **{name: made[NEXT + name] for name in states}}
        return np.stack(frames), False


def _zeros(net: OpenGraph, name: str, ids: int) -> NDArray[np.float32]:
    """A state of zeros in its declared shape; a dimension named t is the number of ids, the first is 1."""
    shape = []
    for axis, size in enumerate(net.inputs[name]):
        if isinstance(size, int) and size > 0:
            shape.append(size)
        elif size == "t" or axis == 0:
            shape.append(ids if size == "t" else 1)
        else:
            raise ModelError(
                f"{net.path}: input {name!r}: expected sizes, or 't' for the number of ids, "
                f"got {list(net.inputs[name])}"
            )
    return np.zeros(shape, np.float32)


def _frames(mel: NDArray[Any], card: SpeechCard, net: OpenGraph) -> Mel:
    """The model's output as (frames, mels); ModelError for another shape."""
    mels = card.spectrum.mels
    first = card.layout == "time-first"
    fits = mel.ndim == 3 and mel.shape[0] == 1 and mel.shape[2 if first else 1] == mels
    if not fits:
        wanted = f"(1, frames, {mels})" if first else f"(1, {mels}, frames)"
        raise ModelError(
            f"{net.path}: output {card.mel!r}: the card says {wanted} ({card.layout}), got {mel.shape}; "
            "correct model.layout or spectrum.mels"
        )
    found = np.asarray(mel[0] if first else mel[0].T, np.float64)
    if not len(found):
        raise DataError("the model gave no frame at all")
    return found


def open_synthesizer(model: SpeechModel, graphs: Mapping[str, Path] | None = None) -> Synthesizer:
    """The model in ONNX Runtime; `graphs` are rewritten files to run instead of its own, by role."""
    if digest_of(model.files) != model.sha256:  # cells are named by it
        raise ModelError(f"{model.path}: the model was changed meanwhile; run the same command again")
    nets = {}
    for role, file in zip(model.roles, model.files, strict=True):
        path = (graphs or {}).get(role, file)
        load_proto(path)  # one clear line for a file that is no ONNX
        try:
            session = open_session(path, threads=1, inter_threads=1)
        except Exception as problem:
            raise ModelError(f"{file}: ONNX Runtime cannot load it: {condense(problem, 300)}") from problem
        inputs = {i.name: tuple(i.shape) for i in session.get_inputs()}
        nets[role] = OpenGraph(file, inputs, tuple(o.name for o in session.get_outputs()), session)
        _check(nets[role], role, model)
    return Synthesizer(model, nets)


def _check(net: OpenGraph, role: str, model: SpeechModel) -> None:
    """Raise ModelError if a graph lacks an input or output that the card or its role needs."""
    card = model.card
    states = [NEXT + name for name in net.inputs if name not in ("memory", "frame")]
    inputs, outputs = {
        "model": ([card.input], [card.mel]),
        "encoder": ([card.input], ["memory"]),
        "decoder": (["memory", "frame"], ["mel", "stop", *states]),
        "postnet": ([], []),
    }[role]
    for kind, wanted, there in (("input", inputs, net.inputs), ("output", outputs, net.outputs)):
        for name in wanted:
            if name not in there:
                found = ", ".join(there) or "none"
                raise ModelError(f"{net.path}: expected an {kind} {name!r} of the {role}, got {found}")
    known = [name for name in net.inputs if name not in inputs]
    if role in ("model", "encoder") and known:
        raise ModelError(
            f"{net.path}: expected the ids alone as input, got also {', '.join(known)}; "
            "export the model with those fixed"
        )


def feeds_of(voice: Synthesizer, texts: tuple[str, ...], every: int = 5) -> dict[str, list[Feed]]:
    """The inputs of each graph on these texts, for calibration; of a decoder's steps one in `every`."""
    found: dict[str, list[Feed]] = {role: [] for role in voice.nets}
    steps = 0

    def keep(role: str, feed: Feed) -> None:
        nonlocal steps
        steps += role == "decoder"
        if role != "decoder" or steps % every == 1 or every == 1:
            found[role].append(feed)

    for text in texts:
        try:
            voice.speak(text, keep)
        except DataError:  # a text it cannot say teaches nothing
            continue
    return found
