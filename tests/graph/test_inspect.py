import gzip
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.graph.inspect import inputs_of, inspect, opset_of, read_proto, rows


def conv_net(path, domain="", op="Conv", opset=17, ir=8, batch=1):
    """A convolution of 3 to 4 channels 3×3 with stride 2 and a fully connected layer, on 8×8."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(4, 3, 3, 3)), "b": np.zeros(4), "f": rng.normal(size=(64, 5))}
    nodes = [
        helper.make_node(
            op, ["x", "w", "b"], ["c"], "first", domain=domain, pads=[1, 1, 1, 1], strides=[2, 2]
        ),
        helper.make_node("Flatten", ["c"], ["r"]),
        helper.make_node("MatMul", ["r", "f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, producer_name="test", opset_imports=opsets, ir_version=ir)
    onnx.save(model, path)
    return path


def refused(path):
    with pytest.raises(ModelError) as caught:
        inspect(path)
    told = str(caught.value)
    assert "\n" not in told
    assert told.startswith(str(path))
    return told


@pytest.mark.parametrize("batch", [1, "n"])
def test_what_is_inside(tmp_path, batch):
    info = inspect(conv_net(tmp_path / "net.onnx", batch=batch))
    assert (info.opset, info.ir_version, info.producer, info.domains) == (17, 8, "test", ())
    assert [str(t) for t in info.inputs] == [f"x float32 ({batch}, 3, 8, 8)"]
    assert [str(t) for t in info.outputs] == [f"y float32 ({batch}, 5)"]
    assert info.parameters == 4 * 3 * 9 + 4 + 64 * 5
    assert info.multiply_adds == 4 * 4 * 4 * 3 * 9 + 64 * 5
    assert info.nodes == {"Conv": 1, "Flatten": 1, "MatMul": 1}
    table = dict(rows(info))
    assert table["opset"] == "17 (IR 8, by test)"
    assert table["nodes"] == "3: Conv 1, Flatten 1, MatMul 1"


def test_weights_in_constant_nodes_count(tmp_path):
    path = conv_net(tmp_path / "net.onnx")
    proto = onnx.load(path)
    weights = list(proto.graph.initializer)
    del proto.graph.initializer[:]
    for weight in weights:
        node = onnx.helper.make_node("Constant", [], [weight.name], value=weight)
        proto.graph.node.insert(0, node)
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [4], [1, 2, 3, 4])
    proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["shape"], value=shape))
    before = inspect(path).parameters
    onnx.save(proto, path)
    assert inspect(path).parameters == before


def test_free_shapes_leave_the_work_unknown(tmp_path):
    path = conv_net(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    onnx.save(model, path)
    info = inspect(path)
    assert info.multiply_adds is None
    assert ("multiply-adds", "unknown (free shapes)") in rows(info)


def test_a_packed_model_has_the_hash_of_what_is_inside(tmp_path):
    path = conv_net(tmp_path / "net.onnx")
    packed = tmp_path / "net.onnx.gz"
    with path.open("rb") as source, gzip.open(packed, "wb") as target:
        shutil.copyfileobj(source, target)
    assert inspect(packed).sha256 == inspect(path).sha256


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty; expected an ONNX model"),
        (b"<!DOCTYPE html><html>", "it is an HTML or XML page; download the file itself"),
        (b"\n\n <html>", "it is an HTML or XML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "it is a Git LFS pointer: fetch the file"),
        (b"PK\x03\x04abc", "it is a zip or PyTorch file: export the network to ONNX first"),
        (b"\x1f\x8b\x08abc", "it is a gzip file; rename it to .onnx.gz"),
        (b"garbage" * 50, "not an ONNX model, or truncated (350 bytes)"),
        (b"\x08\x07", "expected a graph with nodes and outputs, got none"),
    ],
)
def test_files_that_are_no_models(tmp_path, content, told):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    assert told in refused(path)


def test_a_model_cut_short(tmp_path):
    path = conv_net(tmp_path / "net.onnx")
    data = path.read_bytes()
    for part in (0.1, 0.5, 0.9):
        path.write_bytes(data[: int(len(data) * part)])
        assert "ONNX model" in refused(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file that fuzzing overwrites, and what was in it."""
    path = conv_net(tmp_path_factory.mktemp("fuzz") / "net.onnx")
    return path, path.read_bytes()


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_other_bytes_are_refused(whole, data):
    whole[0].write_bytes(data)
    assert "ONNX model" in refused(whole[0])


@given(st.integers(0, 10_000), st.integers(1, 255))
@example(14, 255)
@settings(max_examples=300, deadline=None)
def test_damaged_files_are_read_or_refused(whole, place, change):
    path, data = whole
    damaged = bytearray(data)
    damaged[place % len(data)] ^= change
    path.write_bytes(damaged)
    try:
        proto = read_proto(path)
    except ModelError:
        return
    names = [*proto.graph.node, *inputs_of(proto), *proto.graph.output]
    assert all(isinstance(named.name, str) for named in names)


