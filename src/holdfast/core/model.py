"""A model: the user's ONNX file, and the card that describes its input and output."""

import gzip
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.core.errors import InputError, ModelError
from holdfast.core.limits import limit, open_regular, too_large
from holdfast.core.types import Size

Task: TypeAlias = Literal["classify", "detect", "segment", "single"]
TASK_NAMES: Mapping[Task, str] = {
    "classify": "classification",
    "detect": "detection",
    "segment": "segmentation",
    "single": "single-object detection",
}
MODEL_KINDS: Mapping[Task, str] = {
    "classify": "classifier",
    "detect": "detector",
    "segment": "segmenter",
    "single": "single-object detector",
}
UNPACKED_FREELY = 64 << 20  # bytes that every packed file may unpack to
Layout: TypeAlias = Literal["nchw", "nhwc"]
Colour: TypeAlias = Literal["rgb", "bgr", "grey"]
# "letterbox-truncate": the sides of the image are rounded down, as in YOLOX, not to the nearest pixel.
# "short-side": the ratio is kept and the size of the input differs from image to image.
Policy: TypeAlias = Literal["stretch", "letterbox", "letterbox-truncate", "crop", "square", "short-side"]
# What a second input gets: the sides of the network's input, or ones (scale factors, masks of valid pixels).
Feed: TypeAlias = Literal["width-height", "height-width", "ones"]
Place: TypeAlias = Literal["centre", "corner"]


@dataclass(frozen=True)
class Input:
    """Conversion of pixels to the input tensor: tensor = (pixel · scale − mean) / std, channel by channel."""

    size: Size
    layout: Layout = "nchw"
    colour: Colour = "rgb"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    policy: Policy = "stretch"
    short_side: int | None = None  # of the resized image: before a centre crop, or policy "short-side"
    pad: int = 114  # letterbox and "short-side": grey of the border
    place: Place = "centre"  # letterbox and "short-side": position of the image
    long_side: int | None = None  # policy "short-side": the most that the long side may have
    multiple: int = 1  # policy "short-side": sides are padded to a multiple of this

    @property
    def channels(self) -> int:
        """3, or 1 for grey."""
        return 1 if self.colour == "grey" else 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the tensor of one image, without the batch axis."""
        width, height = self.size
        nchw = self.layout == "nchw"
        return (self.channels, height, width) if nchw else (height, width, self.channels)


@dataclass(frozen=True)
class Head:
    """Interpretation of the output tensors: the name of a registered head and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Card:
    """Information about a model that its ONNX file does not contain."""

    task: Task
    input: Input
    head: Head
    classes: tuple[str, ...]
    score: float = 0.001  # detections below are dropped
    nms_iou: float = 0.65  # class-wise non-maximum suppression
    max_detections: int = 100
    decode: str = "pillow"  # the stages the model was trained with
    resize: str = "pillow-bilinear"
    feeds: Mapping[str, Feed] = field(default_factory=dict)  # inputs other than the image


@dataclass(frozen=True)
class Network:
    """An ONNX file without a card, for verification."""

    name: str
    path: Path

    def read(self) -> bytes:
        """The bytes of the user's original file (unpacked if it is a .gz)."""
        return read_onnx(self.path)


@dataclass(frozen=True)
class Model(Network):
    """An ONNX file with its card; `guessed` lists the guessed fields with the reasons."""

    card: Card
    sha256: str
    guessed: tuple[str, ...] = ()


def existing_file(path: Path) -> Path | None:
    """The file itself or, if only that exists, its .gz; None if neither exists."""
    if path.is_file():
        return path
    packed = path.with_name(path.name + ".gz")
    return packed if packed.is_file() else None


def read_unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is a .gz. Raise InputError if they are far more than it holds."""
    with open_regular(path) as stream:
        if path.suffix != ".gz":
            return stream.readall()
        packed = os.fstat(stream.fileno()).st_size
        most = min(limit("model-mb") << 20, max(UNPACKED_FREELY, packed * limit("unpacked-ratio")))
        parts, size = [], 0
        try:
            with gzip.open(stream) as unpacked:
                while part := unpacked.read(16 << 20):
                    parts.append(part)
                    if (size := size + len(part)) > most:
                        name = "model-mb" if most == limit("model-mb") << 20 else "unpacked-ratio"
                        got = f"{packed:,} bytes unpack to more than {most >> 20} MB"
                        raise InputError(f"{path}: {too_large(name, got)}")
        except (EOFError, zlib.error) as problem:
            raise gzip.BadGzipFile(str(problem)) from None
    return b"".join(parts)


def read_onnx(path: Path) -> bytes:
    """The bytes of an ONNX file, unpacked if it is a .gz. Raise ModelError if it cannot be read."""
    try:
        return read_unpacked(path)
    except FileNotFoundError:
        other = existing_file(path)
        hint = f"did you mean {other.name}?" if other else "give the path of an .onnx file"
        raise ModelError(f"{path}: no such model file; {hint}") from None
    except OSError as problem:
        reason = problem.strerror or problem
        raise ModelError(f"{path}: expected a readable ONNX file, got: {reason}") from problem
