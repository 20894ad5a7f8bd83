"""An audit in a notebook: the same page, in a frame of its own, so that neither's style touches the other."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from holdfast.audit.page import page
from holdfast.audit.pages.words import verdict
from holdfast.audit.result import MANIFEST, Audit, open_audit
from holdfast.core.errors import InputError

HEIGHT = 900  # of the frame, in pixels
PAGE = "report.html"  # beside the manifest: the page with its pictures


@dataclass(frozen=True)
class Shown:
    """An audit that a notebook draws; `text` is its page."""

    audit: Audit
    text: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        """The page in a frame; it may run its own script and nothing else."""
        name = f"Audit of {self.audit.model.get('name', 'model')} on {self.audit.data.get('name', 'data')}"
        return (
            f'<iframe title="{html.escape(name)}" srcdoc="{html.escape(self.text)}" sandbox="allow-scripts" '
            f'width="100%" height="{self.height}" style="border:0;width:100%"></iframe>'
        )

    def __repr__(self) -> str:
        return "\n".join(
            f"{line.name}: {line.figure} ({line.word}). {line.text}" for line in verdict(self.audit)
        )


def show(what: Audit | Path | str, height: int = HEIGHT) -> Shown:
    """The audit for a notebook: one in memory, or a run's folder, whose own page is then shown."""
    if isinstance(what, Audit):
        return Shown(what, page(what), height)
    path = Path(what)
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise InputError(f"{path}: expected a run's folder or its {MANIFEST}, got nothing there")
    audit = open_audit(path)
    written = folder / PAGE
    text = written.read_text("utf-8") if written.is_file() else page(audit)
    return Shown(audit, text, height)
