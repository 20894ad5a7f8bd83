"""What stands along the road and drives on it, drawn from far to near before the signs."""

from collections.abc import Callable

import numpy as np

from holdfast.core.types import Floats
from holdfast.data.signs import sprites
from holdfast.data.signs.canvas import box, circle
from holdfast.data.signs.conditions import Rgb, SceneDrawing

Draw = Callable[[SceneDrawing, float, float], None]  # at a lateral distance and a depth in metres
_PAINTS = (
    *((1.0, 1.0, 1.0), (0.3, 0.3, 0.33), (0.62, 0.64, 0.66)),
    *((0.75, 0.2, 0.2), (0.25, 0.36, 0.62), (0.5, 0.45, 0.36)),
)
_PANELS = ((30, 84, 170), (190, 40, 40), (36, 120, 76), (226, 190, 60), (236, 236, 234), (24, 96, 150))
_LAMPS: tuple[Rgb, ...] = ((226.0, 40.0, 36.0), (240.0, 190.0, 50.0), (40.0, 200.0, 120.0))


def _through(shot: SceneDrawing, depth: float, gain: float) -> Floats:
    """A gain (3,) that darkens by `gain` and lightens towards the haze with depth."""
    return np.array(shot.hazy((118.0 * gain,) * 3, depth)) / 118.0


def _tree(shot: SceneDrawing, x: float, z: float) -> None:
    rng, (x, y, scale) = shot.rng, shot.camera.foot(x, z)
    tall = rng.uniform(4.5, 9.0) * scale
    half = tall * rng.uniform(0.6, 0.95) / 2
    sprite = sprites.fitting("tree", int(rng.integers(sprites.TREES)), tall)
    if rng.random() < 0.5:
        sprite = sprite[:, ::-1]
    light = _through(shot, z, rng.uniform(0.75, 1.15))
    gain = light * (rng.uniform(0.85, 1.25), 1.0, rng.uniform(0.8, 1.1))
    shot.canvas.paste(sprite, (x - half, y - tall, x + half, y), gain.tolist())


def _houses(shot: SceneDrawing, side: int) -> None:
    """A street front: walls along the road that recede towards the vanishing point."""
    camera, rng = shot.camera, shot.rng
    setback = rng.uniform(3.5, 8.0)
    edge = shot.road.right + setback if side > 0 else shot.road.left - setback
    z = rng.uniform(70, 90)
    while z > 7:
        near = max(4.0, z - rng.uniform(8, 16))
        tall = rng.uniform(6, 18)
        texture = sprites.front(int(rng.integers(sprites.FRONTS)))
        low, high = camera.ground(edge, [near, z]), camera.ground(edge, [near, z], tall)
        back = camera.ground(edge + side * 14, near, [tall, 0.0])
        wall = [high[0], high[1], low[1], low[0]]
        end = [back[0], high[0], low[0], back[1]]
        if side > 0:  # mirrored: corners begin at the top left
            wall = [high[1], high[0], low[0], low[1]]
            end = [high[0], back[0], back[1], low[0]]
        gain = _through(shot, (near + z) / 2, rng.uniform(0.55, 1.05))
        shade = _through(shot, near, rng.uniform(0.5, 0.9))
        shot.canvas.paste_quad(texture, np.array(end), shade.tolist())
        shot.canvas.paste_quad(texture, np.array(wall), gain.tolist())
        z = near - rng.choice([0.0, 0.0, 2.5])


def _rail(shot: SceneDrawing, x: float) -> None:
    camera = shot.camera
    for z in np.arange(80.0, 4.0, -4.0):
        (foot, bottom), (_, top) = camera.ground(x, z, [0.0, 0.72])
        shot.canvas.post(foot, top, bottom, 0.12 * camera.focal / z, 120)
    depth = 1.5 * 80.0 ** np.linspace(0, 1, 22)
    for low, high, grey in ((0.42, 0.72, 176.0), (0.54, 0.6, 128.0)):
        band = np.concatenate([camera.ground(x, depth, low), camera.ground(x, depth, high)[::-1]])
        shot.canvas.fill(band, shot.hazy((grey, grey, grey * 1.02), 20))


