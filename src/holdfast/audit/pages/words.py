"""The verdict of an audit in five lines anyone can read. No line says more than was measured."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from holdfast.audit.options import ENOUGH
from holdfast.audit.result import NO_THREAT, TRAINED, AttackLevel, Audit, Cause, MatrixCell
from holdfast.metrics.intervals import FEWEST
from holdfast.report.tables import grouped, many

Tone: TypeAlias = Literal["fact", "good", "caution", "bad", "open"]
MISSING = "not measured"
INDICATION, FEW = "indication", "too few images"  # what a number of few images is, and of very few


@dataclass(frozen=True)
class Line:
    """One line of the verdict: what it is about, what was found, the command that finds it again, its tone.

    `word` is the tone in words, `figure` the number to remember, `images` what it rests on (None: no images).
    """

    name: str
    text: str
    command: str
    tone: Tone = "open"
    word: str = MISSING
    figure: str = "–"
    images: int | None = None

    @property
    def basis(self) -> str:
        """How many images the figure rests on: "n = 13, indication"; empty where it rests on none."""
        if self.images is None:
            return ""
        return f"n = {self.images}" + (f", {INDICATION}" if self.images < ENOUGH else "")

    @property
    def number(self) -> str:
        """The figure without what it counts."""
        return self.figure.partition(" ")[0]

    @property
    def unit(self) -> str:
        """What the figure counts: points, px, of 8."""
        return self.figure.partition(" ")[2]


def verdict(audit: Audit) -> tuple[Line, ...]:
    """Five lines: clean metric, worst cause, worst combination, smallest patch that works, what is proven."""
    lines = [_clean(audit), _single(audit), _combination(audit), _patch(audit), _proven(audit)]
    for place, line in enumerate(lines):  # no judgement where one rests on fewer images than it needs
        if line.images is not None and line.images < ENOUGH and line.word != FEW:
            tone = line.tone if line.tone in ("fact", "open") else "caution"
            lines[place] = replace(line, word=INDICATION, tone=tone)
    return tuple(lines)


def points(value: float) -> str:
    """A difference of a metric (0 to 1) in points, its hundredths, with a true minus."""
    return signed(100 * value, 1)


def signed(value: float, digits: int) -> str:
    """The number with a true minus; what rounds to zero has none."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text.replace("-", "−")


def between(low: float, high: float) -> str:
    """An interval of differences in points: [2.0, 8.0]."""
    return f"[{points(low)}, {points(high)}]"


def within_chance(low: float | None, high: float | None) -> bool:
    """Whether there is no interval, or one that holds 0: then the choice of images may be all there is."""
    return low is None or high is None or low <= 0 <= high


def left_out(audit: Audit, *parts: str) -> str:
    """Why these parts of the plan have no number, in words."""
    said = [p.left_out for p in audit.parts if p.name in parts and p.left_out]
    said += [note.partition(": ")[2] for note in audit.notes if note.partition(": ")[0] in parts]
    said = list(dict.fromkeys(reason.rstrip(".") for reason in said))
    return f"{MISSING}: {'; '.join(said) or 'it was not asked for'}"


def worst_cell(audit: Audit) -> MatrixCell | None:
    """The field of the matrix with the lowest value under a threat; None if there is none."""
    met = [m for m in audit.matrix.meetings if m.value is not None and m.threat != NO_THREAT]
    return min(met, key=lambda m: m.value if m.value is not None else 1.0, default=None)


def effect_of(met: MatrixCell) -> str:
    """How threat and deployment meet, if there are images enough to say so; else empty."""
    return met.effect if met.images >= FEWEST else ""


def _clean(audit: Audit) -> Line:
    clean = audit.clean
    interval = ""
    if clean.images < FEWEST:
        interval = ", too few for an interval"
    elif clean.low is not None and clean.high is not None:
        interval = f", 95 % interval {clean.low:.3f} to {clean.high:.3f}"
    rule = clean.rule.partition(",")[0]  # all of it stands under what was run
    rule = f" ({rule})" if rule not in ("", clean.title) else ""
    text = f"{clean.title} is {clean.value:.3f} on {many(clean.images, 'image')}{interval}{rule}."
    name, command = f"Clean {clean.title}", clean.command or audit.command
    return Line(
        name, text, command, tone="fact", word="measured", figure=f"{clean.value:.3f}", images=clean.images
    )


