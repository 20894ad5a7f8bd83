"""The first screen of an audit: gates, the verdict in five lines, the sandwich, the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from holdfast.audit.gates import count_verdicts
from holdfast.audit.pages.words import between, effect_of, left_out, points, under, verdict, worst_cell
from holdfast.audit.result import NO_THREAT, TRAINED, Audit, MatrixCell, RobustnessBounds
from holdfast.audit.values import some
from holdfast.metrics.intervals import FEWEST
from holdfast.report.charts.bars import sandwich
from holdfast.report.charts.matrix import DENSE, Field, Head, Mark, heat, scale
from holdfast.report.parts import fragment
from holdfast.report.tables import grouped, many, shown

if TYPE_CHECKING:
    from holdfast.audit.gates import GateVerdict

_BROAD = 11  # deployments from which on the matrix has the whole width
_EFFECTS = {"magnified": (Mark("▲", "magnified", "more"),), "overlaps": (Mark("▽", "overlaps", "less"),)}
_NOWHERE = Field("–", None, (Mark("", "not run"),))


def front(audit: Audit, judged: Sequence[GateVerdict] = ()) -> str:
    """The markup of the first screen."""
    gates = [_gate(one) for one in judged]
    tones = {gate["tone"] for gate in gates}
    commands = {p.threat: p.command for p in audit.proofs if p.command}
    commands |= {s.threat: s.command for s in audit.strikes if s.command}
    counts = {one.images for one in audit.sandwich}
    images = many(counts.pop(), "image") if len(counts) == 1 else "the images asked about"
    return fragment(
        "audit.html",
        gates=gates,
        gates_tone=next((tone for tone in ("bad", "open") if tone in tones), "good"),
        gates_said=count_verdicts(judged),
        lines=verdict(audit),
        layers=[_bounds(one) for one in audit.sandwich],
        layers_lead=f"Of {images} at least the proven hold, at most the unbroken.",
        commands=[(one.threat, commands[one.threat]) for one in audit.sandwich if one.threat in commands],
        no_layers=f"{left_out(audit, 'attack', 'squares').capitalize()}.",
        **_matrix(audit),
    )


def _gate(judged: GateVerdict) -> dict[str, Any]:
    value = "" if judged.value is None else f"it is {shown(judged.value, -4)}"
    images = "" if judged.images is None or not judged.decided else f"n = {judged.images}"
    said = "; ".join(text for text in (value, images, judged.reason) if text)
    tone = "bad" if judged.failed else "good" if judged.decided else "open"
    return {"text": judged.gate.text, "tone": tone, "verdict": judged.verdict, "said": said}


def _bounds(bounds: RobustnessBounds) -> dict[str, Any]:
    low, high = bounds.certified, bounds.attacked
    bar = sandwich(low, high - low, bounds.images - high, bounds.threat)
    span = f"exactly {low}" if low == high else f"{low} to {high}"
    engines = f"proven: {bounds.prover or 'no engine'}; broken: {bounds.attacker or 'not attacked'}"
    if bounds.prover and bounds.prover == bounds.attacker:
        engines = f"proven and broken: {bounds.prover}"
    return {
        "name": bounds.threat,
        "words": bounds.words,
        "range": f"{span} of {bounds.images} hold",
        "bar": Markup(bar),  # noqa: S704 (every text in it is escaped)
        "engines": engines,
    }


def _matrix(audit: Audit) -> dict[str, Any]:
    """What the template needs to know about the matrix."""
    matrix, alone = audit.matrix, tuple(audit.matrix.threats) in ((), (NO_THREAT,))
    table, legend, lead = "", "", f"{left_out(audit, 'matrix').capitalize()}."
    if matrix.meetings:
        whole, lead = matrix.at(NO_THREAT, TRAINED), _lead(audit)
        clean = whole.value if whole is not None and whole.value else audit.clean.value
        fields = [[_field(matrix.at(t, d), clean) for d in matrix.deployments] for t in matrix.threats]
        words = {s.threat: f"{grouped(s.pixels)} changed pixels" for s in audit.strikes}
        words |= {one.threat: one.words for one in audit.sandwich}
        rows = [Head("no threat" if t == NO_THREAT else t, "", words.get(t, "")) for t in matrix.threats]
        columns = [_column(d) for d in matrix.deployments]
        table = heat(rows, columns, fields, corner="threat", caption=lead)
        legend = scale(f"share lost of the clean {clean:.3f}")
    return {
        "matrix_title": "Deployments" if alone else "Threat × deployment",
        "matrix": Markup(table),  # noqa: S704
        "matrix_command": next((m.command for m in matrix.meetings if m.command), audit.command),
        "broad": len(matrix.deployments) > _BROAD,
        "keys": _keys(audit),
        "scale": Markup(legend),  # noqa: S704
        "matrix_lead": lead,
    }


def _column(deployment: str) -> Head:
    count = deployment.count(" + ") + 1
    if count > 1:
        return Head(f"{count} together", "", deployment)
    family, equals, option = deployment.partition("=")
    return Head(option.removeprefix(f"{family}-"), family, deployment) if equals else Head(deployment)


def _lead(audit: Audit) -> str:
    counts = sorted({m.images for m in audit.matrix.meetings if m.value is not None})
    images = many(counts[-1], "image") if counts else "no image"
    if len(counts) > 1:
        images = f"{counts[0]} to {images}"
    how = " under each deployment"
    if any(t != NO_THREAT for t in audit.matrix.threats):
        how = "; each threat was made as trained, then met by each deployment"
    said = f"{audit.clean.title} on {images}{how}."
    worst = worst_cell(audit)
    if worst is not None and worst.value is not None:
        said += f" Lowest {worst.value:.3f}: {worst.threat} {under(worst.deployment)}."
    return said


def _field(cell: MatrixCell | None, clean: float) -> Field:
    if cell is None:
        return _NOWHERE
    if cell.value is None:
        return Field("–", None, (Mark("", "could not run"),), cell.note)
    lost = (clean - cell.value) / clean if clean > 0 else 0.0
    return Field(f"{cell.value:.3f}", lost, _marks(cell), _tip(cell))


def _marks(cell: MatrixCell) -> tuple[Mark, ...]:
    marks, share = [], f"{cell.survived}/{cell.struck}"
    if cell.struck and cell.deployment == TRAINED:
        marks.append(Mark(f"✕ {cell.struck}", f"breaks {cell.struck}"))
    elif cell.struck:
        marks.append(Mark(share, f"survives {share}"))
    return (*marks, *_EFFECTS.get(effect_of(cell), ()))


def _tip(cell: MatrixCell) -> str:
    """The tooltip of a cell; the table in numbers has the same."""
    said = [f"{cell.threat} under {cell.deployment}: {cell.value:.4f} on {many(cell.images, 'image')}"]
    if cell.extra is not None and cell.low is not None and cell.high is not None:
        interval = between(cell.low, cell.high)
        said.append(f"together {points(cell.extra)} points more than the sum of both alone {interval}")
    return "; ".join([*said, *([cell.note] if cell.note else [])])


def _keys(audit: Audit) -> list[str]:
    """What the marks mean, of those that occur, and why fields are empty."""
    met = audit.matrix.meetings
    keys = []
    struck = [m for m in met if m.struck]
    first = next((m for m in struck if m.deployment == TRAINED), None)
    if first is not None and len(audit.matrix.deployments) > DENSE:
        keys.append(f"✕ {first.struck}: {many(first.struck, 'image')} broken by the threat as trained.")
    if (other := next((m for m in struck if m.deployment != TRAINED), None)) is not None:
        keys.append(
            f"{other.survived}/{other.struck}: of {many(other.struck, 'image')} the threat broke as trained, "
            f"{other.survived} {'is' if other.survived == 1 else 'are'} broken in this deployment too."
        )
    if any(effect_of(m) == "magnified" for m in met):
        keys.append("▲ magnified: together they cost more than both alone in sum (95 % interval above 0).")
    if any(effect_of(m) == "overlaps" for m in met):
        keys.append("▽ overlaps: together they cost less than both alone in sum (95 % interval below 0).")
    if any(m.effect and not effect_of(m) for m in met):
        keys.append(f"Whether threat and deployment magnify each other is not said of under {FEWEST} images.")
    several = [d for d in audit.matrix.deployments if " + " in d]
    keys += [f"{_column(d).name}: {d.replace(' + ', ', ')}." for d in several]
    why: dict[str, list[str]] = {}
    for m in met:
        if m.value is None:
            why.setdefault(m.note or "no reason was given", []).append(f"{m.threat} under {m.deployment}")
    keys += [f"– could not be run: {some(names)}: {note}." for note, names in why.items()]
    keys += [f"{note.rstrip('.')}." for note in audit.matrix.notes]
    return keys
