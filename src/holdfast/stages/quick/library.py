"""The compiled kernels of the stages, by name."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.native import Library

_STAGES = Path(__file__).parents[1]
_LANCZOS = (
    "uint8[:,:], int64, int64[:], int32[:,:], int64[:], int32[:,:], "
    "out int32[:,:], out int32[:,:], out int32[:], out uint8[:,:], out uint8[:,:]"
)
_AREA = (
    "uint8[:,:], int64, uint64[:], float32[:,:], int64[:], float32[:,:], "
    "out float32[:], out float32[:], out float32[:], out uint8[:,:]"
)
_NV12 = (
    "uint8[:,:,:], int64, out int32[:,:], out uint8[:,:], out int16[:,:], out int16[:,:], "
    "out int16[:,:], out int16[:], out uint8[:,:,:]"
)
KERNELS = Library(
    "quick",
    "holdfast.stages.quick.kernels",
    {
        "taps": "resample.taps(int64, int64, float64, out int64[:], out int32[:,:], out float64[:])",
        "down": "resample.down(uint8[:,:], int64[:], int32[:,:], out int32[:], out uint8[:,:])",
        "picked": "resample.picked(uint8[:,:], int64[:], int64[:], out uint8[:,:])",
        "lanczos": f"nearby.lanczos({_LANCZOS})",
        "area": f"nearby.area({_AREA})",
        "planes": "yuv.planes(uint8[:,:,:], out int32[:,:], out int16[:,:], out int16[:,:], out int16[:,:])",
        "pixels": "yuv.pixels(int16[:,:], int16[:,:], int16[:,:], out int32[:,:], out uint8[:,:,:])",
        "nv12": f"yuv.nv12({_NV12})",
        "sums": "mixed.sums(uint32[:,:], uint32[:,:], out uint64[:,:])",
        "tensor": "tensor.planes(uint8[:,:,:], int64, float32[:], float32[:], out float32[:,:,:])",
    },
    purpose="kernels",
    extra="quick",
    sources=tuple(_STAGES / path for path in ("colour/bt601.py", "quick/opencv.py", "quick/resample.py")),
)
