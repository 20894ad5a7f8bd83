"""A model under attack: the truth of its pipeline, and its candidates with a gradient."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient.candidates_of import candidates_of
from holdfast.attack.gradient.prepare import Preparation, preparation_of
from holdfast.attack.gradient.tensors import Candidates
from holdfast.attack.judge import open_judge, target_in
from holdfast.attack.types import Rule, Target
from holdfast.core.errors import HoldfastError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Machine, Pipeline
from holdfast.core.types import Boxes, Detections, Image, Size
from holdfast.graph.inspect import load_proto
from holdfast.graph.lower import lower_onnx
from holdfast.graph.torch import TorchNet
from holdfast.stages.deployed import Deployed, rewritten
from holdfast.stages.infer import open_onnx


@dataclass(frozen=True, eq=False)
class Victim:
    """A model opened to be attacked; `machine` runs its pipeline at the rule's thresholds."""

    model: Model
    machine: Machine
    rule: Rule
    judge: Callable[[Image], Detections]  # the truth: the pipeline behind the decoder, in its own runtime
    net: TorchNet
    outputs: Mapping[str, tuple[int, ...]]  # name -> shape without the batch, in the graph's order
    read: Callable[[Mapping[str, Tensor], Any], Candidates]
    _prepared: dict[Size, Preparation] = field(default_factory=dict, repr=False)

    def candidates(self, pixels: Tensor) -> Candidates:
        """All candidates of pixels (b, h, w, 3) in 0..255, with a gradient; boxes in pixels of the image."""
        ready = self.preparation(Size(pixels.shape[2], pixels.shape[1]))
        flat = self.net(ready(pixels))
        parts = flat.split([prod(shape) for shape in self.outputs.values()], dim=1)
        raw = {
            name: part.reshape(-1, *shape)
            for (name, shape), part in zip(self.outputs.items(), parts, strict=True)
        }
        found = self.read(raw, self.machine.model.card)
        return dataclasses.replace(found, boxes=ready.boxes_to_image(found.boxes))

    def preparation(self, size: Size) -> Preparation:
        """The differentiable way into the network for images of that size, made once."""
        if size not in self._prepared:
            self._prepared[size] = preparation_of(self.machine, size, self.net.dtype)
        return self._prepared[size]


def open_victim(
    model: Model, pipeline: Pipeline | None = None, rule: Rule | None = None, threads: int = 1
) -> Victim:
    """The model opened for gradients and for judging, by default with its card's pipeline and `Rule()`.

    A deployment that rewrites the graph is lowered as rewritten where that is possible; where it is not
    (integer and half precision), the gradient is that of the model itself, and the judge is the deployment.
    """
    read = candidates_of(model.card)
    judge = open_judge(model, pipeline, rule, threads)
    net, outputs = _lowered(judge.machine.model, judge.machine.pipeline)
    return Victim(model, judge.machine, judge.rule, judge, net, outputs, read)


def _lowered(model: Model, pipeline: Pipeline) -> tuple[TorchNet, dict[str, tuple[int, ...]]]:
    infer = pipeline.infer
    if isinstance(infer, Deployed) and infer.rewrites:
        with contextlib.suppress(HoldfastError):  # quantised nodes have no gradient
            return _opened(model, rewritten(model, infer.rewrites, infer.calibration).model)
    return _opened(model, None)


def _opened(model: Model, proto: Any) -> tuple[TorchNet, dict[str, tuple[int, ...]]]:
    """The network in torch and the shapes of its outputs, of a parsed graph or of the model's own file."""
    net = lower_onnx(model.path if proto is None else proto)
    wanted = model.card.input
    width, height = wanted.size
    if net.inputs != 3 * width * height:
        raise ModelError(
            f"{model.path}: expected one image of {width}×{height} as input, got {net.inputs} numbers; "
            "export it with a batch of 1, or attack it as a black box"
        )
    source = str(model.path) if proto is None else proto.SerializeToString()
    if proto is None and model.path.suffix == ".gz":
        source = load_proto(model.path).SerializeToString()
    shape = (1, 3, height, width) if wanted.layout == "nchw" else (1, height, width, 3)
    found = open_onnx(source, model, 1)(np.zeros(shape, wanted.dtype))
    return TorchNet(net, torch.float32), {name: tuple(v.shape[1:]) for name, v in found.items()}


def target_of(victim: Victim, image: Image, boxes: Boxes) -> Target | None:
    """The true boxes that the victim finds in the clean image; None if it recognises none of them."""
    return target_in(victim.judge, image, boxes, victim.rule)
