"""The output of a benchmark network computed apart from it, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.types import Floats
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.network.layout import Target


def output_of(boxes: ArrayLike, labels: ArrayLike, target: Target) -> Floats:
    """IoU · equal(class) of each predicted box (n, 4) xyxy in parts of the picture, (n,).

    Boxes are not cut to the picture: neither does the published network.
    """
    n = len(np.asarray(boxes))
    return single_values(boxes, labels, np.repeat([target.box], n, axis=0), np.repeat(target.label, n))
