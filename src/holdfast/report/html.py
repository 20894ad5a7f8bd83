"""One self-contained page: everything inline, nothing fetched, and a policy that forbids to try."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from holdfast.core.errors import InputError, OutputError
from holdfast.report import about, headline
from holdfast.report.gallery import Picture, Worst, gallery
from holdfast.report.parts import Document, Section, fragment
from holdfast.run.evaluation import Evaluation
from holdfast.run.store import write_atomic

SIZE_LIMIT = 3_000_000  # bytes of a page


def page(evaluation: Evaluation, picture: Picture, more: Sequence[Section] = ()) -> str:
    """The evaluation as one HTML file; `picture` gives an image's encoded bytes by its record's name.

    `more` are sections of other engines on the same model and data; they come before the details.
    """
    parts, worst = task_sections(evaluation)
    parts = [*more, *parts]
    trouble = about.trouble_section(evaluation)
    rest = [*([trouble] if trouble else []), about.run_section(evaluation)]
    size = len(document(_document(evaluation, [*parts, *rest])).encode())
    images = gallery(worst, picture, SIZE_LIMIT - size - 200_000) if worst.shots else None
    return document(_document(evaluation, [*parts, *([images] if images else []), *rest]))


def write(evaluation: Evaluation, out: Path, picture: Picture, more: Sequence[Section] = ()) -> Path:
    """The path of the written page, there whole or not at all; OutputError if it cannot be written there."""
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'report.html'}")
    write_atomic(out, page(evaluation, picture, more).encode())
    return out


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


def task_sections(evaluation: Evaluation) -> tuple[list[Section], Worst]:
    """The sections of an evaluation by its task, and its worst images."""
    task = evaluation.about.task
    if task == "detect":
        from holdfast.report.detect import sections
    elif task == "classify":
        from holdfast.report.classify import sections
    elif task == "segment":
        from holdfast.report.segment import sections
    elif task == "single":
        from holdfast.report.single import sections
    else:
        raise InputError(f"report: expected task detect, classify, segment or single, got {task!r}")
    return sections(evaluation)


def _document(evaluation: Evaluation, sections: list[Section]) -> Document:
    what = evaluation.about
    subject = (str(what.model.get("name", "model")), str(what.data.get("name", "data")))
    large, small = headline.cards(evaluation.result)
    return Document(
        title=f"{subject[0]} on {subject[1]}",
        subject=subject,
        facts=about.facts(evaluation),
        verdict=headline.verdict(evaluation),
        cards=large,
        minor=small,
        rule=what.rule,
        command=what.command,
        alerts=about.alerts(evaluation),
        sections=tuple(sections),
    )


def _text(name: str) -> str:
    return resources.files("holdfast.report").joinpath("templates", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
