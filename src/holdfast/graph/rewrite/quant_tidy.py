"""A graph made ready for precision rewrites: constants folded, batch norms merged, opset 13."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from holdfast.graph.inspect import condense, runtime
from holdfast.graph.rewrite.types import CannotRewrite, ModelProto

OPSET = 13  # the first in which QuantizeLinear has an axis and Cast knows bfloat16


def tidy(model: ModelProto) -> ModelProto:
    """The same function with constants folded and batch norms merged, as every deployed engine does first.

    ONNX Runtime's basic optimisations do it: they leave only standard operators.
    """
    import onnx

    without = {w.name for w in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in without]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        options.optimized_model_filepath = str(Path(folder) / "tidy.onnx")
        try:
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as problem:
            raise CannotRewrite(f"ONNX Runtime cannot load the model: {condense(problem)}") from problem
        done = onnx.load(options.optimized_model_filepath)
    _drop_unused_domains(done)
    _name_nodes(done)
    return done


def at_opset(model: ModelProto) -> ModelProto:
    """The model in an opset that is new enough, converted by onnx if it is not; CannotRewrite otherwise."""
    from onnx import version_converter

    version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if version >= OPSET:
        return model
    try:
        done = version_converter.convert_version(model, OPSET)
        _check(done)
    except Exception as problem:
        raise CannotRewrite(
            f"the model is of opset {version}, this precision needs {OPSET} and the conversion failed: "
            f"{condense(problem)}; export the model with opset {OPSET} or newer"
        ) from problem
    _name_nodes(done)
    return done


def _check(model: ModelProto) -> None:
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _drop_unused_domains(model: Any) -> None:
    """Other runtimes refuse a model that names domains they do not know."""
    used = {n.domain for n in model.graph.node} | {""}
    kept = [o for o in model.opset_import if o.domain in used or o.domain == "ai.onnx"]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _name_nodes(model: Any) -> None:
    taken: set[str] = set()
    for place, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{place}"
        taken.add(node.name)
