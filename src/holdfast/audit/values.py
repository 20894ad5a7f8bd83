"""The numbers of an audit under flat names: noise.map50.points_lost, attack.300px.Se, and so on.

A number that was not measured is absent.
"""

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.audit.options import PIXELS
from holdfast.audit.result import Audit, NoiseResult, Proof
from holdfast.core.errors import InputError

Unit: TypeAlias = Literal["fraction", "difference", "points", "count", "pixels", "seconds"]
RANGES: dict[Unit, tuple[float, float]] = {
    "fraction": (0.0, 1.0),
    "difference": (-1.0, 1.0),
    "points": (-100.0, 100.0),
    "count": (0.0, math.inf),
    "pixels": (0.0, math.inf),
    "seconds": (0.0, math.inf),
}
METRICS = ("map50", "map", "top1", "miou", "iou_equal")  # the main metrics of the tasks
OTHERS = (
    "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl", "mAP", "top1",
    "top5", "mIoU", "pixel_accuracy", "iou_equal", "above_half", "precision", "recall", "f1",
)  # fmt: skip
BUDGETS = ("patch", *(f"{pixels}px" for pixels in PIXELS))  # every other number of pixels is a name too
ENDS = (".low", ".high")
POINT = ".point"  # the value itself, for a gate that would otherwise compare the lower end
SQUARE = "square"  # the threat of proofs that are no specifications
STILL = ("identical", "no effect")  # outcomes that are a loss of exactly 0


