"""Upsampling: the matrices against ONNX Runtime, every opset's node, and when nothing is to be done."""

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.graphs import context, halved, image, model, node, run, weight
from holdfast.core.registry import names, part
from holdfast.graph.rewrite.ceil import ceil
from holdfast.graph.rewrite.types import CannotRewrite
from holdfast.graph.rewrite.upsample import Convention, centres, convention, weights

OPTIONS = {
    "upsample-bilinear": Convention("linear", "half_pixel"),
    "upsample-bilinear-corners": Convention("linear", "align_corners"),
    "upsample-bilinear-asymmetric": Convention("linear", "asymmetric"),
    "upsample-nearest": Convention("nearest", "asymmetric", "floor"),
    "upsample-nearest-exact": Convention("nearest", "half_pixel", "round_prefer_ceil"),
}
PLACES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
ROUNDINGS = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


def rewrite(name, made, side=6):
    return part("rewrite", name).function(made, context(side))


def resize(side, wanted, mode="nearest", **options):
    made = node("Resize", ["x", "", "", "s"], ["y"], name="up", mode=mode, **options)
    return model([made], ["y"], {"s": np.array([1, 3, wanted, wanted])}, height=side)


def by_matrix(seen, wanted, how, scale=None):
    """The input resized by A·X·Aᵀ."""
    side = weights(seen.shape[2], wanted, scale or wanted / seen.shape[2], how)
    return side @ seen.astype(np.float64) @ side.T


def test_by_hand():
    # Two cells, 0 and 1, made four. Centres lie at −¼ ¼ ¾ 1¼, corners at 0 ⅓ ⅔ 1, from the corner 0 ½ 1 1½.
    assert centres(2, 4, 2.0, "half_pixel").tolist() == [-0.25, 0.25, 0.75, 1.25]
    row = np.array([0.0, 1.0])
    found = {name: (weights(2, 4, 2.0, how) @ row).tolist() for name, how in OPTIONS.items()}
    assert found["upsample-bilinear"] == [0.0, 0.25, 0.75, 1.0]
    assert np.allclose(found["upsample-bilinear-corners"], [0, 1 / 3, 2 / 3, 1])
    assert found["upsample-bilinear-asymmetric"] == [0.0, 0.5, 1.0, 1.0]
    assert found["upsample-nearest"] == found["upsample-nearest-exact"] == [0.0, 0.0, 1.0, 1.0]


@settings(max_examples=40, deadline=None)
@given(
    side=st.integers(1, 9),
    more=st.integers(0, 20),
    mode=st.sampled_from(["nearest", "linear"]),
    place=st.sampled_from(PLACES),
    rounding=st.sampled_from(ROUNDINGS),
)
def test_the_matrices_are_what_the_runtime_does(side, more, mode, place, rounding):
    how = Convention(mode, place, rounding)
    options = {"coordinate_transformation_mode": place, "nearest_mode": rounding}
    seen = image(side)
    found = run(resize(side, side + more, mode, **options), seen)[0]
    assert np.allclose(found, by_matrix(seen, side + more, how), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "mode", "corners"),
    [
        ("upsample-bilinear", "bilinear", False),
        ("upsample-bilinear-corners", "bilinear", True),
        ("upsample-nearest", "nearest", None),
        ("upsample-nearest-exact", "nearest-exact", None),
    ],
)
@pytest.mark.parametrize("wanted", [6, 11, 12, 13, 24])
def test_the_options_are_those_of_pytorch(name, mode, corners, wanted):
    seen = image(6)
    found = torch.nn.functional.interpolate(
        torch.from_numpy(seen), size=(wanted, wanted), mode=mode, align_corners=corners
    )
    assert np.allclose(found.numpy(), by_matrix(seen, wanted, OPTIONS[name]), atol=1e-5)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("wanted", [9, 11, 12, 13])
@pytest.mark.parametrize("start", ["nearest", "linear"])
def test_each_option_gives_its_convention(name, wanted, start):
    made = resize(6, wanted, start, coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.5)
    before = made.SerializeToString()
    seen = image(6)
    was = run(made, seen)[0]
    found = rewrite(name, made)
    now = run(found.model, seen)[0]
    assert np.allclose(now, by_matrix(seen, wanted, OPTIONS[name]), atol=1e-5)
    assert bool(found.changed) == (not np.allclose(was, now, atol=1e-5))
    if not found.changed:
        assert found.model.SerializeToString() == before
    else:
        assert found.changed == ("up",)
        assert found.how.startswith("1 Resize: ")
    again = rewrite(name, found.model)
    assert again.changed == ()


