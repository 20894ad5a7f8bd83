"""A threat laid over pictures: an image of a data set with a patch on it, again an image of a data set."""

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
from holdfast.core.types import Boxes, Floats, Sample, Truth
from holdfast.data.patchfile import png_of
from holdfast.engine.store import printable


@dataclass(frozen=True)
class PatchedEntry:
    """An image with a patch on it, in the pixels one decoder gives: a PNG, which decodes to just these."""

    entry: Entry
    patch: Patch
    decode: str | Decode

    @property
    def name(self) -> str:
        """The name of the image as it is without the patch."""
        return self.entry.name

    def key(self) -> str:
        """A hash of image and truth, of the patch as far as it is seen, of the decoder and of the code."""
        decoder = lookup("decode", self.decode)
        return fingerprint.of(["patched", self.entry.key(), visible(self.patch), decoder, code_of("patched")])

    def load(self) -> Sample:
        """The picture with the patch as PNG, and the truth; ImageError if it cannot be decoded."""
        sample = self.entry.load()
        decode: Decode = lookup("decode", self.decode)
        try:
            clean = decode(sample.data)
        except InputError:
            raise
        except Exception as problem:  # what a decoder of the user's raises is its own
            raise ImageError(f"cannot be decoded: {type(problem).__name__}: {problem}") from problem
        picture = apply(clean, self.patch, target_boxes(sample.truth))
        return dataclasses.replace(sample, data=png_of(picture))


def target_boxes(truth: Truth) -> Floats | None:
    """The true boxes (n, 4) a patch may lie on, crowds left out; None if the truth is no boxes."""
    return truth.xyxy[~truth.crowd] if isinstance(truth, Boxes) else None


def visible(patch: Patch) -> Patch:
    """The patch as far as it is seen: cut to its mask if it lies at a spot, what the mask hides made black.

    Two patches that do the same are the same then, and small: an attack's is as large as the picture.
    """
    pixels = np.where(patch.mask[:, :, np.newaxis], patch.pixels, 0).astype(np.uint8)
    if not isinstance(patch.where, Position) or not patch.mask.any():
        return dataclasses.replace(patch, pixels=pixels)
    rows, columns = (np.flatnonzero(patch.mask.any(axis=axis)) for axis in (1, 0))
    top, left = int(rows[0]), int(columns[0])
    part = np.s_[top : rows[-1] + 1, left : columns[-1] + 1]
    return Patch(pixels[part], patch.mask[part], Position(patch.where.x + left, patch.where.y + top))


def patched_dataset(dataset: Dataset, patches: Mapping[str, Patch], decode: str | Decode) -> Dataset:
    """The data set with the patches on the images they are named by; images without one stay as they are.

    A patch whose mask is empty is none. InputError if a patch is for an image the data set has not.
    """
    # Patches are named as records are, in which a file name of any bytes can be written down.
    given = {printable(name): patch for name, patch in patches.items()}
    unknown = sorted(given.keys() - {printable(entry.name) for entry in dataset.entries})
    if unknown:
        raise InputError(
            f"a patch is for the image {unknown[0]!r}: expected an image of {dataset.name}; "
            "lay patches over the data they were made on"
        )
    laid = {name: visible(patch) for name, patch in given.items() if patch.mask.any()}
    found = [(entry, laid.get(printable(entry.name))) for entry in dataset.entries]
    entries = tuple(PatchedEntry(entry, patch, decode) if patch else entry for entry, patch in found)
    return dataclasses.replace(dataset, entries=entries)
