"""What stands along the road and drives on it, drawn from far to near before the signs."""

from __future__ import annotations

import numpy as np

from holdfast.data.signs import sprites
from holdfast.data.signs.backdrop import Road, hazy
from holdfast.data.signs.canvas import Camera, Canvas, box, circle, fill, paste, paste_quad, post
from holdfast.data.signs.conditions import Glow, Mood

_PAINTS = (
    (1.0, 1.0, 1.0),
    (0.3, 0.3, 0.33),
    (0.62, 0.64, 0.66),
    (0.75, 0.2, 0.2),
    (0.25, 0.36, 0.62),
    (0.5, 0.45, 0.36),
)


_PANELS = ((30, 84, 170), (190, 40, 40), (36, 120, 76), (226, 190, 60), (236, 236, 234), (24, 96, 150))


def _through(mood: Mood, depth: float, gain: float) -> tuple[float, float, float]:
    """A gain that darkens by `gain` and lightens towards the haze with depth."""
    seen = hazy((118.0 * gain, 118.0 * gain, 118.0 * gain), mood, depth)
    return (seen[0] / 118.0, seen[1] / 118.0, seen[2] / 118.0)


def _tree(canvas: Canvas, camera: Camera, mood: Mood, x: float, z: float, rng: np.random.Generator) -> None:
    foot = camera.ground(x, z)
    scale = camera.focal / z
    tall = rng.uniform(4.5, 9.0) * scale
    wide = tall * rng.uniform(0.6, 0.95)
    sprite = sprites.fitting("tree", int(rng.integers(sprites.TREES)), tall)
    if rng.random() < 0.5:
        sprite = sprite[:, ::-1]
    light = np.array(_through(mood, z, rng.uniform(0.75, 1.15)))
    gain = light * (rng.uniform(0.85, 1.25), 1.0, rng.uniform(0.8, 1.1))
    paste(canvas, sprite, foot[0] - wide / 2, foot[1] - tall, foot[0] + wide / 2, foot[1], gain.tolist())


def _houses(
    canvas: Canvas, camera: Camera, road: Road, mood: Mood, side: int, rng: np.random.Generator
) -> None:
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
        left, right = (0, 1) if side < 0 else (1, 0)
        corners = np.array([high[left], high[right], low[right], low[left]])
        gain = _through(mood, (near + z) / 2, rng.uniform(0.55, 1.05))
        back = camera.ground(edge + side * 14, near, [tall, 0.0])
        end = np.array(
            [high[0], back[0], back[1], low[0]] if side > 0 else [back[0], high[0], low[0], back[1]]
        )
        shade = _through(mood, near, rng.uniform(0.5, 0.9))
        paste_quad(canvas, texture, end, shade)
        paste_quad(canvas, texture, corners, gain)
        z = near - rng.choice([0.0, 0.0, 2.5])


def _rail(canvas: Canvas, camera: Camera, mood: Mood, x: float) -> None:
    """A guard rail on short posts."""
    depth = np.arange(80.0, 4.0, -4.0)
    feet, heads = camera.ground(x, depth), camera.ground(x, depth, 0.72)
    for z, foot, head in zip(depth, feet, heads, strict=True):
        post(canvas, foot[0], head[1], foot[1], 0.12 * camera.focal / z, 120)
    depth = 1.5 * 80.0 ** np.linspace(0, 1, 22)
    for low, high, grey in ((0.42, 0.72, 176.0), (0.54, 0.6, 128.0)):
        band = np.concatenate([camera.ground(x, depth, low), camera.ground(x, depth, high)[::-1]])
        fill(canvas, band, hazy((grey, grey, grey * 1.02), mood, 20))


