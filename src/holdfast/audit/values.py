"""The numbers of an audit under flat names: noise.map50.drop, attack.300px.Se, and so on.

A number that was not measured has no value here: nothing may be concluded from its absence.
"""

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.audit.options import PIXELS
from holdfast.audit.result import Audit, Cause, Proof
from holdfast.core.errors import InputError

Unit: TypeAlias = Literal["fraction", "difference", "count", "pixels", "seconds"]
RANGES: dict[Unit, tuple[float, float]] = {
    "fraction": (0.0, 1.0),
    "difference": (-1.0, 1.0),
    "count": (0.0, math.inf),
    "pixels": (0.0, math.inf),
    "seconds": (0.0, math.inf),
}
METRICS = ("map50", "map", "top1", "miou", "iou_equal")  # the main metrics of the tasks
OTHERS = (
    "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl", "mAP", "top1",
    "top5", "mIoU", "pixel_accuracy", "iou_equal", "above_half", "precision", "recall", "f1",
)  # fmt: skip
BUDGETS = tuple(f"{pixels}px" for pixels in PIXELS)  # examples; every other number is a name too
ENDS = (".low", ".high")
SQUARE = "square"  # the threat of proofs that are no specifications
STILL = ("identical", "no effect")  # outcomes that are a loss of exactly 0


@dataclass(frozen=True)
class Pattern:
    """A kind of name: capitals stand for what differs, `parts` of the plan measure it."""

    text: str
    unit: Unit
    parts: tuple[str, ...]
    meaning: str
    interval: bool = False  # also with .low and .high: the ends of the 95 % interval

    @property
    def engine(self) -> str:
        """The first word: clean, noise, attack, square, verify, recheck, matrix, audit."""
        return self.text.partition(".")[0]


_PROOFS = ("squares", "specs")
PATTERNS: tuple[Pattern, ...] = (
    Pattern("clean.METRIC", "fraction", ("evaluate",), "the model's main metric, as trained", True),
    Pattern("clean.OTHER", "fraction", ("evaluate",), "any other metric of the evaluation"),
    Pattern("clean.images", "count", ("evaluate",), "images evaluated"),
    Pattern("noise.METRIC.drop", "difference", ("noise",), "loss by the worst single system noise", True),
    Pattern(
        "noise.METRIC.combined", "difference", ("noise",), "loss by the worst of each family together", True
    ),
    Pattern("noise.FAMILY.METRIC.drop", "difference", ("noise",), "loss by the family's worst option", True),
    Pattern("noise.FAMILY.OPTION.METRIC.drop", "difference", ("noise",), "loss by that one option", True),
    Pattern("noise.missing", "count", ("noise",), "options that could not be run or are not installed"),
    Pattern("attack.BUDGET.Se", "difference", ("attack",), "1 − metric after / before, attacked images"),
    Pattern("attack.BUDGET.METRIC", "fraction", ("attack",), "metric of the attacked images"),
    Pattern("attack.BUDGET.broken", "fraction", ("attack",), "share of aimed images that lost all targets"),
    Pattern("attack.BUDGET.aimed", "count", ("attack",), "images that had something to lose"),
    Pattern("attack.smallest", "pixels", ("attack",), "smallest budget tried that breaks an image"),
    Pattern("attack.largest", "pixels", ("attack",), "largest budget tried"),
    Pattern("square.certified", "fraction", ("squares",), "share of images no black square breaks: proven"),
    Pattern("square.broken", "fraction", ("squares",), "share of images some black square breaks"),
    Pattern("verify.violated", "count", _PROOFS, "questions with a witness: squares and specifications"),
    Pattern("verify.holds", "count", _PROOFS, "questions with a proof"),
    Pattern("verify.unknown", "count", _PROOFS, "questions with neither"),
    Pattern("verify.specs.violated", "count", ("specs",), "the same of the specifications alone"),
    Pattern("verify.specs.holds", "count", ("specs",), "the same of the specifications alone"),
    Pattern("verify.specs.unknown", "count", ("specs",), "the same of the specifications alone"),
    Pattern("recheck.findings", "count", ("recheck",), "answers that are others in some deployment"),
    Pattern("recheck.broken", "count", ("recheck",), "proven as trained, broken in some deployment"),
    Pattern("recheck.unknown", "count", ("recheck",), "answers that could not be had again"),
    Pattern("matrix.METRIC.min", "fraction", ("matrix",), "lowest metric of all threats × deployments"),
    Pattern("matrix.magnified", "count", ("matrix",), "fields in which both clearly magnify each other"),
    Pattern("matrix.missing", "count", ("matrix",), "fields that could not be run"),
    Pattern("audit.left_out", "count", (), "parts of the plan left out, wholly or in part"),
    Pattern("audit.failed_images", "count", (), "images that could not be read or predicted"),
    Pattern("audit.seconds", "seconds", (), "time the audit took"),
)


