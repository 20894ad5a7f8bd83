"""Tiny acoustic models, their cards and recordings, made at test time."""

from __future__ import annotations

import wave as riff
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from holdfast.noise.speech.spectrum import Spectrum

SPECTRUM = Spectrum(rate=8000, n_fft=256, hop=64, window_length=256, mels=20, high=4000.0)
LETTERS = " abcdefghijklmnopqrstuvwxyz.~"
MELS, WIDTH = SPECTRUM.mels, 12
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64

CARD = """task = "speech"
[text]
symbols = [{symbols}]
lower = true
end = "~"
[model]
kind = "{kind}"
{more}
[spectrum]
rate = 8000
n_fft = 256
hop = 64
window_length = 256
mels = {mels}
high = 4000.0
[normalise]
mean = -5.0
std = 2.0
"""


def card_text(kind="parallel", more="", mels=MELS):
    symbols = ", ".join(f'"{c}"' for c in LETTERS)
    return CARD.format(kind=kind, more=more, symbols=symbols, mels=mels)


def _value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes, inputs, outputs, weights):
    made = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "speech", inputs, outputs, made)
    for place, node in enumerate(graph.node):
        node.name = node.name or f"n{place}"
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def parallel_model(seed=0, repeats=6, mels=MELS):
    """ids -> every letter's vector, repeated, through two layers -> mel (1, frames, mels)."""
    rng = np.random.default_rng(seed)
    weights = {
        "table": rng.normal(size=(len(LETTERS), WIDTH)).astype(np.float32),
        "first": rng.normal(size=(WIDTH, 24)).astype(np.float32) / 3,
        "second": rng.normal(size=(24, mels)).astype(np.float32) / 5,
        "axis": np.array([2], np.int64),
        "times": np.array([1, 1, repeats, 1], np.int64),
        "flat": np.array([1, -1, WIDTH], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["letters"]),
        node("Unsqueeze", ["letters", "axis"], ["apart"]),
        node("Tile", ["apart", "times"], ["tiled"]),
        node("Reshape", ["tiled", "flat"], ["frames"]),
        node("MatMul", ["frames", "first"], ["inner"]),
        node("Tanh", ["inner"], ["bent"]),
        node("MatMul", ["bent", "second"], ["mel"]),
    ]
    ins = [_value("ids", INT, [1, "t"])]
    return _model(nodes, ins, [_value("mel", FLOAT, [1, "frames", mels])], weights)


def encoder_model(seed=0):
    """ids -> memory (1, t, d)."""
    rng = np.random.default_rng(seed)
    weights = {
        "table": rng.normal(size=(len(LETTERS), WIDTH)).astype(np.float32),
        "first": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 3,
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["letters"]),
        helper.make_node("MatMul", ["letters", "first"], ["memory"]),
    ]
    ins = [_value("ids", INT, [1, "t"])]
    return _model(nodes, ins, [_value("memory", FLOAT, [1, "t", WIDTH])], weights)


def decoder_model(seed=0, length=30.0, mels=MELS):
    """One frame: the mean memory, the last frame and a state through two layers; stops after `length`."""
    rng = np.random.default_rng(seed + 1)
    state = 16
    weights = {
        "inner": rng.normal(size=(WIDTH + mels + state, state)).astype(np.float32) / 4,
        "outer": rng.normal(size=(state, mels)).astype(np.float32) / 2,
        "one": np.array(1.0, np.float32),
        "length": np.array(length - 0.5, np.float32),
    }
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["memory"], ["context"], axes=[1], keepdims=0),
        node("Concat", ["context", "frame", "state0"], ["all"], axis=1),
        node("MatMul", ["all", "inner"], ["mixed"]),
        node("Tanh", ["mixed"], ["next_state0"]),
        node("MatMul", ["next_state0", "outer"], ["mel"]),
        node("Add", ["state1", "one"], ["next_state1"]),
        node("ReduceMean", ["next_state1"], ["count"], axes=[1], keepdims=1),
        node("Sub", ["count", "length"], ["stop"]),
    ]
    ins = [
        _value("memory", FLOAT, [1, "t", WIDTH]),
        _value("frame", FLOAT, [1, mels]),
        _value("state0", FLOAT, [1, state]),
        _value("state1", FLOAT, [1, "t"]),
    ]
    outs = [_value("mel", FLOAT, [1, mels]), _value("stop", FLOAT, [1, 1])]
    outs += [_value("next_state0", FLOAT, [1, state]), _value("next_state1", FLOAT, [1, "t"])]
    return _model(nodes, ins, outs, weights)


def write_parallel(folder: Path, name="fast", more="", mels=MELS, **how) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(parallel_model(mels=mels, **how), folder / f"{name}.onnx")
    (folder / f"{name}.toml").write_text(card_text("parallel", more))
    return folder / f"{name}.onnx"


def write_autoregressive(folder: Path, name="taco", length=30.0, more="max_frames = 60") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(encoder_model(), folder / f"{name}.onnx")
    onnx.save(decoder_model(length=length), folder / f"{name}-decoder.onnx")
    more = f'decoder = "{name}-decoder.onnx"\n{more}'
    (folder / f"{name}.toml").write_text(card_text("autoregressive", more))
    return folder / f"{name}.onnx"


def hum(seconds=0.5, rate=8000, pitch=140.0, seed=0):
    """A wave that has harmonics, noise and a beginning and an end."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    voice = sum(np.sin(2 * np.pi * k * (pitch * t + 4 * np.sin(3 * t))) / k for k in range(1, 12))
    return 0.2 * voice * np.sin(np.pi * t / seconds) ** 2 + 0.005 * rng.normal(size=t.size)


def write_wav(path: Path, wave, rate=8000, width=2, channels=1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.clip(np.rint(np.asarray(wave) * 32767), -32768, 32767).astype("<i2")
    data = samples.tobytes() if width == 2 else ((samples >> 8) + 128).astype(np.uint8).tobytes()
    with riff.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


def write_clips(folder: Path, texts=("a road.", "the sign is red.", "turn left now.", "stop.")) -> Path:
    lines = []
    for place, text in enumerate(texts):
        write_wav(folder / "wavs" / f"c{place}.wav", hum(0.4 + 0.1 * place, seed=place))
        lines.append(f"c{place}|{text.title()}|{text}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
