"""The preprocessing of a deployment target, written with OpenCV, NumPy, Pillow and simplejpeg only.

It shares no code with `holdfast`, so that `benchmarks/diagnose.py` tests the diagnosis against an independent
implementation. A `Chain` describes the steps in the order in which they run:

    tag · decode · turn · mirror · grey · colour · gamma · via · resize · shift · place · gamma · flip
    channels · normalise · type · layout · batch
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import simplejpeg
from PIL import Image

Pixels = np.ndarray[Any, Any]  # (height, width, 3) uint8, RGB
KR, KB = 0.299, 0.114  # weights of red and blue in luma, ITU-R BT.601


@dataclass(frozen=True)
class Chain:
    """The steps from an encoded image to the tensor that a target dumps."""

    size: tuple[int, int]  # width and height of the network's input
    policy: str = "stretch"  # stretch, letterbox, crop, or square: stretched to short × short, then cropped
    short: int = 0  # crop and square: the short side before the crop; 0 means that of the input
    window: str = "centre"  # crop and square: centre or corner
    place: str = "centre"  # letterbox: centre or corner
    truncated: bool = False  # letterbox and crop: sides of the resized image are truncated, else rounded
    pad: int = 114
    filter: str = "cv2 linear"
    order: str = "rgb"
    scale: float = 1.0  # tensor = (pixel · scale − mean) / std
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)  # of the tensor's channels, in their order
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    tag: int = 0  # EXIF orientation written into the file
    upright: bool = False  # whether the target applies the EXIF orientation
    decoder: str = "pillow"
    turn: int = 0  # quarter turns counter-clockwise
    mirror: str = ""  # of the image: horizontal or vertical
    colour: str = ""
    gamma: float = 1.0  # exponent applied to the decoded pixels, in 8 bits
    gamma_after: float = 1.0  # exponent applied to the resized pixels, in floating point
    via: tuple[str, float, float] | None = None  # intermediate size: ("times", x, y) or ("to", width, height)
    shift: tuple[float, float] = (0.0, 0.0)  # of the resized image: pixels to the right and down
    flip: str = ""  # of the network's input: horizontal or vertical
    grey: bool = False
    zeroed: int | None = None  # channel of the pixels, in RGB order
    blank: int | None = None  # channel of the tensor, set to 0 after normalisation
    layout: str = "nchw"  # nchw, nhwc, reinterpreted (nhwc data in the shape of nchw), ncwh
    batch: str = "one"  # one, none, copies (four equal ones), four (the third of four images)
    dtype: str = "float32"
    quantised: str = ""  # int8, uint8, or symmetric (int8 with zero point 0)


def file_bytes(chain: Chain, data: bytes) -> bytes:
    """The encoded image with the EXIF orientation of the chain; a JPEG."""
    if not chain.tag:
        return data
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, chain.tag, 0)
    block = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + b"\0\0\0\0"
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + data[2:]


def dump(chain: Chain, data: bytes, others: Sequence[bytes] = ()) -> np.ndarray:
    """The tensor that the target feeds for an encoded image; `others` fill a batch of four."""
    return laid_out(chain, tensor(chain, data), [tensor(chain, other) for other in others])


def tensor(chain: Chain, data: bytes) -> np.ndarray:
    """The normalised input (height, width, 3) of one image in float64."""
    return normalised(chain, network_input(chain, source(chain, data)))


def source(chain: Chain, data: bytes) -> Pixels:
    """The pixels that the target resizes."""
    pixels = decoded(chain.decoder, data)
    if chain.upright:
        pixels = turned_upright(pixels, chain.tag)
    pixels = np.rot90(pixels, chain.turn)
    pixels = mirrored(pixels, chain.mirror)
    if chain.grey:
        pixels = np.repeat(cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)[..., None], 3, 2)
    pixels = recoloured(np.ascontiguousarray(pixels), chain.colour)
    if chain.gamma != 1.0:
        table = np.rint(255 * (np.arange(256) / 255) ** chain.gamma).astype(np.uint8)
        pixels = table[pixels]
    return pixels


def decoded(decoder: str, data: bytes) -> Pixels:
    """RGB pixels as stored in the file."""
    if decoder == "pillow":
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    if decoder.startswith("cv2"):
        grey = decoder == "cv2 grey"
        flags = (cv2.IMREAD_GRAYSCALE if grey else cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB if grey else cv2.COLOR_BGR2RGB)
    return simplejpeg.decode_jpeg(data, "RGB", **{decoder: True})


def turned_upright(pixels: Pixels, tag: int) -> Pixels:
    """The pixels as an EXIF viewer shows them: transposed, then flipped."""
    if tag >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = slice(None, None, -1 if tag in (3, 4, 7, 8) else 1)
    columns = slice(None, None, -1 if tag in (2, 3, 6, 7) else 1)
    return pixels[rows, columns]


def mirrored(pixels: Pixels, axis: str) -> Pixels:
    """The pixels, flipped along an axis if one is given."""
    return {"": pixels, "horizontal": pixels[:, ::-1], "vertical": pixels[::-1]}[axis]


def recoloured(pixels: Pixels, colour: str) -> Pixels:
    """The pixels after a conversion to another format and back."""
    if not colour:
        return pixels
    values = pixels.astype(np.float64)
    if colour == "limited":  # studio range taken for full range
        return np.rint(values * 219 / 255 + 16).astype(np.uint8)
    if colour == "expanded":  # full range taken for studio range
        return np.rint(np.clip((values - 16) * 255 / 219, 0, 255)).astype(np.uint8)
    height, width = pixels.shape[:2]
    even = cv2.copyMakeBorder(pixels, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    if colour == "i420 cv2":
        back = cv2.cvtColor(cv2.cvtColor(even, cv2.COLOR_RGB2YUV_I420), cv2.COLOR_YUV2RGB_I420)
    else:
        back = through_yuv(even, colour)
    return back[:height, :width]


def through_yuv(pixels: Pixels, colour: str) -> Pixels:
    """RGB pixels of even sides through 8-bit Y, Cb, Cr of studio range; nv12 has chroma of half the size."""
    red, green, blue = np.moveaxis(pixels.astype(np.float64) / 255, 2, 0)
    luma = KR * red + (1 - KR - KB) * green + KB * blue
    y = np.rint(16 + 219 * luma)
    chroma = [128 + 112 * (blue - luma) / (1 - KB), 128 + 112 * (red - luma) / (1 - KR)]
    if colour != "yuv444":
        height, width = luma.shape
        small = [np.rint(c.reshape(height // 2, 2, width // 2, 2).mean((1, 3))) for c in chroma]
        how = cv2.INTER_LINEAR if colour == "nv12 linear" else cv2.INTER_NEAREST
        chroma = [cv2.resize(c.astype(np.uint8), (width, height), interpolation=how) for c in small]
    cb, cr = ((np.rint(c) - 128) / 112 for c in chroma)
    luma = (y - 16) / 219
    red, blue = luma + (1 - KR) * cr, luma + (1 - KB) * cb
    green = (luma - KR * red - KB * blue) / (1 - KR - KB)
    return np.rint(255 * np.clip(np.stack([red, green, blue], 2), 0, 1)).astype(np.uint8)


def resized(pixels: Pixels, size: tuple[int, int], how: str) -> np.ndarray:
    """The pixels resized to (width, height) by "cv2 NAME", "pillow NAME" or "asymmetric".

    "exact cv2 NAME" and "exact pillow NAME" do not round the result to 8 bits.
    """
    *exact, library, name = ["", *how.split()][-3:] if " " in how else ("", how, "")
    if library == "asymmetric":
        return resized_asymmetric(pixels, size)
    if library == "cv2":
        source = pixels.astype(np.float32) if "exact" in exact else pixels
        return cv2.resize(source, size, interpolation=getattr(cv2, f"INTER_{name.upper()}"))
    flag = getattr(Image.Resampling, name.upper())
    if "exact" not in exact:
        return np.asarray(Image.fromarray(pixels).resize(size, flag))
    planes = [Image.fromarray(pixels[..., c].astype(np.float32)).resize(size, flag) for c in range(3)]
    return np.stack([np.asarray(plane) for plane in planes], axis=2)


def resized_asymmetric(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Bilinear without half-pixel centres, as in TensorFlow 1: pixel i lies at i · in/out of the source."""
    values = pixels.astype(np.float64)
    for axis, length in ((0, size[1]), (1, size[0])):
        count = values.shape[axis]
        at = np.arange(length) * (count / length)
        low = np.minimum(at.astype(int), count - 1)
        high = np.minimum(low + 1, count - 1)
        share = (at - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        values = values.take(low, axis) * (1 - share) + values.take(high, axis) * share
    return np.rint(values).astype(np.uint8)


def intermediate_size(chain: Chain, width: int, height: int) -> tuple[int, int]:
    """Width and height of an image after the first of two resizes, if there are two."""
    if chain.via is None:
        return width, height
    kind, x, y = chain.via
    if kind == "times":
        x, y = width * x, height * y
    return max(1, round(x)), max(1, round(y))


def content_size(chain: Chain, width: int, height: int) -> tuple[int, int]:
    """Width and height of the resized image, for an encoded image of that width and height."""
    width, height = intermediate_size(chain, width, height)
    across, down = chain.size
    short = chain.short or min(chain.size)
    if chain.policy == "stretch":
        return across, down
    if chain.policy == "square":
        return max(short, across), max(short, down)
    fits = min(across / width, down / height)
    ratio = fits if chain.policy == "letterbox" else short / min(width, height)
    sides = [int(side * ratio + (1e-9 if chain.truncated else 0.5)) for side in (width, height)]
    if chain.policy == "crop":
        return max(sides[0], across), max(sides[1], down)
    return max(sides[0], 1), max(sides[1], 1)


def network_input(chain: Chain, pixels: Pixels) -> np.ndarray:
    """The pixels resized and placed in the network's input (height, width, 3)."""
    height, width = pixels.shape[:2]
    new = content_size(chain, width, height)
    if chain.via:
        pixels = cv2.resize(pixels, intermediate_size(chain, width, height))
    content = resized(pixels, new, chain.filter)
    right, down = chain.shift
    if right % 1 or down % 1:
        matrix = np.array([[1, 0, right % 1], [0, 1, down % 1]])
        content = cv2.warpAffine(content, matrix, new, borderMode=cv2.BORDER_REPLICATE)
    placed = place(chain, content, (int(right // 1), int(down // 1)))
    if chain.gamma_after != 1.0:
        placed = 255 * (placed / 255.0) ** chain.gamma_after
    return mirrored(placed, chain.flip)


def place(chain: Chain, content: np.ndarray, shift: tuple[int, int]) -> np.ndarray:
    """The resized image in the network's input, moved by whole pixels; outside lie the border or the edge."""
    across, down = chain.size
    height, width = content.shape[:2]
    x = y = 0
    if chain.policy == "letterbox" and chain.place == "centre":
        x, y = (across - width) // 2, (down - height) // 2
    elif chain.policy in ("crop", "square") and chain.window == "centre":
        x, y = -round((width - across) / 2), -round((height - down) / 2)
    rows, columns = np.arange(down) - y - shift[1], np.arange(across) - x - shift[0]
    if chain.policy != "letterbox":
        return content[np.clip(rows, 0, height - 1)][:, np.clip(columns, 0, width - 1)]
    canvas = np.full((down, across, 3), chain.pad, content.dtype)
    inside = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    canvas[np.ix_(*inside)] = content[rows[inside[0]]][:, columns[inside[1]]]
    return canvas


def normalised(chain: Chain, pixels: np.ndarray) -> np.ndarray:
    """The tensor (height, width, 3) in the target's channel order, in float64."""
    values = pixels.astype(np.float64)
    if chain.zeroed is not None:
        values[..., chain.zeroed] = 0
    if chain.order == "bgr":
        values = values[..., ::-1]
    values = (values * chain.scale - np.array(chain.mean)) / np.array(chain.std)
    if chain.blank is not None:
        values[..., chain.blank] = 0
    return values


def quantise(chain: Chain, values: np.ndarray) -> np.ndarray:
    """Integers round(x / s) + z, with s and z from the range of the input.

    The range of int8 is what the normalisation can produce; that of uint8 is a tenth wider at both ends.
    """
    ends = (np.array([[0.0], [255.0]]) * chain.scale - np.array(chain.mean)) / np.array(chain.std)
    low, high = min(0.0, ends.min()), ends.max()
    least, most = (0, 255) if chain.quantised == "uint8" else (-128, 127)
    if chain.quantised == "uint8":
        low, high = low - (high - low) / 10, high + (high - low) / 10
    step = max(-low, high) / 127 if chain.quantised == "symmetric" else (high - low) / 255
    zero = 0 if chain.quantised == "symmetric" else least - round(low / step)
    whole = np.clip(np.rint(values / step) + zero, least, most)
    return whole.astype(np.uint8 if chain.quantised == "uint8" else np.int8)


def laid_out(chain: Chain, values: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """The dump: the tensor in the target's type, layout and batch."""
    parts = [values]
    if chain.batch == "copies":
        parts = [values] * 4
    elif chain.batch == "four":
        parts = [others[0], others[1], values, others[2]]
    stack = np.stack(parts)
    if chain.quantised:
        stack = quantise(chain, stack)
    else:
        stack = (np.rint(stack) if chain.dtype == "uint8" else stack).astype(chain.dtype)
    count, height, width, _ = stack.shape
    if chain.layout == "nchw":
        stack = stack.transpose(0, 3, 1, 2)
    elif chain.layout == "ncwh":
        stack = stack.transpose(0, 3, 2, 1)
    elif chain.layout == "reinterpreted":
        stack = stack.reshape(count, 3, height, width)
    return np.ascontiguousarray(stack[0] if chain.batch == "none" else stack)


def differ(one: np.ndarray, other: np.ndarray, level: float) -> bool:
    """Whether two dumps differ by more than rounding; `level` is one grey level in the unit of the tensor."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    gap = np.abs(one.astype(np.float64) - other)
    if one.dtype.kind != "f":
        return bool(gap.max() >= 2 and gap.mean() >= 0.02)
    gap /= level
    return bool((gap.max() >= 2 and gap.mean() >= 0.02) or gap.mean() >= 0.2)


def grey_level(chain: Chain) -> float:
    """One grey level of the pixels in the unit of the tensor."""
    return chain.scale / max(chain.std)
