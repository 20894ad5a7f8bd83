"""From espeak-ng to the shipped files: speak, train, export, choose clips, score on held-out sentences.

A Tacotron-2-type model is three files: the encoder (`taco.onnx`: ids → memory), one step of the decoder
(`taco-decoder.onnx`: memory, frame, state0.. → mel, stop, next_state0..) and the postnet
(`taco-postnet.onnx`). The decoder gives `frames_per_step` frames at once, mel (1, frames_per_step · mels),
and is shown the last of them in the next step. States and the frame before the first are zeros. A
FastSpeech-2-type model is one file.
"""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.core.errors import UnknownName
from holdfast.graph.card import toml
from holdfast.noise.speech.card import SpeechCard
from holdfast.noise.speech.clips import FULL, wav_bytes
from holdfast.train.export import write_onnx
from holdfast.train.loop import Job, Say, fit
from models.signs.recipes import shortened
from models.speech.corpus import END, SPECTRUM, SYMBOLS, Corpus, Recording, open_corpus, spoken
from models.speech.heard import RIVALS, Heard, score
from models.speech.nets import FastNet, TacoNet
from models.speech.recipes import fast_speech, taco

STATES = 5  # of the decoder: hidden, cell, context, attention, attention so far
DECODER, POSTNET = "taco-decoder.onnx", "taco-postnet.onnx"
SENTENCES_SEED: Final = 0
TRAINED, HELD_OUT = 1100, 40
CLIPS, CLIP_BYTES = 8, 400_000
RECIPES: Final[dict[str, Callable[[Corpus, int], Job]]] = {"fast-speech": fast_speech, "taco": taco}


@dataclass(frozen=True)
class Order:
    """What to make and where: seed of the weights and batches, folder of recordings and checkpoints."""

    out: Path
    work: Path
    seed: int = 0
    fraction: float = 1.0
    trained: int = TRAINED
    held_out: int = HELD_OUT


def make(name: str, order: Order, say: Say) -> Heard:
    """The model trained to its end (a killed run goes on), written with its card, and scored."""
    if name not in RECIPES:
        raise UnknownName("speech model", name, RECIPES)
    corpus = open_corpus(order.work, order.trained, order.held_out, SENTENCES_SEED, say)
    job = shortened(RECIPES[name](corpus, order.seed), order.fraction)
    net = fit(job, order.work / f"{name}-{job.key()}.pt", say)
    if name == "taco":
        path = write_taco(cast(TacoNet, net), corpus.mean, corpus.std, order.out)
    else:
        path = write_fast(cast(FastNet, net), corpus.mean, corpus.std, order.out)
    write_clips(corpus.held_out, order.out / "clips")
    heard = score(path, corpus.held_out, lambda text: spoken(order.work, text))
    say(
        f"{name}: on {len(corpus.held_out)} held-out sentences mel MSE {heard.mse:.3f}, "
        f"along the warping path {heard.aligned:.3f}, {heard.length:.1f} frames off in length, "
        f"{heard.stopped:.0%} stop by themselves, {heard.told:.0%} told from {RIVALS} of one other word"
    )
    return heard


def write_clips(recordings: tuple[Recording, ...], folder: Path) -> None:
    """Write the first recordings that fit the room for clips, in the layout of LJ Speech."""
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    room = CLIP_BYTES
    for recording in recordings:
        data = wav_bytes(recording.wave.astype(np.float64) / FULL, SPECTRUM.rate)
        if len(lines) == CLIPS or len(data) > room // (CLIPS - len(lines)):
            continue
        room -= len(data)
        name = f"road-{len(lines) + 1:02}"
        (folder / "wavs" / f"{name}.wav").write_bytes(data)
        lines.append(f"{name}|{recording.text}|{recording.text}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_fast(net: FastNet, mean: float, std: float, folder: Path) -> Path:
    """Write the parallel model and its card; its path."""
    path = folder / "fast-speech.onnx"
    ids = torch.randint(1, len(SYMBOLS), (1, 9), generator=torch.Generator().manual_seed(0))
    axes = {"ids": {1: "t"}, "mel": {1: "frames"}}
    write_onnx(_Spoken(net).eval(), (ids,), ("ids",), ("mel",), axes, path)
    about: dict[str, Any] = {
        "symbols": SYMBOLS,
        "spectrum": SPECTRUM,
        "end": END,
        "mean": (mean,),
        "std": (std,),
    }
    _write_card(SpeechCard(kind="parallel", **about), path)
    return path


def write_taco(net: TacoNet, mean: float, std: float, folder: Path) -> Path:
    """Write encoder, decoder step, postnet and their card; the encoder's path."""
    path = folder / "taco.onnx"
    net = copy.deepcopy(net).eval()
    ids = torch.randint(1, len(SYMBOLS), (1, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        memory = net.encoder(ids)
    write_onnx(net.encoder, (ids,), ("ids",), ("memory",), {"ids": {1: "t"}, "memory": {1: "t"}}, path)
    states = net.decoder.states(memory)
    names = tuple(f"state{place}" for place in range(STATES))
    after = tuple(f"next_{name}" for name in names)
    axes = {"memory": {1: "t"}, **{name: {1: "t"} for name in (*names[3:], *after[3:])}}
    frame = torch.zeros(1, net.mels)
    wanted = ("memory", "frame", *names)
    write_onnx(net.decoder, (memory, frame, *states), wanted, ("mel", "stop", *after), axes, folder / DECODER)
    frames = {"raw": {1: "frames"}, "mel": {1: "frames"}}
    write_onnx(net.postnet, (torch.zeros(1, 7, net.mels),), ("raw",), ("mel",), frames, folder / POSTNET)
    card = SpeechCard(
        symbols=SYMBOLS, spectrum=SPECTRUM, kind="autoregressive", end=END, decoder=DECODER, postnet=POSTNET,
        max_frames=402, frames_per_step=net.group, mean=(mean,), std=(std,),
    )  # fmt: skip
    _write_card(card, path)
    return path


class _Spoken(nn.Module):
    """The parallel network on one text, without a batch's masks."""

    def __init__(self, net: FastNet) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).eval()

    def forward(self, ids: Tensor) -> Tensor:
        """(1, frames, mels)."""
        mel: Tensor = self.net(ids)
        return mel


def _write_card(card: SpeechCard, path: Path) -> None:
    model = {"kind": card.kind, "input": card.input, "mel": card.mel, "layout": card.layout}
    if card.kind == "autoregressive":
        model |= {"decoder": card.decoder, "postnet": card.postnet}
    numbers = {k: getattr(card, k) for k in ("stop_threshold", "max_frames", "frames_per_step")}
    sections = {
        "text": {"symbols": card.symbols, "lower": card.lower, "end": card.end},
        "model": model | (numbers if card.kind == "autoregressive" else {}),
        "spectrum": asdict(card.spectrum),
        "normalise": {"mean": card.mean[0], "std": card.std[0]},
    }
    lines = ['task = "speech"']
    for name, table in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {toml(value)}" for key, value in table.items())]
    path.with_suffix(".toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
