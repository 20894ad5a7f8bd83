"""Two deployments of one network, layer by layer: where they begin to differ, and which layers lose most."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, open_preparation
from holdfast.core.registry import part
from holdfast.core.types import Tensor
from holdfast.stages.deployed import DeployedInference, deployed_of
from holdfast.stages.infer import open_onnx

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul", "MatMulInteger")
ROUNDING = 1e-4  # relative error up to which two float32 runtimes may differ
KEPT = 8  # layers that are tried in float together
MOST_LAYERS = 400

Probe = Callable[[Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class LayerError:
    """A layer, its relative error (root mean square of the difference over that of the output), and its cost.

    `alone` is the share of the network's output error that remains if only this layer stays in float; None
    if the layer is not quantised.
    """

    name: str
    op: str
    error: float
    alone: float | None = None


@dataclass(frozen=True)
class FloatGain:
    """The relative error of the network's output if these layers stay in float."""

    layers: tuple[str, ...]
    error: float


@dataclass(frozen=True)
class LayerDiagnosis:
    """The errors of all layers in graph order, and what staying in float would gain."""

    deployment: str
    images: int
    layers: tuple[LayerError, ...]
    output: float  # relative error of the network's output
    gains: tuple[FloatGain, ...]

    @property
    def first(self) -> LayerError | None:
        """The first layer whose output differs beyond rounding."""
        return next((layer for layer in self.layers if layer.error > ROUNDING), None)

    @property
    def lines(self) -> list[str]:
        """The verdict, one fact per line."""
        first, count = self.first, len(self.layers)
        if first is None:
            return [f"No layer of {count} differs beyond rounding ({self.deployment}, n = {self.images})."]
        place = self.layers.index(first) + 1
        which = f"{first.name} ({first.op}, {place} of {count})"
        lines = [
            f"The first layer that differs beyond rounding is {which}: relative error {first.error:.2%}.",
            f"The output of the network differs by {self.output:.2%} ({self.deployment}, n = {self.images}).",
        ]
        if self.gains:
            best = self.gains[-1]
            names = ", ".join(best.layers[:4]) + (
                f" and {len(best.layers) - 4} more" if len(best.layers) > 4 else ""
            )
            lines.append(f"Kept in float, {names} lower this to {best.error:.2%}.")
        return lines

    @property
    def verdict(self) -> str:
        """The verdict in one paragraph."""
        return " ".join(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain values."""
        return {**asdict(self), "verdict": self.verdict}


def diagnose_layers(
    model: Model, train: Pipeline, deploy: Pipeline, images: Iterable[bytes], label: str
) -> LayerDiagnosis:
    """Compare the outputs of all weighted layers in training and deployment on the same input tensors."""
    import onnx

    reference, target = deployed_of(train.infer), deployed_of(deploy.infer)
    prepare = open_preparation(train, model)
    tensors = [prepare(data).tensor for data in images]
    if reference == target:
        raise InputError("--layers: expected --deploy with a precision or a runtime")
    original, rewritten = _graph(model, reference), _graph(model, target)
    outputs = [value.name for value in original.graph.output]
    layers = _layers(original, rewritten)
    if not layers:
        raise InputError(f"--layers: {model.name} has no convolution or matrix product to compare")
    names = list(dict.fromkeys([*layers, *outputs]))
    wanted = [_open(original, names, reference.runtime, model)(tensor) for tensor in tensors]
    fed = [_open(rewritten, names, target.runtime, model)(tensor) for tensor in tensors]
    errors = {name: _error(wanted, fed, [name]) for name in layers}
    whole = _error(wanted, fed, outputs)
    quantised = _quantised(rewritten)

    def without(places: Sequence[str]) -> float:
        changed = onnx.ModelProto()
        changed.CopyFrom(rewritten)
        for name in places:
            _to_float(changed, original, quantised[name])
        run = _open(changed, outputs, target.runtime, model)
        return _error(wanted, [run(tensor) for tensor in tensors], outputs)

    alone = {name: without([name]) for name in quantised} if whole > ROUNDING else {}
    return LayerDiagnosis(
        deployment=label,
        images=len(tensors),
        layers=tuple(
            LayerError(
                _label(node), node.op_type, errors[name], alone[name] / whole if name in alone else None
            )
            for name, node in layers.items()
        ),
        output=whole,
        gains=tuple(_gains(alone, whole, without, {name: _label(node) for name, node in layers.items()})),
    )


def _gains(
    alone: Mapping[str, float],
    whole: float,
    without: Callable[[Sequence[str]], float],
    labels: Mapping[str, str],
) -> Iterable[FloatGain]:
    """The error with the costliest 1, 2, 4 and 8 layers in float, as long as it falls."""
    costly = [
        name for name in sorted(alone, key=lambda n: alone[n]) if alone[name] < whole and name in labels
    ]
    least = whole
    for count in (1, 2, 4, KEPT):
        if count > len(costly):
            return
        error = alone[costly[0]] if count == 1 else without(costly[:count])
        if error < 0.9 * least:
            yield FloatGain(tuple(labels[name] for name in costly[:count]), error)
            least = error


def _graph(model: Model, infer: DeployedInference) -> Any:
    import onnx

    if infer.rewrites:
        return onnx.load(str(infer.built(model).path))
    return onnx.load_from_string(model.read()) if model.path.suffix == ".gz" else onnx.load(str(model.path))


def _layers(original: Any, rewritten: Any) -> dict[str, Any]:
    """The weighted nodes by their output, in graph order, if the rewritten graph has the same tensor."""
    there = {name for node in rewritten.graph.node for name in node.output}
    nodes = [node for node in original.graph.node if node.op_type in WEIGHTED and node.output[0] in there]
    return {node.output[0]: node for node in nodes[:MOST_LAYERS]}


def _label(node: Any) -> str:
    return str(node.name or node.output[0])


def _open(graph: Any, names: Sequence[str], runtime: str, model: Model) -> Probe:
    """A function that gives these tensors of a graph on a runtime."""
    import onnx

    exposed = onnx.ModelProto()
    exposed.CopyFrom(graph)
    known = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    if runtime != "onnxruntime":  # other runtimes need the type and shape of every output
        exposed = onnx.shape_inference.infer_shapes(exposed)
        inferred = {value.name: value for value in exposed.graph.value_info}
        for value in exposed.graph.output:
            if not value.HasField("type") and value.name in inferred:
                value.CopyFrom(inferred[value.name])
    data = exposed.SerializeToString()
    if runtime == "onnxruntime":
        return open_onnx(data, model)
    run: Probe = part("runtime", runtime).function(data, model, 0)
    return run


def _error(
    wanted: Sequence[Mapping[str, Tensor]], fed: Sequence[Mapping[str, Tensor]], names: Sequence[str]
) -> float:
    """The relative error of some tensors over all images; of several outputs the mean."""
    return float(np.mean([_relative([w[n] for w in wanted], [f[n] for f in fed]) for n in names]))


def _relative(wanted: Sequence[Tensor], fed: Sequence[Tensor]) -> float:
    one, other = (np.concatenate([np.ravel(t).astype(np.float64) for t in side]) for side in (wanted, fed))
    if one.shape != other.shape:
        raise ModelError(
            "--layers: the deployment changes the shape of a layer; compare precisions or runtimes"
        )
    scale = float(np.sqrt(np.mean(one**2)))
    return float(np.sqrt(np.mean((one - other) ** 2))) / max(scale, 1e-30)


def _quantised(rewritten: Any) -> dict[str, str]:
    """The quantised layers: output tensor -> name of the node."""
    sources = {name: node.op_type for node in rewritten.graph.node for name in node.output}
    return {
        node.output[0]: node.name
        for node in rewritten.graph.node
        if node.op_type in WEIGHTED and any(sources.get(name) == "DequantizeLinear" for name in node.input)
    }


def _to_float(changed: Any, original: Any, layer: str) -> None:
    """Let a layer of a quantised graph read the float activations, weights and biases of the original."""
    node = next(node for node in changed.graph.node if node.name == layer)
    first = next(one for one in original.graph.node if one.output[0] == node.output[0])
    makers = {name: one for one in changed.graph.node for name in one.output}
    weights = {weight.name: weight for weight in original.graph.initializer}
    known = {weight.name for weight in changed.graph.initializer}
    for index, name in enumerate(node.input):
        maker = makers.get(name)
        if maker is None or maker.op_type != "DequantizeLinear":
            continue
        before = makers.get(maker.input[0])
        if before is not None and before.op_type == "QuantizeLinear":
            node.input[index] = before.input[0]
            continue
        node.input[index] = first.input[index]
        if first.input[index] in weights and first.input[index] not in known:
            changed.graph.initializer.append(weights[first.input[index]])
