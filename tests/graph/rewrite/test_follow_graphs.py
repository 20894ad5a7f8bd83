"""Graphs that follow their pools, each compared with the same graph written by hand for the new size."""

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.graphs import context, halved, image, model, node, run, weight
from holdfast.graph.rewrite.ceil import ceil
from holdfast.graph.rewrite.types import CannotRewrite

# An input of 20 cells: rounding down 10, up 11; by a convolution of stride 2 then 5 and 6.
OLD, NEW = 10, 11


def check(nodes, old, new, weights=None, outputs=("y",), task="detect", **options):
    """Whether the graph for the old size, turned, gives what the graph for the new size gives."""
    seen = image()
    weights = weights or {}
    turned = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    for pool in (n for n in turned if n.op_type in ("MaxPool", "AveragePool") and n.name):
        pool.attribute.append(helper.make_attribute("ceil_mode", 1))
    wanted = run(model(turned, outputs, {**weights, **new}, **options), seen)
    made = model(nodes, outputs, {**weights, **old}, **options)
    before = run(made, seen)
    found = ceil(made, context(task=task))
    onnx.checker.check_model(found.model, full_check=True)
    for got, want, was in zip(run(found.model, seen), wanted, before, strict=True):
        assert got.shape == want.shape
        assert np.allclose(got, want, atol=1e-5)
        assert was.shape != got.shape or not np.allclose(was, got)
    back = run(ceil(found.model, context(task=task)).model, seen)
    assert all(np.array_equal(a, b) for a, b in zip(back, before, strict=True))
    return found


def refused(nodes, weights, because, outputs=("y",), task="detect", **options):
    with pytest.raises(CannotRewrite, match=because):
        ceil(model(nodes, outputs, weights, **options), context(task=task))


def test_channel_shuffle():
    nodes = [
        halved("p", "x"), node("Conv", ["p", "w"], ["c"]), node("Reshape", ["c", "a"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3, 4]), node("Reshape", ["t", "b"], ["y"]),
    ]  # fmt: skip
    old = {"a": np.array([1, 2, 4, OLD, OLD]), "b": np.array([1, -1, OLD, OLD])}
    new = {"a": np.array([1, 2, 4, NEW, NEW]), "b": np.array([1, -1, NEW, NEW])}
    found = check(nodes, old, new, {"w": weight(8, 3, 1, 1)})
    assert found.how == "1 MaxPool changed, 2 Reshape adapted"
    assert len(found.changed) == 3
    assert {"a", "b"}.isdisjoint(w.name for w in found.model.graph.initializer)  # nobody takes them now


def test_flattened_and_unflattened_as_in_fastestdet():
    nodes = [
        halved("p", "x"), node("Conv", ["p", "w"], ["c"]), node("Reshape", ["c", "a"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1]), node("Softmax", ["t"], ["s"], axis=2),
        node("Transpose", ["s"], ["u"], perm=[0, 2, 1]), node("Reshape", ["u", "b"], ["y"]),
    ]  # fmt: skip
    old = {"a": np.array([1, 8, OLD * OLD]), "b": np.array([1, 8, OLD, OLD])}
    new = {"a": np.array([1, 8, NEW * NEW]), "b": np.array([1, 8, NEW, NEW])}
    check(nodes, old, new, {"w": weight(8, 3, 1, 1)})


