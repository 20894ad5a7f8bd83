"""What the pages of all noise suites have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.report.html import document
from holdfast.report.parts import Document, Figure, Section, joined, scroll
from holdfast.report.tables import Table, to_html


def suite_page(models: Sequence[str], data: str, **parts: Any) -> str:
    """A suite as one self-contained HTML file; `parts` are fields of the document."""
    name = joined(models)
    title = f"System noise of {name} on {data}"
    return document(Document(title=title, subject=(name, data), minor=(), kind="system noise", **parts))


def table_figure(title: str, table: Table, note: str = "", *, name: str = "", **how: bool) -> Figure:
    """A table without its caption as a figure that scrolls; `how` may be `wide` and `sortable`."""
    wide, sortable = how.get("wide", False), how.get("sortable", True)
    body = to_html(Table(table.columns, table.rows), sortable=sortable)
    return Figure(title, scroll(body, name or title), note, wide=wide)


def about_section(figures: Sequence[Figure], versions: Mapping[str, str], *more: Figure) -> Section:
    """How the suite was run: these figures, the versions of the libraries, and what failed."""
    table = Table(["library", "version"], list(versions.items()))
    return Section(
        "about", "How it was run", (*figures, table_figure("Versions", table, sortable=False), *more)
    )
