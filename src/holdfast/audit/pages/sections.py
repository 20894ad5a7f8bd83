"""The detail sections of an audit: tables and charts, each number with its command."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from markupsafe import escape

from holdfast.audit.pages.verdict import between, effect_of, not_significant, skip_reason
from holdfast.audit.result import Audit, MatrixCell, NoiseResult
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
        noises(audit) if audit.noises or audit.combined else _missing(audit, "noises", "noise"),
        budgets(audit) if audit.attacks else _missing(audit, "budgets", "attack"),
        proofs(audit) if audit.proofs else _missing(audit, "proofs", "squares", "specs"),
        rechecks(audit) if audit.rechecks else _missing(audit, "rechecks", "recheck"),
    ]


# Title and content of the sections that an audit may have no results for.
_CONTENT = {
    "noises": ("System noise", "This section lists the points lost to each noise option."),
    "budgets": (
        "Attack by budget",
        "This section lists the images that the attack breaks at each pixel budget.",
    ),
    "proofs": ("Proofs", "This section lists the properties that were proven or refuted."),
    "rechecks": ("Rechecks", "This section lists proofs and counterexamples under other deployments."),
    "images": ("Images", "This section lists every image under every threat."),
    "cells": ("Matrix in numbers", "This section lists every threat under every deployment."),
}


def _missing(audit: Audit, identifier: str, *parts: str) -> Section:
    """A section without results: the reason as its summary."""
    title, content = _CONTENT[identifier]
    reason = skip_reason(audit, *parts)
    return Section(identifier, title, (), content, summary=f"{reason[:1].upper()}{reason[1:]}.")


def last_sections(audit: Audit) -> list[Section]:
    """The sections for reference: every image, every cell of the matrix."""
    return [
        images(audit) if audit.bounds else _missing(audit, "images", "attack", "squares"),
        cells(audit) if audit.matrix.cells else _missing(audit, "cells", "matrix"),
    ]


def findings(audit: Audit) -> Section:
    """Answers that change under a runtime or precision."""
    found = audit.findings
    if not found:
        where = ", ".join(dict.fromkeys(r.deployment for r in audit.rechecks))
        text = f"No answer changed in {many(len(audit.rechecks), 'recheck')} under {where}."
        return Section("findings", "Findings", (), text)
    rows: list[list[Cell]] = []
    for r in found:
        words = ("certified", "violated") if r.was == "holds" else ("violated", "holds")
        finding = f"{words[0]} for the training pipeline, {words[1]} under {r.deployment}"
        rows.append([finding, r.threat, r.image, r.deployment, r.tried, r.note])
    columns = ["finding", "threat", "image", "deployment", "inputs run", "note"]
    lead = "Properties that hold for the training pipeline but not under a deployment, or the reverse."
    return Section("findings", "Findings", _listing(Table(columns, rows), "Findings", audit), lead)


def plan(audit: Audit) -> Section:
    """The parts: planned, run, skipped and why."""
    rows: list[list[Cell]] = [
        [p.name, _of(p.images, p.of), p.seconds, p.planned, p.skipped or "–"] for p in audit.parts
    ]
    columns: list[Column | str] = [
        "part",
        "images",
        Column("seconds", 1),
        Column("planned seconds", 1),
        "skipped",
    ]
    without = sum(bool(p.skipped) for p in audit.parts)
    budget = f" of {duration(audit.budget)}" if audit.budget else ""
    skipped = (
        f"{without} of {many(len(rows), 'part')} skipped something" if without else "Nothing was skipped"
    )
    lead = f"The audit took {duration(audit.seconds)}{budget}. {skipped}."
    return Section("plan", "Parts", _listing(Table(columns, rows), "Parts", audit, audit.parts), lead)


def noises(audit: Audit) -> Section:
    """Every noise option with its interval, as a chart and a table."""
    every = [*audit.noises, *([audit.combined] if audit.combined else [])]
    columns: list[Column | str] = [
        "noise option", Column("points lost", 2), "95% interval", "significance", "changed predictions",
        "notes",
    ]  # fmt: skip
    table = Table(columns, [_noise_row(c) for c in every])
    figures = (*_chart(every, audit.clean.title), *_listing(table, "System noise", audit, every))
    chance = chance_text((c.low, c.high) for c in audit.noises if c.outcome == "measured")
    lead = f"The accuracy lost to each noise option. {_POINTS}{_CHANCE}{chance and f' {chance}.'}"
    return Section("noises", "System noise", figures, lead)


def _chart(every: Sequence[NoiseResult], metric: str) -> list[Figure]:
    """The intervals of the options that change a prediction, the worst first."""
    measured = [c for c in every if c.outcome == "measured" and c.points_lost is not None]
    moving = sorted(
        (c for c in measured if c.points_lost or c.changed), key=lambda c: -(c.points_lost or 0.0)
    )
    if not moving:
        return []
    spots = []
    for c in moving[:DRAWN]:
        name = f"{c.label.count(' + ') + 1} combined" if c.family == "combined" else c.label
        spots.append(ForestPoint(name, c.points_lost, c.low, c.high, note=_interval(c)))
    chart = forest(
        [ForestGroup("", spots)], title=f"Points of {metric} lost to each noise option", desc=_CHANCE
    )
    note = (
        "Dot: points lost to one noise option. Line: its paired 95% interval over images. Grey: not "
        "significant (the interval contains 0)."
    )
    if len(moving) > DRAWN:
        note += f" The chart shows the worst {DRAWN} of {len(moving)}."
    still = len(measured) - len(moving)
    if still:
        note += f" {many(still, 'option')} without a changed prediction not shown."
    return [Figure(f"Points of {metric} lost", chart, note, wide=True)]


def _interval(one: NoiseResult | MatrixCell) -> str:
    return "" if one.low is None or one.high is None else between(one.low, one.high)


def _noise_row(cause: NoiseResult) -> list[Cell]:
    if cause.points_lost is None:
        reading = cause.outcome
    elif not cause.points_lost and not cause.changed:
        reading = "no effect"
    elif 0 < cause.images < FEWEST:
        reading = "too\u00a0few\u00a0images"
    elif not_significant(cause.low, cause.high):
        reading = "not\u00a0significant"
    else:
        reading = "significant loss" if cause.points_lost > 0 else "significant gain"
    changed = "" if cause.changed is None else f"{_of(cause.changed, cause.images)}\u00a0images"
    known = ""
    with suppress(InputError):  # several together, or the user's own
        known = option(cause.label).summary.rstrip(".")
    mark = "hypothetical" if cause.hypothetical else ""
    what = " – ".join(filter(None, (mark, known, cause.note)))
    return [cause.label, cause.points_lost, _interval(cause), reading, changed, what]


def budgets(audit: Audit) -> Section:
    """The attack at every pixel budget."""
    metric, square = audit.clean.title, audit.contiguous_attack
    levels = [*audit.attacks, *([square] if square else [])]
    columns: list[Column | str] = [
        "threat", "shape", "pixel budget", Column("changed pixels", 1, "mean over the attacked images"),
        "images broken", f"{metric} before", f"{metric} after", Column("S_e", 3, "1 − after / before"),
        "method",
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            s.threat,
            "contiguous" if s is square else "scattered",
            s.pixels,
            s.mean_pixels,
            _of(s.broken, s.aimed),
            s.before,
            s.after,
            s.effect,
            s.engine,
        ]
        for s in levels
    ]
    lead = (
        "The pixel budget limits the changed pixels per image. Broken: every detected object is hidden. "
        "S_e = 1 − after / before, the effect of the patch contest. Scattered pixels (top-gradient): the "
        "single pixels with the largest gradient, anywhere inside the objects. Contiguous: one square per "
        "object, all squares together within the pixel budget."
    )
    figures = _listing(Table(columns, rows), "Attack by budget", audit, levels)
    return Section("budgets", "Attack by budget", figures, lead)


def proofs(audit: Audit) -> Section:
    """The answer to every property."""
    columns: list[Column | str] = [
        "image", "threat", "answer", "inputs run", "unsafe",
        Column("margin", 3, "score of the worst input minus the threshold; violated below 0"),
        Column("worst at", note="column, row of the square's top left corner"), "engine",
        Column("seconds", 1), "note",
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            p.image, p.threat, p.answer, _of(p.tried, p.members) if p.members else "",
            p.unsafe if p.members else None, p.margin, f"{p.where[0]}, {p.where[1]}" if p.where else "",
            p.engine, p.seconds, p.note,
        ]
        for p in audit.proofs
    ]  # fmt: skip
    lead = (
        "holds: every input of the set is covered and none violates the property. violated: a "
        "counterexample was run. unknown: neither, so nothing is proven."
    )
    return Section("proofs", "Proofs", _listing(Table(columns, rows), "Proofs", audit, audit.proofs), lead)


def rechecks(audit: Audit) -> Section:
    """Proofs and counterexamples under each runtime and precision."""
    columns = ["image", "threat", "deployment", "training pipeline", "this deployment", "inputs run", "note"]
    rows: list[list[Cell]] = [
        [r.image, r.threat, r.deployment, r.was, r.now, r.tried, r.note] for r in audit.rechecks
    ]
    count, changed = many(len(audit.rechecks), "answer"), len(audit.findings) or "none"
    lead = f"{count} rechecked under other runtimes and precisions; {changed} changed."
    figures = _listing(Table(columns, rows), "Rechecks", audit)
    return Section("rechecks", "Rechecks", figures, lead)


def images(audit: Audit) -> Section:
    """Every image under every threat."""
    found: dict[str, dict[str, str]] = {}  # image -> threat -> result
    for bounds in audit.bounds:
        for one in bounds.per_image:
            word = (
                "✓\u00a0certified" if one.certified else "✕\u00a0broken" if one.broken else "?\u00a0unknown"
            )
            found.setdefault(one.image, {})[bounds.threat] = word
    threats = [bounds.threat for bounds in audit.bounds]
    rows: list[list[Cell]] = [
        [n, *(known.get(t, "not tested") for t in threats)] for n, known in found.items()
    ]
    lead = "Every image under every threat: certified, broken, or neither."
    figures = _listing(Table(["image", *threats], rows), "Images", audit)
    return Section("images", "Images", figures, lead)


def cells(audit: Audit) -> Section:
    """Every cell of the matrix with all its numbers."""
    columns: list[Column | str] = [
        "threat", "deployment", audit.clean.title, "images", "still broken",
        Column("extra points lost", 2, "together, minus the sum of both alone"), "95% interval",
        "interaction", "note",
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            m.threat, m.deployment, m.value, m.images,
            _of(m.still_broken, m.broken_in_training) if m.broken_in_training else "", m.extra_points_lost,
            _interval(m), effect_of(m), m.note,
        ]
        for m in audit.matrix.cells
    ]  # fmt: skip
    lead = (
        "Still broken: of the images the threat breaks under the training pipeline, those it breaks here. "
        f"Extra points lost: together, minus the sum of both alone. {_CHANCE}"
    )
    figures = _listing(Table(columns, rows), "Matrix", audit, audit.matrix.cells)
    return Section("cells", "Matrix in numbers", figures, lead)


def _listing(table: Table, name: str, audit: Audit, about: Sequence[Any] = ()) -> tuple[Figure, ...]:
    """The table as one figure; the command that most rows share is below it, others are in a column."""
    rows, columns = list(table.rows), list(table.columns)
    commands = [one.command or audit.command for one in about] or [audit.command]
    command, count = Counter(commands).most_common(1)[0]
    if count < len(commands):
        shared = command if count > 1 else ""
        own = ["" if one == shared else one for one in commands]
        command, columns = shared, [*columns, Column("command", command=True)]
        rows = [(*row, one) for row, one in zip(rows, own, strict=True)]
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
