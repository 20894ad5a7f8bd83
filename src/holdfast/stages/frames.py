"""Conversions of frames by libswscale (PyAV)."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

KEPT = 8_000_000  # pixels of all conversions whose tables are kept; the last one's stay whatever its size

_FREE: OrderedDict[tuple[Any, ...], Any] = OrderedDict()  # those last used come last
_LOCK = Lock()


def converted(
    frame: Any, pixels: str, flags: int | None = None, width: int | None = None, height: int | None = None
) -> Any:
    """The frame in another format of pixels, or of another size; the flags are swscale's.

    To compute the tables of a conversion takes longer than to convert a picture, so they are kept. While one
    thread works with them, another makes its own.
    """
    import av

    kind = (frame.width, frame.height, frame.format.name, pixels, flags, width, height)
    with _LOCK:
        converter = _FREE.pop(kind, None)
    converter = converter or av.video.reformatter.VideoReformatter()
    made = converter.reformat(frame, width, height, pixels, interpolation=flags)
    with _LOCK:
        _FREE[kind] = converter
        while len(_FREE) > 1 and sum(map(_area, _FREE)) > KEPT:
            _FREE.popitem(last=False)
    return made


def _area(kind: tuple[Any, ...]) -> int:
    """The pixels of the larger of the two pictures of a conversion."""
    before_width, before_height, *_, width, height = kind
    after: int = (width or before_width) * (height or before_height)
    return max(int(before_width * before_height), after)
