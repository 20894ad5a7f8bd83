"""Noises of your own, in one file: what your target does that no list has.

    holdfast noise signs-yolo signs:0:100 --use examples/vendor_noise.py --only vendor --only resize
    holdfast noise show picture.jpg --use examples/vendor_noise.py

A decorated function is all there is to it. A `resize` (or `decode`, `colour`) joins its family; a function of
kind `noise` gets the whole pipeline and founds a family of its own.
"""

import numpy as np

from holdfast import Pipeline, Size, stage


@stage("resize", systems="vendor X's camera chip")
def vendor_bilinear(image: np.ndarray, size: Size) -> np.ndarray:
    """Bilinear with corners aligned and the result cut off, not rounded."""
    rows = np.linspace(0, image.shape[0] - 1, size.height)
    columns = np.linspace(0, image.shape[1] - 1, size.width)
    top, left = rows.astype(int), columns.astype(int)
    below, right = np.minimum(top + 1, image.shape[0] - 1), np.minimum(left + 1, image.shape[1] - 1)
    down, across = (rows - top)[:, None, None], (columns - left)[None, :, None]
    upper = image[top][:, left] * (1 - across) + image[top][:, right] * across
    lower = image[below][:, left] * (1 - across) + image[below][:, right] * across
    return (upper * (1 - down) + lower * down).astype(np.uint8)


def six_bits(image: np.ndarray) -> np.ndarray:
    """The two lowest bits of every channel lost, as on a panel link of 18 bits."""
    return image & np.uint8(0b11111100)


@stage("noise", family="vendor", systems="vendor X's display link")
def panel_link(pipeline: Pipeline) -> Pipeline:
    """Six bits a channel between the camera and the network."""
    return pipeline.replace(colour=six_bits)
