"""The end of a rewrite: declared shapes no longer true, constants nobody takes, and a run as proof."""

from __future__ import annotations

import numpy as np

from holdfast.graph.inspect import condense, runtime
from holdfast.graph.rewrite.follow.walk import Walk, names_in
from holdfast.graph.rewrite.types import CannotRewrite


def tidy(walk: Walk, before: set[str]) -> None:
    """Drops declared shapes that are not true any more, and constants of `before` that no node takes now."""
    graph = walk.model.graph
    for info in [v for v in graph.value_info if walk.value(v.name).changed]:
        graph.value_info.remove(info)
    for out in graph.output:
        value = walk.value(out.name)
        dims = out.type.tensor_type.shape.dim
        for dim, old, new in zip(dims, value.old_shape, value.new_shape, strict=False):
            if dim.HasField("dim_value") and old != new:
                dim.dim_value = new
    unused = before - names_in(graph)
    for kept in (graph.initializer, graph.input):
        for item in [v for v in kept if v.name in unused]:
            kept.remove(item)


def proven(walk: Walk) -> None:
    """Nothing if ONNX Runtime runs the rewritten graph to the shapes foreseen; CannotRewrite if not."""
    from onnx import helper

    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    constants = {w.name for w in walk.model.graph.initializer}
    feed = {
        given.name: np.zeros(
            walk.value(given.name).new_shape,
            helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type),
        )
        for given in walk.model.graph.input
        if given.name not in constants
    }
    try:
        session = ort.InferenceSession(
            walk.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = session.run(None, feed)
    except Exception as problem:
        raise CannotRewrite(
            f"the rewritten graph does not run in ONNX Runtime: {condense(problem, 300)}"
        ) from problem
    for out, value in zip(session.get_outputs(), found, strict=True):
        foreseen = walk.value(out.name)
        if foreseen.axes is not None and foreseen.new_shape != np.shape(value):
            raise CannotRewrite(
                f"output {out.name!r} was foreseen to be {foreseen.new_shape} after the rewrite, but "
                f"onnxruntime {ort.__version__} gives {np.shape(value)}: it pools by another rule; upgrade it"
            )
