"""ONNX Runtime on the CPU: the reference runtime."""

from __future__ import annotations

from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.stages.infer import open_onnx


@stage("runtime", systems="ONNX Runtime (CPU)")
def onnxruntime(source: bytes | str, model: Model, threads: int) -> Run:
    """ONNX Runtime on the CPU, all graph optimisations on."""
    return open_onnx(source, model, threads)
