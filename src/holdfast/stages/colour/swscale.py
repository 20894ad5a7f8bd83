"""RGB to NV12 and back by FFmpeg's libswscale."""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.frames import converted


@stage("colour", systems="FFmpeg and GStreamer pipelines that hand over NV12 (swscale)")
def nv12_swscale(image: Image) -> Image:
    """The pixels after libswscale's conversion to NV12 and back (PyAV), with its default flags.

    Odd sides are as swscale has them: chroma planes of ⌈h/2⌉ × ⌈w/2⌉.
    """
    import av

    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    back = converted(converted(frame, "nv12"), "rgb24")
    return np.ascontiguousarray(back.to_ndarray())
