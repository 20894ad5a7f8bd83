"""The size of a pool's output in floor and ceil mode, exactly as PyTorch, ONNX and ONNX Runtime count it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """How a pool looks along one axis; `before` and `after` are cells of padding."""

    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Cells from the first to the last that one window sees."""
        return self.dilation * (self.kernel - 1) + 1


def pooled(cells: int, window: Window, ceil: bool) -> int:
    """The number of windows over `cells` cells: eq. 8 of the SysNoise paper, with its last window checked.

    O = ⌊(W − K + P_before + P_after) / S⌋ + 1, or ⌈…⌉ in ceil mode; in ceil mode the last window is dropped
    if it would begin in the padding after the input: (O − 1)·S ≥ W + P_before.
    """
    free = cells + window.before + window.after - window.reach
    if free < 0:
        return 0
    if not ceil:
        return free // window.stride + 1
    count = -(-free // window.stride) + 1
    return count - 1 if (count - 1) * window.stride >= cells + window.before else count


def windows_of(node: Any) -> list[Window] | None:
    """How a pool node looks along each of its spatial axes; None if it pads to ⌈W/S⌉ whatever its mode."""
    from onnx import helper

    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if given.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return None
    kernel = list(given["kernel_shape"])
    rank = len(kernel)
    strides = list(given.get("strides", ())) or [1] * rank
    dilations = list(given.get("dilations", ())) or [1] * rank
    pads = list(given.get("pads", ())) or [0] * (2 * rank)
    if given.get("auto_pad") == b"VALID":
        pads = [0] * (2 * rank)
    return [Window(kernel[i], strides[i], pads[i], pads[i + rank], dilations[i]) for i in range(rank)]


def ceils(node: Any) -> bool:
    """Whether a pool node rounds up."""
    # Padding VALID is defined by the floor of eq. 8, even with ceil_mode = 1.
    given = {a.name: a for a in node.attribute}
    valid = "auto_pad" in given and given["auto_pad"].s == b"VALID"
    return "ceil_mode" in given and given["ceil_mode"].i == 1 and not valid
