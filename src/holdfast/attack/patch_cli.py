"""`holdfast patch`: a patch is a file; lay it over images."""

from __future__ import annotations

from holdfast.attack.options import ApplyOptions
from holdfast.config.output import say


def apply(options: ApplyOptions) -> None:
    """Lay a patch over an image or over every image of a folder; the result is PNG, without any loss."""
    from holdfast.attack.lay import Laid, lay
    from holdfast.data.patchfile import read_patch

    boxes = tuple(_numbers(box, 4, "--box") for box in options.box)
    laid = lay(read_patch(options.patch), options.image, options.out, boxes, _spot(options.at))

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
