"""The parts of a page: cards, figures, sections. A document is data; `html.document` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from holdfast.core.text import printable
from holdfast.metrics.points import basis_text, is_indication
from holdfast.report.tables import Cell, Table, grouped, shown, to_html

if TYPE_CHECKING:
    import jinja2


NOTHING = "Nothing to show."


@dataclass(frozen=True)
class Card:
    """A headline number, its name, a short note such as its AP rule, and its n.

    With fewer than 20 images (or other items) the page shows it in grey, as an indication.
    """

    name: str
    value: Cell
    note: str = ""
    digits: int = 3
    n: int | None = None  # None: it is no estimate

    @property
    def basis(self) -> str:
        """The n next to the number."""
        return basis_text(self.n)

    @property
    def few(self) -> bool:
        """Whether the number is only an indication."""
        return is_indication(self.n)

    @property
    def text(self) -> str:
        """The number as it is shown; counts in groups of three digits."""
        whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        return grouped(int(self.value or 0)) if whole else shown(self.value, self.digits)

    @property
    def share(self) -> float | None:
        """The number as a part of 1, for the meter below it; None if it is not one."""
        value = self.value
        return value if isinstance(value, float) and 0.0 <= value <= 1.0 else None


@dataclass(frozen=True)
class Figure:
    """A panel: its title, its markup (safe HTML or SVG), how to read it; `wide` takes the whole row."""

    title: str
    body: str
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading. Without figures it is collapsed to one line, its summary."""

    identifier: str
    title: str
    figures: tuple[Figure, ...]
    lead: str = ""
    summary: str = ""  # of a section without figures (default: the first sentence of the lead)

    @property
    def folded(self) -> tuple[str, str]:
        """The line of a section without figures, and the text below it when it is opened."""
        first, dot, rest = self.lead.partition(". ")
        if self.summary:
            return self.summary, self.lead or NOTHING
        return f"{first}{dot.strip()}" or NOTHING, rest or "There is no table or figure for this part."


@dataclass(frozen=True)
class Alert:
    """A warning at the top of the page, with the section that explains it."""

    text: str
    section: str


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole page."""

    title: str
    subject: tuple[str, str]  # model, dataset
    facts: tuple[tuple[str, str], ...]
    verdict: str = ""
    next_step: str = ""  # what to do next, in one sentence
    cards: tuple[Card, ...] = ()
    minor: tuple[Card, ...] = ()
    rule: str = ""
    command: str = ""
    alerts: tuple[Alert, ...] = ()
    sections: tuple[Section, ...]
    kind: str = "evaluation"  # kind of page, next to the wordmark
    front: str = ""  # safe markup of a custom first screen instead of cards, rule and command
    layout: str = ""  # class of the body, for the style

    @property
    def shown(self) -> tuple[Section, ...]:
        """The sections that have a figure or a sentence."""
        return tuple(s for s in self.sections if s.figures or s.lead or s.summary)


def fragment(template: str, **values: Any) -> str:
    """The markup of one of the package's templates; every value is escaped unless it is marked safe."""
    return environment("holdfast.report").get_template(template).render(**values)


@cache
def environment(package: str) -> jinja2.Environment:
    """The templates of a package."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def joined(names: Sequence[str]) -> str:
    """One or two names as they are; of more the first and how many follow."""
    return " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"


def scroll(body: str, name: str) -> str:
    """The markup in a region that scrolls by itself, reachable by keyboard."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{body}</div>'


def table_figure(title: str, table: Table, note: str = "", *, name: str = "", **how: bool) -> Figure:
    """A table without its caption as a figure that scrolls; `how` may be `wide` and `sortable`."""
    wide, sortable = how.get("wide", False), how.get("sortable", True)
    body = to_html(Table(table.columns, table.rows), sortable=sortable)
    return Figure(title, scroll(body, name or title), note, wide=wide)


def about_section(figures: Sequence[Figure], versions: Mapping[str, str], *more: Figure) -> Section:
    """A section with these figures, the versions of the libraries, and failures."""
    table = Table(["library", "version"], list(versions.items()))
    shown = (*figures, table_figure("Versions", table, sortable=False), *more)
    return Section("about", "How it was run", shown)


def duration(seconds: float) -> str:
    """Seconds in words: 0.84 s, 12 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def flat(values: dict[str, Any], before: str = "") -> dict[str, str]:
    """Nested values as name.name -> text; long lists cut."""
    texts: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            texts |= flat(value, f"{before}{key}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            texts[before + key] = text if len(text) <= 600 else text[:599] + "…"
    return texts