@dataclass(frozen=True)
class Pattern:
    """A kind of name: capitals are placeholders."""

    text: str
    unit: Unit
    meaning: str
    interval: bool = False  # also with .low and .high: the ends of the 95% interval

    @property
    def engine(self) -> str:
        """The first word: clean, noise, attack, square, verify, recheck, matrix, audit."""
        return self.text.partition(".")[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the audit that measure it."""
        return ("specs",) if ".specs." in self.text else _PARTS.get(self.engine, (self.engine,))


# The parts that measure the numbers of an engine, where these are not the part of the same name.
_PARTS: dict[str, tuple[str, ...]] = {
    "clean": ("evaluate",), "square": ("squares",), "verify": ("squares", "specs"), "audit": (),
}  # fmt: skip
PATTERNS: tuple[Pattern, ...] = (
    Pattern("clean.METRIC", "fraction", "main metric of the training pipeline", True),
    Pattern("clean.OTHER", "fraction", "any other metric of the evaluation"),
    Pattern("clean.images", "count", "images evaluated"),
    Pattern("noise.METRIC.points_lost", "points", "lost to the worst single noise option", True),
    Pattern(
        "noise.combined.METRIC.points_lost",
        "points",
        "lost to the worst option of each family, combined",
        True,
    ),
    Pattern("noise.FAMILY.METRIC.points_lost", "points", "lost to the family's worst option", True),
    Pattern("noise.FAMILY.OPTION.METRIC.points_lost", "points", "lost to that option", True),
    Pattern("noise.missing", "count", "noise options that are not supported or not installed"),
    Pattern("attack.BUDGET.Se", "difference", "1 − metric after / before on the attacked images"),
    Pattern("attack.BUDGET.METRIC", "fraction", "metric of the attacked images"),
    Pattern("attack.BUDGET.broken", "fraction", "share of images in which every detected object is hidden"),
    Pattern("attack.BUDGET.aimed", "count", "attacked images with a detected object"),
    Pattern("attack.patch.survival", "fraction", "share of random views in which the patches still hide all"),
    Pattern("attack.smallest", "pixels", "smallest pixel budget that breaks an image"),
    Pattern("attack.largest", "pixels", "largest pixel budget tried"),
    Pattern(
        "square.certified", "fraction", "share of images that no black square of the grid breaks (certified)"
    ),
    Pattern("square.broken", "fraction", "share of images that a black square of the grid breaks"),
    Pattern("verify.violated", "count", "violated properties: squares and specifications"),
    Pattern("verify.holds", "count", "proven properties"),
    Pattern("verify.unknown", "count", "undecided properties"),
    Pattern("verify.specs.violated", "count", "violated specifications"),
    Pattern("verify.specs.holds", "count", "proven specifications"),
    Pattern("verify.specs.unknown", "count", "undecided specifications"),
    Pattern("recheck.findings", "count", "answers that change under a deployment"),
    Pattern(
        "recheck.broken",
        "count",
        "properties that hold for the training pipeline and are violated under a deployment",
    ),
    Pattern("recheck.unknown", "count", "answers that are undecided under a deployment"),
    Pattern("matrix.METRIC.min", "fraction", "lowest metric over all threats × deployments"),
    Pattern(
        "matrix.magnified", "count", "cells in which threat and deployment magnify each other significantly"
    ),
    Pattern("matrix.missing", "count", "cells that could not be run"),
    Pattern("audit.skipped", "count", "parts skipped, completely or partly"),
    Pattern("audit.failed_images", "count", "images that could not be read or evaluated"),
    Pattern("audit.seconds", "seconds", "duration of the audit"),
)


def pattern_of(name: str, audit: Audit | None = None, metrics: Sequence[str] = METRICS) -> Pattern | None:
    """The pattern of the name, None if there is none; before a run the metric may be any of `metrics`."""
    engine = name.partition(".")[0]
    fitting = (p for p in PATTERNS if p.engine == engine)
    return next((p for p in fitting if name in _names(p, name, audit, metrics)), None)


def current_name(name: str) -> str:
    """The name that replaced a former one, else the name itself."""
    combined = re.fullmatch(r"noise\.([^.]+)\.combined(\.low|\.high)?", name)
    if combined:
        return f"noise.combined.{combined[1]}.points_lost{combined[2] or ''}"
    if name.startswith("noise."):
        return re.sub(r"\.drop(?=$|\.low$|\.high$)", ".points_lost", name)
    if name.startswith("attack.contiguous."):
        return name.replace("contiguous", "patch")
    return {"audit.left_out": "audit.skipped"}.get(name, name)


def required_pattern(name: str, audit: Audit | None = None, metrics: Sequence[str] = METRICS) -> Pattern:
    """The pattern of the name, or InputError with the closest name and the known patterns."""
    pattern = pattern_of(name, audit, metrics)
    if pattern is not None:
        return pattern
    names = [known for pattern in PATTERNS for known in _names(pattern, name, audit, metrics)]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    engine = (near[0] if near else name).partition(".")[0]
    same_engine = [p for p in PATTERNS if p.engine == engine]
    patterns = same_engine or PATTERNS
    chosen = " or ".join((audit.clean.metric,) if audit else metrics)
    metric = f"; METRIC is {chosen}" if any("METRIC" in p.text for p in patterns) else ""
    listed = ", ".join(p.text + ("[.low|.point|.high]" if p.interval else "") for p in patterns)
    title = f"names of {engine}: " if same_engine else "names: "
    known = f"{title}{listed}{metric}; see docs/how-to/gate-a-release.md"
    raise InputError(f"unknown name {name!r} in a gate.{hint} ({known})")


def _names(pattern: Pattern, name: str, audit: Audit | None, metrics: Sequence[str]) -> list[str]:
    """Every name of the pattern, with the pixel budgets in `name`, since any number is valid."""
    text = pattern.text
    places: dict[str, Iterable[str]] = {}
    if "FAMILY" in text:
        from holdfast.stages.families import families, options  # here: it loads every registered part

        labels = [(f.name, name) for f in families() for o in options(f) for name in (o.name, *o.aliases)]
        noises = audit.noises if audit is not None else ()  # including the user's own options
        labels += [
            (c.family, c.label.partition("=")[2]) for c in noises if c.label.startswith(f"{c.family}=")
        ]
        if "OPTION" in text:
            places["FAMILY.OPTION"] = dict.fromkeys(f"{family}.{option}" for family, option in labels)
        else:
            places["FAMILY"] = dict.fromkeys(family for family, _ in labels)
    places["METRIC"] = (audit.clean.metric,) if audit else metrics
    places["BUDGET"] = [*BUDGETS, *(f"{int(n)}px" for n in re.findall(r"[0-9]{1,99}", name) if int(n))]
    places["OTHER"] = OTHERS
    names = [text]
    for place, words in places.items():
        if place in text:
            names = [name.replace(place, word) for name in names for word in words]
    return [name + end for name in names for end in ("", POINT, *(ENDS if pattern.interval else ()))]


@dataclass(frozen=True)
class NamedValue:
    """A number, what it refers to (a noise, an image), and the command that reproduces it."""

    value: float
    about: str = ""
    command: str = ""
    images: int | None = None  # n of an estimate; None for counts
    point: float | None = None  # of an end of an interval: the value itself


def values_of(audit: Audit) -> dict[str, float]:
    """Every measured number of the audit by its name in gates."""
    return {name: number.value for name, number in _by_name(audit).items()}


def measured(audit: Audit) -> dict[str, NamedValue]:
    """Every measured number by each name a gate may use, aliases included, with its source."""
    from holdfast.stages.families import families, options  # here: it loads every registered part

    numbers = _by_name(audit)
    aliases: dict[str, NamedValue] = {}
    for option in (option for family in families() for option in options(family)):
        own = f"noise.{option.family}.{option.name}."
        for alias in option.aliases:
            other = f"noise.{option.family}.{alias}."
            aliases |= {other + n.removeprefix(own): v for n, v in numbers.items() if n.startswith(own)}
    return aliases | numbers


def _by_name(audit: Audit) -> dict[str, NamedValue]:
    numbers: dict[str, NamedValue] = {}
    for rows in (_clean, _noise, _attack, _proofs, _rechecks, _matrix, _whole):
        for name, value, about, command, *images in rows(audit):
            if value is not None and not math.isnan(value):
                numbers.setdefault(name, NamedValue(float(value), about, command or audit.command, *images))
    return numbers


# Name, value, what it refers to, command; for an estimate also the number of images, and the value itself.
_Row = (
    tuple[str, float | None, str, str]
    | tuple[str, float | None, str, str, int | None]
    | tuple[str, float | None, str, str, int | None, float | None]
)


def _clean(audit: Audit) -> Iterator[_Row]:
    clean = audit.clean
    rule = clean.rule.partition(",")[0]  # the full text is too long for a line
    about = f"{clean.title}, rule {rule}"
    for end, value in (("", clean.value), (".low", clean.low), (".high", clean.high)):
        yield f"clean.{clean.metric}{end}", value, about, clean.command, clean.images, clean.value
    yield "clean.images", clean.images, "", clean.command
    for key, value in clean.others.items():
        if key in OTHERS and value is not None and value >= 0:  # COCO reports −1 without ground truth
            yield f"clean.{key}", value, "", clean.command, clean.images


def _noise(audit: Audit) -> Iterator[_Row]:
    metric = audit.clean.metric
    real = [cause for cause in audit.noises if not cause.hypothetical]
    yield from _worst(f"noise.{metric}.points_lost", real)
    for family in dict.fromkeys(c.family for c in real):
        own = [c for c in real if c.family == family]
        yield from _worst(f"noise.{family}.{metric}.points_lost", own)
    for cause in audit.noises:
        option = cause.label.removeprefix(f"{cause.family}=")
        yield from _worst(f"noise.{cause.family}.{option}.{metric}.points_lost", [cause])
    if audit.combined is not None:
        yield from _worst(f"noise.combined.{metric}.points_lost", [audit.combined])
    if audit.noises:
        missing = [c.label for c in audit.noises if c.outcome not in ("measured", *STILL)]
        yield "noise.missing", len(missing), ", ".join(missing), ""


def _worst(name: str, noises: Sequence[NoiseResult]) -> Iterator[_Row]:
    """The largest loss; its ends are the largest lower and the largest upper end, each with its own noise.

    So points_lost.low > x says that one noise loses significantly more than x, and points_lost.high > x that
    one may. A noise that ran without giving a number leaves the largest unknown.
    """
    ran = [cause for cause in noises if cause.outcome in ("measured", *STILL)]
    for key, end in (("points_lost", ""), ("low", ".low"), ("high", ".high")):
        numbers = [0.0 if cause.outcome in STILL else getattr(cause, key) for cause in ran]
        if ran and not any(number is None or math.isnan(number) for number in numbers):
            rows = zip(numbers, ran, strict=True)
            value, cause = max(rows, key=lambda row: (row[0], row[1].changed or 0))  # as Audit.worst
            point = 0.0 if cause.outcome in STILL else cause.points_lost
            yield name + end, value, cause.label, cause.command, cause.images or None, point


def _attack(audit: Audit) -> Iterator[_Row]:
    for level in audit.all_attacks:
        begin, source = f"attack.{level.threat}.", (level.command, level.aimed)
        about = f"{level.broken} of {level.aimed} images broken by {level.engine}"
        yield begin + "aimed", level.aimed, "", level.command
        if level.aimed:  # otherwise nothing was attacked
            yield begin + "Se", level.effect, about, *source
            yield begin + "broken", level.broken / level.aimed, about, *source
            yield begin + audit.clean.metric, level.after, f"{level.before:.3f} before", *source
        if (views := level.views) is not None and views.views:
            about = f"{views.hidden} of {views.views} views of {views.images} images, {views.transform}"
            yield begin + "survival", views.hidden / views.views, about, level.command, views.images
    levels = [s for s in audit.attacks if s.aimed]
    if levels:
        least = min((s for s in levels if s.broken), key=lambda s: s.pixels, default=None)
        largest = max(levels, key=lambda s: s.pixels)
        about = f"{least.broken} of {least.aimed} images" if least else "no budget breaks an image"
        pixels, command = (least.pixels, least.command) if least else (math.inf, "")
        yield "attack.smallest", pixels, about, command, max(s.aimed for s in levels)
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
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")


def _rechecks(audit: Audit) -> Iterator[_Row]:
    if not audit.rechecks:
        return
    broken = [r for r in audit.findings if r.was == "holds"]
    unknown = [r for r in audit.rechecks if "unknown" in (r.was, r.now)]
    for name, rows in (("findings", audit.findings), ("broken", broken), ("unknown", unknown)):
        yield f"recheck.{name}", len(rows), some(f"{r.image} under {r.deployment}" for r in rows), ""


def _matrix(audit: Audit) -> Iterator[_Row]:
    cells = audit.matrix.cells
    if not cells:
        return
    real = [m for m in cells if m.deployment not in audit.hypothetical]
    run = [(m.value, m) for m in real if m.value is not None and not math.isnan(m.value)]
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
    skipped = [p.name for p in audit.parts if p.skipped]
    yield "audit.skipped", len(skipped) if audit.parts else None, ", ".join(skipped), ""
    yield "audit.failed_images", len(audit.failed), some(audit.failed), ""
    yield "audit.seconds", audit.seconds, "", ""
