"""Signs: where those of a scene stand, each drawn with its carrier, and what may hide a part of it."""

from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np

from holdfast.core.types import Floats, Image, Tensor
from holdfast.data.signs import sprites
from holdfast.data.signs.canvas import FIRST_SIGN, GROUP_OF, HEIGHT, Box, box, clouds, weights_of, window
from holdfast.data.signs.conditions import SceneDrawing
from holdfast.data.signs.faces import face, nearest_size

SMALLEST: Final = 24.0
LARGEST: Final = 170.0
_COUNTS: Final = (0.25, 0.30, 0.23, 0.14, 0.08)
_TRIES: Final = 40


@dataclass(frozen=True)
class SignPlacement:
    """One sign to be drawn: its class, centre and side in pixels, and its depth in metres."""

    label: int
    x: float
    y: float
    size: float
    depth: float
    yaw: float
    roll: float
    foot: float  # the row where its mast meets the ground
    mast: float  # the column: that of the sign, or of the roadside if it hangs on an arm above the road

    @property
    def extent(self) -> Box:
        """The square about the face, xyxy, with a margin that keeps signs apart."""
        half = 0.5 * self.size + 3.0
        return self.x - half, self.y - half, self.x + half, self.y + half

    @property
    def pole(self) -> Box:
        """The rectangle of the mast, xyxy."""
        half = 0.06 * self.size + 1.0
        return self.mast - half, self.y - 0.5 * self.size, self.mast + half, self.foot


def overlap(a: Box, b: Box) -> bool:
    """Whether two rectangles xyxy share area."""
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def place_of(
    shot: SceneDrawing, label: int, x: float, y: float, size: float, depth: float, mast: float
) -> SignPlacement:
    """A sign of random yaw and roll: most face the driver, few are turned far."""
    yaw, roll = np.clip(shot.rng.normal(0, 13), -38, 38), np.clip(shot.rng.normal(0, 2.2), -7, 7)
    foot = shot.camera.y + shot.camera.focal * shot.camera.height / depth
    return SignPlacement(label, x, y, size, depth, yaw, roll, foot, mast)


def _candidate(shot: SceneDrawing, size: float, label: int) -> SignPlacement | None:
    """A place on the verge or on an arm above the road; None if it would stand on the road."""
    camera, road, rng, half = shot.camera, shot.road, shot.rng, size / 2 + 2
    width = shot.canvas.size[1]
    x = rng.uniform(half, width - half)
    y = float(np.clip(camera.y - size * rng.uniform(0.2, 2.8), half, HEIGHT * 0.8 - half))
    if rng.random() < 0.1 and size > 36:
        # the centre moves so that 12 to 40 % of the side is outside one border
        hidden = rng.uniform(0.12, 0.40) * size
        side = int(rng.choice(3, p=(0.4, 0.4, 0.2)))
        x, y = ((size / 2 - hidden, y), (width - size / 2 + hidden, y), (x, size / 2 - hidden))[side]
    depth = camera.focal * rng.uniform(0.6, 1.1) / size
    lateral = (x - camera.x) / camera.focal * depth - camera.bend * depth**2
    mast = x
    if road.left - 0.2 < lateral < road.right + 0.2:
        if y + size / 2 > camera.y - 12 or rng.random() < 0.5:
            return None
        edge = road.right + 0.7 if rng.random() < 0.7 else road.left - 0.7
        mast = float(camera.ground(edge, depth)[0])
    return place_of(shot, label, x, y, size, depth, mast)


def _below(place: SignPlacement, label: int, rng: np.random.Generator) -> SignPlacement:
    """A second sign under the first on the same post."""
    size = place.size * rng.uniform(0.86, 1.0)
    y = place.y + 0.5 * (place.size + size) + 0.07 * size + 6.5
    yaw = np.clip(place.yaw + rng.normal(0, 2), -38, 38)
    return replace(place, label=label, y=y, size=size, yaw=yaw)


def _clear(new: SignPlacement, others: list[SignPlacement], *, shared: SignPlacement | None = None) -> bool:
    """Whether a new sign and its pole stay off the signs and poles that are there."""
    if any(overlap(new.extent, other.extent) for other in others):
        return False
    apart = [other for other in others if other is not shared]
    return not any(overlap(new.pole, other.extent) or overlap(new.extent, other.pole) for other in apart)


