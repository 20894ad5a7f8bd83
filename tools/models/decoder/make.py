"""The restoring net, from the scenes to the shipped file: train, write, score on held-out scenes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.core.fingerprint import of_file
from holdfast.core.types import Image
from holdfast.core.types import Tensor as Picture
from holdfast.data.signs import scene as signs
from holdfast.stages.decode.learned import PLANES, facts_of, planes
from holdfast.stages.decode.libjpeg import pillow
from holdfast.train.export import write_onnx
from holdfast.train.loop import Batch, Job, Say, Stage, fit
from models.decoder.pairs import drawing, window_row
from models.signs.pool import open_pool
from models.signs.recipes import POOL_SEED, shortened
from models.signs.score import HELD_OUT_SEED

WIDTH = 24
BLOCKS = 3
SCALE = 0.1  # what is added is small: so are its steps in training
NAME: Final = "restore"
SCENES: Final = 1200
STAGES: Final = (Stage("windows", 3000, 16, 64, 1.5e-3, 1e-5, warmup=200),)
QUALITIES: Final = (30, 40, 50, 60, 70, 80, 85, 90, 92, 95)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """The features (n, width, h, w) after the block."""
        return functional.relu(x + self.second(functional.relu(self.first(x))))


class Restorer(nn.Module):
    """Planes (n, 19, h, w) of `stages.decode.learned` to pictures (n, 3, 2h, 2w) in 0..1.

    The net says what to add to the picture; untrained it adds nothing.
    """

    def __init__(self, width: int = WIDTH, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.head = nn.Conv2d(PLANES, width, 3, padding=1)
        self.body = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.tail = nn.Conv2d(width, 12, 3, padding=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
        for block in self.body:
            nn.init.zeros_(block.second.weight)  # a block begins as its shortcut
        nn.init.zeros_(self.tail.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The restored pictures."""
        added = self.tail(self.body(functional.relu(self.head(x))))
        return functional.pixel_shuffle(x[:, :12] + added * SCALE, 2)


def write(net: nn.Module, path: Path) -> None:
    """Write the net as ONNX with an input `planes` and an output `picture` of free batch and size."""
    write_onnx(
        net.eval().to(memory_format=torch.contiguous_format),
        (torch.zeros(1, PLANES, 16, 16),),
        ("planes",),
        ("picture",),
        {"planes": {0: "n", 2: "h", 3: "w"}, "picture": {0: "n", 2: "height", 3: "width"}},
        path,
    )


@dataclass(frozen=True)
class Order:
    """What to make and where: seed of weights and batches, folders, how long, and on how much to score."""

    out: Path
    work: Path
    seed: int = 0
    fraction: float = 1.0
    scenes: int = SCENES
    held_out: int = 16
    processes: int = 1


@dataclass(frozen=True)
class Gain:
    """Peak signal to noise ratio in dB at one quality: as libjpeg-turbo decodes, and as restored."""

    quality: int
    subsampling: str
    plain: float
    restored: float

    def __str__(self) -> str:
        rise = self.restored - self.plain
        return f"quality {self.quality} {self.subsampling}: {self.plain:.2f} dB, {rise:+.2f} dB restored"


def make(order: Order, say: Say) -> tuple[Gain, ...]:
    """The gains on held-out scenes of the net trained to its end (a killed run goes on) and written."""
    pool = open_pool(order.work, window_row, POOL_SEED, order.scenes, order.processes)
    torch.manual_seed(order.seed)
    job = Job(NAME, Restorer(), drawing(pool), loss, STAGES, order.seed, 1e-4, data=pool.name)
    job = shortened(job, order.fraction)
    net = fit(job, order.work / f"{NAME}-{job.key()}.pt", say)
    path = order.out / f"{NAME}.onnx"
    write(net, path)
    say(f"{NAME}: {path} is {of_file(path)[:8]}, which stages/decode/learned.py names")
    return gains(net, order.held_out, say)


def loss(net: nn.Module, batch: Batch) -> Tensor:
    """The mean square of what is still wrong, in thousandths of the whole range.

    Its logarithm would weigh each picture alike, but most of a scene is sensor noise that nothing restores.
    """
    return (net(batch[0]) - batch[1]).square().mean() * 1000


def gains(net: nn.Module, scenes: int, say: Say) -> tuple[Gain, ...]:
    """The mean gain on held-out scenes at each quality, with and without halved chroma."""
    found = []
    pictures = [signs.scene(HELD_OUT_SEED, index).image for index in range(scenes)]
    for subsampling in ("4:2:0", "4:4:4"):
        for quality in QUALITIES:
            pairs = [_pair(net, image, quality, subsampling) for image in pictures]
            plain, restored = np.mean(pairs, axis=0)
            found.append(Gain(quality, subsampling, float(plain), float(restored)))
            say(f"{NAME}: {found[-1]}")
    return tuple(found)


def _pair(net: nn.Module, image: Image, quality: int, subsampling: str) -> tuple[float, float]:
    data = signs.encode(image, quality, subsampling)
    seen = pillow(data)
    with torch.no_grad():
        made = net(torch.from_numpy(planes(seen[None], facts_of(data)[None])))[0]
    restored = (made.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy()
    return _psnr(seen, image), _psnr(restored, image)


def _psnr(found: Picture, wanted: Image) -> float:
    square = np.square(found.astype(np.float64) - wanted).mean()
    return float(10 * np.log10(255**2 / max(square, 1e-9)))