def _single(audit: Audit) -> Line:
    name, worst = "Worst single cause", audit.worst
    measured = [c for c in audit.causes if c.outcome == "measured"]
    if worst is not None:
        of = f"the worst of {len(measured)} measured" if len(measured) > 1 else "the only one measured"
        return _cost(audit, name, worst, f"{worst.label}, {of}")
    ran = [c for c in audit.causes if c.outcome in ("identical", "no effect")]
    if any(c.drop is not None for c in measured):
        count = many(len(measured), "system noise")
        text = f"No single cause changes anything: {count} measured, no number and no prediction changes."
        return Line(name, text, audit.command, tone="good", word="no loss", figure="0.0 points")
    if measured:
        text = "Nothing to measure: none of the images that met the noises has anything true."
        return Line(name, text, audit.command)
    if not ran:
        return Line(name, f"{left_out(audit, 'noise').capitalize()}.", audit.command)
    none = f"None of {many(len(ran), 'system noise')} that can be run here changes anything"
    text = f"{none}: the input stays bit for bit the same, or the model has nothing it could change."
    return Line(name, text, audit.command, tone="good", word="no loss", figure="0")


def _combination(audit: Audit) -> Line:
    name, combined = "Worst combination", audit.combined
    worst = worst_cell(audit)
    also = ""
    if worst is not None and worst.value is not None:
        also = (
            f" With a patch as well {audit.clean.title} falls to {worst.value:.3f} on "
            f"{many(worst.images, 'image')}: {worst.threat} {under(worst.deployment)}."
        )
    if combined is None or combined.drop is None:
        said = combined.note if combined is not None else ""
        text = f"{MISSING}: {said}" if said else left_out(audit, "combine", "noise")
        return Line(name, f"{_upper(text)}.{also}", audit.command)
    line = _cost(audit, name, combined, _upper(short_deployment(combined.label)))
    return replace(line, text=line.text + also)


def _cost(audit: Audit, name: str, cause: Cause, subject: str) -> Line:
    """What a cause costs, in words that follow its interval, and on how many images."""
    drop, low, high = cause.drop or 0.0, cause.low, cause.high

    def line(text: str, tone: Tone, word: str) -> Line:
        figure = f"{'−' if drop > 0 else '+' if drop < 0 else ''}{points(abs(drop))} points"
        return Line(
            name,
            text,
            cause.command or audit.command,
            tone=tone,
            word=word,
            figure=figure,
            images=cause.images or None,
        )

    if not drop and cause.changed == 0:
        return line(f"{subject}: no number and no prediction changes.", "good", "no loss")
    interval = "" if low is None or high is None else f", 95 % interval {between(low, high)}"
    text = f"{subject}: {points(drop)} points of {audit.clean.title} lost{interval}"
    changed = "" if cause.changed is None else f"; {cause.changed} of {cause.images} predictions change"
    if 0 < cause.images < FEWEST:
        few = many(cause.images, "image")
        return line(f"{text}; on {few}, too few to tell it from chance{changed}.", "caution", FEW)
    if within_chance(low, high):
        why = "without an interval" if low is None else "the interval holds 0"
        return line(f"{text}; {why}, so this is within chance{changed}.", "caution", "within chance")
    if drop > 0:
        return line(f"{text}{changed}.", "bad", "loses")
    return line(f"{text}: it gains{changed}.", "good", "no loss")


