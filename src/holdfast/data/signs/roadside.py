"""What stands along the road and drives on it, drawn from far to near before the signs."""

from __future__ import annotations

import numpy as np

from holdfast.data.signs import sprites
from holdfast.data.signs.backdrop import Road, hazy
from holdfast.data.signs.canvas import Camera, Canvas, box, fill, paste, paste_quad, post
from holdfast.data.signs.finish import Glow
from holdfast.data.signs.mood import Mood

_PAINTS = ((1.0, 1.0, 1.0), (0.3, 0.3, 0.33), (0.62, 0.64, 0.66), (0.75, 0.2, 0.2), (0.25, 0.36, 0.62), (0.5, 0.45, 0.36))


def _through(mood: Mood, depth: float, gain: float) -> tuple[float, float, float]:
    """A gain that darkens by `gain` and lightens towards the haze with depth."""
    seen = hazy((118.0 * gain, 118.0 * gain, 118.0 * gain), mood, depth)
    return (seen[0] / 118.0, seen[1] / 118.0, seen[2] / 118.0)


def _tree(canvas: Canvas, camera: Camera, mood: Mood, x: float, z: float, rng: np.random.Generator) -> None:
    foot = camera.ground(x, z)
    scale = camera.focal / z
    tall = rng.uniform(4.5, 9.0) * scale
    wide = tall * rng.uniform(0.6, 0.95)
    sprite = sprites.tree(int(rng.integers(sprites.TREES)))
    if rng.random() < 0.5:
        sprite = sprite[:, ::-1]
    gain = np.array(_through(mood, z, rng.uniform(0.75, 1.15))) * (rng.uniform(0.85, 1.25), 1.0, rng.uniform(0.8, 1.1))
    paste(canvas, sprite, foot[0] - wide / 2, foot[1] - tall, foot[0] + wide / 2, foot[1], gain.tolist())


def _houses(canvas: Canvas, camera: Camera, road: Road, mood: Mood, side: int, rng: np.random.Generator) -> None:
    """A street front: walls along the road that recede towards the vanishing point."""
    setback = rng.uniform(3.5, 8.0)
    edge = road.right + setback if side > 0 else road.left - setback
    z = rng.uniform(70, 90)
    while z > 7:
        deep = rng.uniform(8, 16)
        near = max(4.0, z - deep)
        tall = rng.uniform(6, 18)
        texture = sprites.front(int(rng.integers(sprites.FRONTS)))
        low, high = camera.ground(edge, [near, z]), camera.ground(edge, [near, z], tall)
        corners = np.array([high[0], high[1], low[1], low[0]]) if side < 0 else np.array([high[1], high[0], low[0], low[1]])
        gain = _through(mood, (near + z) / 2, rng.uniform(0.55, 1.05))
        back = camera.ground(edge + side * 14, near, [tall, 0.0])
        end = np.array([high[0], back[0], back[1], low[0]])
        fill(canvas, end, hazy(np.array([150, 144, 138]) * rng.uniform(0.5, 0.9), mood, near))
        paste_quad(canvas, texture, corners, gain)
        z = near - rng.choice([0.0, 0.0, 2.5])


def _rail(canvas: Canvas, camera: Camera, mood: Mood, x: float) -> None:
    depth = np.geomspace(3.0, 120.0, 20)
    for z in np.arange(80.0, 4.0, -4.0):
        foot, head = camera.ground(x, z), camera.ground(x, z, 0.72)
        post(canvas, foot[0], head[1], foot[1], 0.12 * camera.focal / z, 120)
    for low, high, grey in ((0.42, 0.72, 176.0), (0.54, 0.6, 128.0)):
        band = np.concatenate([camera.ground(x, depth, low), camera.ground(x, depth, high)[::-1]])
        fill(canvas, band, hazy((grey, grey, grey * 1.02), mood, 20))


def _lamp(canvas: Canvas, camera: Camera, mood: Mood, x: float, z: float, lean: float) -> list[Glow]:
    foot, head = camera.ground(x, z), camera.ground(x, z, 8.0)
    scale = camera.focal / z
    grey = hazy((120.0, 122.0, 126.0), mood, z)[0]
    post(canvas, foot[0], head[1], foot[1], 0.16 * scale, grey)
    reach = lean * 1.8 * scale
    bar = max(1.0, 0.1 * scale)
    x0, x1 = sorted((foot[0], foot[0] + reach))
    fill(canvas, box(x0, head[1], x1, head[1] + bar), (grey, grey, grey))
    x, y = foot[0] + reach, head[1] + bar
    fill(canvas, box(x - 0.4 * scale, y, x + 0.4 * scale, y + bar), (min(255.0, grey * 1.3),) * 3)
    return [(x, y, 0.35 * scale, (150.0, 134.0, 96.0))]


