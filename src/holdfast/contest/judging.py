"""The images of a contest, before and after a change, through every member and the feature net."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import ZipInfo

import numpy as np

from holdfast.contest.archive import read_image
from holdfast.contest.messages import EntryError
from holdfast.contest.png import decode
from holdfast.core import fingerprint
from holdfast.core.errors import DataError, InputError
from holdfast.core.fingerprint import generator
from holdfast.core.patch import changed_pixels
from holdfast.core.types import Floats, Image, Size
from holdfast.data.entries import PixelBoxes
from holdfast.data.memory import MemoryEntry
from holdfast.engine.cells import CellResult, Cells, CellSet, MissingCells, Setup, Work
from holdfast.engine.pipelines import SHARD, Inference, PipelineWork
from holdfast.metrics.similarity import psnr


@dataclass(frozen=True)
class ZippedImage:
    """An image in a team's zip."""

    archive: Path
    member: ZipInfo


@dataclass(frozen=True)
class NoiseOnTargets:
    """The original with this many pixels inside its true boxes replaced by uniform noise."""

    pixels: int
    seed: int


Change: TypeAlias = ZippedImage | NoiseOnTargets | None  # the replacement of an image; None: unchanged


@dataclass(frozen=True)
class ContestImage:
    """One numbered image with its truth and its change."""

    number: int
    path: Path  # of the original
    sha256: str  # of that file
    truth: PixelBoxes
    size: Size
    change: Change = None

    @property
    def name(self) -> str:
        """Its name in every folder of the contest."""
        return f"{self.number}.png"

    def before(self) -> Image:
        """The pixels of the original; raise DataError if the file has changed since `init`."""
        try:
            data = self.path.read_bytes()
        except OSError as problem:
            raise DataError(f"{self.path}: cannot be read: {problem.strerror}") from None
        if fingerprint.of_bytes(data) != self.sha256:
            raise DataError(f"{self.path}: not the image the contest was made with (another sha256)")
        try:
            return decode(data, self.size, str(self.path))
        except EntryError as problem:
            raise DataError(str(problem)) from None

    def after(self) -> Image:
        """The pixels of the changed image."""
        if isinstance(self.change, ZippedImage):
            return read_image(self.change.archive, self.change.member, self.size)
        before = self.before()
        if self.change is None:
            return before
        boxes = self.truth.read(self.name, b"").xyxy
        return noisy(before, boxes, self.change.pixels, generator(self.change.seed, "noise", self.number))


@dataclass(frozen=True, eq=False)
class Picture(MemoryEntry):
    """An image as an uncompressed PNG, from which every decoder gets exactly its pixels (h, w, 3)."""

    image: Image

    @staticmethod
    def of(name: str, image: Image, truth: PixelBoxes) -> Picture:
        """The picture of these pixels; equal pixels and truth have equal keys."""
        from PIL import Image as Pillow

        stream = io.BytesIO()
        Pillow.fromarray(np.ascontiguousarray(image)).save(stream, "PNG", compress_level=0)
        data = stream.getvalue()
        return Picture(name, data, truth.read(name, data), image)


def noisy(image: Image, boxes: Floats, pixels: int, rng: np.random.Generator) -> Image:
    """A copy with uniformly random colours in `pixels` pixels of the boxes, or in all of them."""
    out = np.array(image)
    mask = np.zeros(out.shape[:2], bool)
    for x1, y1, x2, y2 in np.rint(boxes).astype(int).clip(0):
        mask[y1:y2, x1:x2] = True
    indices = np.flatnonzero(mask)
    selected = rng.choice(indices, min(pixels, len(indices)), replace=False)
    out.reshape(-1, 3)[selected] = rng.integers(0, 256, (len(selected), 3), np.uint8)
    return out


Features: TypeAlias = Callable[[Sequence[Image]], Floats]
JudgeState: TypeAlias = tuple[list[Inference], Features]  # the members' networks and the feature net


