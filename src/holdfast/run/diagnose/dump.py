"""Which of the known choices a dump of the target looks like: its model input, or its raw output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.frame import place
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, open_machine
from holdfast.core.registry import lookup, names, part
from holdfast.core.types import Image, Tensor
from holdfast.noise.families import Option, families, is_installed, options
from holdfast.run.diagnose.lockstep import Apart, apart


@dataclass(frozen=True)
class Likeness:
    """A row of choices and how far what they give is from the dump."""

    choices: str
    apart: Apart

    @property
    def exact(self) -> bool:
        """Whether it is the dump, value by value."""
        return self.apart.same


def read_dump(path: Path) -> Tensor:
    """The array of a .npy file; InputError for anything else. Pickles are not loaded."""
    try:  # mapped first: a header that promises more than the file holds is then refused, not allocated
        found: Tensor = np.array(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError, EOFError) as problem:
        raise InputError(f"{path}: expected an array saved by numpy.save, got: {problem}") from problem
    if found.dtype.kind not in "fiu":
        raise InputError(f"{path}: expected one array of numbers, got {found.dtype}")
    if not np.isfinite(found).all():
        raise InputError(f"{path}: holds NaN or infinite values; expected numbers")
    return found


def like_input(model: Model, train: Pipeline, data: bytes, dump: Tensor) -> list[Likeness]:
    """Every decoder × colour × fit × resize that is installed, the nearest to the dumped input first."""
    fed = model.card.input
    shape = input_shape(model)
    wanted = _shaped(dump, shape)
    normalise = lookup("normalise", train.normalise)
    found = []
    for chosen, pixels in _pixels(data):
        for fit in names("fit"):
            laid = lookup("fit", fit)(fed)
            if fit != "card" and laid == fed:
                continue
            for resize in _installed("resize"):
                try:
                    small, _ = place(pixels, laid, lookup("resize", resize))
                except HoldfastError:
                    continue
                more = [f"resize={resize}"] + ([f"resize={fit}"] if fit != "card" else [])
                tensor = normalise(small, laid)[np.newaxis]
                found.append(Likeness(", ".join([*chosen, *more]), apart(tensor, wanted)))
    if not found:
        raise InputError("no known choice could be run on this picture")
    return sorted(found, key=lambda one: (one.apart.mean, one.apart.largest))


def input_shape(model: Model) -> tuple[int, ...]:
    """The shape of the model's input tensor."""
    w, h = model.card.input.size
    return (1, 3, h, w) if model.card.input.layout == "nchw" else (1, h, w, 3)


def _shaped(dump: Tensor, shape: tuple[int, ...]) -> Tensor:
    if dump.shape in (shape, shape[1:]):
        return dump.reshape(shape)
    raise InputError(
        f"the dump is {'×'.join(map(str, dump.shape))}, the model's input {'×'.join(map(str, shape))}; "
        "expected the tensor the target's model is fed, of one picture"
    )


def _pixels(data: bytes) -> Iterator[tuple[list[str], Image]]:
    """Each distinct picture that decoders and colours make, with the choices that make it."""
    seen: list[tuple[list[str], Image]] = []
    for decode in _installed("decode"):
        try:
            decoded: Image = lookup("decode", decode)(data)
        except HoldfastError:
            continue
        for colour in _installed("colour"):
            pixels: Image = lookup("colour", colour)(decoded)
            if not any(pixels.shape == old.shape and (pixels == old).all() for _, old in seen):
                seen.append(([f"decode={decode}", f"colour={colour}"], pixels))
    yield from seen


def _installed(kind: str) -> list[str]:
    """The names of a kind whose libraries are there."""
    needed = {name: part(kind, name).facts.get("needs", "") for name in names(kind)}
    return [name for name, module in needed.items() if not module or is_installed(module)]


def like_output(
    model: Model, train: Pipeline, data: bytes, dump: Tensor, prepare: Callable[[Pipeline], Pipeline]
) -> list[Likeness]:
    """Single options and, from the best of them on, further ones, the nearest to the dumped output first.

    One option after the other is kept if it comes nearer (coordinate descent): all combinations would be
    thousands of runs.
    """
    found: dict[str, Likeness] = {}

    def near(chosen: Sequence[Option]) -> float:
        label = ", ".join(o.label for o in chosen) or "as in training"
        if label not in found:
            pipeline = train
            for one in chosen:
                pipeline = one.noise(pipeline)
            found[label] = Likeness(label, _output_apart(model, prepare(pipeline), data, dump))
        return found[label].apart.mean

    best: list[Option] = []
    nearest = near(best)
    while True:
        tried = {
            one: _quietly(near, [o for o in best if o.family != one.family] + [one])
            for one in _candidates(model, best)
        }
        one = min(tried, key=lambda o: tried[o], default=None)
        if one is None or tried[one] >= nearest:
            break
        nearest = tried[one]
        best = [o for o in best if o.family != one.family] + [one]
    return sorted(found.values(), key=lambda f: (f.apart.mean, f.apart.largest))


def _candidates(model: Model, best: Sequence[Option]) -> list[Option]:
    task = model.card.task
    every = [o for f in families() if f.where != "post-processing" for o in options(f)]
    return [o for o in every if not o.missing and o not in best and task in o.tasks]


def _quietly(near: Callable[[Sequence[Option]], float], chosen: Sequence[Option]) -> float:
    try:
        return near(chosen)
    except HoldfastError:
        return float("inf")


def _output_apart(model: Model, pipeline: Pipeline, data: bytes, dump: Tensor) -> Apart:
    machine = open_machine(pipeline, model)
    raw = machine.run(machine.prepare(data).tensor)
    fitting = [value for value in raw.values() if value.size == dump.size]
    if not fitting:
        shapes = ", ".join("×".join(map(str, v.shape)) for v in raw.values())
        raise InputError(
            f"the dump is {'×'.join(map(str, dump.shape))}; expected one of the model's outputs: {shapes}"
        )
    return min((apart(value.reshape(dump.shape), dump) for value in fitting), key=lambda a: a.mean)
