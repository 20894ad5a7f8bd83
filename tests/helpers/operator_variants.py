"""Every operator that is lowered, with the attributes, inputs and shapes that change what it computes.

A variant need not be lowered, nor valid in every opset: what is lowered must be what ONNX Runtime computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

_RNG = np.random.default_rng(0)
IMAGE = (1, 2, 5, 6)
NONE = np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class Variant:
    """One node: the shape of its input x, its other inputs (None: left out), and its attributes.

    With `before` x is the second input and this constant the first.
    """

    shape: Sequence[int]
    constants: Sequence[Any] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    low: float = -2.0
    high: float = 2.0
    before: Any = None


def _v(shape: Sequence[int], /, *constants: Any, **attributes: Any) -> Variant:
    return Variant(shape, constants, attributes)


def _f(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape).astype(np.float32)


def _n(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _one(value: Any) -> np.ndarray:
    return np.array(value, np.float32)


def _both(name: str, values: Sequence[Any], *given: Variant) -> list[Variant]:
    """The variants, without the attribute and with each of its values."""
    more = [
        Variant(v.shape, v.constants, {**v.attributes, name: value}, v.outputs)
        for v in given
        for value in values
    ]
    return [*given, *more]


_VEC, _SEQ = (1, 5), (1, 3, 4)
_PADS = _i(0, 1, 2, 0, 1, 1)
_NORM = (_f(3) ** 2 + 0.5, _f(3), _f(3), _f(3) ** 2 + 0.3)
_SAME = ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
_BROADCAST = [_v((1, 3), _f(3) + 4), _v((1, 3), _f(4, 1) + 4), _v((1, 3, 2), _f(3), axis=1, broadcast=1)]
_LEFT = [Variant((1, 3), before=_f(1, 3), low=0.5)]
_POSITIVE = [Variant((1, 3), low=0.2, high=3.0)]


def _reductions() -> list[Variant]:
    shape, found = (1, 3, 4, 2), []
    for keep in ({}, {"keepdims": 0}, {"keepdims": 1}):
        found += [_v(shape, **keep), _v(shape, axes=[1, -1], **keep), _v(shape, _i(1, -1), **keep)]
        found += [_v(shape, axes=[2, 3], **keep), _v(shape, _i(-2, -1), **keep)]
        for noop in (0, 1):
            for axes in ((), (np.zeros(0, np.int64),), (_i(1),)):
                found.append(_v(shape, *axes, noop_with_empty_axes=noop, **keep))
    return found


def _pools(average: bool) -> list[Variant]:
    windows: list[dict[str, Any]] = [
        {}, {"strides": [2, 2]}, {"pads": [1, 0, 1, 1], "strides": [2, 3]},
        {"pads": [2, 2, 0, 0], "strides": [2, 2]},
        {"dilations": [2, 1]}, {"dilations": [2, 2], "pads": [1, 1, 0, 0]},
    ]  # fmt: skip
    windows += [{"auto_pad": auto, "strides": [3, 2]} for auto in _SAME]
    windows += [{"auto_pad": auto, "strides": [2, 2], "dilations": [2, 2]} for auto in _SAME]
    counted: Sequence[dict[str, Any]] = ({}, {"count_include_pad": 1}) if average else ({},)
    found = [
        _v(IMAGE, kernel_shape=[3, 2], **window, **ceil, **count)
        for window, ceil, count in product(windows, ({}, {"ceil_mode": 1}), counted)
    ]
    found.append(_v((1, 2, 9), kernel_shape=[3], strides=[2], ceil_mode=1, pads=[1, 1]))
    return [*found, _v((1, 2, 4, 4, 4), kernel_shape=[2, 2, 3], strides=[1, 2, 1])]


def _convolutions() -> list[Variant]:
    weight, bias = _f(4, 2, 3, 3), _f(4)
    found = [
        _v(IMAGE, weight),
        _v(IMAGE, weight, bias, pads=[1, 0, 2, 1], strides=[2, 1], kernel_shape=[3, 3]),
    ]
    found += [
        _v(IMAGE, weight, bias, dilations=[2, 1], pads=[1, 1, 1, 1]),
        _v(IMAGE, _f(4, 1, 3, 3), group=2),
    ]
    found += [_v(IMAGE, weight, auto_pad=a, strides=s) for a in _SAME for s in ([1, 1], [2, 2], [3, 2])]
    found += [_v(IMAGE, weight, auto_pad=a, strides=[2, 2], dilations=[2, 2]) for a in _SAME]
    found += [_v(IMAGE, weight, auto_pad=a, pads=[1, 1, 1, 1]) for a in _SAME]
    found += [_v((1, 2, 7), _f(4, 2, 3), bias, pads=[1, 0]), _v((1, 2, 4, 4, 4), _f(4, 1, 2, 3, 2), group=2)]
    return found


def _transposed() -> list[Variant]:
    weight, bias, two = _f(2, 3, 3, 3), _f(3), {"strides": [2, 2]}
    ways: list[dict[str, Any]] = [
        {}, two, {"strides": [2, 3], "pads": [1, 0, 1, 1]}, {**two, "output_padding": [1, 1]},
        {**two, "output_padding": [1, 0], "pads": [0, 1, 1, 0]},
        {"dilations": [2, 1], "kernel_shape": [3, 3]},
        {**two, "output_shape": [10, 12], "output_padding": [1, 1]}, {**two, "output_shape": [15, 15]},
        {**two, "output_shape": [10, 12], "pads": [1, 1, 1, 1]},
        {"strides": [4, 4], "output_shape": [22, 24]},
        {**two, "dilations": [2, 2], "auto_pad": "SAME_UPPER"},
    ]  # fmt: skip
    for auto in _SAME:
        ways += [{"auto_pad": auto, "strides": [n, n]} for n in (1, 2, 3, 4)]
        ways += [{"auto_pad": auto, **two, "output_shape": [11, 12]}]
        ways += [{"auto_pad": auto, **two, "output_padding": [1, 1]}]
    found = [_v(IMAGE, weight, bias, **way) for way in ways]
    found += [_v(IMAGE, _f(2, 2, 3, 3), group=2, **two), _v((1, 2, 6), _f(2, 3, 3), strides=[2])]
    return [*found, _v((1, 2, 3, 3, 3), _f(2, 3, 2, 2, 2))]


def _resizes() -> list[Variant]:
    found, crop = [], _n(0, 0, 0.1, 0.2, 1, 1, 0.9, 0.7)
    transforms = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    for mode in ("nearest", "linear", "cubic"):
        sizes = ((NONE, _n(1, 1, 2, 1.5)), (NONE, _n(1, 1, 0.6, 0.7)), (NONE, NONE, _i(1, 2, 7, 4)))
        found += [_v(IMAGE, *size, mode=mode) for size in sizes]
        for how, size in product((*transforms, "tf_half_pixel_for_nn"), sizes):
            found.append(_v(IMAGE, *size, mode=mode, coordinate_transformation_mode=how))
        for value in (0.0, 5.0):
            how = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": value}
            found.append(_v(IMAGE, crop * 1.3, _n(1, 1, 2, 2), mode=mode, **how))
        found += [_v(IMAGE, NONE, _n(1, 1, 0.5, 1.6), mode=mode, antialias=anti) for anti in (0, 1)]
        for policy in ("stretch", "not_larger", "not_smaller"):
            size = {"axes": [3, 2], "keep_aspect_ratio_policy": policy}
            found.append(_v(IMAGE, None, None, _i(8, 9), mode=mode, **size))
        found += [
            _v(IMAGE, None, _n(1.5, 2), mode=mode, axes=[3, -2]),
            _v(IMAGE, _n(1, 1, 2, 1.5), mode=mode),
        ]
        for near in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            found.append(_v(IMAGE, NONE, _n(1, 1, 1.5, 0.7), mode=mode, nearest_mode=near))
    for outside in (0, 1):
        more = {"mode": "cubic", "exclude_outside": outside, "cubic_coeff_a": -0.5}
        found.append(_v(IMAGE, NONE, _n(1, 1, 1.5, 0.7), **more))
    return [*found, _v((1, 2, 6), NONE, _n(1, 1, 2)), _v((1, 3, 4, 2), NONE, _n(1, 2, 1.5, 1), mode="linear")]


def _pads() -> list[Variant]:
    found = [
        _v(_SEQ, _PADS, _one(1.5)),
        _v(_SEQ, pads=_PADS.tolist(), value=1.5),
        _v(_SEQ, paddings=_PADS.tolist()),
    ]
    found.append(_v(_SEQ, _i(1, 2, 0, 1), _one(2.0), _i(2, 1)))
    for mode in ("constant", "reflect", "edge", "wrap"):
        found += [_v(_SEQ, _PADS, mode=mode), _v(_SEQ, pads=_PADS.tolist(), mode=mode)]
        found += [_v(_SEQ, _i(2, 1), None, _i(-1), mode=mode), _v(_SEQ, _i(0, 0, 7, 0, 0, 5), mode=mode)]
        found.append(_v((1, 3, 6), _i(0, 0, -2, 0, 0, 3), mode=mode))
    return found


def _normalised() -> list[Variant]:
    found = _both("epsilon", [0.5], _v(_SEQ, *_NORM), _v((1, 3), *_NORM), _v((1, 3, 4, 2), *_NORM))
    found += [_v(_SEQ, *_NORM, momentum=0.1), _v(_SEQ, *_NORM, is_test=1), _v(_SEQ, *_NORM, spatial=1)]
    found += [_v(_SEQ, *(np.stack([n] * 4, 1) * _f(4) ** 2 for n in _NORM), spatial=0)]
    found += [_v(_SEQ, *_NORM, training_mode=mode) for mode in (0, 1)]
    return [*found, Variant(_SEQ, _NORM, {}, 5), Variant(_SEQ, _NORM, {"training_mode": 1}, 3)]


def _limits() -> list[Variant]:
    found = [_v((1, 3)), _v((1, 3), _f(3)), _v((1, 3), _f(2, 1)), _v((1, 3), _f(1, 3), _f(3))]
    ends = (np.inf, -np.inf, 3.4028235e38, -3.4028235e38, 1e30, -1e30)
    return [
        *found,
        *(_v((1, 3), np.full((2, 1), e, np.float32)) for e in ends),
        _v((1, 3), _n(-np.inf, 0, np.inf)),
    ]


_GEMM = [
    _v((3, 2) if a else (2, 3), _f(4, 3) if b else _f(3, 4), _f(4), transA=a, transB=b, alpha=0.5, beta=-1.5)
    for a, b in product((0, 1), (0, 1))
]
_SCATTERED = (np.array([[1], [3]]), _f(2, 3))
_CURVES = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Sign",
    "Erf",
    "Exp",
    "Softplus",
    "Sin",
    "Cos",
    "Abs",
    "HardSwish",
    "Neg",
)
_ALPHAS = [-0.5, 0.0, 0.3, 1.0, 1.5]
_POWERS = (0.5, 1, 2, 3, 4, -1, -2, -0.5, -3, 0, 1.5)
_SOFT = [_v((2, 3, 4)), *(_v((2, 3, 4), axis=axis) for axis in range(-3, 3))]

VARIANTS: Mapping[str, Sequence[Variant]] = {
    **{name: [_v(_VEC)] for name in _CURVES},
    **{name: [*_BROADCAST, *_LEFT] for name in ("Add", "Sub", "Mul", "Div")},
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal"), _POSITIVE),
    **{name: _both("alpha", _ALPHAS, _v(_VEC)) for name in ("LeakyRelu", "Elu", "Celu")},
    **dict.fromkeys(("Softmax", "LogSoftmax"), _SOFT),
    **{name: _limits() for name in ("Max", "Min")},
    **{name: [_v(_VEC), _v(_VEC, _f(1, 5), _f(5)), _v(_VEC, _f(4, 1))] for name in ("Sum", "Mean")},
    **{
        name: _reductions()
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare")
    },
    **{
        name: [_v(IMAGE), _v((1, 2, 5)), _v((1, 2, 2, 3, 2))]
        for name in ("GlobalAveragePool", "GlobalMaxPool")
    },
    "HardSigmoid": _both("beta", [0.2], *_both("alpha", _ALPHAS, _v(_VEC))),
    "Selu": _both("gamma", [1.7, -0.5], *_both("alpha", _ALPHAS, _v(_VEC))),
    "Gelu": _both("approximate", ["none", "tanh"], _v(_VEC)),
    "PRelu": [_v(_SEQ, _n(0.2)), _v(_SEQ, _f(3, 1)), _v(_SEQ, _one(-0.2)), _v(_SEQ, _f(4)), _v(_SEQ, _f(3))],
    "Clip": [
        _v(_VEC), _v(_VEC, _one(-0.5), _one(0.7)), _v(_VEC, _one(-0.5)), _v(_VEC, None, _one(0.7)),
        _v(_VEC, min=-0.5, max=0.7), _v(_VEC, min=0.1), _v(_VEC, max=0.1), _v(_VEC, _one(0.7), _one(-0.5)),
        _v(_VEC, _one(-1e30), _one(1e30)), _v(_VEC, min=-1e30),
    ],
    "Pow": [
        *(Variant((1, 3), (_one(power),), low=0.5, high=3.0) for power in _POWERS),
        *(_v((1, 3), _one(power)) for power in (1, 2, 3, 4)),
        _v((1, 3), np.array(2)), _v((1, 3), np.full((2, 1), 2, np.float32)), _v((1, 3), _n(1, 2, 3)),
    ],
    "BatchNormalization": _normalised(),
    "LayerNormalization": [
        *_both("epsilon", [0.3], _v(_SEQ, _f(4), _f(4)), _v(_SEQ, _f(4))), _v(_SEQ, _f(3, 4),
        _f(3, 4), axis=1),
        _v(_SEQ, _f(3, 4), _f(3, 4), axis=-2), _v(_SEQ, _f(1), _f(1)), _v(_SEQ, _f(4), stash_type=1),
        Variant(_SEQ, (_f(4), _f(4)), {}, 3),
    ],
    "MatMul": [
        _v((1, 3), _f(3, 4)), _v((1, 2, 3), _f(3, 4)), _v((1, 2, 3), _f(5, 3, 4)), _v((1, 2, 3), _f(3)),
        Variant((3, 2), before=_f(4, 3)), Variant((3, 2), before=_f(3)),
        Variant((1, 3, 2), before=_f(5, 4, 3)),
    ],
    "Gemm": [
        *_GEMM, _v((1, 3), _f(3, 4), alpha=2.0), _v((2, 3), _f(3, 4), _f(2, 1), beta=0.3),
        _v((2, 3), _f(3, 4), _f(2, 4), beta=0.0), _v((2, 3), _f(3, 4), _one(0.7)), _v((2, 3),
        _f(3, 4), alpha=0.0),
    ],
    "Conv": _convolutions(),
    "ConvTranspose": _transposed(),
    "AveragePool": _pools(average=True),
    "MaxPool": [
        *_pools(average=False), _v(IMAGE, kernel_shape=[2, 2], storage_order=1),
        Variant(IMAGE, (), {"kernel_shape": [2, 2], "storage_order": 1}, 2),
    ],
    "Resize": _resizes(),
    "Upsample": [
        *(_v(IMAGE, mode=mode, scales=[1.0, 1.0, 2.0, 3.0]) for mode in ("nearest", "linear")),
        *(_v(IMAGE, _n(1, 1, 2, 1.5), mode=mode) for mode in ("nearest", "linear")),
    ],
    "Pad": _pads(),
    "Reshape": [
        _v((1, 2, 6), _i(1, 3, 4)), _v((1, 2, 6), _i(0, -1, 3)), Variant((1, 2, 6), (), {"shape": [1, 3, 4]}),
        *(_v((1, 2, 6), _i(*to), allowzero=1) for to in ((1, 3, 4), (0, -1, 3))),
    ],
    "Flatten": _both("axis", range(-3, 4), _v((1, 2, 6))),
    "Transpose": [_v((1, 2, 6)), _v((1, 2, 6), perm=[2, 0, 1])],
    "Squeeze": [_v((1, 2, 1, 3)), *(_v((1, 2, 1, 3), _i(a)) for a in (2, -2)), _v((1, 2, 1, 3), axes=[2])],
    "Unsqueeze": [*(_v(_SEQ, _i(*axes)) for axes in ((0, 4), (-1, 1), (4, 0))), _v(_SEQ, axes=[3, 0])],
    "Identity": [_v(_VEC)],
    "Dropout": [
        _v(_VEC), _v(_VEC, ratio=0.7), _v(_VEC, seed=3), _v(_VEC, _one(0.7)), _v(_VEC, is_test=1),
        *(_v(_VEC, _one(0.7), np.array(mode)) for mode in (False, True)), Variant(_VEC, outputs=2),
    ],
    "Cast": [
        *(_v(_VEC, to=to) for to in (1, 11, 10, 7, 9, 16)), *(_v(_VEC, to=1, saturate=s) for s in (0, 1)),
        _v(_VEC, to=1, round_mode="up"),
    ],
    "Slice": [
        _v((1, 4, 6), _i(1), _i(3), _i(1)), _v((1, 4, 6), _i(-1), _i(-(2**62)), _i(2), _i(-2)),
        _v((1, 4, 6), _i(0, 1, 2), _i(1, 4, 5)), _v((1, 4, 6), _i(0), _i(2), _i(-1)),
        _v((1, 4, 6), _i(99), _i(0), _i(2), _i(-1)), _v((1, 4, 6), _i(0, 0, 1),
        _i(1, 2, 6), None, _i(1, 1, 2)),
        _v((1, 4, 6), starts=[1, -3], ends=[9, 99], axes=[1, 2]), _v((1, 4, 6), starts=[0, 1], ends=[1, 3]),
    ],
    "Split": [
        Variant((1, 6, 2), (), {"axis": 1}, 3), Variant((1, 6, 2), (_i(1, 5),), {"axis": 1}, 2),
        Variant((1, 6, 2), (), {"axis": 1, "split": [2, 4]}, 2), Variant((1, 6, 2), (), {"axis": -1}, 2),
        Variant((1, 7, 2), (), {"axis": 1, "num_outputs": 3}, 3), Variant((2, 3), outputs=2),
        Variant((1, 7, 2), (), {"axis": 1}, 3), Variant((1, 6), (), {"axis": 1, "num_outputs": 4}, 4),
    ],
    "Gather": [
        _v((1, 5, 3), _i(0, 2), axis=1), _v((1, 5, 3), _i(-1, 0), axis=-2),
        _v((1, 5, 3), np.array(2), axis=2),
        _v((4, 3), np.array([[0, 1], [2, -1]])),
    ],
    "GatherND": [
        _v((2, 3, 2), np.array([[0, 1], [1, -1]])),
        _v((2, 3, 2), np.array([[1], [0]]), batch_dims=1),
    ],
    "GatherElements": [
        _v((3, 3), np.array([[0, -1, 2]])),
        _v((3, 3), np.array([[0, -1], [1, 1], [2, 0]]), axis=-1),
    ],
    "ScatterND": _both("reduction", ["none", "add", "mul", "max", "min"], _v((4, 3), *_SCATTERED)),
    "ScatterElements": [
        *_both("reduction", ["none", "add", "mul", "max", "min"], _v((3, 3), np.array([[1, 0, 2]]),
        _f(1, 3))),
        _v((3, 3), np.array([[1], [0], [-1]]), _f(3, 1), axis=1),
    ],
    "Expand": [_v((1, 3, 1), _i(2, 1, 4)), _v((2, 3, 1), _i(4)), _v(_SEQ, _i(1))],
    "Shape": [_v(_SEQ), _v(_SEQ, start=1), _v(_SEQ, start=-2, end=-1)],
    "Size": [_v(_SEQ)],
    "Concat": [_v((1, 3), _f(1, 2), axis=1), _v((1, 3), _f(1, 2), axis=-1), _v((1, 3), _f(1, 2))],
    "Where": [
        Variant((1, 3), (_f(1, 3),), before=np.array([[True, False, True]])),
        Variant((1, 3), (_f(4, 1),), before=np.array([[True], [False], [True], [False]])),
    ],
    "Tile": [_v((1, 2, 3), _i(1, 2, 3))],
    "Trilu": [_v(_SEQ), _v(_SEQ, np.array(1), upper=0)],
    "DepthToSpace": _both("mode", ["DCR", "CRD"], _v((1, 8, 2, 3), blocksize=2)),
    "SpaceToDepth": [_v((1, 2, 4, 6), blocksize=2)],
}  # fmt: skip
