"""The names a gate may use: patterns, known whether or not this run measured what they stand for."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.audit.result import Audit
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
BUDGETS = ("100px", "300px", "1000px", "3000px")  # examples; every other number of pixels is a name too
ENDS = (".low", ".high")


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
        "noise.METRIC.combined",
        "difference",
        ("noise",),
        "loss by the worst of each family together",
        True,
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
    """The pattern the name fits, None if it is no name.

    Before the run there is no audit, and the metric may be any of `metrics`; then it is the audit's.
    """
    end = next((e for e in ENDS if name.endswith(e)), "")
    bare, engine = name.removesuffix(end), name.partition(".")[0]
    for pattern in PATTERNS:
        fits = pattern.engine == engine and (pattern.interval or not end)
        if fits and re.fullmatch(_regex(pattern.text, audit, metrics), bare):
            return pattern
    return None


def required_pattern(name: str, audit: Audit | None = None, metrics: Sequence[str] = METRICS) -> Pattern:
    """The pattern the name fits, or an InputError with the nearest name and those that would fit."""
    found = pattern_of(name, audit, metrics)
    if found is not None:
        return found
    near = difflib.get_close_matches(name, list(_examples(name, audit, metrics)), n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    engines = list(dict.fromkeys(p.engine for p in PATTERNS))
    first = (near[0] if near else name).partition(".")[0]
    fitting = [p for p in PATTERNS if p.engine == first] or list(PATTERNS)
    chosen = _metrics(audit, metrics)
    metric = f"; METRIC is {' or '.join(chosen)}" if any("METRIC" in p.text for p in fitting) else ""
    listed = ", ".join(p.text + ("[.low|.high]" if p.interval else "") for p in fitting)
    begins = f"names of {first}: " if first in engines else "names: "
    raise InputError(f"unknown name {name!r} in a gate.{hint} ({begins}{listed}{metric}; see docs/ci.md)")


def _metrics(audit: Audit | None, metrics: Sequence[str]) -> tuple[str, ...]:
    return tuple(metrics) if audit is None else (audit.clean.metric,)


def _regex(text: str, audit: Audit | None, metrics: Sequence[str]) -> str:
    """The pattern as a regular expression; options are asked for only where the pattern has one."""
    made = re.escape(text).replace("METRIC", _any(_metrics(audit, metrics))).replace("OTHER", _any(OTHERS))
    if "BUDGET" in text:
        threats = [s.threat for s in audit.strikes] if audit is not None else []
        made = made.replace("BUDGET", f"(?:[1-9][0-9]*px|{_any(threats)})" if threats else "[1-9][0-9]*px")
    if "FAMILY" in text:
        labels = _labels(audit)
        options = [f"{family}.{option}" for family, option in labels]
        made = made.replace(r"FAMILY\.OPTION", _any(options))
        made = made.replace("FAMILY", _any(list(dict.fromkeys(family for family, _ in labels))))
    return made


def _any(words: Sequence[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, words))})"


def _labels(audit: Audit | None) -> list[tuple[str, str]]:
    """Family and option of every noise there is, those of the audit (perhaps the user's own) among them."""
    from holdfast.stages.families import families, options  # here: it loads every registered part

    found = [(f.name, name) for f in families() for o in options(f) for name in (o.name, *o.aliases)]
    causes = audit.causes if audit is not None else ()
    own = [(c.family, c.label.partition("=")[2]) for c in causes if c.label.startswith(f"{c.family}=")]
    return list(dict.fromkeys([*found, *own]))


def _examples(name: str, audit: Audit | None, metrics: Sequence[str]) -> Iterator[str]:
    """Names to be compared with a wrong one; with the budgets that stand in it."""
    budgets = dict.fromkeys([*BUDGETS, *(f"{int(n)}px" for n in re.findall(r"[0-9]{1,9}", name) if int(n))])
    labels = _labels(audit)
    families = dict.fromkeys(family for family, _ in labels)
    for pattern in PATTERNS:
        for metric in _metrics(audit, metrics) if "METRIC" in pattern.text else ("",):
            text = pattern.text.replace("METRIC", metric)
            if "BUDGET" in text:
                made = [text.replace("BUDGET", b) for b in budgets]
            elif "OPTION" in text:
                made = [text.replace("FAMILY.OPTION", f"{f}.{o}") for f, o in labels]
            elif "FAMILY" in text:
                made = [text.replace("FAMILY", f) for f in families]
            else:
                made = [text.replace("OTHER", o) for o in OTHERS] if "OTHER" in text else [text]
            for one in made:
                yield one
                if pattern.interval:
                    yield from (one + end for end in ENDS)
