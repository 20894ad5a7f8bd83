"""The runs of a folder, read from their files: headline, progress and page. Keys name them, not paths."""

import contextlib
import hashlib
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from holdfast.audit.result import PROGRESS
from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.text import printable
from holdfast.engine.store import to_json, write_atomic
from holdfast.metrics.points import lost_text
from holdfast.web.render import Refusal

LARGEST_MANIFEST = 64 << 20  # bytes of a manifest
PAGE = "report.html"
LARGEST_PAGE = 32 << 20  # bytes of a page
LARGEST_PROGRESS = 1 << 20  # bytes of a progress file


@dataclass(frozen=True)
class Run:
    """A run of any kind: its model and dataset, when it was created, its headline number and notes."""

    key: str  # of the folder's name
    kind: str
    folder: Path
    subject: str
    created: str
    value: str
    notes: str

    @property
    def name(self) -> str:
        """The printable name of the folder."""
        return printable(self.folder.name)

    @property
    def when(self) -> str:
        """The time it was created, to the minute."""
        return self.created[:16].replace("T", " ")


def runs_in(folder: Path) -> list[Run]:
    """The runs directly in a folder, newest first; symbolic links are ignored."""
    runs = [run for inner in _folders(folder) if (run := _run(inner)) is not None]
    return sorted(runs, key=lambda r: (r.created, r.name), reverse=True)


@dataclass(frozen=True)
class RunGroup:
    """The runs of one model on one dataset, newest first."""

    subject: str
    runs: tuple[Run, ...]


def grouped_runs(runs: Sequence[Run], text: str = "") -> list[RunGroup]:
    """The runs that contain every word of `text`, by model and dataset, newest first."""
    words = text.casefold().split()
    groups: dict[str, list[Run]] = {}
    for run in runs:
        content = f"{run.subject} {run.kind} {run.name} {run.value} {run.notes}".casefold()
        if all(word in content for word in words):
            groups.setdefault(run.subject, []).append(run)
    return [RunGroup(subject, tuple(members)) for subject, members in groups.items()]


def _folders(runs: Path) -> list[Path]:
    try:
        return [p for p in runs.iterdir() if p.is_dir() and not p.is_symlink()]
    except OSError:
        return []


def run_of(folder: Path, key: str) -> Run:
    """The run of that key. Raise Refusal if there is none."""
    for run in runs_in(folder):
        if run.key == key:
            return run
    raise Refusal("no such run; reload the page", 404)


def _run(folder: Path) -> Run | None:
    for name, (kind, _) in KINDS.items():
        path = folder / name
        with contextlib.suppress(OSError):
            state = path.lstat()
            if stat.S_ISREG(state.st_mode):  # not a symbolic link
                key = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]
                return Run(key, kind, folder, *_headline(path, state.st_mtime_ns, state.st_size))
    return None


@lru_cache(maxsize=4096)
def _headline(path: Path, changed: int, size: int) -> tuple[str, str, str, str]:
    """Subject, time, number and notes of a manifest, read again if its time or size changes."""
    modified = datetime.fromtimestamp(changed / 1e9, UTC).isoformat(timespec="seconds")
    if size > LARGEST_MANIFEST:
        return path.parent.name, modified, "", f"{path.name} is too large"
    try:
        plain = orjson.loads(read_regular(path, LARGEST_MANIFEST))
        about = plain.get("about", plain)
        kind, number = KINDS[path.name]
        if kind in ("noise", "language", "speech"):
            subject = ", ".join(str(model["model"]) for model in plain["models"])
            subject += f" on {plain['data']}" if kind == "noise" else ""
        else:
            subject = f"{about['model']['name']} on {about['data']['name']}"
        value, notes = number(plain)
        created = str(about["created"])[:40]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return printable(path.parent.name), modified, "", f"{path.name} cannot be read"
    return subject[:200], created or modified, value[:60], notes[:200]


def _evaluation(plain: Mapping[str, Any]) -> tuple[str, str]:
    from holdfast.evaluate.page import cards

    large, small = cards(plain["result"])
    first = (*large, *small)[0]
    about = plain["about"]
    return f"{first.name} {first.text}", _basis(about["data"]["images"], about.get("rule", ""))


