"""OpenCV's decoder."""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.libjpeg import by, is_jpeg
from holdfast.stages.decode.pillow import pillow


@stage(
    "decode",
    paper=True,
    systems="OpenCV imread; mmdetection, YOLOX, Ultralytics, most C++ deployments",
    alike="libjpeg-turbo",
)
def opencv(data: bytes) -> Image:
    """RGB pixels by OpenCV's imdecode, orientation ignored; of 16 bits it takes the upper 8.

    Other formats than JPEG are read by OpenCV too, after Pillow found them whole.
    """
    if is_jpeg(data):
        return by(_imdecode, "OpenCV", data)
    pillow(data)  # OpenCV writes what it thinks of damaged data to standard error
    return _imdecode(data)


def _imdecode(data: bytes) -> Image:
    import cv2

    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as problem:
        raise ImageError(f"cannot be decoded by OpenCV: {str(problem).strip().splitlines()[0]}") from problem
    if pixels is None:
        raise ImageError("cannot be decoded by OpenCV: a format this build does not read")
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
