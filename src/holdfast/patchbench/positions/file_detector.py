"""The detector inside a benchmark's file, between its picture and the IoU, for certified positions."""

from functools import partial

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.types import Tensor
from holdfast.graph.lower import lower_onnx
from holdfast.graph.nodes import part_of
from holdfast.patchbench.layout import Target, output_of
from holdfast.patchbench.positions import batches
from holdfast.patchbench.positions.files import Instance, effect, neutral_of, on_file, open_network
from holdfast.patchbench.positions.free import ExactNetwork
from holdfast.patchbench.positions.margins import readout_for

SAME = 1e-4  # tolerance between the file's output and that of the box and the scores found in it


def network_of(instance: Instance, target: Target) -> tuple[ExactNetwork, Tensor]:
    """The detector of a file and the picture (c, h, w) of an instance without a patch.

    Violations are confirmed by the original file at a position where it leaves the picture unchanged. Raise
    ModelError if box and scores are not found, or give another output than the file on a trial.
    """
    measured, where = effect(instance), "the benchmark's file"
    if measured.clean is None or measured.clean.ndim != 4:
        raise InputError("expected a file with a position at which the picture has no patch, found none")
    neutral = neutral_of(instance, measured.clean)
    if neutral is None:
        raise InputError("expected a position at which the file leaves the picture unchanged, found none")
    box, scores = _ports(instance)
    part = part_of(instance.network.model, {instance.picture: measured.clean}, [box, scores])
    clean = np.asarray(measured.clean[0], np.float32)

    def output(picture: Tensor, _: Target) -> float:
        return on_file(instance, picture, neutral)

    net = lower_onnx(part, as_evaluated=True)
    classes = net.outputs - 4
    session = batches.open_bytes(part.SerializeToString())
    for picture in (measured.clean, *batches.noise(*measured.clean.shape)[:15]):
        raw = [value.ravel() for value in session({instance.picture: picture})]
        found = float(output_of(raw[0][None], [int(raw[1].argmax())], target)[0])
        if abs(found - output(picture, target)) > SAME:
            raise ModelError("expected the box and the scores that the file's output reads, found others")
    readout = partial(readout_for, scale=np.ones(4), classes=classes, box_first=True, where=where)
    ends = np.zeros_like(clean), np.ones_like(clean)
    return ExactNetwork(where, part, net, ends, False, readout=readout, output=output), clean


def _ports(instance: Instance) -> tuple[str, str]:
    """The tensors of the raw box and of the scores: the last products, and what an ArgMax reads."""
    after, model = open_network(instance), instance.network.model
    scores = [name for name in after.outputs if name not in {port.name for port in model.graph.output}]
    if len(scores) == 1:
        boxes = [
            name
            for name, shape in after.cut.items()
            if np.prod(shape) == 4 and not batches.dependent(model, name, scores)
        ]
        if len(boxes) == 1:
            return boxes[0], scores[0]
    raise ModelError(
        "expected one box of 4 numbers and one ArgMax of scores in the file; certify its detector"
    )
