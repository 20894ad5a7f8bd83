"""The conditions under which a scene is seen, chosen before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


def choose(rng: np.random.Generator) -> Mood:
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
