"""DeepAugment's idea (Hendrycks et al. 2021): pictures through an image-to-image net damaged at random.

The paper damages an autoencoder and a super-resolution net; here it is the package's own restoring net of
`decode=learned`, which like the latter says what to add to a picture. Its weights and activations are changed
anew for every few pictures; what it then adds has texture and edges of the picture, and no simple formula.
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

SHARE = 2 / 3  # of the pictures are changed
GROUP = 8  # pictures that share one damaged net
CHANGE = (0.02, 0.12)  # root mean square of what is added, of the whole range
MOST = 200.0  # times what the damaged net adds: one that adds next to nothing is not blown up

Weights: TypeAlias = list[tuple[Tensor, Tensor]]  # of each convolution: (out, in, 3, 3) and (out,)
Damage: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]  # of weights (out, in, 3, 3)


@stage("augment")
def deep(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Pictures (n, h, w, 3), two of three with what a randomly damaged restoring net adds to them.

    As in the paper, where each damaged set is trained on beside the clean pictures.
    """
    check("deep", images, severity)
    if severity == 0 or not images.size:
        return images.copy()
    made = images.copy()
    taken = np.flatnonzero(rng.random(len(images)) < SHARE)
    made[taken] = changed(images[taken], rng, severity)
    return made


def changed(images: Pictures, rng: np.random.Generator, severity: float) -> Pictures:
    """All of the pictures (n, h, w, 3) changed, a few at a time by the same damaged net."""
    n, height, width = images.shape[:3]
    even = np.pad(images, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    facts = np.stack((*rng.uniform(-1.0, 1.2, (2, n)), rng.integers(0, 2, n))).T.astype(np.float32)
    size = np.asarray(rng.uniform(CHANGE[0], CHANGE[1], (n,)) * severity)
    made = np.empty_like(images)
    for start in range(0, n, GROUP):
        part = slice(start, start + GROUP)
        added = _run(planes(even[part], facts[part]), damaged(weights(), rng), rng)[:, :, :height, :width]
        rms = np.sqrt(np.square(added).mean((1, 2, 3)))
        factors = np.minimum(size[part] / np.maximum(rms, 1e-9), MOST)
        added *= np.asarray(factors, np.float32)[:, None, None, None]
        levels = images[part] + added.transpose(0, 2, 3, 1) * 255
        made[part] = np.rint(levels.clip(0, 255))
    return made


@lru_cache(maxsize=1)
def weights() -> Weights:
    """The weights of the restoring net's convolutions, in their order."""
    import onnx

    file = resources.files("holdfast").joinpath("models", "decoder", "restore.onnx")
    graph = onnx.load_model_from_string(file.read_bytes()).graph
    values = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    return [(values[n.input[1]], values[n.input[2]]) for n in graph.node if n.op_type == "Conv"]


def damaged(sound: Weights, rng: np.random.Generator) -> Weights:
    """A net whose inner layers are in another order now and then, and each layer perhaps damaged."""
    order = np.arange(len(sound))
    if rng.random() < 0.5:
        order[1:-1] = rng.permutation(order[1:-1])
    made = []
    for place in order:
        kernel, bias = sound[place]
        if rng.random() < 0.6:
            kernel = DAMAGES[rng.integers(len(DAMAGES))](kernel, rng)
        made.append((np.ascontiguousarray(kernel, np.float32), bias))
    return made


def zeroed(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with a tenth to a half of them gone."""
    return np.asarray(kernel * (rng.random(kernel.shape) >= rng.uniform(0.1, 0.5)))


def negated(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with the sign of some outputs turned."""
    turned = rng.random((len(kernel), 1, 1, 1)) < rng.uniform(0.05, 0.4)
    return np.asarray(np.where(turned, -kernel, kernel))


def noisy(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with noise of up to their own deviation."""
    return np.asarray(kernel + rng.normal(0, kernel.std() * rng.uniform(0.1, 1.0), kernel.shape))


def shuffled(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with the outputs of the layer in another order."""
    return np.asarray(kernel[rng.permutation(len(kernel))])


def mirrored(kernel: Tensor, rng: np.random.Generator) -> Tensor:
    """The weights with their 3×3 places mirrored or transposed."""
    return np.asarray((kernel[..., ::-1], kernel[..., ::-1, :], kernel.swapaxes(2, 3))[rng.integers(3)])


DAMAGES: Final[tuple[Damage, ...]] = (zeroed, negated, noisy, shuffled, mirrored)


def _run(tensor: Tensor, layers: Weights, rng: np.random.Generator) -> Tensor:
    """What the net adds (n, 3, 2h, 2w) to the pictures behind these planes, activations damaged too."""
    import torch
    from torch.nn import functional

    def layer(x: Any, place: int) -> Any:
        kernel, bias = (torch.from_numpy(np.array(value)) for value in layers[place])
        return functional.conv2d(x, kernel, bias, padding=1)

    with torch.no_grad():
        x = functional.relu(layer(torch.from_numpy(tensor).to(memory_format=torch.channels_last), 0))
        for place in range(1, len(layers) - 1, 2):
            inner = functional.relu(layer(x, place)) * _gate(x.shape[1], rng)
            x = functional.relu(x + layer(inner, place + 1))
        added = functional.pixel_shuffle(layer(x * _gate(x.shape[1], rng), len(layers) - 1), 2)
    made: Tensor = added.numpy()
    return made


def _gate(channels: int, rng: np.random.Generator) -> Any:
    """What activations (n, channels, h, w) are multiplied by: mostly 1, else 0, −1 or up to 2."""
    import torch

    gate = np.ones(channels)
    if rng.random() < 0.5:
        kind = rng.random(channels)
        gate = np.select([kind < 0.1, kind < 0.2, kind < 0.4], [0.0, -1.0, rng.uniform(0, 2, channels)], 1.0)
    return torch.from_numpy(gate.astype(np.float32)).reshape(1, channels, 1, 1)