def _bush(canvas: Canvas, camera: Camera, mood: Mood, x: float, z: float, rng: np.random.Generator) -> None:
    """A low bush on the verge."""
    foot = camera.ground(x, z)
    scale = camera.focal / z
    tall = rng.uniform(0.5, 1.5) * scale
    wide = tall * rng.uniform(0.9, 1.8)
    gain = np.array(_through(mood, z, rng.uniform(0.7, 1.1))) * (rng.uniform(0.9, 1.3), 1.0, 0.9)
    sprite = sprites.fitting("leaves", int(rng.integers(sprites.LEAVES)), tall)
    left, right = foot[0] - wide / 2, foot[0] + wide / 2
    paste(canvas, sprite, left, foot[1] - tall * 0.9, right, foot[1] + tall * 0.1, gain.tolist())


def _signals(
    canvas: Canvas, camera: Camera, mood: Mood, x: float, z: float, rng: np.random.Generator
) -> list[Glow]:
    """Traffic lights on a post: lamps of the signs' colours that are no signs."""
    foot = camera.ground(x, z)
    scale = camera.focal / z
    top = foot[1] - 3.4 * scale
    post(canvas, foot[0], top, foot[1], 0.14 * scale, hazy((110.0, 110.0, 110.0), mood, z)[0])
    half, tall = 0.17 * scale, 1.0 * scale
    fill(canvas, box(foot[0] - half, top, foot[0] + half, top + tall), hazy((34.0, 34.0, 36.0), mood, z))
    lit = int(rng.integers(3))
    colours = ((226.0, 40.0, 36.0), (240.0, 190.0, 50.0), (40.0, 200.0, 120.0))
    for number, colour in enumerate(colours):
        y = top + tall * (0.2 + 0.3 * number)
        shown = colour if number == lit else tuple(c * 0.28 for c in colour)
        fill(canvas, circle(foot[0], y, 0.11 * scale), hazy(np.array(shown), mood, z))
    red, green, blue = colours[lit]
    halo = (red * 0.6, green * 0.6, blue * 0.6)
    return [(float(foot[0]), float(top + tall * (0.2 + 0.3 * lit)), 0.11 * scale, halo)]


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
    canvas: Canvas,
    camera: Camera,
    mood: Mood,
    x: float,
    z: float,
    rng: np.random.Generator,
    *,
    oncoming: bool,
) -> list[Glow]:
    variant = int(rng.choice(5, p=(0.36, 0.26, 0.14, 0.14, 0.1)))
    kind = sprites.VEHICLES[variant]
    if oncoming:
        variant += len(sprites.VEHICLES)
    wide, tall = {"saloon": (1.8, 1.45), "estate": (1.85, 1.6), "van": (1.9, 1.9)}.get(kind, (2.5, 3.0))
    scale = camera.focal / z
    foot = camera.ground(x, z)
    half = wide * scale / 2
    shadow = box(foot[0] - half * 1.05, foot[1] - 0.12 * scale, foot[0] + half * 1.05, foot[1] + 0.06 * scale)
    fill(canvas, shadow, (42, 42, 44))
    gain = np.array(_PAINTS[int(rng.integers(len(_PAINTS)))]) * _through(mood, z, 1.0)
    sprite = sprites.fitting("vehicle", variant, max(wide, tall) * scale)
    paste(canvas, sprite, foot[0] - half, foot[1] - tall * scale, foot[0] + half, foot[1], gain.tolist())
    y = foot[1] - 0.55 * scale
    colour = (230.0, 226.0, 200.0) if oncoming else (150.0, 20.0, 16.0)
    return [(foot[0] + side * half * 0.78, y, 0.12 * scale, colour) for side in (-1, 1)]


