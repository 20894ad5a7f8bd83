"""A noise suite as one page: what matters, the paper's table, every option, the staircase, how it was run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import OutputError
from holdfast.engine.store import write_atomic
from holdfast.noise.vision.combine import Staircase
from holdfast.noise.vision.result import ModelNoise, Suite
from holdfast.noise.vision.sections import lead, sections_of
from holdfast.noise.vision.tables import METRICS
from holdfast.report.html import document
from holdfast.report.parts import Alert, Card, Document, Figure, Section, joined, scroll
from holdfast.report.tables import Table, many, to_html


def write(suite: Suite, out: Path, stairs: Sequence[Staircase] = ()) -> Path:
    """The path of the written page, there whole or not at all; OutputError if it cannot be written there."""
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'noise.html'}")
    write_atomic(out, page(suite, stairs).encode())
    return out


def page(suite: Suite, stairs: Sequence[Staircase] = ()) -> str:
    """The suite as one self-contained HTML file."""
    first = suite.models[0]
    name = joined([m.model for m in suite.models])
    several = len(suite.models) > 1
    return document(
        Document(
            title=f"System noise of {name} on {suite.data}",
            subject=(name, suite.data),
            facts=_facts(suite),
            verdict=" ".join(f"{m.model}: {lead(m)}" for m in suite.models[:3]) if several else lead(first),
            cards=tuple(map(_card, suite.models[:6])) if several else _cards(first),
            minor=(),
            rule=first.rule,
            command=suite.command,
            alerts=_alerts(suite),
            sections=(*sections_of(suite, stairs), _about(suite)),
            kind="system noise",
            layout="noise",
        )
    )


def _facts(suite: Suite) -> tuple[tuple[str, str], ...]:
    options = sum(r.drop is not None for m in suite.models for r in m.rows)
    return (
        ("images", str(suite.models[0].images)),
        ("models", str(len(suite.models))),
        ("options run", str(options)),
        ("made", suite.created),
    )


def _cards(model: ModelNoise) -> tuple[Card, ...]:
    metric = METRICS.get(model.metric, model.metric)
    worst, combined = model.worst, model.combined
    shown = [Card(metric, 100 * model.clean, "clean: the system it was trained with", 2)]
    if worst is not None and worst.drop is not None:
        shown.append(Card("worst single noise", f"{worst.drop:z.2f}", f"points lost: {worst.label}"))
        shown.append(Card("predictions changed by it", worst.changed, f"of {many(worst.images, 'image')}"))
    if combined is not None and combined.drop is not None:
        shown.append(Card("worst of each together", f"{combined.drop:z.2f}", "points lost"))
    return tuple(shown)


def _card(model: ModelNoise) -> Card:
    """One of several models: its metric as trained, and what the worst single noise takes from it."""
    metric, worst = METRICS.get(model.metric, model.metric), model.worst
    cost = f"; at worst {worst.drop:z.2f} less: {worst.label}" if worst and worst.drop is not None else ""
    return Card(model.model, f"{100 * model.clean:.2f}", f"{metric} clean{cost}")


def _alerts(suite: Suite) -> tuple[Alert, ...]:
    found = [Alert(f"{m.model}: {line}", "about") for m in suite.models for line in m.warnings]
    lost = sum(len(m.failed) for m in suite.models)
    said = f"{many(lost, 'image')} failed and {'is' if lost == 1 else 'are'} not in the numbers"
    return (*found, *([Alert(said, "about")] if lost else []))


def _about(suite: Suite) -> Section:
    rows = [[name, version] for name, version in suite.versions.items()]
    versions = scroll(to_html(Table(["library", "version"], rows), sortable=False), "Versions")
    stages = [[m.model, *m.pipeline.values()] for m in suite.models]
    columns = ["model", *suite.models[0].pipeline]
    clean = scroll(to_html(Table(columns, stages), sortable=False), "The clean pipeline")
    failed = [line for m in suite.models for line in m.failed]
    figures = [
        Figure("Clean pipeline", clean, "What every option is compared with.", wide=True),
        Figure("Versions", versions),
    ]
    if failed:
        body = scroll(to_html(Table(["failed"], [[line] for line in failed]), sortable=False), "Failed")
        figures.append(Figure("Images that failed", body))
    return Section("about", "How it was run", tuple(figures))
