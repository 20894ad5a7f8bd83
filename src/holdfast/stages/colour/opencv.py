"""RGB to NV12 and back by OpenCV."""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image


@stage("colour", systems="OpenCV cvtColor on NV12 or I420 frames of cameras and video")
def nv12_opencv(image: Image) -> Image:
    """The pixels after OpenCV's conversion to I420, interleaved to NV12, and back.

    BT.601 in 20-bit fixed point; chroma is taken from the upper left pixel of each 2 × 2 and repeated over
    them. OpenCV asks for even sides: a last odd row or column is doubled before and cut after.
    """
    import cv2

    height, width = image.shape[:2]
    even = image
    if height % 2 or width % 2:
        even = cv2.copyMakeBorder(image, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    rows, columns = even.shape[:2]
    i420 = cv2.cvtColor(even, cv2.COLOR_RGB2YUV_I420)
    luma, chroma = i420[:rows], i420[rows:].reshape(2, rows // 2, columns // 2)
    interleaved = np.stack([chroma[0], chroma[1]], axis=-1).reshape(rows // 2, columns)
    back = cv2.cvtColor(np.concatenate([luma, interleaved]), cv2.COLOR_YUV2RGB_NV12)
    return np.ascontiguousarray(back[:height, :width])