def _bush(shot: SceneDrawing, x: float, z: float) -> None:
    rng, (x, y, scale) = shot.rng, shot.camera.foot(x, z)
    tall = rng.uniform(0.5, 1.5) * scale
    half = tall * rng.uniform(0.9, 1.8) / 2
    gain = _through(shot, z, rng.uniform(0.7, 1.1)) * (rng.uniform(0.9, 1.3), 1.0, 0.9)
    sprite = sprites.fitting("leaves", int(rng.integers(sprites.LEAVES)), tall)
    shot.canvas.paste(sprite, (x - half, y - tall * 0.9, x + half, y + tall * 0.1), gain.tolist())


def _signals(shot: SceneDrawing, x: float, z: float) -> None:
    """Traffic lights on a post: lamps of the signs' colours that are no signs."""
    x, y, scale = shot.camera.foot(x, z)
    top = y - 3.4 * scale
    shot.canvas.post(x, top, y, 0.14 * scale, shot.hazy((110.0, 110.0, 110.0), z)[0])
    half, tall = 0.17 * scale, 1.0 * scale
    shot.canvas.fill(box(x - half, top, x + half, top + tall), shot.hazy((34.0, 34.0, 36.0), z))
    lit = int(shot.rng.integers(3))
    for number, colour in enumerate(_LAMPS):
        y = top + tall * (0.2 + 0.3 * number)
        dim = 1.0 if number == lit else 0.28
        shot.canvas.fill(circle(x, y, 0.11 * scale), shot.hazy(np.array(colour) * dim, z))
        if number == lit:
            red, green, blue = colour
            shot.glows.append((x, y, 0.11 * scale, (red * 0.6, green * 0.6, blue * 0.6)))


def _lamp(shot: SceneDrawing, x: float, z: float) -> None:
    lean = -1.0 if x > 0 else 1.0
    top = shot.camera.ground(x, z, 8.0)[1]
    x, y, scale = shot.camera.foot(x, z)
    grey = shot.hazy((120.0, 122.0, 126.0), z)[0]
    shot.canvas.post(x, top, y, 0.16 * scale, grey)
    head, bar = x + lean * 1.8 * scale, max(1.0, 0.1 * scale)
    shot.canvas.fill(box(min(x, head), top, max(x, head), top + bar), (grey,) * 3)
    y = top + bar
    shot.canvas.fill(box(head - 0.4 * scale, y, head + 0.4 * scale, y + bar), (min(255.0, grey * 1.3),) * 3)
    shot.glows.append((head, y, 0.35 * scale, (150.0, 134.0, 96.0)))


def _vehicle(shot: SceneDrawing, x: float, z: float) -> None:
    oncoming = shot.road.setting != "highway" and x < (shot.road.left + shot.road.right) / 2
    rng, (x, y, scale) = shot.rng, shot.camera.foot(x, z)
    variant = int(rng.choice(5, p=(0.36, 0.26, 0.14, 0.14, 0.1)))
    sizes = {"saloon": (1.8, 1.45), "estate": (1.85, 1.6), "van": (1.9, 1.9)}
    wide, tall = sizes.get(sprites.VEHICLES[variant], (2.5, 3.0))
    half = wide * scale / 2
    shadow = box(x - half * 1.05, y - 0.12 * scale, x + half * 1.05, y + 0.06 * scale)
    shot.canvas.fill(shadow, (42, 42, 44))
    gain = np.array(_PAINTS[int(rng.integers(len(_PAINTS)))]) * _through(shot, z, 1.0)
    variant += len(sprites.VEHICLES) * oncoming
    sprite = sprites.fitting("vehicle", variant, max(wide, tall) * scale)
    shot.canvas.paste(sprite, (x - half, y - tall * scale, x + half, y), gain.tolist())
    colour = (230.0, 226.0, 200.0) if oncoming else (150.0, 20.0, 16.0)
    lamps = (x - half * 0.78, x + half * 0.78)
    shot.glows.extend((lamp, y - 0.55 * scale, 0.12 * scale, colour) for lamp in lamps)


