"""The pages as text: what the templates are given."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from holdfast.engine.store import printable
from holdfast.graph.load import shipped
from holdfast.report.html import integrity
from holdfast.web.form import UPLOADED, Places, form_inputs, listing
from holdfast.web.jobs import AuditQueue, Job
from holdfast.web.render import htmx, render, style
from holdfast.web.runs import PAGE, Progress, Run, progresses, runs_in
from holdfast.web.uploads import PICTURES

ENDED = 3  # audits that are over and still told of
SHOWN = 300  # runs in the list


@dataclass(frozen=True)
class Site:
    """One server's state."""

    places: Places
    queue: AuditQueue
    token: str

    def uploaded(self, *endings: str) -> list[Path]:
        """The uploaded files of that kind: a link somebody put there is none."""
        try:
            found = sorted(self.places.uploads.iterdir())
        except OSError:
            return []
        return [p for p in found if p.suffix in endings and p.is_file() and not p.is_symlink()]


@dataclass(frozen=True)
class Row:
    """One audit of the part of the page that changes."""

    key: str  # of the job; empty: it was started somewhere else
    title: str
    state: str
    note: str
    progress: Progress | None
    again: str = ""  # address of the form filled in the same way
    page: bool = False

    @property
    def live(self) -> bool:
        """Whether it runs or waits."""
        return self.state in ("queued", "running", "cancelling")

    @property
    def said(self) -> str:
        """What is read aloud when it changes: not every step, only states and parts."""
        part = self.progress.part if self.progress and self.state == "running" else ""
        return f"{self.title}: {self.state}{', ' + part if part else ''}"


@dataclass(frozen=True)
class Now:
    """What runs, what is over, and the runs there are."""

    rows: list[Row]
    runs: list[Run]

    @property
    def live(self) -> bool:
        """Whether anything runs or waits."""
        return any(row.live for row in self.rows)

    @property
    def said(self) -> str:
        """The states in one line."""
        return ". ".join(row.said for row in self.rows if row.live) or "No audit is running"

    @property
    def seen(self) -> str:
        """A short name of this list of runs, to see whether it is another one."""
        text = "|".join(f"{r.key} {r.subject} {r.created} {r.value} {r.words}" for r in self.runs)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def now(site: Site) -> Now:
    """The state of everything, read from the processes and the disk."""
    known = {p.pid: p for p in progresses(site.places.runs) if p.pid}
    jobs = site.queue.jobs()
    own = {job.pid for job in jobs}
    over = [job for job in jobs if not job.live][:ENDED]
    rows = [_row(job, known.get(job.pid)) for job in jobs if job.live]
    rows.reverse()  # the one that runs first, then the queue
    rows += [
        Row("", p.name, "running", "started elsewhere, and can be ended there", p)
        for p in known.values()
        if p.state == "running" and p.pid not in own
    ]
    return Now(rows + [_row(job, None) for job in over], runs_in(site.places.runs)[:SHOWN])


def _row(job: Job, progress: Progress | None) -> Row:
    """The row of a job; not with the progress of an older audit whose process had the same number."""
    return Row(
        key=job.key,
        title=f"{job.values.get('model', '')} on {job.values.get('data', '')}",
        state=job.state,
        note=job.note,
        progress=progress if progress is not None and progress.started[:19] >= job.created[:19] else None,
        again="" if job.live else f"/?{urlencode(job.values)}#start",
        page=job.state == "done" and (job.folder / PAGE).is_file(),
    )


def index(site: Site, values: Mapping[str, str], line: str = "") -> str:
    """The first page; `line` says why the form was not accepted."""
    main, more = form_inputs(values)
    return render(
        "index.html",
        now=now(site),
        main=main,
        more=more,
        values=values,
        line=line,
        title="Runs",
        site=site,
        uploaded=UPLOADED,
        shipped=shipped(),
        models=site.uploaded(".onnx"),
        pictures=site.uploaded(*PICTURES.values()),
        printable=printable,
        **_folder(site, "", values),
        **_frame(),
    )


def watching(site: Site) -> str:
    """What runs as a page of its own, which reloads by itself where there is no script."""
    state = now(site)
    return render("watching.html", now=state, title="Progress", site=site, reload=state.live, **_frame())


def running(site: Site, said: str, seen: str) -> tuple[str, bool]:
    """What runs, for htmx, and whether anything does; what the page has said and shown is not sent again."""
    state = now(site)
    text = render("update.html", now=state, site=site, say=state.said != said, again=state.seen != seen)
    return text, state.live


def files(site: Site, at: str, values: Mapping[str, str], part: bool) -> str:
    """A folder below the root, from which a model and data can be chosen."""
    folder = _folder(site, at, values)
    if part:
        return render("files.html", **folder)
    return render("browse.html", **folder, title="Files", **_frame())


def _folder(site: Site, at: str, values: Mapping[str, str]) -> dict[str, Any]:
    """A folder's listing, the root's name, and a function that gives a query with what is in the form."""

    def address(**changed: str) -> str:
        return urlencode({name: values.get(name, "") for name in ("model", "data")} | changed)

    root = site.places.root
    return {"found": listing(root, at), "address": address, "root": printable(root.name) or "/"}


def _frame() -> dict[str, str]:
    script = htmx()
    return {
        "integrity": integrity(script),
        "script_version": hashlib.sha256(script.encode()).hexdigest()[:12],
        "style_version": hashlib.sha256(style().encode()).hexdigest()[:12],
    }
