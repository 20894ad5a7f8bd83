"""The floats of a darknet .weights file, shared out to the layers; every one of them, or an error."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.graph.darknet.cfg import Step
from holdfast.graph.darknet.layers import BatchNorm, Convolutional

Float32s: TypeAlias = NDArray[np.float32]
Arrays: TypeAlias = Mapping[str, Float32s]

EPSILON = 1e-5  # what darknet adds to the variance when it folds a batch normalisation


@dataclass(frozen=True)
class Header:
    """The version that wrote the file and how many training images it had seen."""

    major: int
    minor: int
    revision: int
    seen: int
    length: int  # bytes


def read_header(data: bytes, path: Path) -> Header:
    """The header at the start of a .weights file: 16 bytes, or 20 from version 0.2 on."""
    if data.lstrip().startswith((b"[net]", b"[network]", b"#")):
        raise ModelError(f"{path}: expected darknet weights, got the text of a .cfg; the .cfg comes first")
    if len(data) >= 12:
        major, minor, revision = struct.unpack_from("<3i", data)
        wide = major * 10 + minor >= 2 and major < 1000 and minor < 1000
        length = 20 if wide else 16
        if len(data) >= length:
            (seen,) = struct.unpack_from("<Q" if wide else "<I", data, 12)
            return Header(major, minor, revision, seen, length)
    raise ModelError(
        f"{path}: expected darknet weights after a header of 16 or 20 bytes, got {len(data)} bytes in all"
    )


def blocks(step: Step) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The arrays a layer takes from the file, in the file's order, with their shapes."""
    layer = step.layer
    if isinstance(layer, Convolutional):
        n, channels = layer.filters, step.inputs[0].channels // layer.groups
        norm = (("scale", (n,)), ("mean", (n,)), ("variance", (n,))) if layer.batch_normalize else ()
        return (("bias", (n,)), *norm, ("weights", (n, channels, layer.size, layer.size)))
    if isinstance(layer, BatchNorm):
        c = step.inputs[0].channels
        return (("bias", (c,)), ("scale", (c,)), ("mean", (c,)), ("variance", (c,)))
    return ()


def read_weights(path: Path, steps: Sequence[Step]) -> dict[int, Arrays]:
    """The arrays of every layer that has some, by layer number."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; give the path of a darknet .weights file") from None
    except OSError as problem:
        raise ModelError(f"{path}: expected a readable darknet .weights file, got: {problem}") from problem
    header = read_header(data, path)
    spare = (len(data) - header.length) % 4
    floats = np.frombuffer(data, "<f4", (len(data) - header.length) // 4, header.length)
    _check_count(path, steps, len(floats), spare)
    taken: dict[int, Arrays] = {}
    position = 0
    for step in steps:
        arrays: dict[str, Float32s] = {}
        for name, shape in blocks(step):
            count = math.prod(shape)
            arrays[name] = floats[position : position + count].reshape(shape)
            _check_values(path, step, name, arrays[name], position)
            position += count
        if arrays:
            taken[step.placed.index] = arrays
    return taken


def _check_count(path: Path, steps: Sequence[Step], got: int, spare: int) -> None:
    ends = list(accumulate(sum(math.prod(shape) for _, shape in blocks(step)) for step in steps))
    expected = ends[-1]
    if got == expected and not spare:
        return
    odd = f" and {spare} bytes" if spare else ""
    message = f"{path}: expected {expected:,} floats for {steps[0].placed.section.path}, got {got:,}{odd}: "
    if got >= expected:
        raise ModelError(message + f"{got - expected:,}{odd} too many; is it the .weights of another .cfg?")
    within = next(step for step, end in zip(steps, ends, strict=True) if end > got)
    raise ModelError(
        message + f"{expected - got:,} too few, it ends within {within.placed.section.at()}; "
        "is it cut short, or of another .cfg?"
    )


def _check_values(path: Path, step: Step, name: str, values: Float32s, position: int) -> None:
    wrong = ~np.isfinite(values)
    if name == "variance":
        wrong |= values <= -EPSILON
    if wrong.any():
        first = int(np.argmax(wrong))
        wanted = "finite numbers" if name != "variance" else "finite numbers of at least 0"
        raise ModelError(
            f"{path}: expected {wanted} as {name} of {step.placed.section.at()}, got {values.flat[first]} "
            f"({int(wrong.sum())} such, the first is float {position + first:,} of the file)"
        )


def folded(arrays: Arrays) -> tuple[Float32s, Float32s]:
    """The weights and bias of a convolution with its batch normalisation folded in, in double precision."""
    weights, bias = arrays["weights"].astype(np.float64), arrays["bias"].astype(np.float64)
    if "scale" in arrays:
        factor, shift = normalisation(arrays)
        weights, bias = weights * factor[:, None, None, None], shift
    return weights.astype(np.float32), bias.astype(np.float32)


def normalisation(arrays: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The factor and shift (y = factor · x + shift) a batch normalisation comes down to."""
    factor = arrays["scale"] / np.sqrt(arrays["variance"].astype(np.float64) + EPSILON)
    return factor, arrays["bias"] - factor * arrays["mean"]