PYRAMID = [
    halved("p", "x"),
    node("Conv", ["p", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
    node("Relu", ["c"], ["d"]),
]


@pytest.mark.parametrize("join", ["Add", "Concat"])
@pytest.mark.parametrize("form", ["sizes", "scales", "attribute", "opset 10"])
def test_a_pyramid_meets_at_one_size(join, form):
    """Down 10 and 5, up 11 and 6: twice 6 is 12, but the branch has 11."""
    last = node(join, ["u", "p"], ["y"], **({"axis": 1} if join == "Concat" else {}))
    sized = {
        "sizes": ["d", "", "", "s"],
        "scales": ["d", "", "s"],
        "opset 10": ["d", "s"],
        "attribute": ["d"],
    }
    plain = {"mode": "nearest"}
    if form in ("sizes", "scales"):
        plain |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    factors = np.array([1, 1, 2, 2], np.float32), np.array([1, 1, 11 / 6, 11 / 6], np.float32)
    operator = "Upsample" if form == "attribute" else "Resize"
    opset = {"attribute": 8, "opset 10": 10}.get(form, 13)
    if form == "attribute":
        plain["scales"] = factors[0]
    nodes = [*PYRAMID, node(operator, sized[form], ["u"], name="up", **plain), last]
    constants = [
        {"s": np.array([1, 3, n, n])} if form == "sizes" else {"s": f}
        for n, f in zip((OLD, NEW), factors, strict=True)
    ]
    old, new = constants if form != "attribute" else ({}, {})
    if form == "attribute":
        made = model(nodes, ["y"], {"w": weight(3, 3, 3, 3)}, opset=opset)
        found = ceil(made, context())
        assert found.changed == ("p", "up")
        assert run(found.model, image())[0].shape[2:] == (NEW, NEW)
        return
    check(nodes, old, new, {"w": weight(3, 3, 3, 3)}, opset=opset)


def test_the_branch_a_resize_meets_may_come_later_in_the_file():
    nodes = [
        *PYRAMID,
        node("Resize", ["d", "", "s"], ["u"], mode="nearest"),
        node("Conv", ["u", "v"], ["e"]),
        node("Conv", ["p", "v"], ["late"]),
        node("Add", ["e", "late"], ["y"]),
    ]
    old, new = ({"s": np.array([1, 1, f, f], np.float32)} for f in (2, 11 / 6))
    check(nodes, old, new, {"w": weight(3, 3, 3, 3), "v": weight(3, 3, 1, 1)})


def test_a_resize_to_the_input_stays_and_one_that_meets_nobody_keeps_its_factor():
    whole = [*PYRAMID, node("Resize", ["d", "", "", "s"], ["y"], mode="linear")]
    made = model(whole, ["y"], {"w": weight(3, 3, 3, 3), "s": np.array([1, 3, 20, 20])})
    assert run(ceil(made, context()).model, image())[0].shape == (1, 3, 20, 20)
    made = model(whole, ["y"], {"w": weight(3, 3, 3, 3), "s": np.array([1, 3, 10, 10])})
    assert run(ceil(made, context()).model, image())[0].shape == (1, 3, 12, 12)


def test_a_transposed_convolution_is_cropped():
    nodes = [
        *PYRAMID,
        node("ConvTranspose", ["d", "v"], ["u"], strides=[2, 2], name="up"),
        node("Add", ["u", "p"], ["y"]),
    ]
    made = model(nodes, ["y"], {"w": weight(3, 3, 3, 3), "v": weight(3, 3, 2, 2)})
    seen = image()
    was = run(made, seen)[0]
    found = ceil(made, context())
    assert found.changed == ("p", "up")
    assert run(found.model, seen)[0].shape == (1, 3, NEW, NEW)
    assert np.array_equal(run(ceil(found.model, context()).model, seen)[0], was)


def test_levels_joined_cut_and_decoded_with_grids_in_the_graph():
    """Two levels in one axis, anchor points added, the levels cut apart again: as detectors export it."""
    nodes = [
        *PYRAMID,
        node("Reshape", ["p", "a"], ["f"]), node("Reshape", ["d", "b"], ["g"]),
        node("Concat", ["f", "g"], ["all"], axis=2), node("Add", ["all", "points"], ["moved"]),
        node("Mul", ["moved", "steps"], ["boxes"]),
        node("Split", ["boxes", "cut"], ["y", "z"], axis=2),
        node("Slice", ["boxes", "from", "to", "two"], ["v"]),
    ]  # fmt: skip

    def constants(first, second):
        points = []
        for n, stride in ((first, 2), (second, 4)):
            y, x = np.divmod(np.arange(n * n), n)
            points.append(np.stack([x + 0.5, y + 0.5, 0 * x]) * stride)
        cells = first**2, second**2
        return {
            "a": np.array([1, 3, cells[0]]), "b": np.array([1, 3, cells[1]]), "cut": np.array(cells),
            "points": np.concatenate(points, 1)[None].astype(np.float32),
            "steps": np.repeat([2, 4], cells).astype(np.float32)[None],
            "from": np.array([cells[0]]), "to": np.array([sum(cells)]),
        }  # fmt: skip

    weights = {"w": weight(3, 3, 3, 3), "two": np.array([2])}
    check(nodes, constants(10, 5), constants(11, 6), weights, outputs=("y", "z", "v"))


def test_global_pools_follow_also_when_written_with_a_size():
    end = [node("Flatten", ["g"], ["f"]), node("Gemm", ["f", "w"], ["y"])]
    seen = image()
    for pool in (
        node("GlobalAveragePool", ["p"], ["g"]),
        node("ReduceMean", ["p"], ["g"], axes=[2, 3]),
        node("AveragePool", ["p"], ["g"], kernel_shape=[OLD, OLD]),
        node("AveragePool", ["p"], ["g"], kernel_shape=[OLD, OLD], strides=[OLD, OLD]),
    ):
        made = model([halved("p", "x"), pool, *end], ["y"], {"w": weight(3, 4)})
        found = run(ceil(made, context(task="classify")).model, seen)[0]
        up = model(
            [halved("p", "x", ceil_mode=1), node("GlobalAveragePool", ["p"], ["g"]), *end],
            ["y"],
            {"w": weight(3, 4)},
        )
        assert np.allclose(found, run(up, seen)[0], atol=1e-6)


def test_sizes_computed_in_the_graph_follow_by_themselves():
    nodes = [
        halved("p", "x"), node("Shape", ["p"], ["n"]), node("Slice", ["n", "zero", "two"], ["first"]),
        node("Concat", ["first", "rest"], ["t"], axis=0), node("Reshape", ["p", "t"], ["f"]),
        node("Relu", ["f"], ["y"]),
    ]  # fmt: skip
    weights = {"zero": np.array([0]), "two": np.array([2]), "rest": np.array([-1])}
    found = check(nodes, {}, {}, weights)
    assert found.changed == ("p",)
    mixed = {**weights, "rest": np.array([OLD * OLD])}  # half computed, half written down
    found = check(
        nodes,
        {"rest": mixed["rest"]},
        {"rest": np.array([NEW * NEW])},
        {k: weights[k] for k in ("zero", "two")},
    )
    assert found.how == "1 MaxPool changed, 1 Reshape adapted"


def test_expand_follows():
    nodes = [halved("p", "x"), node("ReduceMean", ["p"], ["m"], axes=[2]), node("Expand", ["m", "s"], ["y"])]
    old, new = ({"s": np.array([1, 3, 4, n])} for n in (OLD, NEW))
    check(nodes, old, new)


def test_a_flattened_map_before_a_fixed_layer_cannot_follow():
    for flat, constants in (
        (node("Flatten", ["p"], ["f"]), {}),
        (node("Reshape", ["p", "t"], ["f"]), {"t": np.array([-1, 300])}),
        (node("Reshape", ["p", "t"], ["f"]), {"t": np.array([1, -1])}),
    ):
        nodes = [halved("p", "x"), flat, node("Gemm", ["f", "w"], ["y"], name="fc")]
        because = r"Gemm 'fc' has weights for 300 features, but its input now has 363 \(it had 300\)"
        refused(nodes, {"w": weight(300, 2), **constants}, because, task="classify")


def test_a_convolution_over_the_whole_map_cannot_follow_if_it_is_the_answer():
    nodes = [halved("p", "x"), node("Conv", ["p", "w"], ["c"], name="fc"), node("Flatten", ["c"], ["y"])]
    weights = {"w": weight(2, 3, OLD, OLD)}
    refused(nodes, weights, r"Conv 'fc' reads a map of fixed size as one window.*output 'y'", task="classify")


def test_what_else_cannot_follow_names_the_node_and_the_reason():
    pool = halved("p", "x")
    conv = node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1] * 4)
    weights = {"w": weight(3, 3, 3, 3)}
    refused(
        [pool, conv, node("Add", ["p", "c"], ["y"], name="sum")],
        weights,
        "Add 'sum' joins branches.*11×11.*10×10",
    )
    refused(
        [pool, conv, node("Concat", ["p", "c"], ["y"], axis=1, name="cat")],
        weights,
        "Concat 'cat' joins branches",
    )
    learned = {"e": weight(1, 3, OLD, OLD)}
    refused(
        [pool, node("Add", ["p", "e"], ["y"], name="pos")],
        learned,
        "Add 'pos' meets .* no grid of equal steps",
    )
    refused(
        [pool, node("Reshape", ["p", "t"], ["y"], name="cut")], {"t": np.array([1, 3, 20, 5])},
        r"Reshape 'cut' cuts the 10 cells that are now 11: from 1×3×10×10 \(now 1×3×11×11\) to 1×3×20×5",
    )  # fmt: skip
    refused(
        [pool, node("Split", ["p"], ["y", "z"], axis=2, name="halves")],
        {},
        "Split 'halves' cuts 10",
        ("y", "z"),
        opset=11,
    )
    all_rows = {"i": np.arange(OLD)[::-1].copy()}
    refused(
        [pool, node("Gather", ["p", "i"], ["y"], axis=2, name="turn")],
        all_rows,
        "Gather 'turn' picks 10 of 10",
    )


def test_a_slice_up_to_the_old_end_goes_to_the_new_end_and_a_crop_stays_a_crop():
    nodes = [halved("p", "x"), node("Slice", ["p", "s", "e", "a"], ["y"])]
    weights = {"s": np.array([1]), "a": np.array([2])}
    check(nodes, {"e": np.array([OLD])}, {"e": np.array([NEW])}, weights)
    made = model(nodes, ["y"], {**weights, "e": np.array([6])})
    assert run(ceil(made, context()).model, image())[0].shape == (1, 3, 5, NEW)


def test_declared_shapes_are_corrected_and_the_batch_stays_named():
    made = model([halved("p", "x"), node("Relu", ["p"], ["y"])], ["y"], batch="n")
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["n", 3, OLD, OLD]))
    found = ceil(made, context()).model
    dims = found.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["n", 3, NEW, NEW]
    assert "p" not in {v.name for v in found.graph.value_info}
