"""One self-contained page: everything inline, nothing fetched, and a policy that forbids to try."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from markupsafe import Markup

from holdfast.report.parts import Document, fragment

SIZE_LIMIT = 3_000_000  # bytes of a page


def document(content: Document) -> str:
    """The document as HTML, with the hashes of its style and script in its content security policy."""
    style, script = _text("style.css"), _text("script.js")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {_hash(script)}",
            "img-src data:",
            "media-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return fragment(
        "page.html",
        page=content,
        policy=policy,
        style=Markup(style),  # noqa: S704 (our own files)
        script=Markup(script),  # noqa: S704
        safe=Markup,
    )


def _text(name: str) -> str:
    return resources.files("holdfast.report").joinpath("templates", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
