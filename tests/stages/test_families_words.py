"""What is said of an option that changes nothing: what is true of this card, this graph, this row."""

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

from helpers import models as making
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.graph.rewrite.ceil import ceil
from holdfast.graph.rewrite.follow.walk import unchanged
from holdfast.graph.rewrite.types import RewriteContext
from holdfast.graph.rewrite.upsample import upsample_bilinear, upsample_nearest
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.run import NoisePlan, measure, prepare
from holdfast.noise.vision.show import noise_examples

SAME_PIXELS = "no image is a JPEG, and this decoder gives the same pixels for all of them"


def plan_of(model, data, tmp_path):
    return EvaluationPlan(model, open_dataset(data), runs=tmp_path / "runs", jobs=1)


def fed_as(model: Model, policy: str) -> Model:
    wanted = dataclasses.replace(model.card.input, policy=policy)
    return dataclasses.replace(model, card=dataclasses.replace(model.card, input=wanted))


def graph(side: int, nodes, constants=None):
    one = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("y",)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, side, side])
    kept = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    made = helper.make_graph(nodes, "g", [x], one, kept)
    context = RewriteContext(Card("segment", Input(Size(side, side)), Head("mask"), ("a",)), None)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), context


def pool(stride=2, **more):
    sides = {"kernel_shape": [3, 3], "strides": [stride] * 2}
    return helper.make_node("MaxPool", ["x"], ["y"], **sides, **more)


def test_square_is_for_cards_that_crop(tmp_path):
    model = load_model(str(making.classifier(tmp_path)))
    data = making.image_folder(tmp_path / "data", 4, size=37)
    wanted = NoiseSelection(only=("resize=square",))
    boxed = fed_as(model, "letterbox")
    (one,) = prepare(NoisePlan(plan_of(boxed, data, tmp_path), wanted)).candidates
    assert (one.status, one.variant) == ("no effect", None)
    assert one.note == "applies only to cards with the input policy crop; this card has letterbox"
    picture = making.jpeg(np.zeros((30, 40, 3), np.uint8))
    assert [told[1] for told in noise_examples(picture, boxed, wanted)] == [one.note]
    (one,) = prepare(NoisePlan(plan_of(fed_as(model, "crop"), data, tmp_path), wanted)).candidates
    assert one.status == "measured"


def test_a_classifier_is_tried_and_told_that_it_enlarges_nothing(tmp_path):
    model = load_model(str(making.classifier(tmp_path)))
    data = making.image_folder(tmp_path / "data", 4, size=37)
    made = prepare(NoisePlan(plan_of(model, data, tmp_path), NoiseSelection(only=("upsample",)))).candidates
    assert len(made) == 4
    assert {(a.status, a.note) for a in made} == {("no effect", "no Resize or Upsample in the graph")}


def test_a_classifier_that_does_enlarge_a_map_is_measured(tmp_path):
    made = onnx.load(making.classifier(tmp_path))
    made.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, 1.5, 1.5], np.float32), "s"))
    made.graph.node.insert(0, helper.make_node("Resize", ["x", "", "s"], ["up"], mode="linear"))
    made.graph.node[1].input[0] = "up"
    onnx.save(made, tmp_path / "tiny.onnx")
    data = making.image_folder(tmp_path / "data", 4, size=37)
    plan = plan_of(load_model(str(tmp_path / "tiny.onnx")), data, tmp_path)
    found = {
        a.option.name: a for a in prepare(NoisePlan(plan, NoiseSelection(only=("upsample",)))).candidates
    }
    assert found["upsample-nearest"].status == "measured"
    assert found["upsample-bilinear"].status == "no effect"
    assert found["upsample-bilinear"].note.startswith("1 Resize: already done this way")


@pytest.mark.parametrize(
    ("side", "node", "said"),
    [
        (15, pool(1), "no pool of stride over 1 in the graph"),
        (15, pool(1, auto_pad="SAME_UPPER"), "no pool of stride over 1 in the graph"),
        (15, pool(), "1 MaxPool of stride over 1, whose sizes divide: floor and ceil are the same"),
        (16, pool(auto_pad="SAME_UPPER"), "1 MaxPool of padding SAME, which is ⌈W/S⌉ in any mode"),
        (15, helper.make_node("Relu", ["x"], ["y"]), "no pool of stride over 1 in the graph"),
    ],
)
def test_ceil_mode_says_why_it_changes_nothing(side, node, said):
    made, context = graph(side, [node])
    assert unchanged(made.SerializeToString(), "ceil") == said
    assert ceil(made, context).changed == ()


def test_upsampling_that_is_done_so_already_is_told_from_none():
    sizes = {"s": np.array([1, 3, 16, 16])}
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [helper.make_node("Resize", ["x", "", "", "s"], ["y"], **how)]
    made, context = graph(8, nodes, sizes)
    assert upsample_nearest(made, context).changed == ()
    assert unchanged(made.SerializeToString(), "upsample").startswith("1 Resize: already done this way")
    assert upsample_bilinear(*graph(8, nodes, sizes)).changed


def test_of_pictures_that_are_no_jpegs_each_row_speaks_for_itself(tmp_path):
    """Of 16-bit grey PNGs ffmpeg gives the pixels Pillow gives, OpenCV others."""
    for kind in ("dark", "bright"):
        for n in range(3):
            file = tmp_path / "png" / kind / f"{n}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            deep = np.random.default_rng(n).integers(0, 65535, (37, 41)).astype(np.uint16)
            Image.fromarray(deep).save(file)
    model = load_model(str(making.classifier(tmp_path)))
    wanted = NoiseSelection(only=("decode=opencv", "decode=ffmpeg"))
    rows = measure(prepare(NoisePlan(plan_of(model, tmp_path / "png", tmp_path), wanted))).rows
    for row in rows:
        assert "every decoder" not in row.note
        if row.outcome == "identical":
            assert row.note == SAME_PIXELS
    assert {r.outcome for r in rows} - {"identical"}, "at least one of the two differs"
