"""Trained speech networks as ONNX files, with their cards.

A Tacotron-2-type model is three files: the encoder (`taco.onnx`: ids → memory), one step of the decoder
(`taco-decoder.onnx`: memory, frame, state0.. → mel, stop, next_state0..) and the postnet
(`taco-postnet.onnx`). The decoder gives `frames_per_step` frames at once, mel (1, frames_per_step · mels),
and is shown the last of them in the next step. States and the frame before the first are zeros. A
FastSpeech-2-type model is one file.
"""

import copy
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.graph.card import toml
from holdfast.noise.speech.system import SpeechCard
from models.signs.export import OPSET
from models.speech.corpus import SPECTRUM
from models.speech.fast_net import FastNet
from models.speech.sentences import END, SYMBOLS
from models.speech.taco_net import TacoNet

STATES = 5  # of the decoder: hidden, cell, context, attention, attention so far
DECODER, POSTNET = "taco-decoder.onnx", "taco-postnet.onnx"


def write_fast(net: FastNet, mean: float, std: float, folder: Path) -> Path:
    """Write the parallel model and its card; its path."""
    path = folder / "fast-speech.onnx"
    ids = torch.randint(1, len(SYMBOLS), (1, 9), generator=torch.Generator().manual_seed(0))
    axes = {"ids": {1: "t"}, "mel": {1: "frames"}}
    _export(_Spoken(net), (ids,), ("ids",), ("mel",), axes, path)
    _write_card(SpeechCard(SYMBOLS, SPECTRUM, "parallel", end=END, mean=(mean,), std=(std,)), path)
    return path


def write_taco(net: TacoNet, mean: float, std: float, folder: Path) -> Path:
    """Write encoder, decoder step, postnet and their card; the encoder's path."""
    path = folder / "taco.onnx"
    net = copy.deepcopy(net).eval()
    ids = torch.randint(1, len(SYMBOLS), (1, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        memory = net.encoder(ids)
    _export(net.encoder, (ids,), ("ids",), ("memory",), {"ids": {1: "t"}, "memory": {1: "t"}}, path)
    states = net.decoder.states(memory)
    names = tuple(f"state{place}" for place in range(STATES))
    after = tuple(f"next_{name}" for name in names)
    axes = {"memory": {1: "t"}, **{name: {1: "t"} for name in (*names[3:], *after[3:])}}
    frame = torch.zeros(1, net.mels)
    wanted = ("memory", "frame", *names)
    _export(net.decoder, (memory, frame, *states), wanted, ("mel", "stop", *after), axes, folder / DECODER)
    frames = {"raw": {1: "frames"}, "mel": {1: "frames"}}
    _export(net.postnet, (torch.zeros(1, 7, net.mels),), ("raw",), ("mel",), frames, folder / POSTNET)
    card = SpeechCard(
        SYMBOLS, SPECTRUM, "autoregressive", end=END, decoder=DECODER, postnet=POSTNET,
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


def _export(
    net: nn.Module,
    given: tuple[Tensor, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    axes: dict[str, dict[int, str]],
    path: Path,
) -> None:
    """Write a network as ONNX, whole or not at all."""
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with warnings.catch_warnings():
        # The tracing exporter is announced as old; the new one needs a package this one does not.
        warnings.simplefilter("ignore", DeprecationWarning)
        # One text at a time is what is wanted: sizes that become constants are those of the batch.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        warnings.filterwarnings("ignore", message="Exporting a model to ONNX with a batch_size other than 1")
        torch.onnx.export(
            copy.deepcopy(net).eval(), given, str(part), input_names=list(inputs), output_names=list(outputs),
            dynamic_axes=axes, opset_version=OPSET, dynamo=False,
        )  # fmt: skip
    model = onnx.load(str(part))
    for node in model.graph.node:
        node.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(part))
    part.replace(path)


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
