"""Light, air and sensor: chosen before a scene is drawn, applied to make the painted picture a photograph."""

from dataclasses import dataclass, field

import cv2
import numpy as np

from holdfast.core.types import Bools, Floats, Image, Tensor
from holdfast.data.signs.canvas import FIRST_SIGN, SKY, Camera, Canvas, Road, clouds, sensor, spot, tint

Rgb = tuple[float, float, float]
Glow = tuple[float, float, float, Rgb]  # x, y and radius in pixels and the colour of a lamp's halo


@dataclass(frozen=True)
class Conditions:
    """Light, air and sensor of one scene."""

    light: str
    gain: Rgb
    zenith: Rgb
    horizon: Rgb
    haze: float
    rain: bool
    noise: float
    motion: float
    defocus: float

    @property
    def night(self) -> bool:
        """Whether lamps are on."""
        return self.light == "night"


@dataclass(frozen=True)
class SceneDrawing:
    """A picture in progress: where it is drawn, what it shows, and the generator of all that is random."""

    canvas: Canvas
    camera: Camera
    road: Road
    mood: Conditions
    rng: np.random.Generator
    glows: list[Glow] = field(default_factory=list)  # lamps that shine at night

    def hazy(self, colour: Rgb | Floats, depth: float) -> Rgb:
        """A colour seen through the air at a depth in metres."""
        clear = float(np.exp(-self.mood.haze * depth))
        mixed = np.asarray(colour, dtype=np.float64) * clear + np.asarray(self.mood.horizon) * (1 - clear)
        return (float(mixed[0]), float(mixed[1]), float(mixed[2]))


_SKIES: dict[str, tuple[Rgb, Rgb]] = {
    "sun": ((70, 122, 196), (196, 214, 232)),
    "overcast": ((166, 172, 180), (206, 208, 210)),
    "dusk": ((74, 84, 124), (232, 168, 118)),
    "night": ((38, 44, 66), (74, 70, 78)),
}


def choose_mood(rng: np.random.Generator) -> Conditions:
    """A mood in which extremes are rare: mostly day, one scene in eight at night."""
    light = ("sun", "overcast", "dusk", "night")[int(rng.choice(4, p=(0.46, 0.28, 0.13, 0.13)))]
    warm = rng.uniform(-0.05, 0.05)
    exposures = {"sun": rng.uniform(0.88, 1.22), "overcast": rng.uniform(0.8, 1.05)}
    exposure = exposures.get(light, rng.uniform(0.62, 0.85))
    if light == "dusk":
        warm += 0.06
    base = (0.92, 0.96, 1.06) if light == "night" else (1.0, 1.0, 1.0)
    zenith, horizon = _SKIES[light]
    foggy = rng.random() < 0.12
    return Conditions(
        light=light,
        gain=(base[0] * exposure * (1 + warm), base[1] * exposure, base[2] * exposure * (1 - warm)),
        zenith=zenith,
        horizon=horizon,
        haze=rng.uniform(0.008, 0.02) if foggy else rng.uniform(0.0005, 0.004),
        rain=bool(rng.random() < (0.18 if light != "sun" else 0.0)),
        noise=rng.uniform(1.0, 3.5) + (rng.uniform(2.0, 5.5) if light in ("dusk", "night") else 0.0),
        motion=rng.uniform(2.5, 5.0) if rng.random() < 0.12 else 0.0,
        defocus=rng.uniform(0.3, 0.7) if rng.random() < 0.85 else rng.uniform(0.9, 1.4),
    )


