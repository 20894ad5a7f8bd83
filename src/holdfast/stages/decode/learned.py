"""A learned decoder: libjpeg-turbo's pixels with the losses of JPEG taken back by a small convolutional net.

The net (models/decoder/restore.onnx, made by `python -m models.decoder`) sees the image at half
size with the four pixels of each square side by side, where each pixel lies in its blocks, and how coarsely
the file was quantised. It works tile by tile, so memory is bounded whatever the image's size; a tile's rim
is as wide as the net sees, so the result is that of the whole image at once.
"""

import io
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor
from holdfast.stages.decode.libjpeg import by, pillow
from holdfast.stages.infer import open_graph

TILE = 256  # pixels a side: a multiple of 16, so that a tile begins where a block of halved chroma does
RIM = 16  # pixels the net sees to each side: eight 3×3 convolutions at half size
PLANES = 19  # 12 of colour, 4 of place, 3 of the file
_SUBSAMPLED = {1: 0.5, 2: 1.0}  # Pillow's numbers of 4:2:2 and 4:2:0


@stage(
    "decode",
    systems="learned image codecs and restoration networks (appendix B of the paper)",
    alike="libjpeg-turbo, restored by net 79089729",  # its hash: stored results of another net are others
    default=False,
    needs="simplejpeg",
)
def learned(data: bytes) -> Image:
    """RGB pixels of a JPEG restored by a small convolutional net; CMYK and other formats by Pillow."""

    def restored(data: bytes) -> Image:
        return restore(pillow(data), facts_of(data), TILE)

    return by(restored, "the restoration network", data, cmyk=False)


def facts_of(data: bytes) -> Tensor:
    """Three numbers of a JPEG file: how coarse its luma and chroma are, and how much chroma is halved.

    The logarithm of a quantisation table's mean, about −2 at quality 100 and 1.5 at quality 20.
    """
    from PIL import Image as Pillow
    from PIL.JpegImagePlugin import get_sampling

    with Pillow.open(io.BytesIO(data)) as picture:
        tables: dict[int, list[int]] = picture.quantization  # type: ignore[attr-defined]
        halved = _SUBSAMPLED.get(get_sampling(picture), 0.0)
    means = [max(float(np.mean(tables[key])), 1.0) for key in sorted(tables)] or [16.0]
    coarse = [np.log2(means[0]) / 2 - 2, np.log2(means[min(1, len(means) - 1)]) / 2 - 2]
    return np.array([*coarse, halved], np.float32)


def restore(pixels: Image, facts: Tensor, tile: int) -> Image:
    """The image (h, w, 3) after the net, computed in tiles of `tile` pixels, a multiple of 16."""
    height, width = pixels.shape[:2]
    even = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    made = np.empty_like(even)
    for top in range(0, len(even), tile):
        for left in range(0, even.shape[1], tile):
            y, x = max(top - RIM, 0), max(left - RIM, 0)
            piece = even[y : top + tile + RIM, x : left + tile + RIM]
            found = _run(planes(piece[None], facts[None]))[0]  # (3, h, w) in 0..1
            done = np.rint(found.clip(0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
            made[top : top + tile, left : left + tile] = done[top - y :, left - x :][:tile, :tile]
    if (pixels == pixels[..., :1]).all():  # a grey file stays grey
        made[:] = made[..., 1:2]
    return np.ascontiguousarray(made[:height, :width])


def planes(pixels: Image, facts: Tensor) -> Tensor:
    """The net's input (n, 19, h/2, w/2) for images (n, h, w, 3) of even sides and their facts (n, 3).

    Pictures begin at a corner of a 16-pixel block.
    """
    n, height, width = pixels.shape[:3]
    made = np.empty((n, PLANES, height // 2, width // 2), np.float32)
    squares = pixels.reshape(n, height // 2, 2, width // 2, 2, 3).transpose(0, 5, 2, 4, 1, 3)
    made[:, :12] = squares.reshape(n, 12, height // 2, width // 2)
    made[:, :12] *= np.float32(1 / 255)
    for plane, side in ((12, 4), (14, 8)):  # blocks of 8 and 16 pixels
        made[:, plane] = (np.arange(height // 2) % side / (side - 1) * 2 - 1)[:, None]
        made[:, plane + 1] = np.arange(width // 2) % side / (side - 1) * 2 - 1
    made[:, 16:] = facts[:, :, None, None]
    return made


def _run(tensor: Tensor) -> Tensor:
    return np.asarray(_session().run(None, {"planes": tensor})[0])


@lru_cache(maxsize=1)  # one for each process; runs on it may overlap
def _session() -> Any:
    """The net in ONNX Runtime on one thread, so that sums come in one order."""
    file = resources.files("holdfast").joinpath("models", "decoder", "restore.onnx")
    return open_graph(file.read_bytes(), str(file), 1)
