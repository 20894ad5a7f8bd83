"""What lies behind everything: sky, the far skyline, the ground and the road."""

import cv2
import numpy as np

from holdfast.core.types import Floats
from holdfast.data.signs.canvas import ROAD, SKY, Camera, box, clouds, rough, window
from holdfast.data.signs.conditions import SceneDrawing

FAR = 160.0
_GRAINS = 26.0  # cells of the ground's texture per metre


def paint_sky(shot: SceneDrawing) -> None:
    """A gradient with clouds over the whole picture, drawn at a quarter of the size: it is smooth."""
    mood, rng, (height, width) = shot.mood, shot.rng, shot.canvas.size
    rows, columns = height // 4, width // 4
    t = np.linspace(0, 1.6, rows, dtype=np.float32).clip(0, 1)[:, None, None]
    horizon = np.array(mood.horizon, dtype=np.float32)
    gradient = np.array(mood.zenith, dtype=np.float32) * (1 - t) + horizon * t
    field = cv2.resize(window(clouds(), rng, 300, 320), (columns, rows * 2))[rows // 2 : rows // 2 + rows]
    cover = {"sun": rng.uniform(-0.9, 0.5), "overcast": 0.8}.get(mood.light, rng.uniform(-0.6, 0.6))
    alpha = np.clip((field + np.float32(cover)) * np.float32(0.45), 0, 0.85)[..., None]
    white = horizon * np.float32(0.35) + np.float32(0.65 * (60 if mood.night else 240))
    shade = 1 - np.float32(0.12) * np.clip(field[..., None], -1, 2)
    sky = gradient * (1 - alpha) + white * shade * alpha
    small = np.clip(sky, 0, 255).astype(np.uint8)
    shot.canvas.image[:] = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    shot.canvas.mask[:] = SKY


def paint_skyline(shot: SceneDrawing) -> None:
    """Hills, woods or a town far away."""
    canvas, rng, town = shot.canvas, shot.rng, shot.road.setting == "town"
    width, base = canvas.size[1], shot.camera.y + 2
    if not town or rng.random() < 0.3:
        for layer in range(2):
            row = window(clouds(), rng, 1, width)[0].astype(np.float64)[::4]
            high = rng.uniform(14, 70) / (1 + layer)
            crest = base - high * (0.9 + 0.45 * row).clip(0.12)
            xs = np.arange(row.size) * 4.0
            outline = np.concatenate([np.stack([xs, crest], 1), [(width, base), (0, base)]])
            green = np.array([86, 104, 92]) * rng.uniform(0.75, 1.1)
            canvas.fill(outline, shot.hazy(green, 140 if layer else 320))
    if town or rng.random() < 0.35:
        x = -20.0
        while x < width:
            wide, high = rng.uniform(18, 60), rng.uniform(18, 95)
            grey = np.array([150, 150, 154]) * rng.uniform(0.6, 1.05)
            canvas.fill(box(x, base - high, x + wide, base), shot.hazy(grey, 170))
            x += wide * rng.uniform(0.7, 1.5)


def _strip(camera: Camera, left: float, right: float, near: float, far: float, steps: int = 24) -> Floats:
    depth = near * (far / near) ** np.linspace(0, 1, steps)
    return np.concatenate([camera.ground(left, depth), camera.ground(right, depth)[::-1]])


def _near(shot: SceneDrawing) -> float:
    """The depth of the ground at the bottom edge of the picture, a little nearer to be safe."""
    camera = shot.camera
    return 0.8 * camera.focal * camera.height / max(20.0, shot.canvas.size[0] - camera.y)


def _markings(shot: SceneDrawing) -> None:
    canvas, camera, road, rng, near = shot.canvas, shot.camera, shot.road, shot.rng, _near(shot)
    paint = np.array([214, 214, 208]) * rng.uniform(0.78, 1.05)
    lane = (road.right - road.left) / road.lanes
    for edge, inset in ((road.left, 0.25), (road.right, -0.25)):
        if road.setting != "country" or rng.random() < 0.7:
            canvas.fill(_strip(camera, edge + inset - 0.08, edge + inset + 0.08, near, FAR), paint, ROAD)
    yellow = np.array([218, 170, 50]) * rng.uniform(0.8, 1.05)
    solid = rng.random() < 0.4
    for number in range(1, road.lanes):
        x = road.left + number * lane
        middle = number * 2 == road.lanes
        if middle and solid:
            for shift in (-0.12, 0.12):
                canvas.fill(_strip(camera, x + shift - 0.06, x + shift + 0.06, near, FAR), yellow, ROAD)
            continue
        z = near + rng.uniform(0, 4)
        while z < 90:
            canvas.fill(_strip(camera, x - 0.08, x + 0.08, z, z + 3.5, 4), yellow if middle else paint, ROAD)
            z += 8.5
    if road.setting == "town" and rng.random() < 0.35:
        z = rng.uniform(10, 25)
        for x in np.arange(road.left + 0.4, road.right - 0.4, 1.0):
            canvas.fill(_strip(camera, x, x + 0.5, z, z + 3.0, 3), paint, ROAD)


def _depths(shot: SceneDrawing, below: int) -> tuple[int, Floats]:
    """The first row of the ground, `below` rows under the horizon, and the depth of each row in metres."""
    camera, height = shot.camera, shot.canvas.size[0]
    top = int(np.clip(np.ceil(camera.y) + below, 0, height - 2))
    return top, camera.focal * camera.height / (np.arange(top, height) + 0.5 - camera.y).clip(0.7)


def _texture(shot: SceneDrawing) -> None:
    """Multiply the ground by noise that lies on it in perspective."""
    canvas, camera, width = shot.canvas, shot.camera, shot.canvas.size[1]
    top, exact = _depths(shot, 1)
    depth = exact.astype(np.float32)
    columns = (np.arange(width, dtype=np.float32) - np.float32(camera.x)) * np.float32(_GRAINS / camera.focal)
    shift = shot.rng.uniform(0, 1024, 2).astype(np.float32)
    u = depth[:, None] * columns + shift[0]
    v = np.repeat((depth * np.float32(_GRAINS) + shift[1])[:, None], width, axis=1)
    grain = cv2.remap(rough(), u, v, cv2.INTER_NEAREST, borderMode=cv2.BORDER_WRAP)
    # far grains are smaller than a pixel: they even out
    fade = np.clip(6 * 64 / depth, 16, 64).astype(np.int16)[:, None]
    level = (128 + (((grain.astype(np.int16) - 128) * fade) >> 6)).astype(np.uint8)
    colours = cv2.cvtColor(level, cv2.COLOR_GRAY2RGB)
    canvas.image[top:] = cv2.multiply(canvas.image[top:], colours, scale=1 / 128)


def paint_ground(shot: SceneDrawing) -> None:
    """Verges, road and its markings, with the texture of asphalt and grass, fading into the haze."""
    canvas, camera, road, rng = shot.canvas, shot.camera, shot.road, shot.rng
    height, width = canvas.size
    verge = {"town": (150, 146, 140), "country": (104, 116, 62), "highway": (110, 118, 70)}[road.setting]
    soil = np.array(verge) * rng.uniform(0.8, 1.12) * (1 + rng.uniform(-0.06, 0.06, 3))
    canvas.fill(box(-5, camera.y, width + 5, height + 5), shot.hazy(soil, 30))
    near = _near(shot)
    if road.setting == "town":
        for edge, sign in ((road.left, -1), (road.right, 1)):
            canvas.fill(_strip(camera, edge, edge + sign * 0.3, near, FAR), soil * 1.16)
    else:
        dust = np.array([150, 138, 112]) * rng.uniform(0.8, 1.05)
        canvas.fill(_strip(camera, road.left - 0.8, road.right + 0.8, near, FAR), dust)
    asphalt = np.array([104, 104, 106]) * rng.uniform(0.62, 1.15) * (1 + rng.uniform(-0.03, 0.03, 3))
    canvas.fill(_strip(camera, road.left, road.right, near, FAR), asphalt, ROAD)
    _markings(shot)
    if camera.y < height - 2:
        _texture(shot)
        # the ground blends towards the horizon's colour with its depth
        top, depth = _depths(shot, 0)
        below = np.ascontiguousarray(canvas.image[top:])
        clear = np.exp(-shot.mood.haze * np.minimum(depth, 400)).astype(np.float32)
        weight = np.repeat(clear[:, None], width, axis=1)
        air = np.empty_like(below)
        air[:] = shot.mood.horizon
        canvas.image[top:] = cv2.blendLinear(below, air, weight, 1 - weight)