@pytest.mark.parametrize("name", [b"Conv", b"first", b"MatMul"])
def test_names_that_are_no_text_are_refused(tmp_path, name):
    path = conv_net(tmp_path / "net.onnx")
    path.write_bytes(path.read_bytes().replace(name, b"\xff" * len(name)))
    assert "a name in it is not UTF-8 text" in refused(path)


def test_standard_operators_without_a_version_are_refused(tmp_path):
    path = conv_net(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.opset_import[0].domain = "com.microsoft"
    onnx.save(model, path)
    assert "expected the opset of its standard operators" in refused(path)


@pytest.mark.parametrize("versions", [(11, 13), (13, 11)])
def test_of_two_opsets_the_last_counts_as_in_onnxruntime(tmp_path, versions):
    model = onnx.load(conv_net(tmp_path / "net.onnx", opset=versions[0]))
    model.opset_import.append(helper.make_opsetid("ai.onnx", versions[1]))
    assert opset_of(model) == versions[1]
    # Without an axis, Softmax is over all axes from 1 on up to opset 12, and over the last one after it.
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", value[:1], value[1:])
    both = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    session = onnxruntime.InferenceSession(both.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": np.zeros((1, 2, 2), np.float32)})[0]
    assert found[0, 0, 0] == (0.25 if versions[1] < 13 else 0.5)


def test_weights_that_old_files_list_as_inputs_are_no_inputs(tmp_path):
    path = conv_net(tmp_path / "net.onnx", opset=8, ir=3)
    model = onnx.load(path)
    for weight in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    onnx.save(model, path)
    assert [str(tensor) for tensor in inspect(path).inputs] == ["x float32 (1, 3, 8, 8)"]


def test_no_such_file(tmp_path):
    assert "no such model file; give the path of an .onnx file" in refused(tmp_path / "net.onnx")


def test_a_damaged_packed_file(tmp_path):
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(gzip.compress(b"a" * 1000)[:20])
    assert "expected a readable ONNX file" in refused(path)


def test_a_custom_operator_is_named(tmp_path):
    told = refused(conv_net(tmp_path / "net.onnx", "my.domain", "Deform"))
    assert "node 'first' is a custom operator, 'Deform' of domain 'my.domain', unknown to onnxruntime" in told
    assert "node 'first': ONNX has no operator 'Deform'" in refused(
        conv_net(tmp_path / "b.onnx", "", "Deform")
    )


def test_functions_the_model_brings_are_no_custom_operators(tmp_path):
    path = conv_net(tmp_path / "net.onnx", "my.domain", "Mine")
    model = onnx.load(path)
    body = [helper.make_node("Conv", ["a", "b", "c"], ["d"], pads=[1, 1, 1, 1], strides=[2, 2])]
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("my.domain", "Mine", ["a", "b", "c"], ["d"], body, opset))
    onnx.save(model, path)
    assert inspect(path).domains == ("my.domain",)


def test_an_opset_or_ir_from_the_future(tmp_path):
    told = refused(conv_net(tmp_path / "net.onnx", opset=99))
    assert "opset 99 (IR 8) is newer than onnxruntime" in told
    assert "export with an older opset" in told
    assert "(IR 99) is newer than onnxruntime" in refused(conv_net(tmp_path / "b.onnx", ir=99))


def test_weights_in_a_missing_file(tmp_path):
    path = conv_net(tmp_path / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.data", size_threshold=0)
    assert inspect(path).parameters == 432
    (tmp_path / "net.data").unlink()
    assert "are in 'net.data', which is missing; put it next to the model" in refused(path)


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "data/link"])
def test_weights_outside_the_folder_of_the_model_are_not_opened(tmp_path, place):
    (tmp_path / "model" / "data").mkdir(parents=True)
    path = conv_net(tmp_path / "model" / "net.onnx")
    (tmp_path / "secret").write_bytes(bytes(4096))
    (tmp_path / "model" / "data" / "link").symlink_to(tmp_path / "secret")
    proto = onnx.load(path)
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=place)
    path.write_bytes(proto.SerializeToString())
    told = refused(path)
    assert "are outside the folder of the model" in told
    assert "secret" not in told


def test_a_cache_of_links_keeps_the_model_and_its_weights_in_one_other_folder(tmp_path):
    for folder in ("blobs", "snapshot"):
        (tmp_path / folder).mkdir()
    path = conv_net(tmp_path / "blobs" / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.data", size_threshold=0)
    for name in ("net.onnx", "net.data"):
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / name)
    assert inspect(tmp_path / "snapshot" / "net.onnx").parameters == 432


def test_the_hash_follows_weights_kept_beside_the_model(tmp_path):
    path = conv_net(tmp_path / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.data", size_threshold=0)
    before = inspect(path).sha256
    weights = bytearray((tmp_path / "net.data").read_bytes())
    weights[0] ^= 1
    (tmp_path / "net.data").write_bytes(weights)
    assert inspect(path).sha256 != before
