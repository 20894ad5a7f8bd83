"""Ceil mode and upsampling on real networks: what turns, what follows, and what the heads make of it."""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import onnx
import pytest

from helpers.graphs import run as run_x
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.load import load_model
from holdfast.graph.rewrite.types import CannotRewrite, RewriteContext
from holdfast.stages.deployed import DeployedInference

pytestmark = pytest.mark.shared


def rewrite(path, name):
    model = load_model(path)
    return part("rewrite", name).function(onnx.load(path), RewriteContext(model.card)), model


def outputs(model, proto, seed=0):
    """The outputs on a random input, by shape."""
    width, height = model.card.input.size
    seen = np.random.default_rng(seed).normal(size=(1, 3, height, width)).astype(np.float32)
    given = next(i for i in proto.graph.input if i.name not in {w.name for w in proto.graph.initializer})
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    for node in copy.graph.node:
        node.input[:] = ["x" if n == given.name else n for n in node.input]
    next(i for i in copy.graph.input if i.name == given.name).name = "x"
    return run_x(copy, seen)


@pytest.mark.parametrize("name", ["nanodet_m", "FastestDet"])
def test_detectors_follow_and_turn_back(shared_data, name):
    path = shared_data / "models" / f"{name}.onnx"
    once, model = rewrite(path, "ceil")
    found = [o.shape for o in outputs(model, once.model)]
    if name == "nanodet_m":
        assert [s[1] for s in found] == [2809, 729, 196] * 2
        assert once.how == "1 MaxPool changed, 32 Reshape, 4 Resize adapted"
    else:
        assert found == [(1, 85, 23, 23)]
        assert once.how == "1 MaxPool changed, 26 Reshape, 1 Resize adapted"
    back = part("rewrite", "ceil").function(once.model, RewriteContext(model.card))
    for a, b in zip(outputs(model, back.model), outputs(model, onnx.load(path)), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("name", ["yolox_nano", "efflite0", "squeezenet10"])
def test_no_effect(shared_data, name):
    """YOLOX pools with stride 1, EfficientNet not at all; SqueezeNet's pools divide at 227."""
    path = shared_data / "models" / f"{name}.onnx"
    found, _ = rewrite(path, "ceil")
    assert found.changed == ()
    assert found.model.SerializeToString() == onnx.load(path).SerializeToString()


def test_squeezenet_was_trained_with_ceil_and_differs_at_224(shared_data):
    path = shared_data / "models" / "squeezenet10.onnx"
    proto, card = onnx.load(path), load_model(path).card
    for dim in proto.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 224
    seen = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "x"
    before = run_x(proto, seen)[0]
    small = part("rewrite", "ceil").function(proto, RewriteContext(_at(card, 224)))
    assert small.how == "2 MaxPool changed"
    after = run_x(small.model, seen)[0]
    assert before.shape == after.shape == (1, 1000)
    assert not np.allclose(before, after)


def _at(card, side):
    return replace(card, input=replace(card.input, size=Size(side, side)))


@pytest.mark.parametrize(
    ("name", "option", "changed"),
    [
        ("nanodet_m", "upsample-nearest", 2),  # two of its four shrink
        ("nanodet_m", "upsample-bilinear", 0),
        ("yolox_nano", "upsample-bilinear", 2),
        ("yolox_nano", "upsample-nearest", 0),
        ("FastestDet", "upsample-bilinear-corners", 1),
        ("efflite0", "upsample-bilinear", 0),
    ],
)
def test_upsampling(shared_data, name, option, changed):
    found, _ = rewrite(shared_data / "models" / f"{name}.onnx", option)
    assert len(found.changed) == changed


@pytest.mark.parametrize("name", ["nanodet_m", "FastestDet"])
def test_heads_read_the_larger_maps(shared_data, name):
    """Boxes of the turned network lie where those of the trained one do."""
    model = load_model(shared_data / "models" / f"{name}.onnx")
    pipeline = pipeline_of(model.card)
    photo = sorted((shared_data / "coco128" / "images" / "val2017").glob("*.jpg"))[0].read_bytes()
    best = []
    for infer in ("onnxruntime", DeployedInference(("ceil",))):
        machine = load_pipeline(pipeline.replace(infer=infer), model, threads=1)
        found = machine.predict(machine.prepare(photo))
        best.append(found.take(np.argsort(-found.scores)[:1]))
    assert best[0].classes == best[1].classes
    assert (
        np.abs(best[0].boxes - best[1].boxes).max()
        < 0.15 * (best[0].boxes[:, 2:] - best[0].boxes[:, :2]).max()
    )


def test_the_shipped_models():
    """The package's own: a detector, a classifier and a segmenter follow; the single-object head cannot."""
    folder = files("holdfast") / "models"
    hows = {}
    for name in ("class", "yolo", "seg", "single"):
        try:
            hows[name] = rewrite(folder / f"signs-{name}.onnx", "ceil")[0].how
        except CannotRewrite as reason:
            hows[name] = str(reason)
    assert hows["class"] == "1 MaxPool changed"
    assert hows["yolo"] == "1 MaxPool changed, 2 Resize adapted"
    assert hows["seg"] == "1 MaxPool changed, 3 Resize adapted"
    assert "Conv '/box/Conv' reads a map of fixed size" in hows["single"]
