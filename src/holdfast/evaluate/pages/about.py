"""What was run, and what went wrong on the way: the sections every page of an evaluation has."""

from __future__ import annotations

from typing import Any

from holdfast.evaluate.result import About, Evaluation
from holdfast.report.parts import Alert, Figure, Section, duration, flat, fragment, scroll
from holdfast.report.tables import Table, grouped, many, to_html

_LISTED = 200  # failures and notes that are written out


def facts(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    """The few facts of the page's head, as (name, value)."""
    about = evaluation.about
    return (
        ("task", about.task),
        ("images", grouped(len(evaluation.records))),
        ("classes", str(len(about.classes))),
        ("time", duration(about.seconds) + _reused(about)),
        ("run", about.created.replace("T", " ").replace("+00:00", " UTC")),
        ("holdfast", about.versions.get("holdfast", "n/a")),
    )


def _reused(about: About) -> str:
    """What the time does not contain, in words; empty if it contains all."""
    found = int(about.data.get("reused_images", 0))
    return f" ({grouped(found)} images from earlier)" if found else ""


def alerts(evaluation: Evaluation) -> tuple[Alert, ...]:
    """What the reader must know before the numbers: doubts, failures, guesses, problems of the data."""
    about = evaluation.about
    found = [Alert(line, "trouble") for line in evaluation.result.get("warnings", ())]
    failed, total = len(evaluation.failed), len(evaluation.failed) + len(evaluation.records)
    if failed:
        is_are = "is" if failed == 1 else "are"
        found.append(Alert(f"{failed} of {many(total, 'image')} failed and {is_are} in no number", "trouble"))
    guessed = len(about.model.get("guessed", ()))
    if guessed:
        found.append(
            Alert(
                f"{many(guessed, 'property', 'properties')} of the model guessed: no card states them", "run"
            )
        )
    problems = problem_count(about)
    if problems:
        found.append(Alert(f"{many(problems, 'problem')} found in the data", "trouble"))
    return tuple(found)


def run_section(evaluation: Evaluation) -> Section:
    """Model, data, pipeline, versions, settings, guesses: enough to run it again."""
    about = evaluation.about
    card = about.model.get("card")
    body = fragment(
        "about.html",
        model=_shown(about.model, ("name", "path", "sha256")),
        data=_shown(about.data, ("name", "source", "format", "images")),
        pipeline=about.pipeline,
        settings={"rule in words": about.rule, **about.settings},
        versions=about.versions,
        guessed=tuple(about.model.get("guessed", ())),
        card=flat(card) if isinstance(card, dict) else {},
    )
    return Section("run", "What was run", (Figure("", body, wide=True),))


def trouble_section(evaluation: Evaluation) -> Section | None:
    """The images that failed, the notes and the data's problems; None if there is nothing to say."""
    failed, notes = evaluation.failed, evaluation.notes
    problems = [str(p) for p in evaluation.about.data.get("problems", ())]
    figures = []
    if failed:
        rows = [(f.name, f.reason) for f in failed[:_LISTED]]
        body = to_html(Table(["image", "why"], rows), sortable=len(rows) > 1)
        note = "These images could not be read, decoded or predicted; no number on this page includes them."
        figures.append(
            Figure(
                f"Failed images ({len(failed)})",
                scroll(body, "Failed images"),
                note + _rest(len(failed)),
                wide=True,
            )
        )
    for title, lines, count in (
        ("Notes", list(notes), len(notes)),
        ("Problems of the data", problems, problem_count(evaluation.about)),
    ):
        if lines:
            body = fragment("lines.html", lines=lines[:_LISTED])
            shown = min(len(lines), _LISTED)
            note = f"The first {shown} of {count}." if count > shown else ""
            figures.append(Figure(f"{title} ({count})", body, note, wide=True))
    return Section("trouble", "Failures and notes", tuple(figures)) if figures else None


def problem_count(about: About) -> int:
    """How many problems the data has, also where not all of them are kept."""
    return int(about.data.get("problem_count", len(about.data.get("problems", ()))))


def _rest(count: int) -> str:
    return f" The first {_LISTED} are shown." if count > _LISTED else ""


def _shown(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    """The named values as text; nested ones flat."""
    found: dict[str, str] = {}
    for key in keys:
        value = values.get(key)
        if isinstance(value, dict):
            found |= {f"{key}: {k}": v for k, v in flat(value).items()}
        elif value not in (None, ""):
            found[key] = str(value)
    return found
