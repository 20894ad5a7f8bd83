"""A network in torch beside its file in ONNX Runtime: the two must say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core.errors import ModelError
from holdfast.graph.session import condense, open_session

if TYPE_CHECKING:
    from holdfast.train.onnx.net import Trainable

TOLERANCE: Final = 1e-3  # of the largest score
_IMAGES: Final = 2


def check_alike(net: Trainable, proto: Any, seed: int = 0) -> float:
    """The largest difference of scores on random images; ModelError if torch and ONNX Runtime disagree."""
    images = _random(net, seed)
    expected = scores_of(proto, images, net.plan.output, net.plan.fixed)
    training, mode = net.training, net.mode
    net.eval().mode = "file"
    with torch.no_grad():
        got = _finished(net(torch.from_numpy(images)), net.plan.dropped).numpy()
    net.train(training).mode = mode
    hint = "; export the model with a free batch" if net.plan.fixed else ""
    if got.shape != expected.shape:
        raise ModelError(
            f"output {net.plan.output!r}: ONNX Runtime gives {expected.shape} for {len(images)} images, "
            f"torch {got.shape}, so it cannot be trained{hint}"
        )
    if not np.isfinite(expected).all():
        raise ModelError(
            f"output {net.plan.output!r}: the model gives numbers that are not finite (NaN or infinite) "
            "on random images, so it cannot be trained; look at its weights"
        )
    gap = float(np.abs(got - expected).max(initial=0.0))
    if not gap <= TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0.0))):
        raise ModelError(
            f"output {net.plan.output!r}: torch and ONNX Runtime differ by {gap:.2g} on random images, so it "
            f"cannot be trained{hint}"
        )
    return gap


def scores_of(proto: Any, images: NDArray[Any], output: str, fixed: int) -> NDArray[Any]:
    """What ONNX Runtime gives for images (n, …), as many at once as the file wants, as (n, k)."""
    try:
        session = open_session(proto.SerializeToString(), threads=1)
        name = session.get_inputs()[0].name
        step = fixed or len(images)
        parts = [
            session.run([output], {name: images[at : at + step]})[0] for at in range(0, len(images), step)
        ]
    except Exception as problem:
        raise ModelError(f"ONNX Runtime cannot run it: {condense(problem)}") from problem
    joined: NDArray[Any] = np.concatenate(parts)
    return joined.reshape(len(joined), -1)


def _random(net: Trainable, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    count = max(_IMAGES, 2 * net.plan.fixed)
    kind = next(i for i in net.plan.proto.graph.input).type.tensor_type.elem_type
    if kind != 1:
        return rng.integers(0, 256, (count, *net.plan.shape)).astype(np.uint8)
    return rng.normal(size=(count, *net.plan.shape)).astype(np.float32)


def _finished(scores: Tensor, dropped: str) -> Tensor:
    """The scores as the file gives them, with the Softmax that training leaves out."""
    last = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}.get(dropped)
    return scores if last is None else last(scores, -1)
