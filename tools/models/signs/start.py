"""Starting weights for the experiments on mitigations: small classifiers that keep their normalisation.

They are trained on signs drawn at the network's own scale: no JPEG and no resize is seen, so that no row of
a matrix begins with more of its own decoder or resize than another. The networks end in a mean over all
places and so take other sizes: they are trained at 64 pixels and exported for 48, where signs are small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.types import Size
from holdfast.data.signs.canvas import CLASSES
from holdfast.graph.card import write_card
from holdfast.train.export import export
from holdfast.train.loop import Batch, Job, Say, Stage, fit
from models.signs.far import crop_small
from models.signs.nets import ClassNet, conv
from models.signs.pool import Row, draw_crops, open_pool

POOL_SEED: Final = 2
SIDE: Final = 64  # of the pictures trained on
INPUT: Final = Input(Size(48, 48), scale=1 / 255, policy="crop", short_side=54)
PICTURES: Final = 12000
STEPS: Final = 1500


class NarrowNet(nn.Module):
    """A MobileNet-type classifier: a stem and depthwise-separable convolutions, no pooling but the last."""

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        w = width
        plan = ((w, 2 * w, 1), (2 * w, 3 * w, 2), (3 * w, 3 * w, 1), (3 * w, 6 * w, 2), (6 * w, 6 * w, 1))
        self.stem = conv(3, w, 3, 2)
        self.body = nn.Sequential(
            *(nn.Sequential(conv(i, i, 3, stride, groups=i), conv(i, o, 1)) for i, o, stride in plan)
        )
        self.head = nn.Linear(6 * w, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        return self.head(self.body(self.stem(x)).mean((2, 3)))


NETS: Final[Mapping[str, Callable[[int], nn.Module]]] = {"signs-class": ClassNet, "signs-narrow": NarrowNet}


def small_row(seed: int, index: int) -> Row:
    """One sign drawn at the network's own scale, before its 64-pixel crop."""
    image, label = crop_small(seed, index)
    return {"images": image, "labels": np.asarray(label, np.int64)}


def start(
    name: str,
    folder: Path,
    seed: int,
    say: Say,
    *,
    steps: int = STEPS,
    pictures: int = PICTURES,
    jobs: int = 2,
) -> Model:
    """The network of that name with its starting weights, written as ONNX; a killed run goes on.

    Weights of another seed, of fewer steps or of fewer pictures lie beside them under another name.
    """
    usual = (seed, steps, pictures) == (0, STEPS, PICTURES)
    path = folder / (f"{name}.onnx" if usual else f"{name}-{seed}-{steps}-{pictures}.onnx")
    card = Card("classify", INPUT, Head("classifier", {"activation": "softmax"}), CLASSES)
    if not path.exists():
        crops = open_pool(folder, small_row, POOL_SEED, pictures, jobs)
        torch.manual_seed(seed)
        stage = Stage("small", steps, 64, SIDE, 3e-3, 3e-5, steps // 15)

        def draw(stage: Stage, rng: np.random.Generator) -> Batch:
            return draw_crops(crops, stage, rng)

        job = Job(name, NETS[name](len(CLASSES)), draw, _loss, (stage,), seed, data=crops.name)
        net = fit(job, folder / f"{name}-{job.key()}.pt", say)
        write_card(card, path.with_suffix(".toml"))
        size = card.input.size
        export(net, (size.height, size.width), ("logits",), path, fold=False)
    return Model(name, path, card, hashlib.sha256(path.read_bytes()).hexdigest())


def _loss(net: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(net(batch[0]), batch[1], label_smoothing=0.05)
