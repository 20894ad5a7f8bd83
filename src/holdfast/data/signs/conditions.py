"""Light, air and sensor: chosen before a scene is drawn, applied to make the painted picture a photograph."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from holdfast.data.signs.canvas import (
    FIRST_SIGN,
    SKY,
    Camera,
    Canvas,
    Pixels,
    Weights,
    clouds,
    sensor,
    tint,
    window,
)

Rgb = tuple[float, float, float]


@dataclass(frozen=True)
class Mood:
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


_SKIES: dict[str, tuple[Rgb, Rgb]] = {
    "sun": ((70, 122, 196), (196, 214, 232)),
    "overcast": ((166, 172, 180), (206, 208, 210)),
    "dusk": ((74, 84, 124), (232, 168, 118)),
    "night": ((38, 44, 66), (74, 70, 78)),
}


def choose_mood(rng: np.random.Generator) -> Mood:
    """A mood in which extremes are rare: mostly day, one scene in eight at night."""
    light = ("sun", "overcast", "dusk", "night")[int(rng.choice(4, p=(0.46, 0.28, 0.13, 0.13)))]
    warm = rng.uniform(-0.05, 0.05)
    exposure = {"sun": rng.uniform(0.88, 1.22), "overcast": rng.uniform(0.8, 1.05)}.get(
        light, rng.uniform(0.62, 0.85)
    )
    if light == "dusk":
        warm += 0.06
    base = {"night": (0.92, 0.96, 1.06)}.get(light, (1.0, 1.0, 1.0))
    gain = (base[0] * exposure * (1 + warm), base[1] * exposure, base[2] * exposure * (1 - warm))
    zenith, horizon = _SKIES[light]
    foggy = rng.random() < 0.12
    haze = rng.uniform(0.008, 0.02) if foggy else rng.uniform(0.0005, 0.004)
    rain = bool(rng.random() < (0.18 if light != "sun" else 0.0))
    noise = rng.uniform(1.0, 3.5) + (rng.uniform(2.0, 5.5) if light in ("dusk", "night") else 0.0)
    motion = rng.uniform(2.5, 5.0) if rng.random() < 0.12 else 0.0
    defocus = rng.uniform(0.3, 0.7) if rng.random() < 0.85 else rng.uniform(0.9, 1.4)
    return Mood(light, gain, zenith, horizon, float(haze), rain, float(noise), float(motion), float(defocus))


Glow = tuple[float, float, float, tuple[float, float, float]]
"""x, y and radius in pixels and the colour of a lamp's halo."""