def _patch(audit: Audit) -> Line:
    name = "Smallest patch that works"
    levels = sorted((s for s in audit.strikes if s.aimed), key=lambda s: s.pixels)
    if not levels and audit.strikes:
        text = "The model finds nothing true in these images: there was nothing to attack."
        return Line(name, text, audit.command, word="nothing to attack")
    if not levels:
        return Line(name, f"{_upper(left_out(audit, 'attack'))}.", audit.command)
    first = next((s for s in levels if s.broken), None)
    last = levels[-1]
    if first is None:
        text = (
            f"None of the {many(last.aimed, 'attacked image')} lost all its objects with up to "
            f"{grouped(last.pixels)} changed pixels ({_after(audit, last)}). That this attack found no "
            "way is no proof that there is none."
        )
        return Line(
            name,
            text,
            last.command or audit.command,
            tone="caution",
            word="none found",
            figure="none",
            images=last.aimed,
        )
    text = (
        f"{grouped(first.pixels)} changed pixels hide every object found before in {first.broken} of "
        f"{many(first.aimed, 'attacked image')} ({_after(audit, first)})"
    )
    if last is not first:
        text += f"; {grouped(last.pixels)} pixels in {last.broken} of {last.aimed} ({_after(audit, last)})"
    figure = f"{grouped(first.pixels)} px"
    return Line(
        name,
        f"{text}.",
        first.command or audit.command,
        tone="bad",
        word="broken",
        figure=figure,
        images=first.aimed,
    )


def _after(audit: Audit, level: AttackLevel) -> str:
    return f"{audit.clean.title} {level.before:.3f} → {level.after:.3f}"


def _proven(audit: Audit) -> Line:
    name, found = "What is proven", Counter(p.answer for p in audit.proofs)
    if not audit.proofs:
        text = f"{_upper(left_out(audit, 'squares', 'specs'))}. Nothing is proven."
        return Line(name, text, audit.command)
    lost = [r for r in audit.findings if r.was == "holds"]
    said = _by_threat(audit)
    if lost:
        count = len({(r.threat, r.image) for r in lost})
        where = ", ".join(dict.fromkeys(short_deployment(r.deployment) for r in lost))
        said.append(f"{count} of the proven {'breaks' if count == 1 else 'break'} under {where}.")
    bare = [one for one in audit.sandwich if not one.prover]
    if bare:
        others = f"the other threats ({', '.join(one.threat for one in bare)})"
        said.append(f"Nothing is proven against {bare[0].words if len(bare) == 1 else others}.")
    command = next((p.command for p in audit.proofs if p.command), audit.command)
    figure = f"{found['holds']} of {len(audit.proofs)}"
    images = len({p.image for p in audit.proofs if p.image}) or None
    line = partial(Line, name, " ".join(said), command, figure=figure, images=images)
    if found["holds"]:
        whole = not (found["violated"] or found["unknown"] or lost)
        return line("good", "proven") if whole else line("caution", "partly proven")
    return line("bad", "broken") if found["violated"] else line("open", "unknown")


def _by_threat(audit: Audit) -> list[str]:
    """What the proofs say about each threat of the sandwich, then about all specifications."""
    words = {one.threat: one.words for one in audit.sandwich}
    groups = [
        ([p for p in audit.proofs if p.threat == threat], "image", f" against {words[threat]}", "broken")
        for threat in dict.fromkeys(p.threat for p in audit.proofs if p.threat in words)
    ]
    specs = [p for p in audit.proofs if p.threat not in words]
    groups += [(specs, "specification", "", "violated")] if specs else []
    said = []
    for asked, thing, against, violated in groups:
        found = Counter[str](p.answer for p in asked)
        verb = "holds" if 1 in (found["holds"], len(asked)) else "hold"
        others = (("violated", violated), ("unknown", "unknown"))
        rest = ", ".join(f"{found[answer]} {word}" for answer, word in others if found[answer])
        proven = f"{found['holds']} of {many(len(asked), thing)} {verb}{against}"
        said.append(f"{proven}{': ' if rest else ''}{rest}.")
    return said


def short_deployment(name: str) -> str:
    """A deployment's name; of several together how many they are."""
    if name == "all together":
        return "all system noises together"
    count = name.count(" + ") + 1
    return name.replace(" + ", " and ") if count < 3 else f"{count} system noises together"


def under(deployment: str) -> str:
    """Where a threat was met, as the end of a sentence."""
    return deployment if deployment == TRAINED else f"under {short_deployment(deployment)}"


def _upper(text: str) -> str:
    """The sentence begun with a capital, unless it begins with a name such as resize=opencv."""
    first = text.split(" ", 1)[0]
    return text if "=" in first else text[:1].upper() + text[1:]