def choose_places(shot: SceneDrawing) -> list[SignPlacement]:
    """One to five places, farthest (smallest) first."""
    rng, width = shot.rng, shot.canvas.size[1]
    count = 1 + int(rng.choice(5, p=_COUNTS))
    places: list[SignPlacement] = []
    for tries in range(_TRIES * 5):
        if len(places) == count or (tries >= _TRIES and places):
            break
        label = int(rng.integers(len(GROUP_OF)))
        if places and rng.random() < 0.25:
            upper = places[-1]
            lower = _below(upper, label, rng)
            whole = upper.extent[0] > 0 and upper.extent[2] < width and lower.y + lower.size / 2 < HEIGHT - 4
            own_post = upper.mast == upper.x
            if lower.size >= SMALLEST and whole and own_post and _clear(lower, places, shared=upper):
                places.append(lower)
            continue
        size = float(np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST))))
        candidate = _candidate(shot, size, label)
        if candidate is not None and _clear(candidate, places):
            places.append(candidate)
    return sorted(places, key=lambda place: place.size)


@dataclass(frozen=True)
class WarpedFace:
    """A warped face: colours (h, w, 3), weights (h, w) and the pixel of the picture at its corner."""

    colour: Image
    alpha: Tensor
    x: int
    y: int

    @property
    def extent(self) -> Box:
        """The rectangle xyxy of the opaque pixels, in the picture and not clipped to it."""
        solid = self.alpha >= 0.5
        x, y = self.x + np.flatnonzero(solid.any(axis=0)), self.y + np.flatnonzero(solid.any(axis=1))
        return float(x[0]), float(y[0]), float(x[-1] + 1), float(y[-1] + 1)


def corners(size: float, yaw: float, roll: float) -> Floats:
    """The corners (4, 2) of a square about the origin, rotated by yaw and roll (degrees), 7 sides away."""
    square = box(-0.5, -0.5, 0.5, 0.5)
    a, b = np.deg2rad(yaw), np.deg2rad(roll)
    depth = 1 + square[:, 0] * np.sin(a) / 7
    flat = np.stack([square[:, 0] * np.cos(a), square[:, 1]], 1) / depth[:, None]
    turn = np.array([(np.cos(b), np.sin(b)), (-np.sin(b), np.cos(b))])
    return np.asarray(flat @ turn * size)


def warp(label: int, place_x: float, place_y: float, size: float, quad: Floats) -> WarpedFace:
    """The face of a class warped onto a quadrilateral about a centre."""
    source = face(label, nearest_size(size * 1.05))
    side = source.shape[0]
    half = int(np.ceil(np.abs(quad).max())) + 2
    x, y = int(np.floor(place_x)) - half, int(np.floor(place_y)) - half
    target = quad + np.array([place_x - x, place_y - y]) - 0.5
    start = box(0, 0, side, side).astype(np.float32) - np.float32(0.5)
    matrix = cv2.getPerspectiveTransform(start, target.astype(np.float32))
    rim = (*(int(v) for v in source[0, 0, :3]), 0)
    warped = cv2.warpPerspective(source, matrix, (2 * half, 2 * half), borderValue=rim)
    return WarpedFace(np.ascontiguousarray(warped[..., :3]), weights_of(warped[..., 3]), x, y)


def weather(shot: SceneDrawing, colour: Image, depth: float) -> Image:
    """The colours (h, w, 3) of a face as years, dirt, light and air leave them."""
    mood, rng, (height, width) = shot.mood, shot.rng, colour.shape[:2]
    out = colour.astype(np.float32)
    faded = np.float32(rng.uniform(0.0, 0.12) if rng.random() < 0.75 else rng.uniform(0.12, 0.32))
    out += (np.float32(188) - out) * faded
    shade = np.full((height, width), rng.uniform(0.72, 1.08), dtype=np.float32)
    shade *= np.linspace(rng.uniform(0.94, 1.1), rng.uniform(0.9, 1.06), height, dtype=np.float32)[:, None]
    field = window(clouds(), rng, height, width)
    if rng.random() < 0.3:
        shade *= 1 - np.clip(field - np.float32(0.4), 0, 1) * np.float32(rng.uniform(0.15, 0.5))
    if mood.light == "sun" and rng.random() < 0.16:
        shade *= _shadow(height, width, rng)
    out *= shade[..., None]
    clear = np.float32(np.exp(-mood.haze * depth))
    out = out * clear + np.array(mood.horizon, dtype=np.float32) * (1 - clear)
    return np.clip(out, 0, 255).astype(np.uint8)


