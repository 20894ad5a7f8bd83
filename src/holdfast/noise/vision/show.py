"""What a noise does to one picture, made visible: before, after, and the difference stretched to 0 … 255."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, InputError, one_line
from holdfast.core.frame import place
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import Pipeline, open_preparation, pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Image, Label, Sample, Size
from holdfast.graph.rewrite.follow.walk import unchanged
from holdfast.noise.vision.choose import Wanted, no_fit
from holdfast.stages.deployed import Calibration, Deployed, rewritten
from holdfast.stages.families import Option, families, options

PLAIN = Input(Size(224, 224), policy="crop", short_side=256)  # when no model says otherwise


@dataclass(frozen=True, eq=False)
class Shown:
    """One pre-processing option on one picture: both pictures, and how far they are apart.

    `difference` is |noised − original| of each channel, stretched so that its largest value is 255.
    """

    option: Option
    original: Image
    noised: Image
    difference: Image
    largest: tuple[int, int, int]
    mean: float

    @property
    def same(self) -> bool:
        """Whether the option changes no pixel."""
        return not any(self.largest)


def shown(data: bytes, model: Model | None, wanted: Wanted) -> Iterator[Shown | tuple[Option, str]]:
    """Each pre-processing option on the picture, or the option with the reason why it cannot be shown.

    Decoders and colours are compared at the picture's own size, resizes at the network's.
    """
    card = model.card if model else None
    clean = Pipeline(decode=card.decode, resize=card.resize) if card else Pipeline()
    fed = card.input if card else PLAIN
    original = stages_of(clean, fed, data)
    for family in families():
        if family.where != "pre-processing":
            continue
        for option in options(family):
            pipeline = option.noise(clean)
            if not wanted.takes(option) or pipeline == clean:
                continue
            useless = option.missing or no_fit(pipeline, clean, fed)
            if useless:
                yield option, useless
                continue
            try:
                noised = stages_of(pipeline, fed, data)
            except HoldfastError as problem:
                yield option, str(problem)
                continue
            at = "resize" if family.name == "resize" else "colour"
            yield compared(option, original[at], noised[at])


def stages_of(pipeline: Pipeline, fed: Input, data: bytes) -> dict[str, Image]:
    """The picture after colour, at its own size, and after resize, as the network gets it."""
    pixels: Image = lookup("colour", pipeline.colour)(lookup("decode", pipeline.decode)(data))
    small, _ = place(pixels, lookup("fit", pipeline.fit)(fed), lookup("resize", pipeline.resize))
    return {"colour": pixels, "resize": small}


def compared(option: Option, original: Image, noised: Image) -> Shown:
    """Both pictures and their difference, each channel stretched to 0 … 255."""
    if original.shape != noised.shape:
        raise InputError(f"{option.label}: expected a picture of {original.shape}, got {noised.shape}")
    gap = np.abs(noised.astype(np.int16) - original.astype(np.int16))
    most = gap.max(axis=(0, 1))
    stretched = (gap * (255.0 / np.maximum(most, 1))).round().astype(np.uint8)
    largest = (int(most[0]), int(most[1]), int(most[2]))
    return Shown(option, original, noised, stretched, largest, float(gap.mean()))


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature map of the network before and after a rewrite of its graph: mean |value| over channels."""

    label: str
    tensor: str
    original: NDArray[np.float32]  # (h, w)
    noised: NDArray[np.float32]  # (h', w'): another size if pools round otherwise
    difference: NDArray[np.float32]  # (h, w) of what both have
    relative: float  # mean |difference| in parts of the mean |value|


def feature(before: bytes, after: bytes, label: str, tensor: Any) -> Feature | None:
    """The deepest feature map of both graphs that differs, or else the deepest; None if they share none."""
    maps = [_maps(graph) for graph in (before, after)]
    common = [name for name in maps[0] if name in maps[1]]
    same = None
    for name in reversed(common):
        first, second = _run(before, name, tensor), _run(after, name, tensor)
        if first.ndim == second.ndim == 4 and min(first.shape[2:]) >= 6 and min(second.shape[2:]) >= 6:
            found = _feature(label, name, first[0], second[0])
            if found.relative or first.shape != second.shape:
                return found
            same = same or found  # an output of a branch that the rewrite does not reach
    return same


def _feature(label: str, name: str, first: Any, second: Any) -> Feature:
    high, wide = min(first.shape[1], second.shape[1]), min(first.shape[2], second.shape[2])
    gap = np.abs(first[:, :high, :wide] - second[:, :high, :wide]).mean(axis=0)
    scale = float(np.abs(first).mean()) or 1.0
    before, after = (np.abs(side).mean(axis=0).astype(np.float32) for side in (first, second))
    return Feature(label, name, before, after, gap.astype(np.float32), float(gap.mean()) / scale)


def _maps(graph: bytes) -> list[str]:
    """The outputs of convolutions, pools and what follows them, in the order of the graph."""
    import onnx

    kinds = {"Conv", "MaxPool", "AveragePool", "Relu", "LeakyRelu", "Concat", "Add", "Clip"}
    return [node.output[0] for node in onnx.load_from_string(graph).graph.node if node.op_type in kinds]


def _run(graph: bytes, name: str, tensor: Any) -> Any:
    """The value of one tensor inside the graph."""
    import onnx

    from holdfast.graph.session import open_session

    model = onnx.load_from_string(graph)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = open_session(model.SerializeToString())
    return np.asarray(session.run([name], {session.get_inputs()[0].name: tensor})[0], np.float32)


@dataclass(frozen=True)
class OnePicture:
    """The picture itself as the only entry of a data set: to calibrate on when nothing else is at hand."""

    name: str
    data: bytes

    def key(self) -> str:
        """The hash of its bytes."""
        return fingerprint.of_bytes(self.data)

    def load(self) -> Sample:
        """Its bytes; nothing is known of what it shows."""
        return Sample(self.name, self.data, Label(0))


def features(
    model: Model, data: bytes, wanted: Wanted, images: tuple[Entry, ...], folder: Path | None = None
) -> Iterator[Feature | tuple[Option, str]]:
    """The deepest feature map before and after every rewrite of the graph that changes it, or why not.

    Rewritten graphs that a suite has built in `folder` are not built again.
    """
    clean = pipeline_of(model.card)
    tensor = open_preparation(clean, model)(data).tensor
    calibration = Calibration(images or (OnePicture("picture", data),), clean)
    for family in families():
        for option in options(family) if "rewrite" in family.kinds else ():
            if not wanted.takes(option) or option.missing or model.card.task not in option.tasks:
                continue
            infer = option.noise(clean).infer
            names = infer.rewrites if isinstance(infer, Deployed) else ()
            try:
                graph, changed, how = _graph(model, Deployed(names, "onnxruntime", calibration, folder))
                found = feature(model.read(), graph, option.label, tensor) if changed else None
            except HoldfastError as problem:
                yield option, one_line(problem)
                continue
            if found is not None:
                yield found
            elif changed:
                yield option, "no feature map has the same name before and after"
            else:
                yield option, how or unchanged(model.read(), family.name)


def _graph(model: Model, infer: Deployed) -> tuple[bytes, bool, str]:
    """The rewritten graph, whether anything changed in it, and how."""
    if infer.folder is not None and infer.rewrites:
        built = infer.built(model)
        return built.path.read_bytes(), bool(built.changed), "; ".join(built.how)
    made = rewritten(model, infer.rewrites, infer.calibration)
    return made.model.SerializeToString(), bool(made.changed), made.how
