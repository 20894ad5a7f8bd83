"""Entries of image files: small frozen values that hold paths and packed truth, never image bytes."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.fingerprint import of_bytes
from holdfast.core.limits import read_file
from holdfast.core.types import Boxes, Label, MaskFile, Sample, Size
from holdfast.data.images import sniff


class BoxRow(NamedTuple):
    """One truth box as it is packed: corners, class index, flags, area."""

    x1: float
    y1: float
    x2: float
    y2: float
    category: int
    crowd: bool = False
    difficult: bool = False
    area: float = -1.0  # below 0: width times height


def pack(rows: Iterable[BoxRow]) -> bytes:
    """The rows as one block of float64: 64 bytes per box, fast to pickle and to hash."""
    return array("d", chain.from_iterable(rows)).tobytes()


@dataclass(frozen=True)
class _StoredBoxes:
    rows: bytes = field(default=b"", repr=False)
    unit: ClassVar[str]

    def __len__(self) -> int:
        return len(self.rows) // 64

    def fingerprint(self) -> str:
        """The hash of the packed rows and their unit."""
        return f"{self.unit}:{of_bytes(self.rows)}"

    def read(self, name: str, data: bytes) -> Boxes:
        """The boxes in pixels of the image, whose size is read from its header if needed."""
        return self.scaled(sniff(data, name).size if self.unit == "shares" else Size(1, 1))

    def scaled(self, size: Size) -> Boxes:
        """The boxes in pixels of an image of that size."""
        table = np.frombuffer(self.rows, np.float64).reshape(-1, 8)
        xyxy = table[:, :4] * np.array([*size, *size] if self.unit == "shares" else [1.0] * 4, np.float64)
        sides = np.clip(xyxy[:, 2:] - xyxy[:, :2], 0, None)
        areas = np.where(table[:, 7] < 0, sides.prod(axis=1), table[:, 7])
        return Boxes(xyxy, table[:, 4].astype(np.int64), table[:, 5] != 0, table[:, 6] != 0, areas)


class PixelBoxes(_StoredBoxes):
    """Boxes whose corners are stated in pixels."""

    unit = "pixels"


class UnitBoxes(_StoredBoxes):
    """Boxes whose corners are stated as shares (0 to 1) of the image's width and height."""

    unit = "shares"


@dataclass(frozen=True)
class StoredLabel:
    """The class index of an image."""

    index: int

    def fingerprint(self) -> str:
        """The index."""
        return f"label:{self.index}"

    def read(self, name: str, data: bytes) -> Label:
        """The label."""
        return Label(self.index)


@dataclass(frozen=True)
class StoredMask:
    """The path of a mask image, and the class id of each of its 256 values unless they are ids already."""

    path: str
    table: bytes = field(default=b"", repr=False)

    def fingerprint(self) -> str:
        """The hash of the mask file."""
        mapped = f"{of_bytes(self.table)}:" if self.table else ""
        return f"mask:{mapped}{of_bytes(read_image_file(self.path))}"

    def read(self, name: str, data: bytes) -> MaskFile:
        """The encoded mask."""
        mask = read_image_file(self.path)
        return MaskFile(mapped_mask(mask, self.table, self.path) if self.table else mask)


def mapped_mask(mask: bytes, table: bytes, where: str) -> bytes:
    """The encoded mask with every value replaced by that of the table."""
    from PIL import Image

    try:
        with Image.open(BytesIO(mask)) as picture:
            values = np.asarray(picture)
    except (OSError, SyntaxError, ValueError):
        values = np.zeros((), np.uint16)
    if values.ndim != 2 or values.dtype != np.uint8:
        raise ImageError(f"{where}: expected a mask of 8 bits in one channel; export it again")
    stream = BytesIO()
    Image.fromarray(np.frombuffer(table, np.uint8)[values]).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


@dataclass(frozen=True)
class FileEntry:
    """An image file with its truth; `size` is what the annotations state, None if they do not."""

    name: str
    path: str
    truth: PixelBoxes | UnitBoxes | StoredLabel | StoredMask
    size: Size | None = None

    def key(self) -> str:
        """The hash of the file's bytes and of the truth."""
        return of_bytes(f"{of_bytes(read_image_file(self.path))}|{self.truth.fingerprint()}".encode())

    def load(self) -> Sample:
        """The encoded bytes and the truth; raise ImageError if the file cannot be read."""
        data = read_image_file(self.path)
        return Sample(self.name, data, self.truth.read(self.name, data))


def read_image_file(path: str | Path) -> bytes:
    """The bytes of an image file; raise ImageError if it is missing, unreadable, empty or too large."""
    data = read_file(path, "image-mb", ImageError, "image")
    if not data:
        raise ImageError(f"{path}: the file is empty (0 bytes); expected an image")
    return data
