"""What an audit found that somebody should look at, gates or not: one row a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from holdfast.audit.options import ENOUGH
from holdfast.audit.result import Audit, Proof, Recheck
from holdfast.audit.values import SQUARE

MOST = 10  # images named in one finding


@dataclass(frozen=True)
class Finding:
    """A finding: its kind, how much it weighs, what tells it from others of the kind, and its numbers."""

    kind: Literal["noise", "attack", "square", "spec", "recheck", "matrix"]
    level: Literal["warning", "note"]
    key: str  # the same in every run that finds it
    text: str
    numbers: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    images: int | None = None  # that an estimate rests on


KINDS: dict[str, str] = {
    "noise": "A system noise that clearly lowers the metric: its whole 95 % interval lies above 0.",
    "attack": "A patch within a budget of pixels that makes true targets vanish.",
    "square": "A black square over the scene that makes a true target vanish.",
    "spec": "A specification with a witness that breaks it, replayed on the model's own file.",
    "recheck": "An answer that is another one under some runtime or precision: proven here, broken there.",
    "matrix": "A threat and a deployment that together cost clearly more than both alone.",
}


def findings(audit: Audit) -> tuple[Finding, ...]:
    """All findings of the audit, in the order of its engines."""
    rows = (_noise(audit), _attack(audit), _squares(audit), _specs(audit), _rechecks(audit), _matrix(audit))
    return tuple(_hedged(finding) for row in rows for finding in row)


def _hedged(finding: Finding) -> Finding:
    """A note instead of a warning where an estimate rests on few images."""
    images = finding.images
    if images is None or images >= ENOUGH:
        return finding
    return replace(finding, level="note", text=f"{finding.text} An indication: n = {images}.")


def _noise(audit: Audit) -> Iterator[Finding]:
    title = audit.clean.title
    causes = [*audit.causes, *([audit.combined] if audit.combined else [])]
    for one in causes:
        if one.outcome == "measured" and one.drop is not None and one.low is not None and one.low > 0:
            low = _plain(one.low)
            ends = f"{low} to {_plain(one.high)}" if one.high is not None else f"{low} or more"
            text = f"{one.label} lowers {title} by {_plain(one.drop)} (95 %: {ends}) on {one.images} images."
            numbers = {"drop": one.drop, "low": one.low, "high": one.high, "images": one.images}
            key = one.family if one.family == "combined" else one.label
            yield Finding("noise", "warning", key, text, numbers, one.command, one.images)


def _plain(share: float) -> str:
    """The share with three digits, a smaller one with five: not told as 0.000."""
    return f"{share:.3f}" if share >= 0.001 or share <= 0 else f"{share:.5f}"


def _attack(audit: Audit) -> Iterator[Finding]:
    for one in audit.strikes:
        if one.broken:
            fall = f"{audit.clean.title} falls from {one.before:.3f} to {one.after:.3f}"
            text = (
                f"A patch of at most {one.pixels} pixels breaks {one.broken} of {one.aimed} images; {fall}."
            )
            numbers = {"pixels": one.pixels, "broken": one.broken, "aimed": one.aimed, "Se": one.effect}
            told = {**numbers, "before": one.before, "after": one.after, "engine": one.engine}
            yield Finding("attack", "warning", one.threat, text, told, one.command, one.aimed)


def _squares(audit: Audit) -> Iterator[Finding]:
    asked = [p for p in audit.proofs if p.threat == SQUARE]
    broken = [p for p in asked if p.answer == "violated"]
    if broken:
        images = _named([p.image for p in broken])
        text = f"A black square breaks {len(broken)} of {len(asked)} images: {images}."
        worst = min(broken, key=lambda p: 0.0 if p.margin is None else p.margin)
        if worst.where is not None:
            text += f" Worst in {worst.image} at column {worst.where[0]}, row {worst.where[1]}."
        told = {"broken": len(broken), "images": len(asked), "engine": worst.engine}
        yield Finding("square", "warning", SQUARE, text, told, worst.command, len(asked))


def _specs(audit: Audit) -> Iterator[Finding]:
    for one in audit.proofs:
        if one.threat != SQUARE and one.answer == "violated":
            yield Finding("spec", "warning", f"{one.threat} {one.image}", _spec_text(one), {}, one.command)


def _spec_text(proof: Proof) -> str:
    of = f" of {proof.image}" if proof.image and proof.image != proof.threat else ""
    note = f" ({proof.note})" if proof.note else ""
    return f"Specification {proof.threat}{of} is violated, found by {proof.engine}{note}."


def _rechecks(audit: Audit) -> Iterator[Finding]:
    """One finding a threat, deployment and change: not one an image, of which there may be hundreds."""
    groups: dict[tuple[str, str, str], list[Recheck]] = {}
    for one in audit.findings:
        groups.setdefault((one.threat, one.deployment, one.was), []).append(one)
    for (threat, deployment, was), rows in groups.items():
        words = "proven as trained, broken" if was == "holds" else "broken as trained, not broken"
        images = [r.image or r.threat for r in rows]
        text = f"{threat}: {words} under {deployment}, {len(rows)} time(s): {_named(images)}."
        told = {"count": len(rows), "deployment": deployment, "threat": threat, "images": images[:MOST]}
        level: Literal["warning", "note"] = "warning" if was == "holds" else "note"
        yield Finding("recheck", level, f"{threat} {deployment} {was}", text, told, audit.command)


def _matrix(audit: Audit) -> Iterator[Finding]:
    for one in audit.matrix.meetings:
        if one.effect == "magnified" and one.extra is not None:
            ends = f"{one.low:z.3f} to {one.high:z.3f}"
            text = (
                f"{one.threat} and {one.deployment} cost {one.extra:z.3f} (95 %: {ends}) "
                "more than both alone."
            )
            told = {"extra": one.extra, "low": one.low, "high": one.high, "value": one.value}
            key = f"{one.threat} {one.deployment}"
            yield Finding("matrix", "warning", key, text, told, one.command, one.images)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
