"""Pictures for the tests of data: small, of any size and kind."""

import functools
from io import BytesIO
from typing import Protocol

import pytest


class Picture(Protocol):
    def __call__(self, width: int = 40, height: int = 30, kind: str = "JPEG", mode: str = "RGB") -> bytes: ...


@functools.cache
def _picture(width: int = 40, height: int = 30, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    from PIL import Image

    stream = BytesIO()
    Image.new(mode, (width, height)).save(stream, kind)
    return stream.getvalue()


@pytest.fixture(scope="session")
def picture() -> Picture:
    """A function that makes the bytes of an encoded picture."""
    return _picture
