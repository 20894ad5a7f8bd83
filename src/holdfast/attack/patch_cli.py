"""`holdfast patch`: a patch is a file; lay it over images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.config.args import Argument, Option
from holdfast.config.output import say


def apply(
    patch: Annotated[Path, Argument("The patch: a PNG whose alpha is the mask, with its TOML beside it.")],
    image: Annotated[Path, Argument("An image, or a folder of images.")],
    out: Annotated[Path, Option("The PNG to write, or the folder of PNGs.", short="-o")],
    box: Annotated[
        tuple[str, ...],
        Option("For a patch that lies on boxes: a box. May be repeated.", shown="X1,Y1,X2,Y2"),
    ] = (),
    at: Annotated[str | None, Option("Lay it there instead: column and row.", shown="X,Y")] = None,
) -> None:
    """Lay a patch over an image or over every image of a folder; the result is PNG, without any loss."""
    from holdfast.attack.lay import Laid, lay
    from holdfast.data.patchfile import read_patch

    laid = lay(read_patch(patch), image, out, tuple(_numbers(b, 4, "--box") for b in box), _spot(at))

    def line(one: Laid) -> str:
        return f"{one.path}: {one.pixels} pixels changed"

    say("\n".join(map(line, laid)))


def _spot(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    x, y = _numbers(text, 2, "--at")
    return round(x), round(y)


def _numbers(text: str, count: int, option: str) -> tuple[float, ...]:
    from holdfast.core.errors import InputError

    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(abs(v) < 1e9 for v in values):
        raise InputError(f"{option}: expected {count} numbers with commas between them, got {text!r}")
    return values
