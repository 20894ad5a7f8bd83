"""The details of an audit an engineer needs: tables and charts, each number with its command."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from markupsafe import escape

from holdfast.audit.pages.words import between, effect_of, within_chance
from holdfast.audit.result import Audit, Cause, MatrixCell
from holdfast.core.errors import InputError
from holdfast.metrics.intervals import FEWEST
from holdfast.report.charts.forest import Group, Spot, forest
from holdfast.report.parts import Figure, Section, duration, scroll
from holdfast.report.tables import Cell, Column, Table, grouped, many, to_html
from holdfast.stages.families import option

LISTED = 200  # rows of a table that are written out; audit.json has all
DRAWN = 24  # causes in the chart
_POINTS = "In points, hundredths of the metric; positive is a loss. "
_CHANCE = "An interval that holds 0 is within chance."


def sections(audit: Audit) -> list[Section]:
    """Findings, plan, noise, attack, proofs, rechecks; those that have something to show."""
    makers = (
        (audit.rechecks, findings),
        (audit.parts, plan),
        (audit.causes or audit.combined, causes),
        (audit.strikes, budgets),
        (audit.proofs, proofs),
        (audit.rechecks, rechecks),
    )
    return [make(audit) for there, make in makers if there]


def last_sections(audit: Audit) -> list[Section]:
    """What is looked up rather than read: image by image, the matrix in numbers."""
    makers = ((audit.sandwich, images), (audit.matrix.meetings, cells))
    return [make(audit) for there, make in makers if there]


def findings(audit: Audit) -> Section:
    """Answers that are others under a runtime or precision."""
    found = audit.findings
    if not found:
        where = ", ".join(dict.fromkeys(r.deployment for r in audit.rechecks))
        said = f"No answer turned into its opposite in {many(len(audit.rechecks), 'recheck')} under {where}."
        return Section("findings", "Findings", (), said)
    rows: list[list[Cell]] = []
    for r in found:
        words = ("proven", "broken") if r.was == "holds" else ("broken", "holds")
        said = f"{words[0]} as trained, {words[1]} under {r.deployment}"
        rows.append([said, r.threat, r.image, r.deployment, r.tried, r.note])
    columns = ["finding", "threat", "image", "deployment", "members run", "note"]
    lead = "Answers that hold as trained and not where it is deployed, or the other way round."
    return Section("findings", "Findings", _listing(Table(columns, rows), "Findings", audit), lead)


def plan(audit: Audit) -> Section:
    """What was planned, what ran, what was left out and why."""
    rows: list[list[Cell]] = [
        [p.name, _of(p.images, p.of), p.seconds, p.planned, p.left_out or "nothing"] for p in audit.parts
    ]
    columns: list[Column | str] = ["part", "images", Column("seconds", 1), Column("planned", 1), "left out"]
    without = sum(bool(p.left_out) for p in audit.parts)
    budget = f" of {duration(audit.budget)}" if audit.budget else ""
    said = f"{many(without, 'part')} of {len(rows)} left something out" if without else "Nothing was left out"
    lead = f"The audit took {duration(audit.seconds)}{budget}. {said}."
    return Section("plan", "Plan", _listing(Table(columns, rows), "Plan", audit, audit.parts), lead)


def causes(audit: Audit) -> Section:
    """Every system noise with its interval, drawn and in a table."""
    every = [*audit.causes, *([audit.combined] if audit.combined else [])]
    columns: list[Column | str] = [
        "system noise", Column("points lost", 2), "95 % interval", "reading", "predictions changed",
        "what it is",
    ]  # fmt: skip
    table = Table(columns, [_cause(c) for c in every])
    figures = (*_chart(every, audit.clean.title), *_listing(table, "System noise", audit, every))
    lead = f"What each way to deploy the model differently costs. {_POINTS}{_CHANCE}"
    return Section("causes", "System noise", figures, lead)


def _chart(every: Sequence[Cause], metric: str) -> list[Figure]:
    """The intervals of those that change anything, the worst first."""
    measured = [c for c in every if c.outcome == "measured" and c.drop is not None]
    moving = sorted((c for c in measured if c.drop or c.changed), key=lambda c: -(c.drop or 0.0))
    if not moving:
        return []
    spots = []
    for c in moving[:DRAWN]:
        name = f"{c.label.count(' + ') + 1} together" if c.family == "combined" else c.label
        spots.append(Spot(name, points_of(c.drop), points_of(c.low), points_of(c.high), note=_interval(c)))
    chart = forest([Group("", spots)], title=f"{metric} lost to each system noise", desc=_CHANCE)
    note = (
        "A dot is what one system noise costs, its line the paired 95 % interval over images. Grey: the "
        "interval holds 0."
    )
    if len(moving) > DRAWN:
        note += f" The worst {DRAWN} of {len(moving)} are drawn."
    still = len(measured) - len(moving)
    if still:
        are = "is" if still == 1 else "are"
        note += f" {many(still, 'other')} changed no prediction and {are} not drawn."
    return [Figure(f"{metric} lost, in points", chart, note, wide=True)]


def points_of(value: float | None) -> float | None:
    """A difference in points."""
    return None if value is None else 100 * value


def _interval(one: Cause | MatrixCell) -> str:
    return "" if one.low is None or one.high is None else between(one.low, one.high)


def _cause(cause: Cause) -> list[Cell]:
    if cause.drop is None:
        reading = cause.outcome
    elif not cause.drop and not cause.changed:
        reading = "no change"
    elif 0 < cause.images < FEWEST:
        reading = "too\u00a0few\u00a0images"
    elif within_chance(cause.low, cause.high):
        reading = "within\u00a0chance"
    else:
        reading = "loss" if cause.drop > 0 else "gain"
    changed = "" if cause.changed is None else _of(cause.changed, cause.images)
    known = ""
    with suppress(InputError):  # several together, or the user's own
        known = option(cause.label).summary.rstrip(".")
    what = " – ".join(filter(None, (known, cause.note)))
    return [cause.label, points_of(cause.drop), _interval(cause), reading, changed, what]


def budgets(audit: Audit) -> Section:
    """The attack at every budget of pixels."""
    metric = audit.clean.title
    columns: list[Column | str] = [
        "threat", "pixels allowed", Column("pixels used", 1, "mean over the attacked images"),
        "images broken", f"{metric} before", f"{metric} after", Column("S_e", 3, "1 − after / before"),
        "engine",
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [s.threat, s.pixels, s.mean_pixels, _of(s.broken, s.aimed), s.before, s.after, s.effect, s.engine]
        for s in audit.strikes
    ]
    lead = (
        "Each image may have so many pixels changed. Broken: every true object found before is found no "
        "more. S_e = 1 − after / before, the effect of the patch contest. top-gradient: the pixels whose "
        "change moves the scores most."
    )
    figures = _listing(Table(columns, rows), "Attack by budget", audit, audit.strikes)
    return Section("budgets", "Attack", figures, lead)


def proofs(audit: Audit) -> Section:
    """The answer to every question that was asked of a prover."""
    columns: list[Column | str] = [
        "image", "threat", "answer", "members run", "unsafe",
        Column("margin", 3, "score of the worst member minus the threshold; below 0 it breaks"),
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
        "holds: every member of the set was covered and none breaks it. violated: one that breaks it was "
        "run. unknown: neither; it counts as nothing proven."
    )
    return Section("proofs", "Proofs", _listing(Table(columns, rows), "Proofs", audit, audit.proofs), lead)


def rechecks(audit: Audit) -> Section:
    """Proofs and witnesses under each runtime and precision."""
    columns = ["image", "threat", "deployment", "as trained", "here", "members run", "note"]
    rows: list[list[Cell]] = [
        [r.image, r.threat, r.deployment, r.was, r.now, r.tried, r.note] for r in audit.rechecks
    ]
    asked, turned = many(len(audit.rechecks), "answer"), len(audit.findings) or "none"
    lead = f"{asked} put to the same question again; {turned} turned into the opposite."
    figures = _listing(Table(columns, rows), "Rechecks", audit)
    return Section("rechecks", "Rechecks", figures, lead)


def images(audit: Audit) -> Section:
    """Every image against every threat of the sandwich."""
    found: dict[str, dict[str, str]] = {}  # image -> threat -> what is known
    for bounds in audit.sandwich:
        for one in bounds.standings:
            word = "✓\u00a0proven" if one.certified else "✕\u00a0broken" if one.broken else "?\u00a0unknown"
            found.setdefault(one.image, {})[bounds.threat] = word
    threats = [bounds.threat for bounds in audit.sandwich]
    rows: list[list[Cell]] = [
        [n, *(known.get(t, "not asked") for t in threats)] for n, known in found.items()
    ]
    lead = "The sandwich image by image: proven to hold, shown to break, or neither."
    figures = _listing(Table(["image", *threats], rows), "Image by image", audit)
    return Section("images", "Images", figures, lead)


def cells(audit: Audit) -> Section:
    """Every field of the matrix with all its numbers."""
    columns: list[Column | str] = [
        "threat", "deployment", audit.clean.title, "images", "still broken",
        Column("extra points", 1, "what both cost together minus what each costs alone"), "95 % interval",
        "together", "note",
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            m.threat, m.deployment, m.value, m.images, _of(m.survived, m.struck) if m.struck else "",
            points_of(m.extra), _interval(m), effect_of(m), m.note,
        ]
        for m in audit.matrix.meetings
    ]  # fmt: skip
    lead = (
        "Still broken: of the images the threat broke as trained, those it breaks here. Extra: what threat "
        f"and deployment cost together minus what each costs alone. {_CHANCE}"
    )
    figures = _listing(Table(columns, rows), "The matrix in numbers", audit, audit.matrix.meetings)
    return Section("fields", "Matrix in numbers", figures, lead)


def _listing(table: Table, name: str, audit: Audit, about: Sequence[Any] = ()) -> tuple[Figure, ...]:
    """The table as one figure; the command most rows share (`about`) once below it, others in a column."""
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
    if command:  # folded: it gives the numbers above it again
        body += (
            '<details class="again"><summary>command<span class="unseen"> that gives this again</span>'
            f'</summary><pre tabindex="0"><code>{escape(command)}</code></pre></details>'
        )
    return (Figure("", body, note, wide=True),)


def _of(part: int, whole: int) -> str:
    """A count of a whole on one line."""
    return f"{grouped(part)}\u00a0of\u00a0{grouped(whole)}"