OLD_NODES = {
    "Upsample 7": (7, node("Upsample", ["x"], ["y"], name="up", scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")),
    "Upsample 9": (9, node("Upsample", ["x", "s"], ["y"], name="up", mode="nearest")),
    "Upsample 9 linear": (9, node("Upsample", ["x", "s"], ["y"], name="up", mode="linear")),
    "Resize 10": (10, node("Resize", ["x", "s"], ["y"], name="up", mode="nearest")),
    "Resize 11": (
        11,
        node("Resize", ["x", "r", "s"], ["y"], name="up", mode="nearest", nearest_mode="floor"),
    ),
    "Resize 13": (13, node("Resize", ["x", "", "s"], ["y"], name="up", mode="linear")),
    "Resize 18": (18, node("Resize", ["x", "", "t"], ["y"], name="up", mode="linear", axes=[2, 3])),
    "Resize 19": (19, node("Resize", ["x", "", "s"], ["y"], name="up", mode="linear", antialias=1)),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", OLD_NODES)
def test_every_opset(name, kind):
    opset, old = OLD_NODES[kind]
    made_node = onnx.NodeProto.FromString(old.SerializeToString())
    constants = {"s": [1, 1, 2, 2], "t": [2, 2], "r": []}
    used = {k: np.array(v, np.float32) for k, v in constants.items() if k in old.input}
    made = model([made_node], ["y"], used, height=6, opset=opset, batch="n")
    seen = image(6, batch=2)
    was = run(made, seen)[0]
    found = rewrite(name, made)
    now = run(found.model, seen)[0]
    assert np.allclose(now, by_matrix(seen, 12, OPTIONS[name]), atol=1e-5)
    assert bool(found.changed) == (not np.allclose(was, now, atol=1e-5))
    onnx.checker.check_model(found.model, full_check=True)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "made",
    [
        resize(6, 3, "linear"),  # shrinks
        resize(6, 12, "cubic"),
        resize(1, 7, "linear"),  # one cell is spread, whatever the way
        resize(6, 6),
        model([node("Relu", ["x"], ["y"])], ["y"], height=6),
    ],
    ids=["shrinks", "cubic", "one cell", "same size", "none"],
)
def test_no_effect_is_the_identity_bit_for_bit(name, made):
    before = made.SerializeToString()
    found = rewrite(name, made, made.graph.input[0].type.tensor_type.shape.dim[2].dim_value)
    assert (found.changed, found.how) == ((), "")
    assert found.model.SerializeToString() == before


def test_a_stated_scale_counts_not_the_cut_off_size():
    up = node("Resize", ["x", "", "s"], ["y"], name="up", mode="nearest", nearest_mode="floor")
    made = model([up], ["y"], {"s": np.array([1, 1, 1.5, 1.5], np.float32)}, height=5)
    found = rewrite("upsample-bilinear-asymmetric", made, 5)
    seen = image(5)
    assert np.allclose(
        run(found.model, seen)[0], by_matrix(seen, 7, Convention("linear", "asymmetric"), 1.5), atol=1e-5
    )


def test_a_size_that_depends_on_the_data_is_refused():
    nodes = [
        node("NonZero", ["x"], ["i"]), node("Shape", ["i"], ["n"]), node("Gather", ["n", "one"], ["m"]),
        node("Concat", ["two", "m", "m"], ["s"], axis=0),
        node("Resize", ["x", "", "", "s"], ["y"], name="up", mode="nearest"),
    ]  # fmt: skip
    made = model(nodes, ["y"], {"one": np.array([1]), "two": np.array([1, 3])}, height=3)
    with pytest.raises(CannotRewrite, match="Resize 'up' has a size that depends on the image"):
        rewrite("upsample-bilinear", made, 3)


@pytest.mark.parametrize("opset", [9, 13])
def test_after_ceil_mode(opset):
    """Rewrites combine: the factor is then 11/6, and both nearest ways differ."""
    inputs, operator = (["d", "s"], "Upsample") if opset == 9 else (["d", "", "s"], "Resize")
    nodes = [
        halved("p", "x"), node("Conv", ["p", "w"], ["d"], strides=[2, 2], pads=[1] * 4),
        node(operator, inputs, ["u"], name="up", mode="nearest"), node("Add", ["u", "p"], ["y"]),
    ]  # fmt: skip
    constants = {"w": weight(3, 3, 3, 3), "s": np.array([1, 1, 2, 2], np.float32)}
    turned = ceil(model(nodes, ["y"], constants, opset=opset), context()).model
    seen = image()
    before = run(turned, seen)[0]
    found = part("rewrite", "upsample-bilinear").function(turned, context())
    assert found.changed == ("up",)
    both = run(found.model, seen)[0]
    assert both.shape == (1, 3, 11, 11)
    assert not np.allclose(both, before)


def test_facts():
    registered = [n for n in names("rewrite") if part("rewrite", n).facts["family"] == "upsample"]
    assert registered == sorted(OPTIONS)
    assert convention(node("Resize", ["x"], ["y"]), 17) == Convention("nearest", "half_pixel")
    assert convention(node("Upsample", ["x"], ["y"], mode="bilinear"), 9).mode == "linear"