def _noise(plain: Mapping[str, Any]) -> tuple[str, str]:
    first = plain["models"][0]
    rows = [row for row in first["rows"] if row["points_lost"] is not None]
    losses = [(row["points_lost"], f"{row['family']}={row['option']}") for row in rows]
    lost, label = max(losses, default=(None, ""))
    notes = f"worst noise option: {label}; " if label else ""
    notes += f"clean {first['clean']:.3f}, {_basis(first['images'], first.get('rule', ''))}"
    return "" if lost is None else lost_text(lost), notes


def _basis(images: int, rule: str) -> str:
    """The n of a number and its AP rule: "n = 24, AP rule voc"."""
    name, _, rest = str(rule).partition(":")
    return f"n = {images}" + (f", AP rule {name}" if rest else "")


def _attack(plain: Mapping[str, Any]) -> tuple[str, str]:
    first, pixels = plain["effects"][0], plain["mean_pixels"]
    notes = "nothing to attack" if pixels is None else f"{pixels:.0f} pixels per image"
    if "images" in plain:
        notes += f"; {_basis(len(plain['images']), plain['about'].get('rule', ''))}"
    return f"mAP {first['before']:.3f} → {first['after']:.3f}", notes


def _audit(plain: Mapping[str, Any]) -> tuple[str, str]:
    clean = plain["clean"]
    losses = [(c["points_lost"], c["label"]) for c in plain["noises"] if c["points_lost"] is not None]
    lost, label = max(losses, default=(None, ""))
    notes = _basis(clean["images"], clean["rule"])
    notes += "" if lost is None else f"; worst noise option {label}: {lost_text(lost)}"
    return f"{clean['title']} {clean['value']:.3f}", notes


# manifest -> kind, and its number and notes; the audit first, because its folder may contain other runs
KINDS: dict[str, tuple[str, Callable[[Mapping[str, Any]], tuple[str, str]]]] = {
    "audit.json": ("audit", _audit),
    "attack.json": ("attack", _attack),
    "noise.json": ("noise", _noise),
    "language.json": ("language", lambda plain: ("", f"{len(plain['models'])} models")),
    "speech.json": ("speech", lambda plain: ("", f"{len(plain['models'])} models")),
    "run.json": ("evaluation", _evaluation),
}


def page_of(run: Run) -> str:
    """The run as HTML. Raise InputError if it has no page and none can be generated."""
    page = written_page(run.folder) if run.kind in ("audit", "attack") else None
    if page is not None:
        return page
    newest = max((p.stat().st_mtime_ns for p in run.folder.glob("*.json")), default=0)
    with _readable(run):
        return _run_page(run.folder, run.kind, newest)


def comparison_page(first: Run, second: Run) -> str:
    """The comparison of two runs as HTML."""
    from holdfast.compare.page import page
    from holdfast.compare.run import compare_runs

    command = ["holdfast", "compare", printable(str(first.folder)), printable(str(second.folder))]
    with _readable(first, second):
        return page(compare_runs(first.folder, second.folder), shlex.join(command))


@contextlib.contextmanager
def _readable(*runs: Run) -> Iterator[None]:
    """Raise InputError if reading files of these runs fails in any way: anybody may have written them."""
    try:
        yield
    except (HoldfastError, MemoryError):
        raise
    except Exception as problem:
        names = " and ".join(run.name for run in runs)
        raise InputError(f"{names}: a file of the run is damaged; run the same command again") from problem


def written_page(folder: Path) -> str | None:
    """The page in the folder; None if there is none. Symbolic links are not followed."""
    try:
        data = read_regular(folder / PAGE, LARGEST_PAGE + 1)
    except OSError:
        return None
    if len(data) > LARGEST_PAGE:
        raise InputError(
            f"{folder.name}: its {PAGE} is larger than {LARGEST_PAGE >> 20} MB; open it from the folder"
        )
    return data.decode("utf-8", "replace")


