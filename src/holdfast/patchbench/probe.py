"""The actual effect of a network's position inputs on the picture, measured by varying them."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.core.types import Size
from holdfast.graph.inspect import inputs_of
from holdfast.graph.session import condense
from holdfast.patchbench.layout import TAIL
from holdfast.patchbench.positions.batches import Session, open_part
from holdfast.verify.finite import HEAVY

Driver = Literal["all", "first", "second", "unclear"]
Values = NDArray[np.float32]
_WORDS = {"channel": "colour channels", "row": "rows", "column": "columns"}


@dataclass(frozen=True)
class Axis:
    """The change along channels, rows or columns: all of them, or `length` from a position value on."""

    name: str
    extent: int
    driver: Driver
    length: int

    def __str__(self) -> str:
        words = _WORDS[self.name]
        if self.driver == "all":
            return f"all {words}"
        if self.driver == "unclear":
            return f"up to {self.length} {words}, no rule found which"
        more = f" to {self.driver} + {self.length - 1}" if self.length > 1 else ""
        return f"{words} {self.driver}{more}"


@dataclass(frozen=True)
class Effect:
    """The effect of a position on the tensor that the detector reads."""

    axes: tuple[Axis, ...]  # channel, row, column
    truncated: bool  # fractions of a position have no effect
    solid: bool  # everything inside the ranges changes, not a part of it
    values: tuple[float, ...]  # values of changed elements, at most 4 different ones

    @property
    def drivers(self) -> dict[str, Driver]:
        """The driver of each axis."""
        return {axis.name: axis.driver for axis in self.axes}

    @property
    def as_described(self) -> bool:
        """Whether it is a patch in all colours whose top left corner is at (first, second)."""
        return self.drivers == {"channel": "all", "row": "second", "column": "first"}

    @property
    def patch(self) -> Size:
        """The visible size of the patch; if all columns change, its height counts for both sides."""
        _, row, column = self.axes
        height = row.length if row.driver in ("first", "second") else column.length
        return Size(column.length if column.driver in ("first", "second") else height, height)

    def __str__(self) -> str:
        if not any(axis.length for axis in self.axes):
            return "nothing: no position changes the picture"
        how = "; fractions are cut off" if self.truncated else "; fractions of a position matter"
        new = f", set to {self.values[0]:g}" if len(self.values) == 1 else ", each pixel to its own value"
        holes = "" if self.solid else ", with holes"
        patch = self.patch
        if self.as_described:
            size = f"a {patch.width}×{patch.height} patch in all colours{new}{holes}"
            return f"{size}, its left side at column = first value, its top at row = second value{how}"
        channel, _, column = self.axes
        kind = limit = ""
        if channel.driver in ("first", "second"):
            kind = "rows of a colour channel: " if column.driver == "all" else ""
            limit = f"; nothing for the {channel.driver} coordinate ≥ {channel.extent}"
        elif self.drivers == {"channel": "all", "row": "first", "column": "second"}:
            kind = "rows and columns swapped: "
        return kind + ", ".join(map(str, self.axes)) + new + holes + limit + how


@dataclass(frozen=True, eq=False)
class Probe:
    """A session from the flat input to the picture that the detector reads."""

    input: str
    tensor: str
    session: Session

    def picture(self, point: Values) -> Values:
        """That tensor for one flat input."""
        return first_output(self.session, {self.input: point})

    def at(self, point: Values, x: float, y: float) -> Values:
        """That tensor for a flat input with another position."""
        return self.picture(moved(point, x, y))


def moved(point: Values, x: float, y: float) -> Values:
    """A copy of the flat input with the patch at another position."""
    copy = point.copy()
    copy[-TAIL : 2 - TAIL] = x, y
    return copy


def first_output(session: Session, given: Mapping[str, Values]) -> Values:
    """The first output of an ONNX Runtime session; raise ModelError if it cannot run."""
    try:
        return session(given)[0]
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        raise ModelError(f"onnxruntime cannot run it: {condense(problem)}") from None


def open_probe(model: Any, length: int) -> Probe:
    """The probe of a network with one flat input. Raise ModelError if no tensor looks like a picture."""
    inputs = inputs_of(model)
    if len(inputs) != 1 or inputs[0].dtype != "float32":
        raise ModelError("expected one input of float32")
    name = inputs[0].name
    example = np.zeros(length, np.float32)
    for tensor in _candidates(model, name):
        probe = Probe(name, tensor, open_part(model, {name: example}, [tensor]))
        shape = probe.picture(example).shape
        if len(shape) == 4 and shape[0] == 1 and 3 in shape[1::2] and np.prod(shape) == length - TAIL:
            return probe
    raise ModelError("found no tensor of the picture's size that depends on the input")


def _candidates(model: Any, name: str) -> list[str]:
    """Tensors that depend on the input: inputs of the first convolutions, then the others, last first."""
    reached, first, others = {name}, list[str](), list[str]()
    for node in model.graph.node:
        dependent = [tensor for tensor in node.input if tensor in reached]
        if not dependent:
            continue
        reached.update(node.output)
        if node.op_type in HEAVY:
            first += dependent
        elif not first:
            others += node.output
    return list(dict.fromkeys([*first[:1], *others[::-1], *first[1:]]))


def effect_of(probe: Probe, point: Values, first: Sequence[int], second: Sequence[int]) -> Effect:
    """The effect of both position values, over these integers, on the picture of the flat input `point`."""
    pixels = len(point) - TAIL
    rng = np.random.default_rng(0)  # a picture without equal values, so that every change is visible
    base = point.copy()
    base[:pixels] = rng.permutation(np.linspace(0.11, 0.93, pixels)).astype(np.float32)

    def picture_at(x: float, y: float) -> Values:
        return _channels_first(probe.at(base, x, y))

    clean = _channels_first(clean_picture(probe, base, first, second))
    pictures = {(x, y): picture_at(x, y) for x, y in itertools.product(first, second)}
    changed = {position: picture != clean for position, picture in pictures.items()}
    axes = tuple(_axis(name, axis, changed) for axis, name in enumerate(_WORDS))
    inside = [mask[np.ix_(*_spans(mask))].mean() for mask in changed.values() if mask.any()]
    values = [pictures[position][mask] for position, mask in changed.items() if mask.any()]
    new = np.unique(np.concatenate(values)) if values else np.zeros(0)
    x, y = first[len(first) // 2], second[len(second) // 2]
    truncated = all(np.array_equal(picture_at(x + f, y + f), pictures[x, y]) for f in (0.25, 0.5, 0.96875))
    return Effect(axes, truncated, all(i == 1 for i in inside), tuple(map(float, new[:4])))


def clean_picture(probe: Probe, base: Values, first: Sequence[int], second: Sequence[int]) -> Values:
    """The picture of a flat input without a patch: with the position far outside.

    If that is not possible, the median of each element over distant positions.
    """
    shifted, outside = base.copy(), float(len(base))
    shifted[:-TAIL] = (base[:-TAIL] + np.float32(0.5)) % 1  # covered pixels stay the same
    with contextlib.suppress(ModelError):  # a network may reject such a position
        picture, changed = probe.at(base, outside, outside), probe.at(shifted, outside, outside)
        if picture.shape == changed.shape and (picture != changed).all():
            return picture
    positions = [(x, y) for x in _spread(first) for y in _spread(second)]
    return np.asarray(np.median(np.stack([probe.at(base, x, y) for x, y in positions]), axis=0), np.float32)


def _spread(values: Sequence[int]) -> list[int]:
    return sorted({values[round(share * (len(values) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)})


def _channels_first(picture: Values) -> Values:
    first: Values = picture[0]
    return first if picture.shape[1] == 3 else first.transpose(2, 0, 1)


def _spans(mask: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """The range of indices changed along each axis."""
    return [np.arange(indices.min(), indices.max() + 1) for indices in np.nonzero(mask)]


def _axis(name: str, axis: int, changed: Mapping[tuple[int, int], NDArray[np.bool_]]) -> Axis:
    """The position value that determines which part of one axis changes."""
    spans = {position: _spans(mask)[axis] for position, mask in changed.items() if mask.any()}
    extent = next(iter(changed.values())).shape[axis]
    if not spans:
        return Axis(name, extent, "unclear", 0)
    longest = max(map(len, spans.values()))
    if all(len(span) == extent for span in spans.values()):
        return Axis(name, extent, "all", extent)
    drivers: tuple[Driver, Driver] = ("first", "second")
    for number, driver in enumerate(drivers):
        starts = [position[number] for position in spans]
        ends = [min(start + longest, extent) - 1 for start in starts]
        if [(span[0], span[-1]) for span in spans.values()] == list(zip(starts, ends, strict=True)):
            return Axis(name, extent, driver, longest)
    return Axis(name, extent, "unclear", longest)
