"""A patch on disk: a PNG whose alpha is the mask, and a TOML file next to it with its position."""

import io
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import DataError
from holdfast.core.limits import parse_toml
from holdfast.core.patch import OnBoxes, Patch, Position
from holdfast.core.types import Image
from holdfast.data.images import sniff

LARGEST = 4  # times a box's shorter side: limits the size of the picture a patch file can request


def png_of(image: Image) -> bytes:
    """The image (h, w), (h, w, 3) or (h, w, 4) as a PNG, the same bytes for the same pixels."""
    from PIL import Image as Pillow

    out = io.BytesIO()
    Pillow.fromarray(np.ascontiguousarray(image)).save(out, "PNG", compress_level=6)
    return out.getvalue()


def files_of(patch: Patch, about: Mapping[str, str | int | float] | None = None) -> tuple[bytes, bytes]:
    """The PNG and the TOML of a patch; `about` are facts to store with it, such as model and seed."""
    alpha = np.where(patch.mask, 255, 0).astype(np.uint8)[:, :, np.newaxis]
    # Pixels outside the mask are black, so that equal patches give equal files.
    pixels = np.where(patch.mask[:, :, np.newaxis], patch.pixels, 0).astype(np.uint8)
    where = patch.where
    what = "# A holdfast patch. The PNG of the same name has the pixels, and the mask as its alpha channel."
    lines = [what, "[where]"]
    if isinstance(where, Position):
        lines += [
            f"x = {where.x}  # column of its left side, in pixels of the image",
            f"y = {where.y}  # row",
        ]
    else:
        lines += ['on = "boxes"', f"x = {where.x!r}  # centre, as a fraction of the box's width"]
        lines += [f"y = {where.y!r}  # and height"]
        lines += [f"side = {where.side!r}  # longer side, as a fraction of the box's shorter side"]
    if about:
        lines += ["", "[about]", *(f"{json.dumps(str(k))} = {json.dumps(v)}" for k, v in about.items())]
    return png_of(np.concatenate([pixels, alpha], axis=2)), ("\n".join(lines) + "\n").encode()


def patch_of(png: bytes, toml: bytes, name: str = "patch") -> Patch:
    """The patch of a PNG and its TOML; raise DataError if either is invalid."""
    pixels, mask = _pixels(png, name)
    try:
        content = parse_toml(toml.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise DataError(f"{name}.toml: expected TOML, got: {problem}") from problem
    return Patch(pixels, mask, _where(content.get("where", {}), name))


def read_patch(path: Path) -> Patch:
    """The patch of a PNG (or TOML) file; without a TOML its position is the top left corner."""
    png, toml = path.with_suffix(".png"), path.with_suffix(".toml")
    try:
        data = png.read_bytes()
    except OSError as problem:
        raise DataError(f"{png}: expected the PNG of a patch, got: {problem.strerror}") from None
    return patch_of(data, toml.read_bytes() if toml.is_file() else b"", str(path.with_suffix("")))


def _pixels(png: bytes, name: str) -> tuple[Image, Any]:
    from PIL import Image as Pillow

    if sniff(png, f"{name}.png").format != "PNG":  # checks size and decompression bombs before decoding
        raise DataError(f"{name}.png: expected a PNG, got {sniff(png).format}")
    try:
        rgba = np.array(Pillow.open(io.BytesIO(png)).convert("RGBA"))
    except (OSError, SyntaxError, ValueError) as problem:
        raise DataError(f"{name}.png: expected a readable PNG, got: {problem}") from problem
    alpha = rgba[:, :, 3]
    half = alpha[(alpha > 0) & (alpha < 255)]
    if half.size:
        raise DataError(f"{name}.png: expected an alpha of 0 or 255 (the mask), got {int(half[0])}")
    return rgba[:, :, :3], alpha == 255


def _where(table: Any, name: str) -> Position | OnBoxes:
    if not isinstance(table, dict) or not set(table) <= {"x", "y", "side", "on"}:
        raise DataError(f"{name}.toml: [where]: expected x, y and, on boxes, on and side, got {table!r}")
    kind: type[Position] | type[OnBoxes] = OnBoxes if table.get("on") == "boxes" else Position
    if table.get("on", "boxes") != "boxes" or (kind is Position and "side" in table):
        raise DataError(f'{name}.toml: [where]: expected on = "boxes" (with side) or only x and y')
    numbers = {k: v for k, v in table.items() if k != "on"}
    side = numbers.get("side", 1)
    if isinstance(side, int | float) and not 0 < side <= LARGEST:
        raise DataError(
            f"{name}.toml: [where] side: expected a number above 0 and up to {LARGEST}, got {side}"
        )
    for key, value in numbers.items():
        good = isinstance(value, int if kind is Position else int | float) and not isinstance(value, bool)
        if not good or not abs(value) < 1e6:
            expected = "a whole number" if kind is Position else "a number"
            raise DataError(f"{name}.toml: [where] {key}: expected {expected}, got {value!r}")
    return kind(**numbers)
