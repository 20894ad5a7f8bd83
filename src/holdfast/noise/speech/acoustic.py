"""Acoustic models in ONNX Runtime: text in, log mel spectrogram out, all frames at once or one by one."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
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
    text = text.lower() if card.lower else text
    places = {symbol: place for place, symbol in enumerate(card.symbols)}
    known = re.compile("|".join(map(re.escape, sorted(places, key=len, reverse=True))))
    ids: list[int] = []
    at = 0
    while at < len(text):
        match = known.match(text, at)
        if match is None:
            raise DataError(
                f"the card has no symbol for {text[at]!r} (character {at + 1} of {text[:40]!r}); "
                "add it to text.symbols or write the text without it"
            )
        ids.append(places[match.group()])
        at = match.end()
    ids += [places[card.end]] if card.end else []
    if not ids:
        raise DataError("the text is empty")
    return np.array([ids], np.int64)


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
        weights = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(path).graph.initializer}
    except Exception:  # noqa: BLE001 - the problem is reported already, this is a hint
        return ""
    invalid = (n for n, value in weights.items() if value.dtype.kind == "f" and not np.isfinite(value).all())
    return next((f" (its weight {name!r} has NaN or infinite values)" for name in invalid), "")


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
            frames, stopped = self._decode(self.nets["encoder"](feed), watch)
        if "postnet" in self.nets:
            net = self.nets["postnet"]
            ordered = frames if card.layout == "time-first" else frames.T
            feed = {next(iter(net.inputs)): np.ascontiguousarray(ordered[None], np.float32)}
            watch("postnet", feed)
            frames = _frames(net(feed)[net.outputs[0]], card, net)
        if not np.isfinite(frames).all():
            raise DataError("the model gave NaN or infinite values")
        return Utterance(np.asarray(frames * np.array(card.std) + np.array(card.mean)), stopped)

    def _decode(self, encoded: Feed, watch: Watch) -> tuple[Mel, bool]:
        card, net = self.model.card, self.nets["decoder"]
        memory, path = encoded["memory"], self.nets["encoder"].path
        if memory.ndim != 3 or memory.shape[0] != 1:
            raise ModelError(f"{path}: output 'memory': expected (1, t, d), got {memory.shape}")
        states = [name for name in net.inputs if name not in ("memory", "frame")]
        feed: Feed = {name: _zeros(net, name, memory.shape[1]) for name in states}
        feed |= {"memory": memory, "frame": np.zeros((1, card.spectrum.mels), np.float32)}
        enough = np.log(card.stop_threshold / (1.0 - card.stop_threshold))  # the logit of the threshold
        frames: list[Mel] = []
        while len(frames) < card.max_frames:
            watch("decoder", feed)
            outputs = net(feed)
            step = np.asarray(outputs["mel"], np.float32)
            wide = card.frames_per_step * card.spectrum.mels
            if step.shape != (1, wide):
                raise ModelError(
                    f"{net.path}: output 'mel': expected (1, {wide}), got {step.shape}; "
                    "are spectrum.mels and model.frames_per_step of the card right?"
                )
            rows = step.reshape(card.frames_per_step, card.spectrum.mels)
            frames.extend(rows.astype(np.float64))
            if float(outputs["stop"].reshape(-1)[0]) > enough:
                return np.stack(frames), True
            feed = {"memory": memory, "frame": rows[-1:], **{name: outputs[NEXT + name] for name in states}}
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
    mels, first = card.spectrum.mels, card.layout == "time-first"
    if mel.ndim != 3 or mel.shape[0] != 1 or mel.shape[2 if first else 1] != mels:
        shape = f"(1, frames, {mels})" if first else f"(1, {mels}, frames)"
        raise ModelError(
            f"{net.path}: output {card.mel!r}: the card says {shape} ({card.layout}), got {mel.shape}; "
            "correct model.layout or spectrum.mels"
        )
    frames = np.asarray(mel[0] if first else mel[0].T, np.float64)
    if not len(frames):
        raise DataError("the model gave no frame at all")
    return frames


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
    for kind, expected, names in (("input", inputs, net.inputs), ("output", outputs, net.outputs)):
        for name in expected:
            if name not in names:
                got = ", ".join(names) or "none"
                raise ModelError(f"{net.path}: expected an {kind} {name!r} of the {role}, got {got}")
    others = ", ".join(name for name in net.inputs if name not in inputs)
    if role in ("model", "encoder") and others:
        got = f"got also {others}; export the model with those fixed"
        raise ModelError(f"{net.path}: expected the ids alone as input, {got}")


def feeds_of(voice: Synthesizer, texts: tuple[str, ...], every: int = 5) -> dict[str, list[Feed]]:
    """The inputs of each graph on these texts, for calibration; of a decoder's steps one in `every`."""
    feeds: dict[str, list[Feed]] = {role: [] for role in voice.nets}
    steps = count()

    def collect(role: str, feed: Feed) -> None:
        if role != "decoder" or next(steps) % every == 0:
            feeds[role].append(feed)

    for text in texts:
        with suppress(DataError):  # a text it cannot say teaches nothing
            voice.speak(text, collect)
    return feeds
