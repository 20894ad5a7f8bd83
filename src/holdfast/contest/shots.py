"""An image of the contest and what became of it: nothing, noise, or what a team handed in."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from zipfile import ZipInfo

import numpy as np

from holdfast.contest.entry.archive import read_image
from holdfast.contest.entry.messages import EntryError
from holdfast.contest.entry.png import decode
from holdfast.core import fingerprint
from holdfast.core.errors import DataError
from holdfast.core.seeds import generator
from holdfast.core.sources import code_of
from holdfast.core.types import Floats, Image, Sample, Size
from holdfast.data.entries import PixelBoxes


@dataclass(frozen=True)
class Zipped:
    """An image in a team's zip."""

    archive: Path
    member: ZipInfo


@dataclass(frozen=True)
class Noisy:
    """The original with so many pixels inside its true boxes replaced by uniform noise."""

    pixels: int
    seed: int


@dataclass(frozen=True)
class Shot:
    """One numbered image with its truth; `change` is what it became, None if nothing."""

    number: int
    path: Path  # of the original
    sha256: str  # of that file
    truth: PixelBoxes
    size: Size
    change: Zipped | Noisy | None = None

    @property
    def name(self) -> str:
        """Its name in every folder of the contest."""
        return f"{self.number}.png"

    def before(self) -> Image:
        """The pixels of the original; DataError if it is not the file the contest was made with."""
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
        """The pixels of what it became."""
        if isinstance(self.change, Zipped):
            return read_image(self.change.archive, self.change.member, self.size)
        before = self.before()
        if self.change is None:
            return before
        boxes = self.truth.read(self.name, b"").xyxy
        return noisy(before, boxes, self.change.pixels, generator(self.change.seed, "noise", self.number))

    def key(self) -> str:
        """A hash of the pixels it became and of its truth."""
        return held(self, self.after()).key()

    def load(self) -> Sample:
        """What it became, encoded, with its truth."""
        return held(self, self.after()).load()


@dataclass(frozen=True, eq=False)
class Held:
    """An image in memory, as pipelines take it. Equal pixels have equal keys, however they were packed."""

    name: str
    image: Image
    truth: PixelBoxes

    @cached_property
    def digest(self) -> str:
        """A hash of the pixels, of the truth, and of the code that encodes them."""
        return fingerprint.of([self.image, self.truth.fingerprint(), code_of("contest")])

    def key(self) -> str:
        """The same hash, as entries give it."""
        return self.digest

    def load(self) -> Sample:
        """The image as an uncompressed PNG, with its truth: every decoder gives exactly these pixels."""
        from PIL import Image as Pillow

        stream = io.BytesIO()
        Pillow.fromarray(np.ascontiguousarray(self.image)).save(stream, "PNG", compress_level=0)
        data = stream.getvalue()
        return Sample(self.name, data, self.truth.read(self.name, data))


def held(shot: Shot, image: Image) -> Held:
    """The shot with these pixels."""
    return Held(shot.name, image, shot.truth)


def noisy(image: Image, boxes: Floats, pixels: int, rng: np.random.Generator) -> Image:
    """A copy in which `pixels` pixels of the boxes, or all they have, are of uniformly random colours."""
    out = np.array(image)
    mask = np.zeros(out.shape[:2], bool)
    for x1, y1, x2, y2 in np.rint(boxes).astype(int).clip(0):
        mask[y1:y2, x1:x2] = True
    places = np.flatnonzero(mask)
    chosen = rng.choice(places, min(pixels, len(places)), replace=False)
    out.reshape(-1, 3)[chosen] = rng.integers(0, 256, (len(chosen), 3), np.uint8)
    return out