def read_regular(path: Path, most: int, end: bool = False) -> bytes:
    """At most that many bytes of a regular file, its first or its last. Raise OSError for anything else."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(f"{path.name} is not a regular file")
        if end:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - most))
        return stream.read(most)


@lru_cache(maxsize=8)
def _run_page(folder: Path, kind: str, changed: int) -> str:
    """A page generated from the run's files; `changed` invalidates the cache when they change."""
    from holdfast.web.run_page import PAGES

    if kind not in PAGES:
        raise InputError(f"{folder.name}: has no {PAGE}; run the same command again to write it")
    return PAGES[kind][1](folder)


def picture_page(path: Path) -> str:
    """The effect of each noise option on an uploaded image, as HTML."""
    return _picture_page(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _picture_page(path: Path, changed: int) -> str:
    import tempfile

    from holdfast.noise.suite import NoiseSelection
    from holdfast.noise.vision.show import noise_examples, write

    images = list(noise_examples(path.read_bytes(), None, NoiseSelection((), ())))
    command = f"holdfast noise show {path.name}"
    with tempfile.TemporaryDirectory() as folder:
        return write(images, [], path.name, Path(folder) / PAGE, command).read_text("utf-8")


@dataclass(frozen=True)
class Progress:
    """The progress of one audit: the part that is running, its step, and how much of it is done."""

    folder: Path
    state: str  # running, done, failed, cancelled; interrupted: running, but its process is gone
    part: str
    done: int
    total: int
    started: str
    pid: int
    parts: tuple[str, ...]
    step: str = ""  # of the part: "attack 300px"

    @property
    def name(self) -> str:
        """The printable name of the folder."""
        return printable(self.folder.name)

    @property
    def elapsed(self) -> str:
        """The elapsed time in minutes and seconds; empty if the start is unknown."""
        try:
            seconds = int((datetime.now(UTC) - datetime.fromisoformat(self.started)).total_seconds())
        except (ValueError, TypeError):  # invalid, or without a time zone
            return ""
        return f"{seconds // 60}:{seconds % 60:02d} min" if seconds >= 0 else ""

    @property
    def label(self) -> str:
        """The part that is running, with its step."""
        return f"{self.part}: {self.step}" if self.step and self.step != self.part else self.part

    @property
    def percent(self) -> int:
        """The progress of the step in percent."""
        return 100 * min(self.done, self.total) // self.total if self.total else 0

    @property
    def place(self) -> int:
        """The number of the running part, from 1; 0 before the first."""
        return self.parts.index(self.part) + 1 if self.part in self.parts else 0


def progresses(runs: Path) -> list[Progress]:
    """The progress of every audit in a folder of runs, if its file is readable."""
    return [_progress(folder, plain) for folder in _folders(runs) if (plain := _read_progress(folder))]


def _progress(folder: Path, plain: Mapping[str, Any]) -> Progress:
    """The progress in a file that anybody may have written: texts are cut, and wrong numbers are 0."""
    state, part, step, started = (
        str(plain.get(key, ""))[:most]
        for key, most in (("state", 20), ("part", 100), ("step", 100), ("started", 40))
    )
    done, total, pid = (_int_or_zero(plain.get(key)) for key in ("done", "total", "pid"))
    if state == "running" and not alive(pid):
        state = "interrupted"
    names = plain.get("parts")
    parts = tuple(str(name)[:100] for name in names[:50]) if isinstance(names, list) else ()
    return Progress(folder, state, part, done, total, started=started, pid=pid, parts=parts, step=step)


def mark_cancelled(runs: Path, pid: int) -> None:
    """Mark the audit of that process as cancelled if it did not do so itself."""
    for folder in [p.folder for p in progresses(runs) if p.pid == pid]:
        plain = _read_progress(folder)
        if plain.get("state") == "running":
            with contextlib.suppress(OSError):
                write_atomic(folder / PROGRESS, to_json({**plain, "state": "cancelled"}), durable=False)


def alive(pid: int) -> bool:
    """Whether a process with that number exists."""
    if pid <= 0 or os.name == "nt":  # on Windows os.kill would end it
        return pid > 0
    try:
        os.kill(pid, 0)
    except OSError as problem:
        return not isinstance(problem, ProcessLookupError)
    return True


def _read_progress(folder: Path) -> dict[str, Any]:
    try:
        plain = orjson.loads(read_regular(folder / PROGRESS, LARGEST_PROGRESS))
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _int_or_zero(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0
