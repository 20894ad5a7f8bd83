"""An audit as one self-contained page: verdict, bounds and matrix first, then the details."""

from __future__ import annotations

import dataclasses
import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.audit.pages.front import front
from holdfast.audit.pages.sections import last_sections
from holdfast.audit.pages.sections import sections as own_sections
from holdfast.audit.pages.verdict import next_step, verdict
from holdfast.audit.result import MANIFEST, PAGE, Audit, open_audit
from holdfast.core.errors import InputError
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Document, Figure, Section, duration, flat, fragment
from holdfast.report.tables import grouped, many

if TYPE_CHECKING:
    from holdfast.audit.gates import GateVerdict

SIZE_LIMIT = 5_000_000  # bytes of a page
_FRAME = 300  # bytes of markup around a figure, at most
HEIGHT = 900  # of a notebook's frame, in pixels
_LISTED = 200  # lines of notes and failures


def write(
    audit: Audit, out: Path, sections: Sequence[Section] = (), judged: Sequence[GateVerdict] = ()
) -> Path:
    """Write the page and return its path; OutputError if it cannot be written."""
    return write_page(page(audit, sections, judged), out)


def page(audit: Audit, sections: Sequence[Section] = (), judged: Sequence[GateVerdict] = ()) -> str:
    """The audit as one HTML file of at most 5 MB; the page lists figures that were dropped for that.

    `sections` are those of other engines (images, maps, curves); they come before the reference tables.
    """
    before, after = own_sections(audit), [*last_sections(audit), _about(audit)]
    bare = len(document(_document(audit, [*before, *after], judged, ())).encode())
    shown, dropped = fitting(sections, SIZE_LIMIT - bare - 20_000)
    return document(_document(audit, _apart([*before, *shown, *after]), judged, dropped))


def fitting(sections: Sequence[Section], room: int) -> tuple[list[Section], tuple[str, ...]]:
    """The sections with as many figures as fit into `room` bytes, and the dropped ones."""
    shown, dropped = [], []
    for section in sections:
        room -= len((section.title + section.lead).encode()) + _FRAME
        figures = []
        for figure in section.figures:
            size = len((figure.title + figure.body + figure.note).encode()) + _FRAME
            if size <= room:
                figures.append(figure)
                room -= size
        missing = len(section.figures) - len(figures)
        if missing:
            dropped.append(f"{section.title}: {missing} of {len(section.figures)} figures")
        if figures or not section.figures:
            shown.append(dataclasses.replace(section, figures=tuple(figures)))
    return shown, tuple(dropped)


def _apart(sections: Sequence[Section]) -> list[Section]:
    """The sections with unique identifiers, because the engines choose theirs independently."""
    taken = {"content", "gates", "verdict", "bounds", "matrix"}
    renamed = []
    for section in sections:
        numbered = (f"{section.identifier}-{number}" for number in itertools.count(2))
        name = next(n for n in itertools.chain((section.identifier,), numbered) if n not in taken)
        taken.add(name)
        renamed.append(dataclasses.replace(section, identifier=name))
    return renamed


def _document(
    audit: Audit, sections: Sequence[Section], judged: Sequence[GateVerdict], dropped: Sequence[str]
) -> Document:
    subject = (str(audit.model.get("name", "model")), str(audit.data.get("name", "data")))
    budget = f" of {duration(audit.budget)}" if audit.budget else ""
    facts = [
        ("task", str(audit.model.get("task", ""))),
        ("images", grouped(int(audit.data.get("images", audit.clean.images)))),
        ("time", duration(audit.seconds) + budget),
        ("run", audit.created.replace("T", " ").replace("+00:00", " UTC")),
        ("holdfast", audit.versions.get("holdfast", "")),
        ("model file sha256", str(audit.model.get("sha256", ""))[:12]),
    ]
    alerts, failed = [], len(audit.failed)
    if failed:
        alerts.append(Alert(f"{many(failed, 'image')} failed and not included in any number", "about"))
    if dropped:
        text = f"Dropped to keep this page below {SIZE_LIMIT / 1e6:g} MB: {'; '.join(dropped)}"
        alerts.append(Alert(f"{text}; the run folder has all of them", "about"))
    return Document(
        title=f"Audit of {subject[0]} on {subject[1]}",
        subject=subject,
        next_step=next_step(audit, [verdict.gate.text for verdict in judged if verdict.failed]),
        facts=tuple((name, value) for name, value in facts if value),
        alerts=tuple(alerts),
        sections=tuple(sections),
        kind="audit",
        front=front(audit, judged),
        layout="audit",
    )


def _about(audit: Audit) -> Section:
    groups = {
        "Model": flat(audit.model),
        "Dataset": flat(audit.data),
        "Rule": {"metric": audit.clean.rule} if audit.clean.rule else {},
        "Other clean metrics": {k: f"{v:.3f}" for k, v in audit.clean.others.items()},
        "Versions": flat(dict(audit.versions)),
        "Runs": flat(dict(audit.runs)),
    }
    groups = {title: values for title, values in groups.items() if values}
    body = fragment("audit_about.html", command=audit.command, groups=list(groups.items()))
    figures = [Figure("", body, wide=True)]
    for title, lines in (("Notes", audit.notes), ("Failed images", audit.failed)):
        if lines:
            listed = fragment("lines.html", lines=lines[:_LISTED])
            rest = f"The first {_LISTED} of {len(lines)}." if len(lines) > _LISTED else ""
            figures.append(Figure(f"{title} ({len(lines)})", listed, rest, wide=True))
    return Section("about", "How it was run", tuple(figures))


@dataclass(frozen=True)
class NotebookAudit:
    """An audit shown in a notebook; `text` is its page."""

    audit: Audit
    text: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        """The page in a sandboxed frame that may run only its own script."""
        name = f"Audit of {self.audit.model.get('name', 'model')} on {self.audit.data.get('name', 'data')}"
        return (
            f'<iframe title="{html.escape(name)}" srcdoc="{html.escape(self.text)}" sandbox="allow-scripts" '
            f'width="100%" height="{self.height}" style="border:0;width:100%"></iframe>'
        )

    def __repr__(self) -> str:
        lines = verdict(self.audit)
        return "\n".join(f"{line.name}: {line.figure} ({line.word}). {line.text}" for line in lines)


def show(what: Audit | Path | str, height: int = HEIGHT) -> NotebookAudit:
    """The audit for a notebook: one in memory, or the page in the folder of a run."""
    if isinstance(what, Audit):
        return NotebookAudit(what, page(what), height)
    path = Path(what)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; expected the folder of an audit or its {MANIFEST}")
    audit = open_audit(path)
    written = (path if path.is_dir() else path.parent) / PAGE
    return NotebookAudit(audit, written.read_text("utf-8") if written.is_file() else page(audit), height)