@dataclass(frozen=True)
class JudgeWork(Work[ContestImage, JudgeState]):
    """The cells of an image: members and features before, members and features after, and the difference."""

    members: tuple[PipelineWork, ...]  # each with one pipeline
    features: str  # how the feature net is opened
    features_sha256: str
    run_after: bool = True  # whether members are run on the changed images
    batch: int = SHARD

    def setups(self) -> list[Setup]:
        """The setups of the members, of the features and of the difference."""
        members = [setup for member in self.members for setup in member.setups()]
        block = [*members, Setup("contest", ["features", self.features_sha256])]
        return [*block, *block, Setup("contest", "difference")]

    def contents(self, item: ContestImage) -> list[Any]:
        """Pixels and truth before and after; None for unchanged images or if members are not run."""
        (before, after), count = pictures(item), len(self.members)
        old, new = before.key(), after.key() if after else None
        rows: list[Any] = [*[[item.name, old]] * count, old]
        if new is None:
            return [*rows, *[None] * (count + 2)]
        changed = [item.name, new] if self.run_after else None
        return [*rows, *[changed] * count, new, [old, new]]

    def open(self, threads: int) -> JudgeState:
        """The members and the feature net."""
        features = opened_features(self.features, self.features_sha256, threads)
        return [member.open(threads) for member in self.members], features

    def tally(self, item: ContestImage, cells: int, found: int) -> tuple[int, int]:
        """Progress counts images."""
        return 1, int(found == cells)

    def compute(self, state: JudgeState, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """The members' records, then features and differences."""
        networks, features = state
        count, block = len(self.members), len(self.members) + 1
        for number, member in enumerate(self.members):
            requests = [
                (position, setup, MissingCells(picture, {0: setups[setup]}))
                for position, (shot, setups) in enumerate(batch)
                for setup, picture in zip((number, block + number), pictures(shot), strict=True)
                if setup in setups and picture is not None
            ]
            for result in member.compute(networks[number], [missing for *_, missing in requests]):
                position, setup, _ = requests[result.position]
                yield CellResult(position, setup, result.value)
        for position, (shot, setups) in enumerate(batch):
            before, after = pictures(shot)
            for n, picture in ((count, before), (block + count, after)):
                if n in setups and picture is not None:
                    row = np.ascontiguousarray(features([picture.image])[0], "<f8")
                    yield CellResult(position, n, base64.b64encode(row.tobytes()).decode("ascii"))
            if 2 * block in setups and after is not None:
                ratio = psnr(before.image, after.image)
                changed = changed_pixels(before.image, after.image)
                yield CellResult(position, 2 * block, [changed, ratio if math.isfinite(ratio) else None])


@lru_cache(maxsize=SHARD)  # the pictures of one batch
def pictures(shot: ContestImage) -> tuple[Picture, Picture | None]:
    """The original and the changed image; None if it is unchanged."""
    before = Picture.of(shot.name, shot.before(), shot.truth)
    return before, None if shot.change is None else Picture.of(shot.name, shot.after(), shot.truth)


@dataclass(frozen=True)
class JudgeCells:
    """The cells of a contest's images, by content."""

    cells: Cells
    members: int

    def records(self, *, after: bool) -> list[CellSet]:
        """The records of each member."""
        first = after * (self.members + 1)
        return [self.cells.of(first + n) for n in range(self.members)]

    def features(self, *, after: bool) -> Floats:
        """The features (n, d) of the images; an unchanged image has those of the original."""
        before = self.cells.read(self.members)
        rows = self.cells.read(2 * self.members + 1) if after else before
        packed = [old if new is None else new for old, new in zip(before, rows, strict=True)]
        return np.stack([np.frombuffer(base64.b64decode(row), "<f8") for row in packed]).astype(np.float64)

    def differences(self) -> list[tuple[int, float | None]]:
        """Changed pixels and PSNR of each image, which is None for equal images."""
        return [row or (0, None) for row in self.cells.read(2 * self.members + 2)]


def opened_features(text: str, sha256: str, threads: int, name: str = "") -> Features:
    """The feature network. Raise InputError if its hash or name differs from the rules."""
    from holdfast.stages.features import open_features

    net = open_features(text, threads)
    if net.sha256 != sha256:
        got = f"the feature net {text!r} has the hash {net.sha256}"
        raise InputError(f"distance.sha256: {got}, the rules say {sha256}")
    if name and name != net.name:
        raise InputError(f"distance.name: expected {net.name!r} for the features {text!r}, got {name!r}")
    return net
