"""What a pipeline does between the decoder and the network, as a function with a gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from holdfast.core.frame import Frame, frame_of
from holdfast.core.model import Input
from holdfast.core.pipeline import Machine, Recolour, Resize
from holdfast.core.types import Floats, Size


@dataclass(frozen=True, eq=False)
class Preparation:
    """The way of images of one size into one network's input.

    `rows` (new height, old height) and `columns` (new width, old width) are what the pipeline's own resize
    does along each side; None where it does nothing. `colour` is None where pixels stay as they are.
    """

    frame: Frame
    wanted: Input
    rows: Tensor | None
    columns: Tensor | None
    colour: Recolour | None

    def __call__(self, pixels: Tensor) -> Tensor:
        """The flat network inputs (b, n) of pixels (b, h, w, 3) in 0..255, in the card's layout."""
        if self.colour is not None:
            pixels = _through(pixels, self.colour)
        made = pixels.permute(0, 3, 1, 2)
        if self.rows is not None:
            made = torch.einsum("rh,bchw->bcrw", self.rows, made)
        if self.columns is not None:
            made = torch.einsum("sw,bcrw->bcrs", self.columns, made)
        if self.rows is not None or self.columns is not None:
            made = made.clamp(0, 255)  # as uint8 does to the overshoot of cubic and Lanczos kernels
        made = self._laid(made)
        if self.wanted.colour == "bgr":
            made = made.flip(1)
        std = torch.tensor(self.wanted.std, dtype=made.dtype).reshape(1, -1, 1, 1)
        mean = torch.tensor(self.wanted.mean, dtype=made.dtype).reshape(1, -1, 1, 1)
        made = made * (self.wanted.scale / std) - mean / std
        return (made if self.wanted.layout == "nchw" else made.permute(0, 2, 3, 1)).flatten(1)

    def _laid(self, made: Tensor) -> Tensor:
        """The resized picture (b, c, h, w) cut out or laid on its border, as `core.frame.place` does."""
        frame, wanted = self.frame, self.wanted
        if wanted.policy in ("crop", "square"):
            top, left = -frame.offset_y, -frame.offset_x
            return made[:, :, top : top + frame.network.height, left : left + frame.network.width]
        if wanted.policy == "letterbox":
            right = frame.network.width - frame.resized.width - frame.offset_x
            bottom = frame.network.height - frame.resized.height - frame.offset_y
            sides = (frame.offset_x, right, frame.offset_y, bottom)
            return functional.pad(made, sides, value=float(wanted.pad))
        return made

    def boxes_to_image(self, boxes: Tensor) -> Tensor:
        """Boxes (..., 4) xyxy of the network's input in pixels of the image, clipped to it."""
        frame = self.frame
        shift = torch.tensor([frame.offset_x, frame.offset_y] * 2, dtype=boxes.dtype)
        scale = torch.tensor([frame.scale_x, frame.scale_y] * 2, dtype=boxes.dtype)
        limit = torch.tensor([frame.original.width, frame.original.height] * 2, dtype=boxes.dtype)
        return ((boxes - shift) / scale).clamp(min=0).minimum(limit)


def preparation_of(machine: Machine, size: Size, dtype: torch.dtype = torch.float32) -> Preparation:
    """The differentiable stand-in of the machine's stages for images of that size."""
    wanted = machine.fit(machine.model.card.input)
    frame = frame_of(size, wanted)
    sides = ((size.height, frame.resized.height), (size.width, frame.resized.width))
    rows, columns = (resize_weights(machine.resize, old, new) for old, new in sides)
    return Preparation(
        frame,
        wanted,
        None if rows is None else torch.tensor(rows, dtype=dtype),
        None if columns is None else torch.tensor(columns, dtype=dtype),
        None if machine.pipeline.colour == "rgb" else machine.colour,
    )


def resize_weights(resize: Resize, old: int, new: int) -> Floats | None:
    """The matrix (new, old) by which a resize makes new rows of old ones; None if it leaves them alone.

    It is measured, so that it is right for every library and kernel: one picture with a brighter pixel in
    every row and column is resized in height alone. Negative weights show because the ground is grey.
    """
    ground, peak = 128.0, 127.0
    probe = np.full((old, old, 3), ground, np.uint8)
    probe[np.arange(old), np.arange(old)] = int(ground + peak)
    seen = resize(probe, Size(old, new))[:, :, 0].astype(np.float64)
    weights = (seen - ground) / peak
    weights[np.abs(weights) < 0.75 / peak] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    return None if old == new and np.array_equal(weights, np.eye(old)) else weights


def _through(pixels: Tensor, colour: Recolour) -> Tensor:
    """The pixels as the colour stage gives them; the gradient passes as if it had not been there."""
    whole = pixels.detach().round().clamp(0, 255).to(torch.uint8).numpy()
    seen = np.stack([colour(np.ascontiguousarray(image)) for image in whole])
    return pixels + (torch.tensor(seen, dtype=pixels.dtype) - pixels).detach()
