# %% [markdown]
# # A verifier on your network
#
# `verify` takes an ONNX file and a VNN-LIB property. It proves that no input of the set violates the
# property, or returns an input that does, replayed in ONNX Runtime on the original file.

# %%
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import holdfast as hf

# %% [markdown]
# ## A small network
# Two inputs, eight hidden neurons, two outputs. Use your own file instead.

# %%
rng = np.random.default_rng(4)
shapes = {"w1": (2, 8), "b1": (8,), "w2": (8, 2), "b2": (2,)}
weights = [
    onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
    for name, shape in shapes.items()
]
nodes = [
    helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
    helper.make_node("Relu", ["h"], ["r"]),
    helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
]
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", "y")]
graph = helper.make_graph(nodes, "small", values[:1], values[1:], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "net.onnx")


# %% [markdown]
# ## Two properties
# The last line of a property describes the unsafe outputs: here, that the first output reaches a bound.


# %%
def at_most(bound: float) -> str:
    """The property that the first output stays below a bound for inputs within ±1."""
    declared = "".join(f"(declare-const {name}_{i} Real)\n" for name in "XY" for i in range(2))
    inputs = "".join(f"(assert (>= X_{i} -1))\n(assert (<= X_{i} 1))\n" for i in range(2))
    return f"{declared}{inputs}(assert (>= Y_0 {bound}))\n"


Path("loose.vnnlib").write_text(at_most(100.0))
Path("tight.vnnlib").write_text(at_most(-100.0))

# %%
holds = hf.verify("net.onnx", "loose.vnnlib", timeout=30)
print(holds.status, "by", holds.engine, "margin", holds.bound)

# %% [markdown]
# A violated property comes with a counterexample and the output that ONNX Runtime gives for it.

# %%
violated = hf.verify("net.onnx", "tight.vnnlib", timeout=30)
print(violated.status, violated.witness, violated.to_dict()["outputs"])

# %% [markdown]
# ## A patch at every position
# A patch benchmark puts a patch and the class test into the network: the property is about its position.

# %%
maps = hf.patchbench.evaluate("signs-single", "signs:0:2", patch=3, images=1)
print([(one.name, bool(one.maps)) for one in maps.pictures])