def pattern_of(name: str, audit: Audit | None = None, metrics: Sequence[str] = METRICS) -> Pattern | None:
    """The pattern the name fits, None if it is no name; before a run the metric may be any of `metrics`."""
    engine = name.partition(".")[0]
    fitting = (p for p in PATTERNS if p.engine == engine)
    return next((p for p in fitting if name in _names(p, name, audit, metrics)), None)


def required_pattern(name: str, audit: Audit | None = None, metrics: Sequence[str] = METRICS) -> Pattern:
    """The pattern the name fits, or an InputError with the nearest name and those that would fit."""
    found = pattern_of(name, audit, metrics)
    if found is not None:
        return found
    every = [one for pattern in PATTERNS for one in _names(pattern, name, audit, metrics)]
    near = difflib.get_close_matches(name, every, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    engines = list(dict.fromkeys(p.engine for p in PATTERNS))
    first = (near[0] if near else name).partition(".")[0]
    fitting = [p for p in PATTERNS if p.engine == first] or list(PATTERNS)
    chosen = " or ".join((audit.clean.metric,) if audit else metrics)
    metric = f"; METRIC is {chosen}" if any("METRIC" in p.text for p in fitting) else ""
    listed = ", ".join(p.text + ("[.low|.high]" if p.interval else "") for p in fitting)
    begins = f"names of {first}: " if first in engines else "names: "
    known = f"{begins}{listed}{metric}; see docs/how-to/gate-a-release.md"
    raise InputError(f"unknown name {name!r} in a gate.{hint} ({known})")


def _names(pattern: Pattern, name: str, audit: Audit | None, metrics: Sequence[str]) -> list[str]:
    """Every name of the pattern; with the budgets of pixels that are in `name`, as any number is one."""
    text = pattern.text
    found = [text]
    if "FAMILY" in text:
        from holdfast.stages.families import families, options  # here: it loads every registered part

        labels = [(f.name, name) for f in families() for o in options(f) for name in (o.name, *o.aliases)]
        causes = audit.causes if audit is not None else ()  # the user's own may be among them
        labels += [
            (c.family, c.label.partition("=")[2]) for c in causes if c.label.startswith(f"{c.family}=")
        ]
        place, names = "FAMILY.OPTION", [f"{family}.{option}" for family, option in labels]
        if "OPTION" not in text:
            place, names = "FAMILY", [family for family, _ in labels]
        found = [text.replace(place, name) for name in dict.fromkeys(names)]
    budgets = [*BUDGETS, *(f"{int(n)}px" for n in re.findall(r"[0-9]{1,99}", name) if int(n))]
    places = {"METRIC": (audit.clean.metric,) if audit else metrics, "BUDGET": budgets, "OTHER": OTHERS}
    for place, words in places.items():
        if place in text:
            found = [one.replace(place, word) for one in found for word in words]
    return [one + end for one in found for end in (("", *ENDS) if pattern.interval else ("",))]


@dataclass(frozen=True)
class NamedValue:
    """A number, what it is about (the noise, the image), the command that reproduces it, and its n.

    `images` is the number of images an estimate rests on; None for counts of what was found, which are facts.
    """

    value: float
    about: str = ""
    command: str = ""
    images: int | None = None


def values_of(audit: Audit) -> dict[str, float]:
    """Every number of the audit by the name gates use; what was not measured is not there."""
    return {name: one.value for name, one in _by_name(audit).items()}


def measured(audit: Audit) -> dict[str, NamedValue]:
    """Every number of the audit by each name a gate may use, aliases included, with where it comes from."""
    from holdfast.stages.families import families, options  # here: it loads every registered part

    found = _by_name(audit)
    aliases: dict[str, NamedValue] = {}
    for option in (option for family in families() for option in options(family)):
        own = f"noise.{option.family}.{option.name}."
        for alias in option.aliases:
            other = f"noise.{option.family}.{alias}."
            aliases |= {other + n.removeprefix(own): one for n, one in found.items() if n.startswith(own)}
    return aliases | found


def _by_name(audit: Audit) -> dict[str, NamedValue]:
    found: dict[str, NamedValue] = {}
    for rows in (_clean, _noise, _attack, _proofs, _rechecks, _matrix, _whole):
        for name, value, about, command, *images in rows(audit):
            if value is not None and not math.isnan(value):
                found.setdefault(name, NamedValue(float(value), about, command or audit.command, *images))
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
    ran = [cause for cause in causes if cause.outcome in ("measured", *STILL)]
    for key, end in (("drop", ""), ("low", ".low"), ("high", ".high")):
        numbers = [0.0 if cause.outcome in STILL else getattr(cause, key) for cause in ran]
        if ran and not any(number is None or math.isnan(number) for number in numbers):
            rows = zip(numbers, ran, strict=True)
            value, cause = max(rows, key=lambda row: (row[0], row[1].changed or 0))  # as Audit.worst
            yield name + end, value, cause.label, cause.command, cause.images or None


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
        about += f": {some(p.image or p.threat for p in named)}"
    return about, next((p.command for p in named or proofs if p.command), "")


def some(names: Iterable[str], most: int = 3) -> str:
    """The first of the names, and how many more there are."""
    every = list(dict.fromkeys(names))
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def _rechecks(audit: Audit) -> Iterator[_Row]:
    if not audit.rechecks:
        return
    broken = [r for r in audit.findings if r.was == "holds"]
    unknown = [r for r in audit.rechecks if "unknown" in (r.was, r.now)]
    for name, rows in (("findings", audit.findings), ("broken", broken), ("unknown", unknown)):
        yield f"recheck.{name}", len(rows), some(f"{r.image} under {r.deployment}" for r in rows), ""


def _matrix(audit: Audit) -> Iterator[_Row]:
    cells = audit.matrix.meetings
    if not cells:
        return
    run = [(m.value, m) for m in cells if m.value is not None and not math.isnan(m.value)]
    if run:
        value, worst = min(run, key=lambda row: row[0])
        about = f"threat {worst.threat}, deployment {worst.deployment}"
        yield f"matrix.{audit.clean.metric}.min", value, about, worst.command, worst.images
    if any(m.effect for m in cells):
        grown = [m for m in cells if m.effect == "magnified"]
        about = some(f"{m.threat} under {m.deployment}" for m in grown)
        images = max(m.images for m in cells)
        yield "matrix.magnified", len(grown), about, next((m.command for m in grown), ""), images
    missing = [m for m in cells if m.value is None]
    yield "matrix.missing", len(missing), some(f"{m.threat} under {m.deployment}" for m in missing), ""


def _whole(audit: Audit) -> Iterator[_Row]:
    left = [p.name for p in audit.parts if p.left_out]
    yield "audit.left_out", len(left) if audit.parts else None, ", ".join(left), ""
    yield "audit.failed_images", len(audit.failed), some(audit.failed), ""
    yield "audit.seconds", audit.seconds, "", ""
