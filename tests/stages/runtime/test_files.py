"""Converted files of a model: each format gives the ONNX file's outputs, or one line that says why not."""

import json
import shutil

import numpy as np
import onnx
import pytest

from helpers.models import blob_coco, detector, quantised_detector
from holdfast.core.errors import HoldfastError, InputError, MissingExtra
from holdfast.core.extras import install_hint, is_installed
from holdfast.core.fingerprint import of_function
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.graph.load import load_model
from holdfast.stages.families import options_of
from holdfast.stages.infer import open_onnx
from holdfast.stages.runtime import files, libraries
from holdfast.stages.runtime.files import Reading, deployed_file, file_option, match_outputs

FORMATS = ("tflite", "tflite-int8", "xml", "param", "onnx")


@pytest.fixture
def model(tmp_path):
    return load_model(detector(tmp_path))


def converted(form, model):
    """The model in another format, next to it."""
    path = model.path.with_suffix(f".{form.partition('-')[0]}")
    if form == "onnx":
        path = path.with_name("copy.onnx")
        shutil.copy(model.path, path)
    elif form == "xml":
        library = pytest.importorskip("openvino", reason="OpenVINO is not installed")
        library.save_model(library.Core().read_model(str(model.path)), str(path), compress_to_fp16=False)
    elif form == "param":
        for module in ("ncnn", "pnnx"):
            if hint := install_hint(module):
                pytest.skip(hint)
        made = libraries._convert(str(model.path), model, model.path.parent)
        for ending in (".param", ".bin"):
            shutil.copy(made.with_suffix(f".ncnn{ending}"), path.with_suffix(ending))
    else:
        path.write_bytes(tflite(integer_input=form.endswith("int8")))
    return path


def tflite(*, integer_input):
    """The detector of `helpers.models.detector` as a TensorFlow Lite file, with channels last."""
    if not is_installed("ai_edge_litert"):
        pytest.skip("LiteRT is not installed: pip install ai-edge-litert")
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    kernel = np.zeros((6, 1, 1, 3), np.float32)
    kernel[4] = 8.0
    bias = np.array([0, 0, 0, 0, -14.0, 9.0], np.float32)
    graph, made = schema.SubGraphT(), schema.ModelT()
    made.version, made.buffers, graph.tensors = 3, [schema.BufferT()], []

    def tensor(name, shape, data=None, kind=schema.TensorType.FLOAT32):
        one = schema.TensorT()
        one.name, one.shape, one.type, one.buffer = name, list(shape), kind, 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            made.buffers.append(buffer)
            one.buffer = len(made.buffers) - 1
        graph.tensors.append(one)
        return len(graph.tensors) - 1

    def operator(code, inputs, output, kind, options):
        known = schema.OperatorCodeT()
        known.builtinCode = known.deprecatedBuiltinCode = code
        known.version = 1
        made.operatorCodes.append(known)
        one = schema.OperatorT()
        one.opcodeIndex, one.inputs, one.outputs = len(made.operatorCodes) - 1, inputs, [output]
        one.builtinOptionsType, one.builtinOptions = kind, options
        graph.operators.append(one)

    made.operatorCodes, graph.operators = [], []
    image = first = tensor("image", (1, 64, 64, 3))
    if integer_input:
        first = tensor("bytes", (1, 64, 64, 3), kind=schema.TensorType.UINT8)
        scale = graph.tensors[first].quantization = schema.QuantizationParametersT()
        scale.scale, scale.zeroPoint = [1 / 255], [0]
        nothing = schema.BuiltinOptions.DequantizeOptions, schema.DequantizeOptionsT()
        operator(schema.BuiltinOperator.DEQUANTIZE, [first], image, *nothing)
    small, out = tensor("small", (1, 8, 8, 3)), tensor("out", (1, 8, 8, 6))
    pool = schema.Pool2DOptionsT()
    pool.padding, pool.strideW, pool.strideH = schema.Padding.VALID, 8, 8
    pool.filterWidth = pool.filterHeight = 8
    operator(
        schema.BuiltinOperator.AVERAGE_POOL_2D, [image], small, schema.BuiltinOptions.Pool2DOptions, pool
    )
    conv = schema.Conv2DOptionsT()
    conv.padding, conv.strideW, conv.strideH = schema.Padding.VALID, 1, 1
    weights = [tensor("w", kernel.shape, kernel), tensor("b", bias.shape, bias)]
    operator(
        schema.BuiltinOperator.CONV_2D, [small, *weights], out, schema.BuiltinOptions.Conv2DOptions, conv
    )
    graph.inputs, graph.outputs, made.subgraphs = [first], [out], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize("form", FORMATS)
