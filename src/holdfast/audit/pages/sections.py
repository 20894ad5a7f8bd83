"""The detail sections of an audit: tables and charts, each number with its command."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from markupsafe import escape

from holdfast.attack.page import survival_table
from holdfast.audit.pages.verdict import between, effect_of, not_significant, skip_reason
from holdfast.audit.result import AttackLevel, Audit, MatrixCell, NoiseResult, Part, Proof
from holdfast.core.errors import InputError
from holdfast.metrics.intervals import FEWEST
from holdfast.metrics.points import chance_text
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.parts import Figure, Section, duration, scroll
from holdfast.report.tables import Cell, Column, Table, grouped, many, to_html
from holdfast.stages.families import option

LISTED = 200  # rows of a table on the page; audit.json has all
DRAWN = 24  # noise options in the chart
_POINTS = "Points lost = clean − noisy in percentage points; a gain is negative. "
_CHANCE = "A loss is not significant if its 95% interval contains 0."


def sections(audit: Audit) -> list[Section]:
    """Findings, plan, noise, attack, proofs and rechecks; collapsed to the reason where there are none."""
    return [
        *([findings(audit)] if audit.rechecks else []),
        *([plan(audit)] if audit.parts else []),
        noises(audit) if audit.all_noises else _missing(audit, "noises", "noise"),
        budgets(audit) if audit.all_attacks else _missing(audit, "budgets", "attack"),
        proofs(audit) if audit.proofs else _missing(audit, "proofs", "squares", "specs"),
        rechecks(audit) if audit.rechecks else _missing(audit, "rechecks", "recheck"),
    ]


def last_sections(audit: Audit) -> list[Section]:
    """The sections for reference: every image, every cell of the matrix."""
    return [
        images(audit) if audit.bounds else _missing(audit, "images", "attack", "squares"),
        cells(audit) if audit.matrix.cells else _missing(audit, "cells", "matrix"),
    ]


# Title and content of the sections that an audit may have no results for.
_CONTENT = {
    "noises": ("System noise", "the points lost to each noise option"),
    "budgets": ("Attacks", "the images that a patch and scattered pixels break"),
    "proofs": ("Proofs", "the properties that were proven or refuted"),
    "rechecks": ("Rechecks", "proofs and counterexamples under other deployments"),
    "images": ("Images", "every image under every threat"),
    "cells": ("Matrix in numbers", "every threat under every deployment"),
}


def _missing(audit: Audit, identifier: str, *parts: str) -> Section:
    """A section without results: the reason as its summary."""
    title, content = _CONTENT[identifier]
    reason = skip_reason(audit, *parts)
    summary = f"{reason[:1].upper()}{reason[1:]}."
    return Section(identifier, title, (), f"This section lists {content}.", summary=summary)


def findings(audit: Audit) -> Section:
    """Answers that change under a runtime or precision."""
    if not audit.findings:
        where = ", ".join(dict.fromkeys(r.deployment for r in audit.rechecks))
        text = f"No answer changed in {many(len(audit.rechecks), 'recheck')} under {where}."
        return Section("findings", "Findings", (), text)
    rows: list[list[Cell]] = []
    for r in audit.findings:
        words = ("certified", "violated") if r.was == "holds" else ("violated", "holds")
        finding = f"{words[0]} for the training pipeline, {words[1]} under {r.deployment}"
        rows.append([finding, r.threat, r.image, r.deployment, r.tried, r.note])
    columns = ["finding", "threat", "image", "deployment", "inputs run", "note"]
    lead = "Properties that hold for the training pipeline but not under a deployment, or the reverse."
    return Section("findings", "Findings", _listing(Table(columns, rows), "Findings", audit), lead)


def plan(audit: Audit) -> Section:
    """The parts: planned, run, skipped and why."""
    columns = [
        Column[Part]("part", get=lambda p: p.name),
        Column("images", get=lambda p: _of(p.images, p.of)),
        Column("seconds", 1, get=lambda p: p.seconds),
        Column("planned seconds", 1, get=lambda p: p.planned),
        Column("skipped", get=lambda p: p.skipped or "–"),
    ]
    count = sum(bool(p.skipped) for p in audit.parts)
    budget = f" of {duration(audit.budget)}" if audit.budget else ""
    skipped = "Nothing was skipped"
    if count:
        skipped = f"{count} of {many(len(audit.parts), 'part')} skipped something"
    lead = f"The audit took {duration(audit.seconds)}{budget}. {skipped}."
    figures = _listing(Table.of(audit.parts, columns), "Parts", audit, audit.parts)
    return Section("plan", "Parts", figures, lead)


def noises(audit: Audit) -> Section:
    """Every noise option with its interval, as a chart and a table."""
    options = audit.all_noises
    columns = [
        Column[NoiseResult]("noise option", get=lambda c: c.label),
        Column("points lost", 2, get=lambda c: c.points_lost),
        Column("95% interval", get=_interval),
        Column("clean", 3, "the training pipeline on the same images", get=lambda c: c.before),
        Column("significance", get=_significance),
        Column("changed predictions", get=_changed),
        Column("notes", get=_notes),
    ]
    listing = _listing(Table.of(options, columns), "System noise", audit, options)
    chance = chance_text((c.low, c.high) for c in audit.noises if c.outcome == "measured")
    lead = f"The accuracy lost to each noise option. {_POINTS}{_CHANCE}{chance and f' {chance}.'}"
    if audit.target and audit.target.stages:
        lead += f" {audit.target.stages}."
    return Section("noises", "System noise", (*_chart(options, audit.clean.title), *listing), lead)


def _chart(options: Sequence[NoiseResult], metric: str) -> list[Figure]:
    """The intervals of the options that change a prediction, the worst first."""
    measured = [c for c in options if c.outcome == "measured" and c.points_lost is not None]
    moving = [c for c in measured if c.points_lost or c.changed]
    moving.sort(key=lambda c: -(c.points_lost or 0.0))
    if not moving:
        return []
    marks = []
    for c in moving[:DRAWN]:
        name = f"{c.label.count(' + ') + 1} combined" if c.family == "combined" else c.label
        marks.append(ForestPoint(name, c.points_lost, c.low, c.high, note=_interval(c)))
    title = f"Points of {metric} lost"
    chart = forest([ForestGroup("", marks)], title=f"{title} to each noise option", desc=_CHANCE)
    note = (
        "Dot: points lost to one noise option. Line: its paired 95% interval over images. Grey: not "
        "significant (the interval contains 0)."
    )
    if len(moving) > DRAWN:
        note += f" The chart shows the worst {DRAWN} of {len(moving)}."
    still = len(measured) - len(moving)
    if still:
        note += f" {many(still, 'option')} without a changed prediction not shown."
    return [Figure(title, chart, note, wide=True)]


def _interval(result: NoiseResult | MatrixCell) -> str:
    return "" if result.low is None or result.high is None else between(result.low, result.high)


def _significance(noise: NoiseResult) -> str:
    if noise.points_lost is None:
        return noise.outcome
    if not noise.points_lost and not noise.changed:
        return "no effect"
    if 0 < noise.images < FEWEST:
        return "too\u00a0few\u00a0images"
    if not_significant(noise.low, noise.high):
        return "not\u00a0significant"
    return "significant loss" if noise.points_lost > 0 else "significant gain"


def _changed(noise: NoiseResult) -> str:
    return "" if noise.changed is None else f"{_of(noise.changed, noise.images)}\u00a0images"


def _notes(noise: NoiseResult) -> str:
    summary = ""
    with suppress(InputError):  # several together, or the user's own
        summary = option(noise.label).summary.rstrip(".")
    mark = "hypothetical" if noise.hypothetical else ""
    return " – ".join(filter(None, (mark, summary, noise.note)))


def budgets(audit: Audit) -> Section:
    """The attack with a patch and at every pixel budget, and the survival of the patch."""
    metric, levels = audit.clean.title, audit.all_attacks
    columns = [
        Column[AttackLevel]("threat", get=lambda s: s.threat),
        Column("what is changed", get=lambda s: s.words),
        Column("changed pixels", 1, "mean over the attacked images", get=lambda s: s.mean_pixels),
        Column("images broken", get=lambda s: _of(s.broken, s.aimed)),
        Column(f"{metric} before", get=lambda s: s.before),
        Column(f"{metric} after", get=lambda s: s.after),
        Column("S_e", note="1 − after / before", get=lambda s: s.effect),
        Column("method", get=lambda s: s.engine),
    ]
    lead = (
        "Broken: every detected object is hidden. S_e = 1 − after / before, the effect of the patch contest. "
        "Patch: one region per object, to be printed, optimised over random views. Scattered pixels "
        "(top-gradient): the single pixels with the largest gradient, anywhere inside the objects; the pixel "
        "budget limits them per image. Nobody can print them."
    )
    figures = _listing(Table.of(levels, columns), "Attacks", audit, levels)
    if audit.patch and audit.patch.survival:
        table, note = survival_table(audit.patch.survival)
        body = scroll(to_html(table, sortable=False), table.caption)
        figures = (*figures, Figure("", body, note, wide=True))
    return Section("budgets", "Attacks", figures, lead)


def proofs(audit: Audit) -> Section:
    """The answer to every property."""
    margin = "score of the worst input minus the threshold; violated below 0"
    place = "column, row of the square's top left corner"
    columns = [
        Column[Proof]("image", get=lambda p: p.image),
        Column("threat", get=lambda p: p.threat),
        Column("answer", get=lambda p: p.answer),
        Column("inputs run", get=lambda p: _of(p.tried, p.members) if p.members else ""),
        Column("unsafe", get=lambda p: p.unsafe if p.members else None),
        Column("margin", note=margin, get=lambda p: p.margin),
        Column("worst at", note=place, get=lambda p: f"{p.where[0]}, {p.where[1]}" if p.where else ""),
        Column("engine", get=lambda p: p.engine),
        Column("seconds", 1, get=lambda p: p.seconds),
        Column("note", get=lambda p: p.note),
    ]
    lead = (
        "holds: every input of the set is covered and none violates the property. violated: a "
        "counterexample was run. unknown: neither, so nothing is proven."
    )
    figures = _listing(Table.of(audit.proofs, columns), "Proofs", audit, audit.proofs)
    return Section("proofs", "Proofs", figures, lead)


def rechecks(audit: Audit) -> Section:
    """Proofs and counterexamples under each runtime and precision."""
    columns = ["image", "threat", "deployment", "training pipeline", "this deployment", "inputs run", "note"]
    rows: list[list[Cell]] = [
        [r.image, r.threat, r.deployment, r.was, r.now, r.tried, r.note] for r in audit.rechecks
    ]
    count, changed = many(len(audit.rechecks), "answer"), len(audit.findings) or "none"
    lead = f"{count} rechecked under other runtimes and precisions; {changed} changed."
    return Section("rechecks", "Rechecks", _listing(Table(columns, rows), "Rechecks", audit), lead)


def images(audit: Audit) -> Section:
    """Every image under every threat."""
    results: dict[str, dict[str, str]] = {}  # image -> threat -> result
    for bounds in audit.bounds:
        for image in bounds.per_image:
            result = "✕\u00a0broken" if image.broken else "?\u00a0unknown"
            if image.certified:
                result = "✓\u00a0certified"
            results.setdefault(image.image, {})[bounds.threat] = result
    threats = [bounds.threat for bounds in audit.bounds]
    rows = [[name, *(known.get(t, "not tested") for t in threats)] for name, known in results.items()]
    lead = "Every image under every threat: certified, broken, or neither."
    figures = _listing(Table(["image", *threats], rows), "Images", audit)
    return Section("images", "Images", figures, lead)


def _still_broken(cell: MatrixCell) -> str:
    return _of(cell.still_broken, cell.broken_in_training) if cell.broken_in_training else ""


def cells(audit: Audit) -> Section:
    """Every cell of the matrix with all its numbers."""
    extra = "together, minus the sum of both alone"
    columns = [
        Column[MatrixCell]("threat", get=lambda m: m.threat),
        Column("deployment", get=lambda m: m.deployment),
        Column(audit.clean.title, get=lambda m: m.value),
        Column("images", get=lambda m: m.images),
        Column("still broken", get=_still_broken),
        Column("extra points lost", 2, extra, get=lambda m: m.extra_points_lost),
        Column("95% interval", get=_interval),
        Column("interaction", get=effect_of),
        Column("note", get=lambda m: m.note),
    ]
    lead = (
        "Still broken: of the images the threat breaks under the training pipeline, those it breaks here. "
        f"Extra points lost: together, minus the sum of both alone. {_CHANCE}"
    )
    figures = _listing(Table.of(audit.matrix.cells, columns), "Matrix", audit, audit.matrix.cells)
    return Section("cells", "Matrix in numbers", figures, lead)


def _listing(table: Table, name: str, audit: Audit, sources: Sequence[Any] = ()) -> tuple[Figure, ...]:
    """The table as one figure; the command that most rows share is below it, others are in a column."""
    rows, columns = list(table.rows), list(table.columns)
    commands = [source.command or audit.command for source in sources] or [audit.command]
    command, count = Counter(commands).most_common(1)[0]
    if count < len(commands):
        shared = command if count > 1 else ""
        own = ["" if line == shared else line for line in commands]
        command, columns = shared, [*columns, Column("command", command=True)]
        rows = [(*row, line) for row, line in zip(rows, own, strict=True)]
    note = f"{grouped(len(rows) - LISTED)} more rows are in audit.json." if len(rows) > LISTED else ""
    body = scroll(to_html(Table(columns, rows[:LISTED]), sortable=len(rows) > 1), f"{name}, table")
    if command:
        body += (
            '<details class="again"><summary>command<span class="unseen"> to reproduce this</span>'
            f'</summary><pre tabindex="0"><code>{escape(command)}</code></pre></details>'
        )
    return (Figure("", body, note, wide=True),)


def _of(part: int, whole: int) -> str:
    """A count of a whole on one line."""
    return f"{grouped(part)}\u00a0of\u00a0{grouped(whole)}"