def _panel(shot: SceneDrawing, x: float, z: float) -> None:
    """Something with the colours or the shape of a sign that is none: hoarding, lamp, the back of a sign."""
    canvas, rng, (x, foot, scale) = shot.canvas, shot.rng, shot.camera.foot(x, z)
    y = foot - rng.uniform(1.8, 4.0) * scale
    canvas.post(x, y, foot, 0.12 * scale, 120)
    colour = shot.hazy(np.array(_PANELS[int(rng.integers(len(_PANELS)))]) * rng.uniform(0.7, 1.05), z)
    if rng.random() < 0.55:
        w, h, white = rng.uniform(0.4, 1.6) * scale, rng.uniform(0.3, 0.8) * scale, (225, 225, 222)
        canvas.fill(box(x - w, y - h, x + w, y + h), white)
        canvas.fill(box(x - w * 0.96, y - h * 0.95, x + w * 0.96, y + h * 0.95), colour)
        for row in range(int(rng.integers(0, 4))):
            top = y - h * 0.6 + row * h * 0.45
            canvas.fill(box(x - w * 0.8, top, x + w * rng.uniform(0.0, 0.8), top + h * 0.14), white)
        return
    plain = colour if rng.random() < 0.5 else shot.hazy((158.0, 160.0, 162.0), z)
    canvas.fill(circle(x, y, rng.uniform(0.15, 0.4) * scale), plain)


def paint_roadside(shot: SceneDrawing) -> None:
    """Houses, trees, rails, lamps, vehicles and distractors."""
    road, rng = shot.road, shot.rng
    for side in (-1, 1):
        if road.setting == "town" and rng.random() < 0.75:
            _houses(shot, side)
    if road.setting == "highway" or rng.random() < 0.2:
        for x in (road.left - 0.9, road.right + 0.9):
            if rng.random() < 0.75:
                _rail(shot, x)
    for z, x, draw in sorted(_things(shot), key=lambda thing: thing[:2], reverse=True):
        draw(shot, x, z)


def _things(shot: SceneDrawing) -> list[tuple[float, float, Draw]]:
    """What stands where: depth and lateral distance in metres, and how it is drawn."""
    road, rng = shot.road, shot.rng
    things: list[tuple[float, float, Draw]] = []

    def scatter(draw: Draw, count: int, near: float, far: float, start: float, stop: float) -> None:
        for _ in range(count):
            side = 1 if rng.random() < 0.55 else -1
            edge = road.right if side > 0 else road.left
            things.append((rng.uniform(near, far), edge + side * rng.uniform(start, stop), draw))

    scatter(_tree, int(rng.integers(2, 15)), 10, 75, 2.2, 14)
    scatter(_bush, 0 if road.setting == "town" else int(rng.integers(0, 9)), 7, 50, 1.4, 9)
    scatter(_panel, int(rng.integers(0, 3)), 9, 34, 1.5, 6)
    if road.setting == "town":
        scatter(_signals, int(rng.integers(0, 3)), 12, 40, 0.8, 1.6)
        scatter(_vehicle, int(rng.integers(0, 4)), 12, 45, -1.3, -1.0)
    if rng.random() < 0.55:
        gap = rng.uniform(10, 24)
        for edge in (road.left - 0.9, road.right + 0.9):
            things.extend((z, edge, _lamp) for z in np.arange(gap * 0.8, 80, gap).tolist())
    lane = (road.right - road.left) / road.lanes
    for _ in range(int(rng.integers(0, 4))):
        z = rng.uniform(9, 60)
        things.append((z, road.left + lane * (int(rng.integers(road.lanes)) + 0.5), _vehicle))
    return things
