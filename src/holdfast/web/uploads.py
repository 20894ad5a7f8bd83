"""Uploaded files: size-limited while received, identified by content, stored under a safe name."""

from __future__ import annotations

import io
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from holdfast.core.errors import OutputError
from holdfast.graph.inspect import tensors_of
from holdfast.web.guard import check_token
from holdfast.web.render import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LIMIT = 64 << 20  # bytes of a model
IMAGE_LIMIT = 16 << 20  # bytes of a picture
PIXELS = 64_000_000  # of a picture, so that a small file cannot become a large image
FOLDER_LIMIT = 1 << 30  # bytes of all uploads together
PICTURES = {"JPEG": ".jpg", "PNG": ".png"}
_ENVELOPE = 64 * 1024  # bytes around the file: boundaries, the token


@dataclass(frozen=True)
class Upload:
    """An uploaded file: the name from the browser, and its bytes."""

    name: str
    data: bytes


async def received(request: Request, token: str) -> Upload:
    """The file of a form with our token. Raise Refusal once it is too long, whatever length was declared."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "multipart/form-data":
        raise Refusal("expected a form with a file", 415)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:18]) > LIMIT + _ENVELOPE:
        raise _too_long()
    limits = {"max_files": 1, "max_fields": 4, "max_part_size": 4096}
    try:
        form = await MultiPartParser(request.headers, _bounded(request), **limits).parse()
    except _TooLong:
        raise _too_long() from None
    except MultiPartException as problem:
        raise Refusal(f"expected a form with one file, got: {problem.message}", 400) from problem
    try:
        check_token(str(form.get("token", "")), token)
        file = form.get("file")
        if file is None or isinstance(file, str) or not file.filename:
            raise Refusal("expected a file, got none", 400)
        return Upload(file.filename, await file.read())
    finally:
        await form.close()


class _TooLong(MultiPartException):
    """A body that is too long; a MultiPartException, so that the parser closes its files."""


async def _bounded(request: Request) -> AsyncGenerator[bytes, None]:
    """Yield the body in chunks. Raise _TooLong above the limit."""
    received_bytes = 0
    async for chunk in request.stream():
        received_bytes += len(chunk)
        if received_bytes > LIMIT + _ENVELOPE:
            raise _TooLong("too long")
        yield chunk


def _too_long() -> Refusal:
    return Refusal(f"expected a file of at most {LIMIT >> 20} MB", 413)


def keep(upload: Upload, folder: Path) -> Path:
    """Store the file and return its path. Raise Refusal unless it is an ONNX model, a JPEG or a PNG."""
    ending = kind_of(upload.data)
    used = sum(p.stat().st_size for p in folder.iterdir() if p.is_file()) if folder.is_dir() else 0
    if used + len(upload.data) > FOLDER_LIMIT:
        raise Refusal(f"{folder.name}: already holds {used >> 20} MB; remove some files", 413)
    stem = safe_stem(upload.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = folder / (f"{stem}{ending}" if number == 1 else f"{stem}-{number}{ending}")
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                continue
            with os.fdopen(handle, "wb") as stream:
                stream.write(upload.data)
            return path
    except OSError as problem:
        raise OutputError(f"{folder}: cannot write there: {problem.strerror}") from problem
    raise Refusal("too many files with that name; choose another name", 409)


def safe_stem(name: str) -> str:
    """The name without folders, ending and odd characters; never empty or hidden."""
    base = re.split(r"[/\\]", name)[-1]
    stem = base.rsplit(".", 1)[0] if "." in base else base
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_")[:80].strip(".-_") or "upload"


def kind_of(data: bytes) -> str:
    """The extension of the content: .onnx, .jpg or .png. Raise Refusal for anything else."""
    if data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")):
        return _picture(data)
    if not _is_model(data):
        raise Refusal("expected an ONNX model, a JPEG or a PNG image", 415)
    return ".onnx"


def _picture(data: bytes) -> str:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(data), formats=tuple(PICTURES)) as image:
                width, height, image_format = *image.size, str(image.format)
                within_limits = width * height <= PIXELS and len(data) <= IMAGE_LIMIT
                if within_limits:
                    image.load()
    except Exception as problem:  # a decoder may raise anything on hostile bytes
        raise Refusal("expected a readable image, got one that cannot be decoded", 415) from problem
    if not within_limits:
        limits = f"{IMAGE_LIMIT >> 20} MB and {PIXELS // 10**6} megapixels"
        raise Refusal(f"expected an image of at most {limits}", 413)
    return PICTURES[image_format]


def _is_model(data: bytes) -> bool:
    """Whether the bytes are an ONNX model. Raise Refusal if it refers to external files."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, RecursionError):
        return False
    if not model.graph.node or not model.opset_import:
        return False
    if any(t.data_location == onnx.TensorProto.EXTERNAL or t.external_data for t in tensors_of(model)):
        raise Refusal("expected a model in one file, got one with external weights", 415)
    return True
