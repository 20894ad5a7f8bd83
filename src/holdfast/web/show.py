"""The page of a run: the one in its folder, or made when it is asked for. And of two runs compared."""

from __future__ import annotations

import os
import shlex
from functools import lru_cache
from pathlib import Path

from holdfast.core.errors import InputError
from holdfast.engine.store import printable
from holdfast.web.shelf import Run

PAGE = "report.html"
LARGEST = 32 << 20  # bytes of a page


def page_of(run: Run) -> str:
    """The run as HTML; InputError if it has no page and none can be made."""
    if run.kind in ("audit", "attack"):
        found = written(run.folder)
        if found is not None:
            return found
    newest = max((p.stat().st_mtime_ns for p in run.folder.glob("*.json")), default=0)
    return _made(run.folder, run.kind, newest)


def compared(first: Run, second: Run) -> str:
    """What is better and what is worse in the second run, as HTML."""
    from holdfast.compare.page import page
    from holdfast.compare.run import compare_runs

    command = ["holdfast", "compare", printable(str(first.folder)), printable(str(second.folder))]
    return page(compare_runs(first.folder, second.folder), shlex.join(command))


def written(folder: Path) -> str | None:
    """The page that lies in the folder; None if there is none. A link is not followed: it may lead out."""
    try:
        handle = os.open(
            folder / PAGE, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError(
            f"{folder.name}: its {PAGE} is larger than {LARGEST >> 20} MB; open it from the folder"
        )
    return data.decode("utf-8", "replace")


@lru_cache(maxsize=8)
def _made(folder: Path, kind: str, changed: int) -> str:
    """A page made of the run's files; `changed` is there to make it again when they are others."""
    if kind == "evaluation":
        from holdfast.evaluate.page import page as evaluation_page
        from holdfast.evaluate.page import pictures
        from holdfast.evaluate.result import open_run

        run = open_run(folder)
        return evaluation_page(run, pictures(run))
    if kind == "noise":
        from holdfast.noise.vision.page import page as noise_page
        from holdfast.noise.vision.result import open_suite

        return noise_page(open_suite(folder))
    if kind == "language":
        from holdfast.noise.language.page import page as language_page
        from holdfast.noise.language.result import open_suite as open_language

        return language_page(open_language(folder))
    if kind == "speech":
        from holdfast.noise.speech.page import page as speech_page
        from holdfast.noise.speech.result import open_suite as open_speech
        from holdfast.noise.speech.show import open_shown

        suite = open_speech(folder)
        return speech_page(suite, [s for m in suite.models if (s := open_shown(folder, m.model)) is not None])
    if kind == "audit":
        from holdfast.audit.page import page as audit_page
        from holdfast.audit.result import open_audit

        return audit_page(open_audit(folder))
    raise InputError(
        f"{folder.name}: has no {PAGE}; run the same command again: it writes one from what is kept"
    )


def picture_page(path: Path) -> str:
    """What each system noise does to an uploaded picture, as HTML."""
    return _noised(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _noised(path: Path, changed: int) -> str:
    import tempfile

    from holdfast.noise.vision.choose import Wanted
    from holdfast.noise.vision.pictures import write
    from holdfast.noise.vision.show import shown

    made = list(shown(path.read_bytes(), None, Wanted((), ())))
    command = f"holdfast noise show {path.name}"
    with tempfile.TemporaryDirectory() as folder:
        return write(made, [], path.name, Path(folder) / PAGE, command).read_text("utf-8")
