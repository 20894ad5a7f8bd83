"""The pages as text: the values of the templates."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from holdfast.core.text import printable
from holdfast.graph.load import shipped
from holdfast.report.html import integrity
from holdfast.web.form import UPLOADED, Places, form_inputs, listing
from holdfast.web.jobs import AuditQueue, Job
from holdfast.web.render import htmx, render, style
from holdfast.web.runs import PAGE, Progress, Run, RunGroup, grouped_runs, progresses, runs_in
from holdfast.web.uploads import PICTURES

ENDED = 3  # finished audits that are still shown
SHOWN = 300  # runs in the list


@dataclass(frozen=True)
class Site:
    """The state of a server."""

    places: Places
    queue: AuditQueue
    token: str

    def uploaded(self, *endings: str) -> list[Path]:
        """The uploaded files of that kind, without symbolic links."""
        try:
            paths = sorted(self.places.uploads.iterdir())
        except OSError:
            return []
        return [p for p in paths if p.suffix in endings and p.is_file() and not p.is_symlink()]


@dataclass(frozen=True)
class AuditStatus:
    """One audit in the part of the page that is updated."""

    key: str  # of the job; empty: started outside this page
    title: str
    state: str
    note: str
    progress: Progress | None
    again: str = ""  # address of the form with the same values
    page: bool = False

    @property
    def live(self) -> bool:
        """Whether it is running or queued."""
        return self.state in ("queued", "running", "cancelling")

    @property
    def announcement(self) -> str:
        """The text for screen readers: states and parts, not every step."""
        part = self.progress.part if self.progress and self.state == "running" else ""
        return f"{self.title}: {self.state}{', ' + part if part else ''}"


@dataclass(frozen=True)
class Overview:
    """The running and finished audits, and all runs."""

    audits: list[AuditStatus]
    runs: list[Run]
    filter: str = ""

    @property
    def live(self) -> bool:
        """Whether an audit is running or queued."""
        return any(audit.live for audit in self.audits)

    @property
    def groups(self) -> list[RunGroup]:
        """The runs that match the filter, by model and dataset."""
        return grouped_runs(self.runs, self.filter)

    @property
    def announcement(self) -> str:
        """The states in one line."""
        return ". ".join(audit.announcement for audit in self.audits if audit.live) or "No audit is running"

    @property
    def version(self) -> str:
        """A hash of this list of runs, to detect changes."""
        text = "|".join(f"{r.key} {r.subject} {r.created} {r.value} {r.notes}" for r in self.runs)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def overview(site: Site, text: str = "") -> Overview:
    """The state of all audits and runs, from processes and disk; `text` filters the runs."""
    running = {p.pid: p for p in progresses(site.places.runs) if p.pid}
    jobs = site.queue.jobs()
    audits = [_status(job, running.get(job.pid)) for job in jobs if job.live]
    audits.reverse()  # the running one first, then the queue
    foreign = running.keys() - {job.pid for job in jobs}
    audits += [
        AuditStatus("", p.name, "running", "started outside this page; stop it there", p)
        for p in running.values()
        if p.state == "running" and p.pid in foreign
    ]
    audits += [_status(job, None) for job in jobs if not job.live][:ENDED]
    return Overview(audits, runs_in(site.places.runs)[:SHOWN], text[:200])


def _status(job: Job, progress: Progress | None) -> AuditStatus:
    """The status of a job, without the progress of an older audit whose process had the same number."""
    title = f"{job.values.get('model', '')} on {job.values.get('data', '')}"
    if progress is not None and progress.started[:19] < job.created[:19]:
        progress = None
    again = "" if job.live else f"/?{urlencode(job.values)}#start"
    page = job.state == "done" and (job.folder / PAGE).is_file()
    return AuditStatus(job.key, title, job.state, job.note, progress, again=again, page=page)


def index(site: Site, values: Mapping[str, str], line: str = "", text: str = "") -> str:
    """The first page; `line` is the error of the form, `text` filters the runs."""
    main, more = form_inputs(values)
    models, pictures = site.uploaded(".onnx"), site.uploaded(*PICTURES.values())
    inputs = {"main": main, "more": more, "values": values, "line": line, "shipped": shipped()}
    uploads = {"uploaded": UPLOADED, "models": models, "pictures": pictures, "printable": printable}
    state = {"now": overview(site, text), "site": site, "title": "Runs"}
    return render("index.html", **state, **inputs, **uploads, **_folder(site, "", values), **_frame())


def watching(site: Site) -> str:
    """The running audits as a separate page, which reloads itself without script."""
    state = overview(site)
    return render("watching.html", now=state, title="Progress", site=site, reload=state.live, **_frame())


def framed(address: str) -> str:
    """Our page around the page at that address, in a frame without access to ours."""
    return render("frame.html", address=address, **_frame())


def run_list(site: Site, text: str) -> str:
    """The runs that match the filter, for htmx."""
    return render("runs.html", now=overview(site, text))


def running(site: Site, announcement: str, version: str, text: str) -> tuple[str, bool]:
    """The update for htmx, and whether an audit is running; unchanged parts are not sent again."""
    state = overview(site, text)
    changed = {"announce": state.announcement != announcement, "again": state.version != version}
    return render("update.html", now=state, site=site, **changed), state.live


def files(site: Site, at: str, values: Mapping[str, str], part: bool) -> str:
    """A folder below the root, from which a model and data can be chosen."""
    folder = _folder(site, at, values)
    if part:
        return render("files.html", **folder)
    return render("browse.html", **folder, title="Files", **_frame())


def _folder(site: Site, at: str, values: Mapping[str, str]) -> dict[str, Any]:
    """A folder's listing, the root's name, and a function that builds a query with the values of the form."""

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
