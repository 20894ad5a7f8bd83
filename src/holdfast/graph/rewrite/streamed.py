"""Rewrites of models over 2 GB: weights in files next to the model, read and written one at a time.

The graph is rewritten without its large weights: they are inputs while ONNX Runtime tidies it, and references
to the files otherwise. Constants that are computed from a large weight are not folded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import external_data_helper, helper, numpy_helper

from holdfast.graph.inspect import opset_of
from holdfast.graph.nodes import names_in
from holdfast.graph.rewrite.quant_plan import tidy
from holdfast.graph.rewrite.types import CannotRewrite, ModelProto

LARGE = 1 << 20  # bytes from which a weight stays in its file
ALIGNED = 4096  # offsets in the new file are multiples of it, so that it can be mapped
OLDEST = 13  # the opset that 8 bits need; a model of this size is not converted to it


@dataclass(eq=False)
class StreamedWeights:
    """The large weights of a model by name, the folder of their files, and the new file of weights."""

    folder: Path
    location: str  # of the new file, as the graph names it
    out: BinaryIO
    sources: dict[str, Any] = field(default_factory=dict)  # float32 initializers with external data

    @classmethod
    def of(cls, proto: ModelProto, folder: Path, location: str, out: BinaryIO) -> StreamedWeights:
        """The large float32 weights of a graph without its data; small weights are loaded into the graph."""
        weights = cls(folder, location, out)
        for tensor in proto.graph.initializer:
            if not tensor.external_data:
                continue
            size = 4 * int(np.prod(tensor.dims))
            if tensor.data_type == onnx.TensorProto.FLOAT and size >= LARGE:
                weights.sources[tensor.name] = tensor
            else:
                external_data_helper.load_external_data_for_tensor(tensor, str(folder))
                tensor.ClearField("data_location")
                del tensor.external_data[:]
        kept = {}
        for name, tensor in weights.sources.items():  # the graph is changed; its copies stay
            kept[name] = onnx.TensorProto()
            kept[name].CopyFrom(tensor)
        weights.sources = kept
        return weights

    def tidy(self, model: ModelProto) -> ModelProto:
        """The tidy graph, with the large weights as references to their files."""
        if opset_of(model) < OLDEST:
            found = f"the model is of opset {opset_of(model)} and over 2 GB"
            raise CannotRewrite(f"{found}; export it with opset {OLDEST} or newer")
        plain = onnx.ModelProto()
        plain.CopyFrom(model)
        small = [w for w in plain.graph.initializer if w.name not in self.sources]
        inputs = [i for i in plain.graph.input if i.name not in self.sources]
        del plain.graph.initializer[:], plain.graph.input[:]
        plain.graph.initializer.extend(small)
        plain.graph.input.extend(inputs)
        for name, tensor in self.sources.items():
            value = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(tensor.dims))
            plain.graph.input.append(value)
        done = tidy(plain)
        read, own = names_in(done.graph), [i for i in done.graph.input if i.name not in self.sources]
        del done.graph.input[:]
        done.graph.input.extend(own)
        done.graph.initializer.extend(w for name, w in self.sources.items() if name in read)
        return done

    def array(self, tensor: Any) -> NDArray[np.float32]:
        """The values of a weight, mapped from its file if it is a large one."""
        if not tensor.external_data:
            return np.asarray(numpy_helper.to_array(tensor))
        known = {entry.key: entry.value for entry in tensor.external_data}
        shape, offset = tuple(tensor.dims), int(known.get("offset", 0))
        file = self.folder / known["location"]
        return np.memmap(file, np.dtype("<f4"), "r", offset=offset, shape=shape)

    def store(self, tensor: Any, values: NDArray[Any]) -> None:
        """Write the values to the new file and let the tensor refer to them."""
        self.out.write(b"\0" * (-self.out.tell() % ALIGNED))
        offset, data = self.out.tell(), np.ascontiguousarray(values).tobytes()
        self.out.write(data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, value in (("location", self.location), ("offset", offset), ("length", len(data))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)

    def move(self, graph: Any, name: str) -> None:
        """Write a new constant of the graph to the file if it is a large one."""
        tensor = next(w for w in reversed(graph.initializer) if w.name == name)
        if len(tensor.raw_data) >= LARGE:
            self.store(tensor, numpy_helper.to_array(tensor))

    def write(
        self, model: ModelProto, change: Callable[[NDArray[np.float32]], NDArray[np.float32]] | None = None
    ) -> tuple[str, ...]:
        """Write the large weights that the graph still has, changed; return those that became infinite."""
        infinite = []
        for tensor in model.graph.initializer:
            if tensor.name not in self.sources:
                continue
            values = self.array(self.sources[tensor.name])
            after = values if change is None else change(np.asarray(values))
            if change is not None and np.isinf(after).any() and not np.isinf(values).any():
                infinite.append(tensor.name)
            self.store(tensor, after)
        return tuple(infinite)