def test_the_outputs_are_those_of_the_onnx_file(form, model):
    file = deployed_file(converted(form, model))
    run, wanted = file(model, 1), open_onnx(str(model.path), model, 1)
    for seed in range(2):
        pixels = np.random.default_rng(seed).integers(0, 256, (1, 3, 64, 64))
        x = (pixels / 255).astype(np.float32)
        got, right = run(x), wanted(x)
        assert list(got) == list(right) == ["y"]
        assert got["y"].shape == right["y"].shape == (1, 6, 8, 8)
        assert np.abs(got["y"] - right["y"]).max() < 1e-4


@pytest.mark.parametrize("form", ["onnx", "xml"])
def test_a_file_with_another_input_is_refused(form, model, tmp_path):
    from helpers.models import classifier

    path = converted(form, load_model(classifier(tmp_path / "other")))
    with pytest.raises(HoldfastError, match=rf"^{path}: .*64×64"):
        deployed_file(path)(model, 1)


def test_outputs_are_matched_by_name_then_by_shape_then_by_values():
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=(1, 4, 3, 3)) for _ in range(3))
    scores = rng.normal(size=(1, 10, 2))
    right = {"a": a, "b": b, "c": c, "scores": scores}
    shapes = {name: value.shape for name, value in right.items()}
    last = {"x": np.moveaxis(b, 1, -1), "y": np.moveaxis(a, 1, -1), "c": c, "z": scores[0]}
    assert match_outputs(last, right, shapes) == {
        "c": Reading("c"),
        "a": Reading("y", channels_last=True),
        "b": Reading("x", channels_last=True),
        "scores": Reading("z"),
    }
    with pytest.raises(InputError, match=r"expected an output 'scores' of shape \(1, 10, 2\), got x \("):
        match_outputs({**last, "z": scores[:, :5]}, right, shapes)


def test_files_that_cannot_be_used_are_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"a file of \.tflite, \.xml, \.param, \.onnx, got \.engine"):
        deployed_file(tmp_path / "net.engine")
    (tmp_path / "net.xml").write_text("<net/>")
    with pytest.raises(InputError, match=r"a model of OpenVINO, but there is no file .*net\.bin"):
        deployed_file(tmp_path / "net.xml")
    (tmp_path / "net.tflite").write_bytes(b"TFL3")
    monkeypatch.setattr(files, "is_installed", lambda name: False)
    with pytest.raises(MissingExtra, match="pip install ai-edge-litert"):
        deployed_file(tmp_path / "net.tflite")


def test_a_file_is_not_combined_with_a_rewrite(model):
    option = file_option(converted("onnx", model))
    rewritten = options_of("precision=fp16")[0].noise(pipeline_of(model.card))
    with pytest.raises(InputError, match="the file is converted already; leave out"):
        option.noise(rewritten)


def test_the_content_of_the_file_is_in_the_key(model):
    path = converted("onnx", model)
    before = of_function(deployed_file(path))
    assert of_function(deployed_file(path)) == before
    proto = onnx.load(str(path))
    proto.doc_string = "another"
    onnx.save(proto, str(path))
    after = of_function(deployed_file(path))
    assert after != before
    assert of_function(deployed_file(path.rename(path.with_name("moved.onnx")))) == after


def test_a_pipeline_with_a_file_predicts(model):
    pipeline = file_option(converted("onnx", model)).noise(pipeline_of(model.card))
    assert load_pipeline(pipeline, model, 1).run(np.zeros((1, 3, 64, 64), np.float32))["y"].shape[1] == 6


def test_evaluate_noise_and_diagnose_run_the_file(holdfast, tmp_path):
    net, eight = str(detector(tmp_path)), quantised_detector(tmp_path)
    data = str(blob_coco(tmp_path / "data", 6))
    file = ("--deploy-model", str(eight), "--jobs", "1")
    alone = holdfast("evaluate", str(eight), data, "--jobs", "1", "--json", "alone.json")
    beside = holdfast("evaluate", net, data, *file, "--json", "beside.json")
    assert (alone.code, beside.code) == (0, 0)
    numbers = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("alone", "beside")]
    assert numbers[0]["AP"] == numbers[1]["AP"]
    noise = holdfast("noise", net, data, "--only", "decode=opencv", *file, "--json", "noise.json")
    assert noise.code == 0
    rows = json.loads((tmp_path / "noise.json").read_text())["models"][0]["rows"]
    assert ("runtime", "eight.onnx") in {(row["family"], row["option"]) for row in rows}
    found = holdfast("diagnose", net, data, *file, "--json", "diagnose.json")
    assert found.code == 0
    loss = json.loads((tmp_path / "diagnose.json").read_text())["loss"]
    assert [one["label"] for one in loss["differences"]] == ["runtime=eight.onnx"]
    assert loss["deploy"] == pytest.approx(numbers[1]["AP"])
    two = holdfast("noise", net, str(eight), data, *file)
    assert (two.code, "expected one model" in two.err) == (2, True)
