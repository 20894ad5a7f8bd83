"""When a single-object network keeps its answer: margins of class and box, and the least IoU in a range."""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.types import Floats
from holdfast.graph.ir import Activation, Array, Dense, Net, Product, ScaleShift, Selection, Step, WeightedSum
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.layout import Target

ROUNDING = 1e-9  # more than the error of an IoU computed in float64
_ENDS = np.array(list(itertools.product((0, 1), repeat=4)), bool)  # the 16 vertices of a box of boxes


@dataclass(frozen=True, eq=False)
class Readout:
    """A target, and rows (4 + classes − 1, outputs): the box, and the target's lead over each other class."""

    target: Target
    rows: Array

    def least_iou(self, lower: Floats, upper: Floats) -> Floats:
        """The least IoU (q,) with the target of all boxes with corners between these (q, 4), rounded down.

        Moving one side away from the target's never raises the IoU, so the least one is at a vertex.
        """
        boxes = np.where(_ENDS[None], upper[:, None], lower[:, None])
        flat = boxes.reshape(-1, 4)
        finite = np.asarray(np.isfinite(flat).all(axis=1))
        n = len(flat)
        goal, labels = np.repeat([self.target.box], n, axis=0), np.zeros(n, np.int64)
        values = single_values(np.where(finite[:, None], flat, 0.0), labels, goal, labels)
        least = np.where(finite, values, 0.0).reshape(-1, len(_ENDS)).min(axis=1)
        return np.asarray(least - ROUNDING)


def readout_for(target: Target, scale: Floats, classes: int, box_first: bool, where: str) -> Readout:
    """The rows of a target for flat outputs: a box, times `scale` (4,) relative to the picture, and scores.

    Raise ModelError if the target has no area.
    """
    x1, y1, x2, y2 = target.box
    if not (x1 < x2 and y1 < y2):
        raise ModelError(f"{where}: expected a target with an area, got the box {target.box}")
    others = [label for label in range(classes) if label != target.label]
    box, scores = (0, 4) if box_first else (classes, 0)
    rows = np.zeros((4 + len(others), 4 + classes))
    rows[np.arange(4), box + np.arange(4)] = scale
    rows[4:, scores + target.label] = 1.0
    rows[4 + np.arange(len(others)), scores + np.array(others, np.int64)] = -1.0
    return Readout(target, rows)


def with_margins(net: Net, readout: Readout, threshold: float) -> Net:
    """The net with other outputs, all above 0 while the answer is safe.

    They are (1 + threshold)·|box ∩ target| − threshold·(|box| + |target|), which is above 0 exactly if the
    IoU is above the threshold, and the target's lead over each other class.
    """
    x1, y1, x2, y2 = readout.target.box
    steps, others = list(net.steps), len(readout.rows) - 4
    last = len(steps) - 1
    if len(steps[last].shape) != 1:
        raise ModelError(f"expected flat outputs, got {steps[last].shape}")

    def add(step: Step) -> int:
        steps.append(step)
        return len(steps) - 1

    def taken(source: int, index: range) -> int:
        return add(Selection((source,), np.array(index, np.int64), None, (len(index),)))

    def shifted(source: int, factor: float, offset: list[float]) -> int:
        size = len(offset)
        return add(ScaleShift(source, np.full(size, factor), np.array(offset), (size,)))

    def relu(source: int, size: int = 2) -> int:
        return add(Activation(source, "relu", (size,)))

    def area(low: int, high: int) -> int:
        sides = relu(add(WeightedSum((high, low), (1.0, -1.0), (2,))))
        return add(Product(taken(sides, range(1)), taken(sides, range(1, 2)), (1,)))

    read = add(Dense(last, readout.rows, np.zeros(len(readout.rows)), (len(readout.rows),)))
    low, high = taken(read, range(2)), taken(read, range(2, 4))
    inner_low = shifted(relu(shifted(low, 1.0, [-x1, -y1])), 1.0, [x1, y1])  # max(low, target's)
    inner_high = shifted(relu(shifted(high, -1.0, [x2, y2])), -1.0, [x2, y2])  # min(high, target's)
    both = add(WeightedSum((area(inner_low, inner_high), area(low, high)), (1 + threshold, -threshold), (1,)))
    overlap = shifted(both, 1.0, [-threshold * (x2 - x1) * (y2 - y1)])
    index = np.concatenate([[0], 1 + np.arange(4, 4 + others)]).astype(np.int64)
    add(Selection((overlap, read), index, None, (1 + others,)))
    return replace(net, steps=tuple(steps))
