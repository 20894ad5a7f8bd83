"""A dataset with patches applied to its images."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import ImageError, InputError
from holdfast.core.patch import Patch, Position, apply
from holdfast.core.pipeline import Decode
from holdfast.core.registry import lookup
from holdfast.core.sources import code_of
from holdfast.core.text import printable
from holdfast.core.types import Boxes, Floats, Sample, Truth
from holdfast.data.patchfile import png_of


@dataclass(frozen=True)
class PatchedEntry:
    """An image with a patch applied to the pixels of one decoder, encoded as PNG."""

    entry: Entry
    patch: Patch
    decode: str | Decode

    @property
    def name(self) -> str:
        """The name of the image without the patch."""
        return self.entry.name

    def key(self) -> str:
        """A hash of image, ground truth, visible patch, decoder and code."""
        decoder = lookup("decode", self.decode)
        return fingerprint.of(["patched", self.entry.key(), visible(self.patch), decoder, code_of("patched")])

    def load(self) -> Sample:
        """The image with the patch as PNG, and its ground truth; ImageError if it cannot be decoded."""
        sample = self.entry.load()
        decode: Decode = lookup("decode", self.decode)
        try:
            clean = decode(sample.data)
        except InputError:
            raise
        except Exception as problem:  # what a decoder of the user's raises is its own
            raise ImageError(f"cannot be decoded: {type(problem).__name__}: {problem}") from problem
        patched = apply(clean, self.patch, target_boxes(sample.truth))
        return dataclasses.replace(sample, data=png_of(patched))


def target_boxes(truth: Truth) -> Floats | None:
    """The true boxes (n, 4) a patch may be applied to, without crowds; None if the truth has no boxes."""
    return truth.xyxy[~truth.crowd] if isinstance(truth, Boxes) else None


def visible(patch: Patch) -> Patch:
    """The patch cropped to its mask if it has a position, with hidden pixels set to black.

    Patches with the same effect become equal, and small: that of an attack is as large as the image.
    """
    pixels = np.where(patch.mask[:, :, np.newaxis], patch.pixels, 0).astype(np.uint8)
    if not isinstance(patch.where, Position) or not patch.mask.any():
        return dataclasses.replace(patch, pixels=pixels)
    rows, columns = (np.flatnonzero(patch.mask.any(axis=axis)) for axis in (1, 0))
    top, left = int(rows[0]), int(columns[0])
    part = np.s_[top : rows[-1] + 1, left : columns[-1] + 1]
    return Patch(pixels[part], patch.mask[part], Position(patch.where.x + left, patch.where.y + top))


def patched_dataset(dataset: Dataset, patches: Mapping[str, Patch], decode: str | Decode) -> Dataset:
    """The dataset with each patch applied to the image it names; other images are unchanged.

    Patches with an empty mask are ignored. InputError if a patch names an image that is not in the dataset.
    """
    # Patches are named as records are, in which a file name of any bytes can be written down.
    given = {printable(name): patch for name, patch in patches.items()}
    unknown = sorted(given.keys() - {printable(entry.name) for entry in dataset.entries})
    if unknown:
        problem = f"a patch names the image {unknown[0]!r}, which is not in {dataset.name}"
        raise InputError(f"{problem}; use the dataset the patches were computed on")
    shown = {name: visible(patch) for name, patch in given.items() if patch.mask.any()}
    pairs = [(entry, shown.get(printable(entry.name))) for entry in dataset.entries]
    entries = tuple(PatchedEntry(entry, patch, decode) if patch else entry for entry, patch in pairs)
    return dataclasses.replace(dataset, entries=entries)
