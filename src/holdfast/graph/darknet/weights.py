"""The floats of a darknet .weights file, shared out to the layers; every one of them, or an error."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.graph.darknet.layers import EPSILON, Arrays, Step


def header_length(data: bytes, path: Path) -> int:
    """The bytes of the header of a .weights file: 16, or 20 from version 0.2 on."""
    if data.lstrip().startswith((b"[net]", b"[network]", b"#")):
        raise ModelError(f"{path}: expected darknet weights, got the text of a .cfg; the .cfg comes first")
    if len(data) >= 12:
        major, minor, _ = struct.unpack_from("<3i", data)
        length = 20 if major * 10 + minor >= 2 and major < 1000 and minor < 1000 else 16
        if len(data) >= length:
            return length
    raise ModelError(
        f"{path}: expected darknet weights after a header of 16 or 20 bytes, got {len(data)} bytes in all"
    )


def blocks(step: Step) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays a layer takes from the file, in the file's order."""
    return step.layer.blocks(step.inputs[0])


def read_weights(path: Path, steps: Sequence[Step]) -> dict[int, Arrays]:
    """The arrays of every layer that has some, by layer number."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; give the path of a darknet .weights file") from None
    except OSError as problem:
        raise ModelError(f"{path}: expected a readable darknet .weights file, got: {problem}") from problem
    length = header_length(data, path)
    count, spare = divmod(len(data) - length, 4)
    floats = np.frombuffer(data, "<f4", count, length)
    _check_count(path, steps, count, spare)
    taken: dict[int, Arrays] = {}
    position = 0
    for step in steps:
        arrays: dict[str, NDArray[np.float32]] = {}
        for name, shape in blocks(step).items():
            end = position + math.prod(shape)
            arrays[name] = floats[position:end].reshape(shape)
            _check_values(path, step, name, arrays[name], position)
            position = end
        if arrays:
            taken[step.layer.section.index] = arrays
    return taken


def _check_count(path: Path, steps: Sequence[Step], got: int, spare: int) -> None:
    ends = list(accumulate(sum(map(math.prod, blocks(step).values())) for step in steps))
    expected = ends[-1]
    if got == expected and not spare:
        return
    odd = f" and {spare} bytes" if spare else ""
    cfg = steps[0].layer.section.path
    message = f"{path}: expected {expected:,} floats for {cfg}, got {got:,}{odd}: "
    if got >= expected:
        raise ModelError(message + f"{got - expected:,}{odd} too many; is it the .weights of another .cfg?")
    within = next(step for step, end in zip(steps, ends, strict=True) if end > got)
    raise ModelError(
        message + f"{expected - got:,} too few, it ends within {within.layer.section.at()}; "
        "is it cut short, or of another .cfg?"
    )


def _check_values(path: Path, step: Step, name: str, values: NDArray[np.float32], position: int) -> None:
    wrong, wanted = ~np.isfinite(values), "finite numbers"
    if name == "variance":
        wrong, wanted = wrong | (values <= -EPSILON), "finite numbers of at least 0"
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ModelError(
            f"{path}: expected {wanted} as {name} of {step.layer.section.at()}, got {values.flat[first]} "
            f"({int(wrong.sum())} such, the first is float {position + first:,} of the file)"
        )
