"""ONNX Runtime: silent CPU sessions, and its errors as one short line."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from holdfast.core.errors import InputError, one_line


def runtime() -> Any:
    """The onnxruntime module, with its telemetry off: it would write a device id into the user's home."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def open_session(
    model: bytes | str | Path,
    *,
    threads: int = 0,
    inter_threads: int = 0,
    optimise: Literal["all", "basic", "none"] = "all",
    save: Path | None = None,
    providers: Sequence[str] = ("CPUExecutionProvider",),
) -> Any:
    """A session for an ONNX file or its bytes; onnxruntime's error if it cannot be opened.

    A file is opened by its path, so that weights stored next to it are found. `threads` 0 means all cores.
    `save` is where the optimised graph is written.
    """
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = inter_threads
    level = {"all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC", "none": "ORT_DISABLE_ALL"}[optimise]
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    if save is not None:
        options.optimized_model_filepath = str(save)
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=list(providers))


def condense(problem: BaseException, limit: int = 160) -> str:
    """An error of onnxruntime as one short line without source paths and codes."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", one_line(problem))
    text = re.sub(r"/\S+?\.(?:cc|h|cpp):\d+ \S+(?: \[with [^\]]*\])? ?", "", text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


SUFFIX = "ExecutionProvider"
BUILDS = {  # provider -> the distribution of ONNX Runtime that has it
    "cuda": "onnxruntime-gpu", "tensorrt": "onnxruntime-gpu", "openvino": "onnxruntime-openvino",
    "dml": "onnxruntime-directml",
}  # fmt: skip


def providers_named(names: Sequence[str]) -> tuple[str, ...]:
    """The full names of execution providers, such as CUDAExecutionProvider for cuda, in the order given."""
    known = {name.removesuffix(SUFFIX).lower(): name for name in runtime().get_available_providers()}
    for name in names:
        if name.lower() not in known:
            build = BUILDS.get(name.lower())
            advice = f"; install the build that has it: pip install {build}" if build else ""
            has = ", ".join(sorted(known))
            raise InputError(f"--provider: the installed ONNX Runtime has {has}, got {name!r}{advice}")
    return tuple(known[name.lower()] for name in names)
