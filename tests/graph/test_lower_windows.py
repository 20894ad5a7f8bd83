"""Convolutions and pools of every window against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from helpers.lower import agree, by_runtime, compare, model, one
from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation, Conv
from holdfast.graph.lower import lower_onnx


@dataclass(frozen=True)
class Case:
    """A window over an image (channels, *size)."""

    channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    seed: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.channels, *self.size)

    def attributes(self) -> dict[str, tuple[int, ...]]:
        return {"strides": self.stride, "dilations": self.dilation, "pads": self.pads}

    def normal(self, *shape: int) -> np.ndarray:
        return np.random.default_rng(self.seed).normal(size=shape).astype(np.float32)


@st.composite
def cases(draw: st.DrawFn, axes: tuple[int, ...] = (1, 2), channels: tuple[int, ...] = (1, 2, 4)) -> Case:
    count = draw(st.sampled_from(axes))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    kernel, dilation = each(1, 3), each(1, 2)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = tuple(draw(st.integers(r, r + 4)) for r in reach)
    # a pool's padding must be smaller than its kernel; so every window holds a value
    pads = tuple(draw(st.integers(0, k - 1)) for k in kernel * 2)
    return Case(
        draw(st.sampled_from(channels)), size, kernel, each(1, 3), dilation, pads, draw(st.integers(0, 99))
    )


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from((1, 2)), st.booleans())
def test_conv_with_groups_strides_dilations_and_uneven_pads(case: Case, groups: int, bias: bool) -> None:
    channels = 4
    weight = case.normal(6, channels // groups, *case.kernel)
    constants = (weight, case.normal(6)) if bias else (weight,)
    proto = one("Conv", (1, channels, *case.size), *constants, group=groups, **case.attributes())
    net = agree(proto, case.seed, points=2)
    assert [type(s).__name__ for s in net.steps if not isinstance(s, Conv)] == ["FreeInputs"]


@settings(max_examples=15, deadline=None)
@given(cases(), st.sampled_from(("SAME_UPPER", "SAME_LOWER", "VALID")))
def test_padding_by_name(case: Case, auto: str) -> None:
    weight = case.normal(2, case.channels, *case.kernel)
    # the runtime refuses a pool whose window is smaller than its stride here
    stride = tuple(min(s, k) for s, k in zip(case.stride, case.kernel, strict=True))
    how = {"auto_pad": auto, "strides": stride}
    agree(one("Conv", case.shape, weight, **how), case.seed, points=2)
    agree(one("MaxPool", case.shape, kernel_shape=case.kernel, **how), case.seed, points=2)
    agree(one("AveragePool", case.shape, kernel_shape=case.kernel, **how), case.seed, points=2)


@settings(max_examples=40, deadline=None)
@given(cases(), st.booleans())
def test_max_pool_of_any_window_and_padding_never_wins(case: Case, ceil: bool) -> None:
    proto = one("MaxPool", case.shape, kernel_shape=case.kernel, ceil_mode=int(ceil), **case.attributes())
    agree(proto, case.seed, low=-3.0, high=-1.0, points=2)  # padding by 0 would win


@settings(max_examples=40, deadline=None)
@given(cases(), st.booleans(), st.booleans())
def test_average_pool_counts_what_the_node_says(case: Case, ceil: bool, include: bool) -> None:
    how = {"kernel_shape": case.kernel, "strides": case.stride, "pads": case.pads}
    flags = {"ceil_mode": int(ceil), "count_include_pad": int(include)}
    agree(one("AveragePool", case.shape, **how, **flags), case.seed, points=2)


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from((1, 2)), st.integers(0, 1))
def test_transposed_conv(case: Case, groups: int, extra: int) -> None:
    weight = case.normal(4, 3, *case.kernel)
    more = [min(extra, s - 1) for s in case.stride]
    reach = [d * (k - 1) for d, k in zip(case.dilation, case.kernel, strict=True)]
    half = len(case.kernel)
    pads = [min(p, reach[j % half]) for j, p in enumerate(case.pads)]
    proto = one(
        "ConvTranspose",
        (1, 4, *case.size),
        weight,
        case.normal(3 * groups),
        group=groups,
        output_padding=more,
        **{**case.attributes(), "pads": pads},
    )
    agree(proto, case.seed, points=2)


def test_transposed_conv_of_a_wanted_shape() -> None:
    weight = np.random.default_rng(0).normal(size=(2, 3, 3, 3)).astype(np.float32)
    agree(one("ConvTranspose", (1, 2, 4, 3), weight, strides=[2, 2], output_shape=[8, 6]))
    agree(one("ConvTranspose", (1, 2, 4, 3), weight, strides=[2, 2], auto_pad="SAME_UPPER"))
    agree(one("ConvTranspose", (1, 2, 4, 3), weight, strides=[2, 2], auto_pad="SAME_LOWER"))
    agree(one("ConvTranspose", (1, 2, 4, 3), weight, strides=[2, 2], pads=[0, 0, 5, 3]))


def test_conv_over_volumes() -> None:
    weight = np.random.default_rng(0).normal(size=(4, 1, 2, 3, 2)).astype(np.float32)
    how = {"strides": [2, 1, 1], "pads": [1, 0, 1, 0, 1, 0], "dilations": [1, 1, 2], "group": 2}
    agree(one("Conv", (1, 2, 4, 5, 6), weight, **how))


def test_a_pad_before_a_conv_becomes_its_padding() -> None:
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["y"], strides=[2, 1]),
    ]
    weights = {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "w": np.ones((2, 1, 2, 2), np.float32)}
    net = agree(model(nodes, {"x": (1, 1, 4, 4)}, weights=weights))
    assert [type(s).__name__ for s in net.steps] == ["FreeInputs", "Conv"]
    assert isinstance(net.steps[1], Conv)
    assert net.steps[1].pads == (1, 2, 0, 1)


@pytest.mark.parametrize("value", [0.0, -np.inf, -1.5])
def test_max_pool_after_a_pad(value: float) -> None:
    nodes = [
        helper.make_node("Pad", ["x", "p", "v"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2], strides=[1, 2]),
    ]
    weights = {"p": np.array([0, 0, 1, 1, 0, 0, 0, 1]), "v": np.float32(value)}
    proto = model(nodes, {"x": (1, 2, 4, 4)}, weights=weights)
    points = np.random.default_rng(0).uniform(-3, -1, (4, 32)).astype(np.float32)
    # optimised, the runtime (1.31) makes the Pad the pool's own padding whatever its value
    compare(lower_onnx(proto), points, by_runtime(proto, points, optimised=False))


def test_plain_max_pool_needs_three_relus_a_window_and_no_take_after() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["a", "w"], ["y"]),
    ]
    net = agree(model(nodes, {"x": (1, 2, 4, 4)}, weights={"w": np.ones((1, 2, 2, 2), np.float32)}))
    assert sum(int(np.prod(s.shape)) for s in net.steps if isinstance(s, Activation)) == 8 * 3
    assert [type(s).__name__ for s in net.steps[-2:]] == ["WeightedSum", "Conv"]


def test_overlapping_windows_share_their_maxima() -> None:
    net = agree(one("MaxPool", (1, 1, 9, 9), kernel_shape=[3, 3], strides=[2, 2]))
    relus = sum(int(np.prod(s.shape)) for s in net.steps if isinstance(s, Activation))
    assert relus == 9 * 4 * 2 + 4 * 4 * 2  # rows first: 9 rows of 4 windows, then 4 by 4; each 2 maxima


def test_a_window_that_does_not_fit_is_named() -> None:
    proto = one("Conv", (1, 1, 2, 2), np.ones((1, 1, 3, 3), np.float32))
    with pytest.raises(ModelError, match=r"node 'y': operator Conv cannot be lowered: its window of 3"):
        lower_onnx(proto)


def test_a_batch_of_images_inside_the_graph() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["y"], kernel_shape=[2, 2]),
    ]
    weights = {
        "s": np.array([3, 1, 4, 4]),
        "w": np.random.default_rng(1).normal(size=(2, 1, 2, 2)).astype("f"),
    }
    agree(model(nodes, {"x": (1, 48)}, weights=weights))


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
def test_a_dilated_pool_that_pads_itself_is_refused_for_onnx_runtime_pads_it_otherwise(how):
    proto = one("MaxPool", (1, 1, 7, 6), kernel_shape=[3, 3], dilations=[2, 2], auto_pad=how)
    with pytest.raises(ModelError, match="use pads"):
        lower_onnx(proto)
    agree(one("MaxPool", (1, 1, 7, 6), kernel_shape=[3, 3], auto_pad=how))
