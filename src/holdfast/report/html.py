"""One self-contained page: everything inline, nothing fetched, and a policy that forbids to try."""

import base64
import hashlib
import io
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from holdfast.core.errors import OutputError
from holdfast.engine.store import write_atomic
from holdfast.report.parts import Document, fragment

SIZE_LIMIT = 3_000_000  # bytes of a page


def document(content: Document) -> str:
    """The document as HTML, with the hashes of its style and script in its content security policy."""
    style, script = _text("style.css"), _text("script.js")
    policy = (
        f"default-src 'none'; style-src '{integrity(style)}'; script-src '{integrity(script)}'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    return fragment(
        "page.html",
        page=content,
        policy=policy,
        style=Markup(style),  # noqa: S704 (our own files)
        script=Markup(script),  # noqa: S704
        safe=Markup,
    )


def write_page(page: str, out: Path, name: str = "report.html") -> Path:
    """Write the page, whole or not at all, and return its path; `name` is suggested if `out` is a folder."""
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / name}")
    write_atomic(out, page.encode())
    return out


def data_uri(data: bytes, media: str) -> str:
    """The bytes as a data: URI of a media type, such as image/png."""
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


def picture_uri(picture: Any, kind: str, **options: Any) -> str:
    """An array or a Pillow image as a data: URI, encoded by Pillow as `kind` (PNG, JPEG) with its options."""
    from PIL import Image

    out = io.BytesIO()
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(out, kind, **options)
    return data_uri(out.getvalue(), f"image/{kind.lower()}")


def _text(name: str) -> str:
    return resources.files("holdfast.report").joinpath("templates", name).read_text("utf-8")


def integrity(text: str) -> str:
    """The hash of a script or style as a content security policy and an integrity attribute write it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
