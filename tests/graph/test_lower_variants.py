"""Whatever is lowered computes what ONNX Runtime computes: every operator, attribute and version of it."""

from contextlib import suppress
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

from helpers.lower import by_runtime
from helpers.operator_variants import VARIANTS
from holdfast.core.errors import ModelError
from holdfast.graph.ir import evaluate
from holdfast.graph.lower import OPERATORS, lower_onnx

NEWEST = 22  # opset up to which ONNX Runtime is asked


@cache
def schemas():
    """The versions of every operator, by name."""
    found = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= NEWEST:
            found.setdefault(schema.name, []).append(schema)
    return found


def made(operator, variant, opset):
    """A model of one node."""
    names = [f"c{i}" if c is not None else "" for i, c in enumerate(variant.constants)]
    weights = {name: c for name, c in zip(names, variant.constants, strict=True) if name}
    names = ["x", *names] if variant.before is None else ["b", "x", *names]
    if variant.before is not None:
        weights["b"] = variant.before
    outputs = [f"y{i}" for i in range(variant.outputs)]
    node = helper.make_node(operator, names, outputs, **variant.attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, variant.shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def runs(proto, points):
    """What ONNX Runtime gives, or None if it refuses the model."""
    try:
        return by_runtime(proto, points)
    except Exception:  # noqa: BLE001 - onnxruntime's errors have no common class
        return None


def check(operator, variant, opset):
    """How a variant is treated: "refused", "not run" by ONNX Runtime, or "agrees"; else the test fails."""
    proto = made(operator, variant, opset)
    nets = []
    for as_evaluated in (False, True):
        with suppress(ModelError):
            nets.append(lower_onnx(proto, as_evaluated=as_evaluated))
    if not nets:
        return "refused"
    size = int(np.prod(variant.shape))
    points = np.random.default_rng(1).uniform(variant.low, variant.high, (2, size)).astype(np.float32)
    if variant.low < 0:
        points[1, 0] = 0.0
    expected = runs(proto, points)
    if expected is None:
        return "not run"
    where = f"{operator} of opset {opset}, {variant.shape}, {dict(variant.attributes)}"
    for net in nets:
        found = evaluate(net, points)
        assert found.shape == expected.shape, where
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5, err_msg=where)
    return "agrees"


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_what_is_lowered_is_what_the_runtime_computes(operator):
    versions = [schema.since_version for schema in schemas()[operator]]
    newest = max(versions)
    found = [check(operator, variant, newest) for variant in VARIANTS[operator]]
    # To be quick, older versions are asked only for variants that the newest one does not have.
    for opset in (version for version in versions if 7 <= version < newest):
        for variant, now in zip(VARIANTS[operator], found, strict=True):
            if now != "agrees":
                check(operator, variant, opset)
    if operator not in ("LogSoftmax", "Upsample"):  # supported as last layers, and up to opset 9
        assert "agrees" in found


@pytest.mark.slow
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_version_of_an_operator_is_lowered_as_it_is_computed(operator):
    for schema in schemas()[operator]:
        for variant in VARIANTS[operator]:
            check(operator, variant, schema.since_version)


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_attribute_of_an_operator_is_in_the_table(operator):
    tried = {name for variant in VARIANTS[operator] for name in variant.attributes}
    versions = [schema for schema in schemas()[operator] if schema.since_version >= 7]
    known = {name for schema in versions for name in schema.attributes}
    assert known <= tried
