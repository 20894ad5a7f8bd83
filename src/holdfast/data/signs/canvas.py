"""The picture under construction: an image and its mask, what they contain, and the ways to draw on both."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.types import Floats, Image, Tensor

WIDTH: Final = 640
HEIGHT: Final = 480

_BY_GROUP: Final[dict[str, tuple[str, ...]]] = {
    "mandatory": ("go-straight", "turn-left", "turn-right", "roundabout", "footpath", "cycle-path"),
    "prohibitory": (
        *("stop", "no-entry", "no-parking", "no-trucks", "no-overtaking"),
        *("speed-limit-30", "speed-limit-50", "speed-limit-80"),
    ),
    "warning": ("curve-left", "curve-right", "crossroads", "children", "traffic-signals", "danger"),
}
GROUPS: Final = tuple(_BY_GROUP)
CLASSES: Final = tuple(name for names in _BY_GROUP.values() for name in names)
GROUP_OF: Final = tuple(group for group, names in enumerate(_BY_GROUP.values()) for _ in names)

SEGMENTS: Final = ("background", "road", *GROUPS, "sky")  # values of a mask; a sign has 2 + its group
BACKGROUND, ROAD, FIRST_SIGN, SKY = 0, 1, 2, 5

Box = tuple[float, float, float, float]
T = TypeVar("T", bound=np.generic)

_BITS = 4  # fractional bits with which OpenCV draws: edges move by 1/16 px, not by whole ones


@dataclass(frozen=True)
class Canvas:
    """An RGB image (h, w, 3) and its segment mask (h, w), both drawn in place."""

    image: Image
    mask: Image

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.mask.shape[0], self.mask.shape[1]

    def fill(self, points: Floats, colour: Sequence[float] | Floats, segment: int = BACKGROUND) -> None:
        """Fill a polygon of pixel coordinates (n, 2): smooth edge on the image, hard edge on the mask."""
        fixed = [_fixed(np.clip(points, -4000.0, 4000.0))]
        cv2.fillPoly(self.image, fixed, [int(c) for c in colour], cv2.LINE_AA, _BITS)
        cv2.fillPoly(self.mask, fixed, segment, cv2.LINE_8, _BITS)

    def post(self, x: float, top: float, bottom: float, width: float, shade: float = 150.0) -> None:
        """A round metal post: lit on one side, dark on the other."""
        half = max(0.6, width / 2)
        self.fill(box(x - half, top, x + half, bottom), (shade, shade, shade * 1.02))
        if half > 1.2:
            dark = shade * 0.62
            self.fill(box(x + half * 0.35, top, x + half, bottom), (dark, dark, dark * 1.04))

    def blend(self, x: int, y: int, colour: Image, alpha: Tensor, segment: int = BACKGROUND) -> None:
        """Lay a patch (h, w, 3) with weights (h, w) at a place that may lie partly outside the picture."""
        height, width = self.size
        ph, pw = alpha.shape
        x0, y0, x1, y1 = max(0, x), max(0, y), min(width, x + pw), min(height, y + ph)
        if x0 >= x1 or y0 >= y1:
            return
        inner = (slice(y0 - y, y1 - y), slice(x0 - x, x1 - x))
        outer = (slice(y0, y1), slice(x0, x1))
        weight, above, below = map(np.ascontiguousarray, (alpha[inner], colour[inner], self.image[outer]))
        self.image[outer] = cv2.blendLinear(above, below, weight, np.float32(1.0) - weight)
        self.mask[outer][weight >= 0.5] = segment

    def paste(self, sprite: Image, where: Box, gain: Sequence[float]) -> None:
        """Scale an RGBA sprite into a rectangle of the picture, its colours multiplied by `gain`."""
        left, top = round(where[0]), round(where[1])
        size = (max(1, round(where[2]) - left), max(1, round(where[3]) - top))
        if left >= self.size[1] or top >= self.size[0] or left + size[0] <= 0 or top + size[1] <= 0:
            return
        scaled: Image = cv2.resize(sprite, size, interpolation=cv2.INTER_LINEAR)
        self.blend(left, top, tint(scaled[..., :3], gain), weights_of(scaled[..., 3]))

    def paste_quad(self, texture: Image, corners: Floats, gain: Sequence[float]) -> None:
        """Warp an RGB texture onto a quadrilateral (4, 2: top left, top right, bottom right, bottom left)."""
        height, width = self.size
        low = np.maximum(np.floor(corners.min(axis=0)), 0).astype(int)
        high = np.minimum(np.ceil(corners.max(axis=0)), (width, height)).astype(int)
        wide, tall = (high - low).tolist()
        if wide <= 0 or tall <= 0:
            return
        th, tw = texture.shape[:2]
        source, target = box(0, 0, tw, th).astype(np.float32), (corners - low).astype(np.float32)
        matrix = cv2.getPerspectiveTransform(source, target)
        warped = cv2.warpPerspective(texture, matrix, (wide, tall), borderMode=cv2.BORDER_REPLICATE)
        stencil = np.zeros((tall, wide), dtype=np.uint8)
        cv2.fillPoly(stencil, [_fixed(corners - low)], 255, cv2.LINE_AA, _BITS)
        self.blend(int(low[0]), int(low[1]), tint(warped, gain), weights_of(stencil))


def blank(height: int, width: int) -> Canvas:
    """A canvas to paint on."""
    return Canvas(np.empty((height, width, 3), dtype=np.uint8), np.empty((height, width), dtype=np.uint8))


@dataclass(frozen=True)
class Camera:
    """A pinhole above a flat road that may bend: lengths in metres, the picture in pixels."""

    focal: float
    height: float
    x: float
    y: float
    bend: float

    def ground(self, lateral: ArrayLike, depth: ArrayLike, above: ArrayLike = 0.0) -> Floats:
        """Pixel coordinates (n, 2) of points beside the road's axis, `depth` ahead and `above` the road."""
        z = np.asarray(depth, dtype=np.float64)
        side = np.asarray(lateral, dtype=np.float64) + self.bend * z * z
        x = self.x + self.focal * side / z
        y = self.y + self.focal * (self.height - np.asarray(above, dtype=np.float64)) / z
        return np.stack(np.broadcast_arrays(x, y), axis=-1)

    def foot(self, lateral: float, depth: float) -> tuple[float, float, float]:
        """The pixel (x, y) where something stands on the ground, and the pixels per metre there."""
        x, y = self.ground(lateral, depth)
        return x, y, self.focal / depth


