"""DeepAugment (Hendrycks et al. 2021): images through a randomly distorted image-to-image network.

The paper distorts an autoencoder and a super-resolution network. Here it is the restoration network of
`decode=learned`, which predicts a residual. Its weights and activations are distorted differently for every
few images; the residual then follows texture and edges of the image.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from typing import Any, Final, TypeAlias

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.stages.decode.learned import planes
from holdfast.train.augment import Pictures, check

SHARE = 2 / 3  # share of changed images
GROUP = 8  # images per distorted network
CHANGE = (0.02, 0.12)  # range of the RMS of the residual, relative to the value range
MOST = 200.0  # maximum factor on the residual, so that a tiny one is not amplified without limit

Weights: TypeAlias = list[tuple[Tensor, Tensor]]  # of each convolution: (out, in, 3, 3) and (out,)
Damage: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]  # of weights (out, in, 3, 3)


@stage("augment")
def deep(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Images (n, h, w, 3), two thirds of them with the residual of a randomly distorted network.

    As in the paper, which trains on distorted sets next to the clean images.
    """
    check("deep", images, severity)
    if severity == 0 or not images.size:
        return images.copy()
    augmented = images.copy()
    selected = np.flatnonzero(rng.random(len(images)) < SHARE)
    augmented[selected] = changed(images[selected], rng, severity)
    return augmented


def changed(images: Pictures, rng: np.random.Generator, severity: float) -> Pictures:
    """All images (n, h, w, 3) changed, in groups by the same distorted network."""
    n, height, width = images.shape[:3]
    padded = np.pad(images, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    facts = np.stack((*rng.uniform(-1.0, 1.2, (2, n)), rng.integers(0, 2, n))).T.astype(np.float32)
    size = np.asarray(rng.uniform(CHANGE[0], CHANGE[1], (n,)) * severity)
    augmented = np.empty_like(images)
    for start in range(0, n, GROUP):
        part = slice(start, start + GROUP)
        residual = _run(planes(padded[part], facts[part]), damaged(weights(), rng), rng)
        residual = residual[:, :, :height, :width]
        rms = np.sqrt(np.square(residual).mean((1, 2, 3)))
        factors = np.minimum(size[part] / np.maximum(rms, 1e-9), MOST)
        residual *= np.asarray(factors, np.float32)[:, None, None, None]
        levels = images[part] + residual.transpose(0, 2, 3, 1) * 255
        augmented[part] = np.rint(levels.clip(0, 255))
    return augmented


@lru_cache(maxsize=1)
def weights() -> Weights:
    """The weights of the convolutions of the restoration network, in order."""
    import onnx

    file = resources.files("holdfast").joinpath("models", "decoder", "restore.onnx")
    graph = onnx.load_model_from_string(file.read_bytes()).graph
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return [(values[n.input[1]], values[n.input[2]]) for n in graph.node if n.op_type == "Conv"]


def damaged(original: Weights, rng: np.random.Generator) -> Weights:
    """The weights with inner layers randomly permuted and random layers distorted."""
    order = np.arange(len(original))
    if rng.random() < 0.5:
        order[1:-1] = rng.permutation(order[1:-1])
    layers = []
    for index in order:
        kernel, bias = original[index]
        if rng.random() < 0.6:
            kernel = DAMAGES[rng.integers(len(DAMAGES))](kernel, rng)
        layers.append((np.ascontiguousarray(kernel, np.float32), bias))
    return layers


def zeroed(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with a tenth to a half of them set to 0."""
    return np.asarray(kernel * (rng.random(kernel.shape) >= rng.uniform(0.1, 0.5)))


def negated(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with the sign of some outputs flipped."""
    flipped = rng.random((len(kernel), 1, 1, 1)) < rng.uniform(0.05, 0.4)
    return np.asarray(np.where(flipped, -kernel, kernel))


def noisy(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with noise of up to their standard deviation."""
    return np.asarray(kernel + rng.normal(0, kernel.std() * rng.uniform(0.1, 1.0), kernel.shape))


def shuffled(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with the outputs of the layer in another order."""
    return np.asarray(kernel[rng.permutation(len(kernel))])


def mirrored(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with their 3×3 kernels mirrored or transposed."""
    return np.asarray((kernel[..., ::-1], kernel[..., ::-1, :], kernel.swapaxes(2, 3))[rng.integers(3)])


DAMAGES: Final[tuple[Damage, ...]] = (zeroed, negated, noisy, shuffled, mirrored)


def _run(tensor: Tensor, layers: Weights, rng: np.random.Generator) -> Tensor:
    """The residual (n, 3, 2h, 2w) for these input planes, with distorted activations."""
    import torch
    from torch.nn import functional

    def layer(x: Any, index: int) -> Any:
        kernel, bias = (torch.from_numpy(np.array(value)) for value in layers[index])
        return functional.conv2d(x, kernel, bias, padding=1)

    with torch.no_grad():
        x = functional.relu(layer(torch.from_numpy(tensor).to(memory_format=torch.channels_last), 0))
        for index in range(1, len(layers) - 1, 2):
            inner = functional.relu(layer(x, index)) * _gate(x.shape[1], rng)
            x = functional.relu(x + layer(inner, index + 1))
        output = functional.pixel_shuffle(layer(x * _gate(x.shape[1], rng), len(layers) - 1), 2)
    residual: Tensor = output.numpy()
    return residual


def _gate(channels: int, rng: np.random.Generator) -> Any:
    """The factors of activations (n, channels, h, w): mostly 1, else 0, −1 or up to 2."""
    import torch

    gate = np.ones(channels)
    if rng.random() < 0.5:
        kind = rng.random(channels)
        gate = np.select([kind < 0.1, kind < 0.2, kind < 0.4], [0.0, -1.0, rng.uniform(0, 2, channels)], 1.0)
    return torch.from_numpy(gate.astype(np.float32)).reshape(1, channels, 1, 1)