def _vehicle(
    canvas: Canvas, camera: Camera, mood: Mood, x: float, z: float, rng: np.random.Generator
) -> list[Glow]:
    kind = sprites.VEHICLES[int(rng.choice(5, p=(0.36, 0.26, 0.14, 0.14, 0.1)))]
    wide, tall = {"saloon": (1.8, 1.45), "estate": (1.85, 1.6), "van": (1.9, 1.9)}.get(kind, (2.5, 3.0))
    scale = camera.focal / z
    foot = camera.ground(x, z)
    half = wide * scale / 2
    shadow = box(foot[0] - half * 1.05, foot[1] - 0.12 * scale, foot[0] + half * 1.05, foot[1] + 0.06 * scale)
    fill(canvas, shadow, (42, 42, 44))
    gain = np.array(_PAINTS[int(rng.integers(len(_PAINTS)))]) * _through(mood, z, 1.0)
    paste(canvas, sprites.vehicle(kind), foot[0] - half, foot[1] - tall * scale, foot[0] + half, foot[1], gain.tolist())
    y = foot[1] - 0.55 * scale
    return [(foot[0] + side * half * 0.78, y, 0.12 * scale, (150.0, 20.0, 16.0)) for side in (-1, 1)]


def distractor(canvas: Canvas, camera: Camera, road: Road, mood: Mood, rng: np.random.Generator) -> None:
    """Something with the colours or the shape of a sign that is none: panel, hoarding, lamp."""
    side = 1 if rng.random() < 0.6 else -1
    z = rng.uniform(9, 32)
    x = (road.right if side > 0 else road.left) + side * rng.uniform(1.5, 6)
    scale = camera.focal / z
    foot = camera.ground(x, z)
    high = rng.uniform(1.8, 4.0) * scale
    kind = int(rng.integers(4))
    post(canvas, foot[0], foot[1] - high, foot[1], 0.12 * scale, 120)
    colours = ((30, 84, 170), (190, 40, 40), (36, 120, 76), (226, 190, 60), (236, 236, 234))
    colour = hazy(np.array(colours[int(rng.integers(5))]) * rng.uniform(0.7, 1.05), mood, z)
    cx, cy = foot[0], foot[1] - high
    if kind < 2:
        w, h = rng.uniform(0.5, 1.6) * scale, rng.uniform(0.3, 0.8) * scale
        fill(canvas, box(cx - w, cy - h, cx + w, cy + h), colour)
        for row in range(int(rng.integers(0, 4))):
            y = cy - h * 0.6 + row * h * 0.45
            fill(canvas, box(cx - w * 0.8, y, cx + w * rng.uniform(0.0, 0.8), y + h * 0.14), (225, 225, 222))
    else:
        t = np.linspace(0, 2 * np.pi, 32)
        radius = rng.uniform(0.15, 0.35) * scale
        ring = np.stack([cx + radius * np.cos(t), cy + radius * np.sin(t)], 1)
        fill(canvas, ring, colour if kind == 2 else (232, 226, 206))


def paint_roadside(canvas: Canvas, camera: Camera, road: Road, mood: Mood, rng: np.random.Generator) -> list[Glow]:
    """Houses, trees, rails, lamps, vehicles and distractors; the lamps that shine at night."""
    glows: list[Glow] = []
    for side in (-1, 1):
        if road.setting == "town" and rng.random() < 0.75:
            _houses(canvas, camera, road, mood, side, rng)
    if road.setting == "highway" or rng.random() < 0.2:
        for x in (road.left - 0.9, road.right + 0.9):
            if rng.random() < 0.75:
                _rail(canvas, camera, mood, x)
    gap = rng.uniform(9, 22)
    things: list[tuple[float, int, float]] = []
    lamps = rng.random() < 0.55
    for side in (-1, 1):
        edge = road.right if side > 0 else road.left
        for _ in range(int(rng.integers(1, 9))):
            things.append((float(rng.uniform(9, 75)), 0, edge + side * float(rng.uniform(2.2, 14))))
        if lamps:
            things.extend((float(z), 1, edge + side * 0.9) for z in np.arange(gap * 0.7, 80, gap))
    lane = (road.right - road.left) / road.lanes
    for _ in range(int(rng.integers(0, 4))):
        x = road.left + lane * (int(rng.integers(road.lanes)) + 0.5)
        things.append((float(rng.uniform(9, 60)), 2, x))
    for _ in range(int(rng.integers(0, 3))):
        things.append((float(rng.uniform(9, 32)), 3, 0.0))
    for z, kind, x in sorted(things, reverse=True):
        if kind == 0:
            _tree(canvas, camera, mood, x, z, rng)
        elif kind == 1:
            glows += _lamp(canvas, camera, mood, x, z, -1.0 if x > 0 else 1.0)
        elif kind == 2:
            glows += _vehicle(canvas, camera, mood, x, z, rng)
        else:
            distractor(canvas, camera, road, mood, rng)
    return glows