@dataclass(frozen=True)
class Road:
    """A carriageway between two lateral distances from the camera, in metres."""

    left: float
    right: float
    lanes: int
    setting: str


def frozen(array: NDArray[T]) -> NDArray[T]:
    """The array, made read-only because it is cached."""
    array.flags.writeable = False
    return array


def _fixed(pixels: Floats) -> NDArray[np.int32]:
    """Pixel coordinates as OpenCV's fixed-point numbers, (n, 1, 2)."""
    return np.rint(pixels * (1 << _BITS)).astype(np.int32).reshape(-1, 1, 2)


def weights_of(alpha: Image) -> Tensor:
    """The weights 0..1 of bytes."""
    return alpha.astype(np.float32) * np.float32(1 / 255)


def box(x0: float, y0: float, x1: float, y1: float) -> Floats:
    """The corners (4, 2) of an upright rectangle."""
    return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], dtype=np.float64)


def circle(x: float, y: float, radius: float) -> Floats:
    """The outline (32, 2) of a circle."""
    angle = np.linspace(0, 2 * np.pi, 32)
    return np.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1) * radius + (x, y))


def tint(colour: Image, gain: Sequence[float]) -> Image:
    """The colours (h, w, 3) multiplied per channel."""
    steps = np.arange(256, dtype=np.float64)[:, None] * np.asarray(gain, dtype=np.float64)
    table = np.clip(np.rint(steps), 0, 255).astype(np.uint8).reshape(1, 256, 3)
    return np.asarray(cv2.LUT(np.ascontiguousarray(colour), table))


# Anti-aliased drawing in unit coordinates (x right, y down, both −1 … 1) on square arrays.


def fixed(points: ArrayLike, size: int) -> NDArray[np.int32]:
    """Unit points as fixed-point pixel coordinates (n, 1, 2) of a square of `size` pixels."""
    return _fixed((np.asarray(points, dtype=np.float64) + 1.0) * (0.5 * size) - 0.5)


