"""Trained networks as ONNX files."""

import copy
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

OPSET = 17


def write_onnx(
    net: nn.Module, example: tuple[Tensor, ...], inputs: Sequence[str], outputs: Sequence[str],
    axes: dict[str, dict[int, str]], path: Path, *, infer_sizes: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Write a network as ONNX with these free axes, whole or not at all; `options` are the exporter's own."""
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with warnings.catch_warnings():
        # The tracing exporter is announced as old; the new one needs a package this one does not.
        warnings.simplefilter("ignore", DeprecationWarning)
        # A size that becomes a constant is what is wanted: only the free axes may differ.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        warnings.filterwarnings("ignore", message="Exporting a model to ONNX with a batch_size other than 1")
        torch.onnx.export(
            net, example, str(part), input_names=list(inputs), output_names=list(outputs), dynamic_axes=axes,
            opset_version=OPSET, dynamo=False, **options,
        )  # fmt: skip
    model = onnx.load(str(part))
    for node in model.graph.node:
        node.doc_string = ""
    if infer_sizes:  # the exporter names sizes it did not work out; those that follow are written in
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
        for output, known in zip(model.graph.output, inferred, strict=True):
            output.CopyFrom(known)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(part))
    part.replace(path)


def folded(net: nn.Module) -> nn.Module:
    """A copy in evaluation mode with every batch normalisation folded into the convolution before it."""
    net = copy.deepcopy(net).eval().to(memory_format=torch.contiguous_format)
    for module in net.modules():
        if isinstance(module, nn.Sequential) and len(module) > 1 and isinstance(module[1], nn.BatchNorm2d):
            module[0] = fuse_conv_bn_eval(module[0], module[1])
            module[1] = nn.Identity()
    return net


def export(
    net: nn.Module, size: tuple[int, int], outputs: tuple[str, ...], path: Path, *, fold: bool = True
) -> None:
    """Write the network as ONNX with an input `image` (n, 3, height, width) of any batch size n.

    Without `fold` batch normalisation stays a node of its own, as training on and TENT need it.
    """
    write_onnx(
        folded(net) if fold else net.eval().to(memory_format=torch.contiguous_format),
        (torch.zeros(1, 3, *size),),
        ("image",),
        outputs,
        {name: {0: "n"} for name in ("image", *outputs)},
        path,
        infer_sizes=True,
        do_constant_folding=fold,
        # The exporter folds normalisation itself unless told to leave the network as it is.
        training=torch.onnx.TrainingMode.EVAL if fold else torch.onnx.TrainingMode.PRESERVE,
    )