def _headlights(canvas: Canvas, camera: Camera, rng: np.random.Generator) -> Weights:
    """The light (h, w) of the own headlights at night; signs send it back."""
    height, width = canvas.size
    y, x = np.mgrid[0 : height // 4, 0 : width // 4].astype(np.float32) * np.float32(4)
    centre = camera.y + 0.3 * (height - camera.y)
    reach = ((x - np.float32(camera.x)) / np.float32(230)) ** 2 + (
        (y - np.float32(centre)) / np.float32(95)
    ) ** 2
    ambient = np.float32(rng.uniform(0.24, 0.4))
    small = ambient + np.float32(rng.uniform(0.35, 0.6)) * np.exp(-reach)
    light: Weights = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    retro = np.float32(rng.uniform(1.0, 1.4))
    sign = (canvas.mask >= FIRST_SIGN) & (canvas.mask < SKY)
    light[sign] = np.maximum(light[sign], retro)
    light[canvas.mask == SKY] = 1.0
    return light


def _ground_shadows(canvas: Canvas, camera: Camera, rng: np.random.Generator) -> Weights:
    """The light (h, w) under a sun that trees and houses keep off parts of the road."""
    height, width = canvas.size
    field = window(clouds(), rng, 300, 220)
    top = int(np.clip(camera.y + 8, 0, height - 8))
    lit = np.clip(field * 6 + np.float32(rng.uniform(1.0, 5.0)), 0, 1)
    depth = np.float32(rng.uniform(0.5, 0.75))
    light: Weights = np.ones((height, width), dtype=np.float32)
    light[top:] = cv2.resize(depth + (1 - depth) * lit, (width, height - top), interpolation=cv2.INTER_LINEAR)
    light[(canvas.mask >= FIRST_SIGN) & (canvas.mask < SKY)] = 1.0
    return light


def _halos(image: Pixels, glows: list[Glow]) -> None:
    """Add the halos of lamps, at a quarter of the size."""
    height, width = image.shape[:2]
    small = np.zeros((height // 4, width // 4, 3), dtype=np.uint8)
    for x, y, radius, colour in glows:
        centre = (round(x / 4), round(y / 4))
        cv2.circle(small, centre, max(1, round(radius / 4)), colour, -1, cv2.LINE_AA)
    soft = cv2.add(cv2.GaussianBlur(small, (0, 0), 3.0), cv2.GaussianBlur(small, (0, 0), 1.0))
    cv2.add(image, cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR), dst=image)


def _rain(image: Pixels, rng: np.random.Generator) -> Pixels:
    """Streaks of rain over the picture and a little less contrast."""
    height, width = image.shape[:2]
    streaks = np.zeros((height, width), dtype=np.uint8)
    slant = rng.uniform(-0.25, 0.25)
    count = int(rng.integers(90, 240) * height * width / (480 * 640)) + 2
    xs, ys = rng.uniform(0, width, count), rng.uniform(-20, height, count)
    lengths = rng.uniform(8, 34, count)
    for x, y, length in zip(xs, ys, lengths, strict=True):
        cv2.line(streaks, (int(x), int(y)), (int(x + slant * length), int(y + length)), 44, 1, cv2.LINE_AA)
    grey: Pixels = cv2.convertScaleAbs(image, alpha=0.9, beta=14)
    out: Pixels = cv2.add(grey, cv2.cvtColor(streaks, cv2.COLOR_GRAY2RGB))
    return out


def _lens(image: Pixels, mood: Mood, rng: np.random.Generator) -> Pixels:
    """The picture with defocus and the motion of the vehicle."""
    out: Pixels = cv2.GaussianBlur(image, (5, 5) if mood.defocus > 0.8 else (3, 3), mood.defocus)
    if mood.motion:
        size = int(np.ceil(mood.motion)) | 1
        kernel = np.zeros((size, size), dtype=np.float32)
        angle = rng.normal(0, 0.5)
        reach = np.array([np.cos(angle), np.sin(angle)]) * (size // 2)
        middle = size // 2
        start = (round(middle - reach[0]), round(middle - reach[1]))
        stop = (round(middle + reach[0]), round(middle + reach[1]))
        cv2.line(kernel, start, stop, 1.0, 1)
        out = cv2.filter2D(out, -1, kernel / kernel.sum())
    return out


def _sensor(image: Pixels, mood: Mood, rng: np.random.Generator) -> Pixels:
    """The picture with the noise of the sensor, partly the same in all channels."""
    height, width = image.shape[:2]
    plus, minus = sensor(max(1, round(mood.noise)))
    y = int(rng.integers(0, plus.shape[0] - height + 1))
    x = int(rng.integers(0, plus.shape[1] - width + 1))
    spot = (slice(y, y + height), slice(x, x + width))
    out: Pixels = cv2.subtract(cv2.add(image, plus[spot]), minus[spot])
    return out


def photograph(
    canvas: Canvas, camera: Camera, mood: Mood, glows: list[Glow], rng: np.random.Generator
) -> Pixels:
    """The finished picture (h, w, 3)."""
    image = canvas.image
    light = None
    if mood.night:
        light = _headlights(canvas, camera, rng)
    elif mood.light == "sun" and rng.random() < 0.5:
        light = _ground_shadows(canvas, camera, rng)
    if light is not None:
        level = cv2.cvtColor(np.rint(light * np.float32(128)).astype(np.uint8), cv2.COLOR_GRAY2RGB)
        image = cv2.multiply(image, level, scale=1 / 128)
    if mood.night and glows:
        _halos(image, glows)
    if mood.rain:
        image = _rain(image, rng)
    return _sensor(tint(_lens(image, mood, rng), mood.gain), mood, rng)