def polygon(image: Image, points: ArrayLike, colour: Sequence[int]) -> None:
    """Fill a polygon."""
    cv2.fillPoly(image, [fixed(points, image.shape[0])], tuple(colour), cv2.LINE_AA, _BITS)


def stroke(
    image: Image, points: ArrayLike, width: float, colour: Sequence[int], closed: bool = False
) -> None:
    """Draw a polyline of a width given in unit lengths, with round ends."""
    pixels = max(1, round(width * image.shape[0] / 2))
    cv2.polylines(image, [fixed(points, image.shape[0])], closed, tuple(colour), pixels, cv2.LINE_AA, _BITS)


def arc(x: float, y: float, rx: float, ry: float, start: float, stop: float, steps: int = 48) -> Floats:
    """Points (steps, 2) on an ellipse from `start` to `stop` degrees, clockwise on the screen."""
    t = np.deg2rad(np.linspace(start, stop, steps))
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], axis=1)


def disc(image: Image, x: float, y: float, radius: float, colour: Sequence[int]) -> None:
    """Fill a circle."""
    polygon(image, arc(x, y, radius, radius, 0, 360, 96), colour)


def arrow(tail: ArrayLike, width: float, head: float) -> tuple[Floats, Floats]:
    """The shaft (n, 2) and the triangular head (3, 2) of an arrow along a polyline.

    The shaft stops inside the head, so that its round end does not stick out of the tip.
    """
    shaft = np.array(tail, dtype=np.float64)
    tip, direction = shaft[-1].copy(), shaft[-1] - shaft[-2]
    direction = direction / np.hypot(direction[0], direction[1])
    normal = np.array([-direction[1], direction[0]])
    base = tip - direction * head
    shaft[-1] = base + direction * min(width, head) * 0.1
    return shaft, np.stack([tip, base + normal * head * 0.72, base - normal * head * 0.72])


# Fixed noise fields: a window of one is much cheaper than new noise for every scene.


@lru_cache(maxsize=1)
def grain() -> Tensor:
    """Standard normal noise (1024, 1024)."""
    return frozen(np.random.default_rng(20_211).standard_normal((1024, 1024), dtype=np.float32))


@lru_cache(maxsize=1)
def clouds() -> Tensor:
    """Smooth noise of many scales (1024, 1024) with mean 0 and deviation 1."""
    rng = np.random.default_rng(20_212)
    total = np.zeros((1024, 1024), dtype=np.float32)
    for octave in range(2, 9):
        coarse = rng.standard_normal((2**octave, 2**octave), dtype=np.float32)
        total += cv2.resize(coarse, (1024, 1024), interpolation=cv2.INTER_CUBIC) * np.float32(0.62**octave)
    return frozen((total - total.mean()) / total.std())


@lru_cache(maxsize=1)
def rough() -> Image:
    """The brightness of rough ground (1024, 1024): 128 is the mean, fine grains over coarse stains."""
    field = 128 + np.float32(128) * (np.float32(0.075) * grain() + np.float32(0.06) * clouds())
    return frozen(np.clip(np.rint(field), 0, 255).astype(np.uint8))


@lru_cache(maxsize=16)
def sensor(level: int) -> tuple[Image, Image]:
    """Noise of deviation `level` (576, 736, 3), mostly common to the channels, to add and to subtract.

    Two saturating operations on bytes are ten times as fast as one on floats.
    """
    rng = np.random.default_rng([20_216, level])
    common = rng.standard_normal((576, 736, 1), dtype=np.float32) * np.float32(0.8)
    own = rng.standard_normal((576, 736, 3), dtype=np.float32) * np.float32(0.6)
    noise = np.rint((common + own) * np.float32(level))
    return frozen(np.clip(noise, 0, 255).astype(np.uint8)), frozen(np.clip(-noise, 0, 255).astype(np.uint8))


def spot(rng: np.random.Generator, field: NDArray[T], height: int, width: int) -> tuple[slice, slice]:
    """The rows and columns of a window of a field at a random place."""
    y = int(rng.integers(0, field.shape[0] - height + 1))
    x = int(rng.integers(0, field.shape[1] - width + 1))
    return slice(y, y + height), slice(x, x + width)


def window(field: Tensor, rng: np.random.Generator, height: int, width: int) -> Tensor:
    """A view (height, width) of a field at a random place."""
    return field[spot(rng, field, height, width)]