def _distractor(
    canvas: Canvas, camera: Camera, mood: Mood, x: float, z: float, rng: np.random.Generator
) -> None:
    """Something with the colours or the shape of a sign that is none: hoarding, lamp, the back of a sign."""
    scale = camera.focal / z
    foot = camera.ground(x, z)
    high = rng.uniform(1.8, 4.0) * scale
    post(canvas, foot[0], foot[1] - high, foot[1], 0.12 * scale, 120)
    colour = hazy(np.array(_PANELS[int(rng.integers(len(_PANELS)))]) * rng.uniform(0.7, 1.05), mood, z)
    cx, cy = foot[0], foot[1] - high
    if rng.random() < 0.55:
        w, h = rng.uniform(0.4, 1.6) * scale, rng.uniform(0.3, 0.8) * scale
        fill(canvas, box(cx - w, cy - h, cx + w, cy + h), (225, 225, 222))
        fill(canvas, box(cx - w * 0.96, cy - h * 0.95, cx + w * 0.96, cy + h * 0.95), colour)
        for row in range(int(rng.integers(0, 4))):
            y = cy - h * 0.6 + row * h * 0.45
            fill(canvas, box(cx - w * 0.8, y, cx + w * rng.uniform(0.0, 0.8), y + h * 0.14), (225, 225, 222))
        return
    plain = colour if rng.random() < 0.5 else hazy((158.0, 160.0, 162.0), mood, z)
    fill(canvas, circle(cx, cy, rng.uniform(0.15, 0.4) * scale), plain)


def paint_roadside(
    canvas: Canvas, camera: Camera, road: Road, mood: Mood, rng: np.random.Generator
) -> list[Glow]:
    """Houses, trees, rails, lamps, vehicles and distractors; the lamps that shine at night."""
    for side in (-1, 1):
        if road.setting == "town" and rng.random() < 0.75:
            _houses(canvas, camera, road, mood, side, rng)
    if road.setting == "highway" or rng.random() < 0.2:
        for x in (road.left - 0.9, road.right + 0.9):
            if rng.random() < 0.75:
                _rail(canvas, camera, mood, x)
    glows: list[Glow] = []
    for z, kind, x in sorted(_things(road, rng), reverse=True):
        if kind == "tree":
            _tree(canvas, camera, mood, x, z, rng)
        elif kind == "bush":
            _bush(canvas, camera, mood, x, z, rng)
        elif kind == "lamp":
            glows += _lamp(canvas, camera, mood, x, z, -1.0 if x > 0 else 1.0)
        elif kind == "vehicle":
            oncoming = road.setting != "highway" and x < (road.left + road.right) / 2
            glows += _vehicle(canvas, camera, mood, x, z, rng, oncoming=oncoming)
        elif kind == "signals":
            glows += _signals(canvas, camera, mood, x, z, rng)
        else:
            _distractor(canvas, camera, mood, x, z, rng)
    return glows


def _things(road: Road, rng: np.random.Generator) -> list[tuple[float, str, float]]:
    """What stands where: depth, kind and lateral distance in metres."""
    things: list[tuple[float, str, float]] = []

    def scatter(kind: str, count: int, near: float, far: float, out: float, *, start: float) -> None:
        for _ in range(count):
            side = 1 if rng.random() < 0.55 else -1
            edge = road.right if side > 0 else road.left
            things.append((float(rng.uniform(near, far)), kind, edge + side * float(rng.uniform(start, out))))

    scatter("tree", int(rng.integers(2, 15)), 10, 75, 14, start=2.2)
    scatter("bush", 0 if road.setting == "town" else int(rng.integers(0, 9)), 7, 50, 9, start=1.4)
    scatter("panel", int(rng.integers(0, 3)), 9, 34, 6, start=1.5)
    if road.setting == "town":
        scatter("signals", int(rng.integers(0, 3)), 12, 40, 1.6, start=0.8)
        scatter("vehicle", int(rng.integers(0, 4)), 12, 45, -1.0, start=-1.3)
    if rng.random() < 0.55:
        gap = rng.uniform(10, 24)
        for edge in (road.left - 0.9, road.right + 0.9):
            things.extend((float(z), "lamp", edge) for z in np.arange(gap * 0.8, 80, gap))
    lane = (road.right - road.left) / road.lanes
    things.extend(
        (float(rng.uniform(9, 60)), "vehicle", road.left + lane * (int(rng.integers(road.lanes)) + 0.5))
        for _ in range(int(rng.integers(0, 4)))
    )
    return things