def _headlights(shot: SceneDrawing, sign: Bools) -> Tensor:
    """The light (h, w) of the own headlights at night; signs send it back."""
    camera, rng, (height, width) = shot.camera, shot.rng, shot.canvas.size
    y, x = np.mgrid[0 : height // 4, 0 : width // 4].astype(np.float32) * np.float32(4)
    centre = np.float32(camera.y + 0.3 * (height - camera.y))
    reach = ((x - np.float32(camera.x)) / np.float32(230)) ** 2 + ((y - centre) / np.float32(95)) ** 2
    ambient = np.float32(rng.uniform(0.24, 0.4))
    small = ambient + np.float32(rng.uniform(0.35, 0.6)) * np.exp(-reach)
    light: Tensor = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    light[sign] = np.maximum(light[sign], np.float32(rng.uniform(1.0, 1.4)))
    light[shot.canvas.mask == SKY] = 1.0
    return light


def _ground_shadows(shot: SceneDrawing, sign: Bools) -> Tensor:
    """The light (h, w) under a sun that trees and houses keep off parts of the road."""
    height, width = shot.canvas.size
    cover = clouds()[spot(shot.rng, clouds(), 300, 220)]
    top = int(np.clip(shot.camera.y + 8, 0, height - 8))
    lit = np.clip(cover * 6 + np.float32(shot.rng.uniform(1.0, 5.0)), 0, 1)
    depth = np.float32(shot.rng.uniform(0.5, 0.75))
    light: Tensor = np.ones((height, width), dtype=np.float32)
    light[top:] = cv2.resize(depth + (1 - depth) * lit, (width, height - top), interpolation=cv2.INTER_LINEAR)
    light[sign] = 1.0
    return light


def _halos(image: Image, glows: list[Glow]) -> None:
    """Add the halos of lamps, at a quarter of the size."""
    height, width = image.shape[:2]
    small = np.zeros((height // 4, width // 4, 3), dtype=np.uint8)
    for x, y, radius, colour in glows:
        centre = (round(x / 4), round(y / 4))
        cv2.circle(small, centre, max(1, round(radius / 4)), colour, -1, cv2.LINE_AA)
    soft = cv2.add(cv2.GaussianBlur(small, (0, 0), 3.0), cv2.GaussianBlur(small, (0, 0), 1.0))
    cv2.add(image, cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR), dst=image)


def _rain(image: Image, rng: np.random.Generator) -> Image:
    height, width = image.shape[:2]
    streaks = np.zeros((height, width), dtype=np.uint8)
    slant = rng.uniform(-0.25, 0.25)
    count = int(rng.integers(90, 240) * height * width / (480 * 640)) + 2
    drops = rng.uniform(0, width, count), rng.uniform(-20, height, count), rng.uniform(8, 34, count)
    for x, y, length in zip(*drops, strict=True):
        cv2.line(streaks, (int(x), int(y)), (int(x + slant * length), int(y + length)), 44, 1, cv2.LINE_AA)
    grey = cv2.convertScaleAbs(image, alpha=0.9, beta=14)
    return np.asarray(cv2.add(grey, cv2.cvtColor(streaks, cv2.COLOR_GRAY2RGB)))


def _lens(image: Image, mood: Conditions, rng: np.random.Generator) -> Image:
    out: Image = cv2.GaussianBlur(image, (5, 5) if mood.defocus > 0.8 else (3, 3), mood.defocus)
    if mood.motion:
        size = int(np.ceil(mood.motion)) | 1
        kernel = np.zeros((size, size), dtype=np.float32)
        angle, middle = rng.normal(0, 0.5), size // 2
        x, y = np.array([np.cos(angle), np.sin(angle)]) * middle
        start, stop = ((round(middle + sign * x), round(middle + sign * y)) for sign in (-1, 1))
        cv2.line(kernel, start, stop, 1.0, 1)
        out = cv2.filter2D(out, -1, kernel / kernel.sum())
    return out


def photograph(shot: SceneDrawing) -> Image:
    """The finished picture (h, w, 3)."""
    image, mask, mood, rng = shot.canvas.image, shot.canvas.mask, shot.mood, shot.rng
    sign = (mask >= FIRST_SIGN) & (mask < SKY)
    light = None
    if mood.night:
        light = _headlights(shot, sign)
    elif mood.light == "sun" and rng.random() < 0.5:
        light = _ground_shadows(shot, sign)
    if light is not None:
        level = cv2.cvtColor(np.rint(light * np.float32(128)).astype(np.uint8), cv2.COLOR_GRAY2RGB)
        image = cv2.multiply(image, level, scale=1 / 128)
    if mood.night and shot.glows:
        _halos(image, shot.glows)
    if mood.rain:
        image = _rain(image, rng)
    image = tint(_lens(image, mood, rng), mood.gain)
    plus, minus = sensor(max(1, round(mood.noise)))
    at = spot(rng, plus, *image.shape[:2])
    return np.asarray(cv2.subtract(cv2.add(image, plus[at]), minus[at]))
