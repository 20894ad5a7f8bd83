"""ONNX files read from their bytes: the same as the onnx package reads."""

import gzip

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.graph.wire import KINDS, read_graph, write_part


def same(graph, proto):
    """Whether the graph read from bytes says what the onnx package says."""
    main, weights = proto.graph, {w.name for w in proto.graph.initializer}
    assert graph.opset == next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    assert [p.name for p in graph.inputs] == [i.name for i in main.input if i.name not in weights]
    for port, value in zip(graph.outputs, main.output, strict=True):
        kind = value.type.tensor_type
        assert (port.name, port.kind) == (value.name, kind.elem_type)
        assert port.dims == tuple(d.dim_value for d in kind.shape.dim)
    for weight in main.initializer:
        np.testing.assert_array_equal(graph.weights[weight.name].value(), numpy_helper.to_array(weight))
    assert len(graph.nodes) == len(main.node)
    for mine, node in zip(graph.nodes, main.node, strict=True):
        assert (mine.operator, mine.domain, mine.name) == (node.op_type, node.domain, node.name)
        assert (mine.inputs, mine.outputs) == (tuple(node.input), tuple(node.output))
        assert mine.raw == node.SerializeToString()
        for attribute in node.attribute:
            _same_attribute(
                mine.attributes[attribute.name], helper.get_attribute_value(attribute), mine.nested
            )


def _same_attribute(got, wanted, nested):
    if isinstance(wanted, TensorProto):
        np.testing.assert_array_equal(got, numpy_helper.to_array(wanted))
    elif isinstance(wanted, onnx.GraphProto):
        assert nested
    else:
        assert got == (wanted.decode() if isinstance(wanted, bytes) else wanted)


numbers = st.integers(-(2**63), 2**63 - 1)
ATTRIBUTES = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=4),
    st.one_of(
        numbers,
        st.floats(width=32, allow_nan=False),
        st.text(max_size=5),
        st.lists(numbers, min_size=1, max_size=4),
        st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4),
    ),
    max_size=4,
)


@given(ATTRIBUTES, st.lists(st.sampled_from(sorted(KINDS)), max_size=4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_attributes_and_weights_are_read(attributes, kinds, raw):
    weights = []
    for i, kind in enumerate(kinds):
        values = np.array([[0, 1, 2]]).astype(KINDS[kind])
        if raw or kind == TensorProto.FLOAT16:
            weights.append(numpy_helper.from_array(values, f"w{i}"))
        else:
            weights.append(helper.make_tensor(f"w{i}", kind, values.shape, values.ravel().tolist()))
    node = helper.make_node("Thing", ["x", "", "w0"], ["y", "z"], name="n", domain="d", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, None])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    proto = helper.make_model(helper.make_graph([node], "g", [x], [y], weights))
    same(read_graph(proto.SerializeToString()), proto)


def small():
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Floor", ["a"], ["b"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    weights = [
        numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("w", [2, 3]), ("c", [10, 20]))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=3)


def test_a_part_runs_alone():
    graph = read_graph(small().SerializeToString())
    given_b = {"b": np.array([1, 2], np.float32)}
    parts = {
        "from b": (write_part(graph, given_b, ["y"], {}), given_b, [11, 22]),
        "to b": (
            write_part(graph, {"x": np.ones(2, np.float32)}, ["b"], {}),
            {"x": np.full(2, 1.5, np.float32)},
            [3, 4],
        ),
        "all fixed": (write_part(graph, {}, ["y"], {"x": np.full(2, 1.5, np.float32)}), {}, [13, 24]),
    }
    for model, feed, wanted in parts.values():
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(onnx.load_model_from_string(model)))
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        assert session.run(None, feed)[0].tolist() == wanted


def test_weights_in_another_file_are_told():
    proto = small()
    proto.graph.initializer[0].data_location = TensorProto.EXTERNAL
    graph = read_graph(proto.SerializeToString())
    assert graph.weights["w"].outside
    assert not graph.weights["c"].outside
    with pytest.raises(ModelError, match="in the file"):
        graph.weights["w"].value()


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_other_bytes_are_refused(data):
    with pytest.raises(ModelError):
        read_graph(data)


@given(st.integers(0, 400), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_damaged_files_are_read_or_refused(place, change):
    data = bytearray(small().SerializeToString())
    data[place % len(data)] ^= change
    try:
        graph = read_graph(bytes(data))
    except ModelError:
        return
    assert graph.nodes


def test_real_files_are_read_as_onnx_reads_them(shared_data):
    found = sorted((shared_data / "vnncomp").glob("*/*/*.onnx*")) + sorted(
        (shared_data / "vnncomp").glob("test/*.onnx")
    )
    assert found
    for path in found:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        same(read_graph(data), onnx.load_model_from_string(data))
