"""Small ONNX files and cards for the tests of graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]


@pytest.fixture
def make_net(tmp_path: Path) -> Callable[..., Path]:
    """A maker of ONNX files with one input and constant outputs of the given shapes (names by position)."""

    def make(
        outputs: dict[str, Shape],
        shape: Shape = (1, 3, 64, 64),
        *,
        name: str = "net.onnx",
        last: str = "Identity",
        opset: int = 17,
        ir: int = 8,
        dtypes: dict[str, int] | None = None,
        metadata: dict[str, str] | None = None,
        input_type: int = TensorProto.FLOAT,
    ) -> Path:
        nodes, weights, infos = [], [], []
        for i, (key, dims) in enumerate(outputs.items()):
            kind = (dtypes or {}).get(key, TensorProto.FLOAT)
            zeros = np.zeros(
                [d if isinstance(d, int) else 1 for d in dims], helper.tensor_dtype_to_np_dtype(kind)
            )
            weights.append(numpy_helper.from_array(zeros, f"w{i}"))
            nodes.append(
                helper.make_node(last if kind == TensorProto.FLOAT else "Identity", [f"w{i}"], [key], f"n{i}")
            )
            infos.append(helper.make_tensor_value_info(key, kind, list(dims)))
        image = helper.make_tensor_value_info("image", input_type, list(shape))
        graph = helper.make_graph(nodes, "g", [image], infos, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
        helper.set_model_props(model, metadata or {})
        path = tmp_path / name
        onnx.save(model, path)
        return path

    return make
