"""OpenVINO on the CPU."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.graph.session import condense
from holdfast.stages.runtime.probe import cannot_load, guarded, probe


@stage("runtime", needs="openvino", extra="runtimes", packages=("openvino",), systems="OpenVINO (Intel CPUs)")
def openvino(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenVINO on the CPU in float32: it would take bfloat16 by itself where the processor has it."""
    library = _library()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    about = probe(source, model)
    try:
        core = library.Core()
        compiled = core.compile_model(core.read_model(source), "CPU", settings)
        request = compiled.create_infer_request()
    except Exception as problem:
        raise cannot_load("OpenVINO", model, _plain(problem)) from problem
    places = {name: place for place, port in enumerate(compiled.outputs) for name in port.get_names()}
    if missing := [name for name in about.shapes if name not in places]:
        raise cannot_load("OpenVINO", model, f"output {missing[0]!r} is missing, it has {sorted(places)}")

    def run(tensor: Tensor) -> dict[str, Tensor]:
        found = request.infer({0: np.ascontiguousarray(tensor)})
        # Copied: the next image is written into the same memory.
        return {name: np.array(found[places[name]]) for name in about.shapes}

    return guarded("OpenVINO", run, about, model, _plain)


def _plain(problem: Exception, limit: int = 300) -> str:
    """The error in one line, without the places in OpenVINO's source that it begins with."""
    whole = condense(problem, 10 * limit)
    text = re.sub(r"(?:Exception from|Check '.*?' failed at) \S+:\d+:\s*", "", whole) or whole
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _library() -> Any:
    """The openvino module, imported without its telemetry.

    On import its converter would send usage data and keep an identifier in the user's home. Without the
    telemetry package, which it takes to be optional, it does neither.
    """
    name = "openvino_telemetry"
    absent = name not in sys.modules
    if absent:
        sys.modules[name] = None  # type: ignore[assignment] # Python's own way to say: cannot be imported
    try:
        import openvino

        return openvino
    finally:
        if absent:
            del sys.modules[name]
