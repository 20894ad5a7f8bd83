"""The position of an image in the network's input: the resize policies and the inverse map."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.model import Input
from holdfast.core.types import Floats, Image, Size

LETTERBOXES = ("letterbox", "letterbox-truncate")
Resize = Callable[[Image, Size], Image]


@dataclass(frozen=True)
class Frame:
    """The map from the encoded image to the network input: x_net = x · scale_x + offset_x, likewise y."""

    original: Size
    network: Size
    resized: Size
    scale_x: float
    scale_y: float
    offset_x: int
    offset_y: int

    def to_original(self, boxes: Floats) -> Floats:
        """Boxes (n, 4) xyxy of the network input, in pixels of the encoded image, clipped to it."""
        shift = np.array([self.offset_x, self.offset_y] * 2, np.float64)
        scale = np.array([self.scale_x, self.scale_y] * 2, np.float64)
        limit = np.array([self.original.width, self.original.height] * 2, np.float64)
        return np.clip((boxes - shift) / scale, 0.0, limit)

    def to_network(self, boxes: Floats) -> Floats:
        """Boxes (n, 4) xyxy of the encoded image, in pixels of the network input."""
        shift = np.array([self.offset_x, self.offset_y] * 2, np.float64)
        return boxes * np.array([self.scale_x, self.scale_y] * 2, np.float64) + shift


def frame_of(original: Size, spec: Input) -> Frame:
    """The frame of an image of that size in the network's input."""
    w, h = original
    net = spec.size
    if w < 1 or h < 1:
        raise ImageError(f"expected an image of at least 1×1 pixels, got {w}×{h}")
    new, x, y = net, 0, 0  # policy "stretch"
    if spec.policy in LETTERBOXES:
        ratio = min(net.width / w, net.height / h)
        whole = round if spec.policy == "letterbox" else int
        new = Size(max(1, whole(w * ratio)), max(1, whole(h * ratio)))
        if spec.place != "corner":
            x, y = (net.width - new.width) // 2, (net.height - new.height) // 2
    elif spec.policy != "stretch":
        short = spec.short_side or min(net)
        # The long side is truncated, not rounded, as in torchvision's Resize: 640×427 to 256 gives 383×256;
        # "square" stretches to short × short first, as the SysNoise authors' code does.
        crop = spec.policy == "crop"
        width, height = (short * side // min(w, h) if crop else short for side in (w, h))
        new = Size(max(net.width, width), max(net.height, height))
        x, y = -round((new.width - net.width) / 2), -round((new.height - net.height) / 2)
    scales = {"scale_x": new.width / w, "scale_y": new.height / h}
    return Frame(original, network=net, resized=new, **scales, offset_x=x, offset_y=y)


def place(image: Image, spec: Input, resize: Resize) -> tuple[Image, Frame]:
    """The image (h, w, 3) resized by the given function and placed in the network's input, and its frame."""
    frame = frame_of(Size(image.shape[1], image.shape[0]), spec)
    small = resize(image, frame.resized)
    width, height = frame.resized
    if small.shape != (height, width, 3):
        raise ImageError(f"resize: expected {height}×{width}×3, got {small.shape}")
    if spec.policy == "stretch":
        return small, frame
    if spec.policy in ("crop", "square"):
        top, left = -frame.offset_y, -frame.offset_x
        return small[top : top + frame.network.height, left : left + frame.network.width], frame
    canvas = np.full((frame.network.height, frame.network.width, 3), spec.pad, np.uint8)
    x, y = frame.offset_x, frame.offset_y
    canvas[y : y + frame.resized.height, x : x + frame.resized.width] = small
    return canvas, frame
