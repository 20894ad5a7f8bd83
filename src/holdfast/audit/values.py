"""The numbers of an audit under flat names: noise.map50.drop, attack.300px.Se, and so on.

A number that was not measured has no name here: nothing may be concluded from its absence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.audit.names import OTHERS
from holdfast.audit.result import Audit, Cause, Proof

SQUARE = "square"
STILL = ("identical", "no effect")  # outcomes that are a loss of exactly 0


@dataclass(frozen=True)
class Measured:
    """A number, what it is about (the noise, the image), the command that gives it again, and its n.

    `images` is the number of images an estimate rests on; None for counts of what was found, which are facts.
    """

    value: float
    about: str = ""
    command: str = ""
    images: int | None = None


def values_of(audit: Audit) -> dict[str, float]:
    """Every number of the audit by the name gates use; what was not measured is not there."""
    return {name: one.value for name, one in _by_name(audit).items()}


def measured(audit: Audit) -> dict[str, Measured]:
    """Every number of the audit by each name a gate may use, aliases included, with where it comes from."""
    from holdfast.stages.families import families, options  # here: it loads every registered part

    found = _by_name(audit)
    same = {
        f"noise.{f.name}.{alias}.": f"noise.{f.name}.{o.name}."
        for f in families()
        for o in options(f)
        for alias in o.aliases
    }
    aliases = {
        name.replace(begin, alias, 1): one
        for alias, begin in same.items()
        for name, one in found.items()
        if name.startswith(begin)
    }
    return aliases | found


def _by_name(audit: Audit) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for rows in (_clean, _noise, _attack, _proofs, _rechecks, _matrix, _whole):
        for name, value, about, command, *images in rows(audit):
            if value is not None and not math.isnan(value):
                found.setdefault(name, Measured(float(value), about, command or audit.command, *images))
    return found


# Name, value, what it is about, command; of an estimate also the number of images.
_Row = tuple[str, float | None, str, str] | tuple[str, float | None, str, str, int | None]


def _clean(audit: Audit) -> Iterator[_Row]:
    clean = audit.clean
    rule = clean.rule.partition(",")[0]  # the whole of it is too long for a line
    about = f"{clean.title} of {clean.images} images by {rule}"
    for end, value in (("", clean.value), (".low", clean.low), (".high", clean.high)):
        yield f"clean.{clean.metric}{end}", value, about, clean.command, clean.images
    yield "clean.images", clean.images, "", clean.command
    for key, value in clean.others.items():
        if key in OTHERS and value is not None and value >= 0:  # COCO says −1 where there is no truth
            yield f"clean.{key}", value, "", clean.command, clean.images


def _noise(audit: Audit) -> Iterator[_Row]:
    metric = audit.clean.metric
    yield from _worst(f"noise.{metric}.drop", audit.causes)
    for family in dict.fromkeys(c.family for c in audit.causes):
        yield from _worst(f"noise.{family}.{metric}.drop", [c for c in audit.causes if c.family == family])
    for cause in audit.causes:
        option = cause.label.removeprefix(f"{cause.family}=")
        yield from _worst(f"noise.{cause.family}.{option}.{metric}.drop", [cause])
    if audit.combined is not None:
        yield from _worst(f"noise.{metric}.combined", [audit.combined])
    if audit.causes:
        missing = [c.label for c in audit.causes if c.outcome not in ("measured", *STILL)]
        yield "noise.missing", len(missing), ", ".join(missing), ""


def _worst(name: str, causes: Sequence[Cause]) -> Iterator[_Row]:
    """The largest loss; its ends are the largest lower and the largest upper end, each with its own noise.

    So drop.low > x says that some one noise surely costs more than x, and drop.high > x that some may. One
    that ran without giving its number leaves the largest unknown.
    """
    ran = [(cause, _ends(cause)) for cause in causes if cause.outcome in ("measured", *STILL)]
    for column, end in enumerate(("", ".low", ".high")):
        rows = [(_or_nan(ends[column]), cause) for cause, ends in ran]
        if rows and not any(math.isnan(value) for value, _ in rows):
            value, cause = max(rows, key=lambda row: (row[0], row[1].changed or 0))  # as Audit.worst
            yield name + end, value, cause.label, cause.command, cause.images or None


def _ends(cause: Cause) -> tuple[float | None, float | None, float | None]:
    return (0.0, 0.0, 0.0) if cause.outcome in STILL else (cause.drop, cause.low, cause.high)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _attack(audit: Audit) -> Iterator[_Row]:
    for one in audit.strikes:
        begin = f"attack.{one.threat}."
        about = f"{one.broken} of {one.aimed} images broken by {one.engine}"
        yield begin + "aimed", one.aimed, "", one.command
        if one.aimed:  # else nothing was attacked, so nothing was withstood
            yield begin + "Se", one.effect, about, one.command, one.aimed
            yield begin + "broken", one.broken / one.aimed, about, one.command, one.aimed
            yield begin + audit.clean.metric, one.after, f"{one.before:.3f} before", one.command, one.aimed
    tried = [s for s in audit.strikes if s.aimed]
    if tried:
        least = min((s for s in tried if s.broken), key=lambda s: s.pixels, default=None)
        largest = max(tried, key=lambda s: s.pixels)
        about = f"{least.broken} of {least.aimed} images" if least else "no budget tried breaks an image"
        pixels, command = (least.pixels, least.command) if least else (math.inf, "")
        yield "attack.smallest", pixels, about, command, max(s.aimed for s in tried)
        yield "attack.largest", largest.pixels, "", largest.command


def _proofs(audit: Audit) -> Iterator[_Row]:
    squares = [p for p in audit.proofs if p.threat == SQUARE]
    specs = [p for p in audit.proofs if p.threat != SQUARE]
    if squares:
        for name, answer in (("certified", "holds"), ("broken", "violated")):
            count = sum(p.answer == answer for p in squares)
            yield f"square.{name}", count / len(squares), *_source(squares, answer), len(squares)
    for begin, proofs in (("verify.", audit.proofs), ("verify.specs.", specs)):
        counts = Counter[str](p.answer for p in proofs)
        for answer in ("violated", "holds", "unknown") if proofs else ():
            yield begin + answer, counts[answer], *_source(proofs, answer)


def _source(proofs: Sequence[Proof], answer: str) -> tuple[str, str]:
    named = [p for p in proofs if p.answer == answer]
    about = f"{len(named)} of {len(proofs)}"
    if named:
        about += f": {_some(p.image or p.threat for p in named)}"
    return about, next((p.command for p in named or proofs if p.command), "")


def _some(names: Iterable[str], most: int = 3) -> str:
    every = list(dict.fromkeys(names))
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def _rechecks(audit: Audit) -> Iterator[_Row]:
    if not audit.rechecks:
        return
    broken = [r for r in audit.findings if r.was == "holds"]
    unknown = [r for r in audit.rechecks if "unknown" in (r.was, r.now)]
    for name, rows in (("findings", audit.findings), ("broken", broken), ("unknown", unknown)):
        yield f"recheck.{name}", len(rows), _some(f"{r.image} under {r.deployment}" for r in rows), ""


def _matrix(audit: Audit) -> Iterator[_Row]:
    meetings = audit.matrix.meetings
    if not meetings:
        return
    run = [(m.value, m) for m in meetings if m.value is not None and not math.isnan(m.value)]
    if run:
        value, worst = min(run, key=lambda row: row[0])
        about = f"threat {worst.threat}, deployment {worst.deployment}"
        yield f"matrix.{audit.clean.metric}.min", value, about, worst.command, worst.images
    if any(m.effect for m in meetings):
        grown = [m for m in meetings if m.effect == "magnified"]
        about = _some(f"{m.threat} under {m.deployment}" for m in grown)
        images = max(m.images for m in meetings)
        yield "matrix.magnified", len(grown), about, next((m.command for m in grown), ""), images
    missing = [m for m in meetings if m.value is None]
    yield "matrix.missing", len(missing), _some(f"{m.threat} under {m.deployment}" for m in missing), ""


def _whole(audit: Audit) -> Iterator[_Row]:
    left = [p.name for p in audit.parts if p.left_out]
    yield "audit.left_out", len(left) if audit.parts else None, ", ".join(left), ""
    yield "audit.failed_images", len(audit.failed), _some(audit.failed), ""
    yield "audit.seconds", audit.seconds, "", ""