def _shadow(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """A cast shadow (h, w): a straight edge or the dapple of leaves."""
    dark = np.float32(rng.uniform(0.45, 0.68))
    if rng.random() < 0.5:
        angle = rng.uniform(0, 2 * np.pi)
        y, x = np.mgrid[0:height, 0:width].astype(np.float32)
        line = (x - width / 2) * np.float32(np.cos(angle)) + (y - height / 2) * np.float32(np.sin(angle))
        lit = np.clip((line + np.float32(rng.uniform(-0.25, 0.25) * width)) / 2 + np.float32(0.5), 0, 1)
    else:
        dapple = cv2.resize(window(clouds(), rng, 256, 256), (width, height), interpolation=cv2.INTER_AREA)
        lit = np.clip(dapple * 3, 0, 1)
    return np.asarray(dark + (1 - dark) * lit, dtype=np.float32)


def carry(shot: SceneDrawing, place: SignPlacement) -> None:
    """Draw the post below a sign, or the mast and the arm that hold it above the road."""
    canvas, thick = shot.canvas, max(1.5, 0.085 * place.size)
    grey = shot.rng.uniform(110, 180)
    top = place.y - 0.3 * place.size
    if place.mast == place.x:
        canvas.post(place.x, top, place.foot, thick, grey)
        return
    outward = np.sign(place.mast - place.x)
    x0, x1 = sorted((place.x - outward * place.size * 0.42, place.mast))
    for lift in (0.0, 0.34 * place.size):
        canvas.fill(box(x0, top + lift, x1, top + lift + thick * 0.7), (grey,) * 3)
        canvas.fill(box(x0, top + lift + thick * 0.4, x1, top + lift + thick * 0.7), (grey * 0.65,) * 3)
    canvas.post(place.mast, top - 0.2 * place.size, place.foot, thick * 2.2, grey)


def draw_sign(shot: SceneDrawing, place: SignPlacement) -> Box:
    """Draw the face of a sign; its extent xyxy in the picture, not clipped to it."""
    quad = corners(place.size, place.yaw, place.roll)
    if shot.rng.random() < 0.1:
        shot.canvas.fill(quad * 1.1 + (place.x, place.y), (shot.rng.uniform(120, 200),) * 3)
    patch = warp(place.label, place.x, place.y, place.size, quad)
    colour = weather(shot, patch.colour, place.depth)
    shot.canvas.blend(patch.x, patch.y, colour, patch.alpha, FIRST_SIGN + GROUP_OF[place.label])
    return patch.extent


def _hide_rectangle(extent: Box, foot: float, kind: int, rng: np.random.Generator) -> Box:
    """The rectangle of an occluder of a kind: 0 leaves, 1 pole, 2 vehicle."""
    x0, y0, x1, y1 = extent
    w, h = x1 - x0, y1 - y0
    if kind == 0:
        size = w * rng.uniform(0.9, 1.5)
        cut = w * rng.uniform(0.15, 0.4)
        top = y0 + h * rng.uniform(-0.3, 0.5) - size * 0.3
        if rng.random() < 0.5:
            return x0 - size + cut, top, x0 + cut, top + size
        return x1 - cut, top, x1 - cut + size, top + size
    if kind == 1:
        half = w * rng.uniform(0.03, 0.09)
        x = x0 + w * rng.uniform(0.1, 0.9)
        return x - half, max(0.0, y0 - h * rng.uniform(0.5, 4)), x + half, float(HEIGHT)
    cut = h * rng.uniform(0.1, 0.22)
    tall = max(foot + 0.2 * h - y1 + cut, 1.3 * h)
    wide = tall * rng.uniform(0.8, 0.9)
    left = x0 + w * rng.uniform(0.0, 0.3) - (wide - w) * rng.uniform(0, 1)
    return left, y1 - cut, left + wide, y1 - cut + tall


def hide(shot: SceneDrawing, extent: Box, foot: float, others: list[Box]) -> None:
    """Cover at most 40 % of a sign by leaves, a pole or a vehicle, unless that would touch another sign."""
    canvas, rng = shot.canvas, shot.rng
    kind = int(rng.choice(3, p=(0.5, 0.3, 0.2)))
    spot = _hide_rectangle(extent, foot, kind, rng)
    if any(overlap(spot, other) for other in others):
        return
    wide, middle = spot[2] - spot[0], (spot[0] + spot[2]) / 2
    if kind == 0:
        gain, half = rng.uniform(0.7, 1.2), 0.035 * wide
        trunk = (middle - half, spot[3] - 0.4 * wide, middle + half, foot + 0.1 * wide)
        if trunk[3] > trunk[1] and not any(overlap(trunk, other) for other in others):
            canvas.fill(box(*trunk), (72, 58, 46))
        leaves = sprites.fitting("leaves", int(rng.integers(sprites.LEAVES)), wide)
        canvas.paste(leaves, spot, (gain,) * 3)
    elif kind == 1:
        canvas.post(middle, spot[1], spot[3], wide, rng.uniform(70, 150))
    else:
        gain = rng.uniform(0.4, 1.0)
        lorry = sprites.fitting("vehicle", sprites.VEHICLES.index("lorry"), wide)
        canvas.paste(lorry, spot, (gain, gain * rng.uniform(0.8, 1), gain * rng.uniform(0.8, 1)))


def clipped(extent: Box, width: int, height: int) -> Floats:
    """The part (4,) of a rectangle xyxy inside the picture."""
    x0, y0, x1, y1 = extent
    return np.array([max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1)])
