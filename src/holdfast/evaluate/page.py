"""The page of an evaluation: the sections of its task, its worst images, and what was run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import InputError
from holdfast.evaluate.pages import about, headline
from holdfast.evaluate.result import Evaluation
from holdfast.report.gallery import Picture, Worst, gallery
from holdfast.report.html import SIZE_LIMIT, document, write_page
from holdfast.report.parts import Document, Section


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
    """Write the page, whole or not at all, and return its path; raise OutputError if that is not possible."""
    return write_page(page(evaluation, picture, more), out)


def task_sections(evaluation: Evaluation) -> tuple[list[Section], Worst]:
    """The sections of an evaluation by its task, and its worst images."""
    task = evaluation.about.task
    if task == "detect":
        from holdfast.evaluate.pages.detect import sections
    elif task == "classify":
        from holdfast.evaluate.pages.classify import sections
    elif task == "segment":
        from holdfast.evaluate.pages.segment import sections
    elif task == "single":
        from holdfast.evaluate.pages.single import sections
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
