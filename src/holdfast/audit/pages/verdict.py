"""The verdict of an audit in five lines. No line claims more than was measured."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from holdfast.attack.shapes import STICKER
from holdfast.audit.gates import GateVerdict
from holdfast.audit.result import NO_THREAT, TOGETHER, TRAINED, AttackLevel, Audit, MatrixCell, NoiseResult
from holdfast.metrics.intervals import FEWEST
from holdfast.metrics.points import ENOUGH, basis_text, facing, is_gain, is_indication, lost_text
from holdfast.report.tables import grouped, many

Tone: TypeAlias = Literal["fact", "good", "caution", "bad", "open"]
MISSING = "not measured"
LEAST_KEPT = 3  # deployments after which a patch works least that a sentence names
INDICATION, FEW = "indication", "too few images"  # fewer than ENOUGH images, fewer than FEWEST


@dataclass(frozen=True)
class VerdictLine:
    """One line of the verdict: its subject, the finding, and the command that reproduces it."""

    name: str
    text: str
    command: str
    tone: Tone = "open"
    word: str = MISSING  # the tone in words
    figure: str = "–"  # the headline number
    images: int | None = None  # the n of the figure; None: not counted in images

    @property
    def basis(self) -> str:
        """The n of the figure: "n = 13, indication"; empty where it counts no images."""
        return basis_text(self.images)

    @property
    def few(self) -> bool:
        """Whether the figure is only an indication."""
        return is_indication(self.images)

    @property
    def number(self) -> str:
        """The figure without its unit."""
        return self.figure.partition(" ")[0]

    @property
    def unit(self) -> str:
        """The unit of the figure: points lost, px, of 8."""
        return self.figure.partition(" ")[2]


def verdict(audit: Audit) -> tuple[VerdictLine, ...]:
    """Five lines: clean metric, worst noise, combined noise, smallest attack, proofs."""
    lines = [_clean(audit), _single(audit), _combination(audit), _attack(audit), _proofs(audit)]
    for place, line in enumerate(lines):  # no judgement where one rests on fewer images than it needs
        if line.few and line.word != FEW:
            tone = line.tone if line.tone in ("fact", "open") else "caution"
            lines[place] = replace(line, word=INDICATION, tone=tone)
    return tuple(lines)


def next_step(audit: Audit, judged: Sequence[GateVerdict] = ()) -> str:
    """What to do next, in one sentence."""
    failed_gates = [verdict.gate.text for verdict in judged if verdict.failed]
    undecided = [verdict.gate.text for verdict in judged if not verdict.decided]
    worst = audit.headline_noise
    lost = [r for r in audit.findings if r.was == "holds"]
    late = [part.name for part in audit.parts if "time budget" in part.skipped]
    few = [part.name for part in audit.parts if 0 < part.images < min(ENOUGH, part.of)]
    if failed_gates:
        return f"Fix the failed gates before release: {'; '.join(failed_gates[:3])}."
    if undecided:
        return f"Test more images to decide the gates, or lower --min-images: {'; '.join(undecided[:3])}."
    if worst is not None and (worst.low or 0.0) > 0 and worst.images >= FEWEST:
        how = " (holdfast train mix)" if audit.model.get("task") == "classify" else ""
        loss = f"{points(worst.points_lost or 0.0)} points lost"
        return f"Avoid {worst.label} in deployment ({loss}), or retrain the model with this noise{how}."
    if lost:
        return f"Do not rely on the proofs under {lost[0].deployment}: verify the deployed model itself."
    if audit.clean.images < ENOUGH:
        return f"Test at least {ENOUGH} images: fewer give only an indication."
    if late:
        return f"Raise --budget to run what was skipped: {', '.join(late)}."
    if few:
        return (
            f"Test at least {ENOUGH} images in each part ({', '.join(few)}): fewer give only an indication."
        )
    gate = f"noise.{audit.clean.metric}.points_lost > 2"
    return f"Keep these results with gates in CI: holdfast audit --fail-if '{gate}'."


def points(value: float) -> str:
    """Percentage points with two digits and a true minus."""
    return signed(value, 2)


def signed(value: float, digits: int) -> str:
    """The number with a true minus; what rounds to zero has none."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text.replace("-", "−")


def between(low: float, high: float) -> str:
    """An interval in percentage points: [2.00, 8.00]."""
    return f"[{points(low)}, {points(high)}]"


def not_significant(low: float | None, high: float | None) -> bool:
    """Whether there is no interval, or one that contains 0."""
    return low is None or high is None or low <= 0 <= high


def skip_reason(audit: Audit, *parts: str) -> str:
    """Why these parts of the audit have no number."""
    reasons = [p.skipped for p in audit.parts if p.name in parts and p.skipped]
    reasons += [note.partition(": ")[2] for note in audit.notes if note.partition(": ")[0] in parts]
    reasons = list(dict.fromkeys(reason.rstrip(".") for reason in reasons))
    return f"{MISSING}: {'; '.join(reasons) or 'not requested'}"


def worst_cell(audit: Audit) -> MatrixCell | None:
    """The cell of the matrix with the lowest value under a threat; None if there is none.

    Its deployment is one that some product has.
    """
    real = [m for m in audit.matrix.cells if m.deployment not in audit.hypothetical]
    cells = [m for m in real if m.value is not None and m.threat != NO_THREAT]
    return min(cells, key=lambda m: m.value if m.value is not None else 1.0, default=None)


def effect_of(cell: MatrixCell) -> str:
    """How threat and deployment interact; empty with too few images."""
    return cell.effect if cell.images >= FEWEST else ""


def _clean(audit: Audit) -> VerdictLine:
    clean = audit.clean
    interval = ""
    if clean.images < FEWEST:
        interval = ", too few for an interval"
    elif clean.low is not None and clean.high is not None:
        interval = f", 95% interval {clean.low:.3f} to {clean.high:.3f}"
    rule = rule_name(audit)
    text = f"{clean.title} is {clean.value:.3f} on {many(clean.images, 'image')}"
    text += f"{f' ({rule})' if rule else ''}{interval}."
    name, word, command = f"Clean {clean.title}", rule or "measured", clean.command or audit.command
    return VerdictLine(name, text, command, "fact", word, figure=f"{clean.value:.3f}", images=clean.images)


def rule_name(audit: Audit) -> str:
    """The short name of the metric's rule: "AP rule voc"; empty if the metric has only one."""
    short = audit.clean.rule.partition(",")[0].partition(":")[0]
    if short in ("", audit.clean.title):
        return ""
    return f"AP rule {short}" if audit.clean.metric.startswith("map") else short


def _single(audit: Audit) -> VerdictLine:
    target, worst, noises = audit.target, audit.headline_noise, audit.target_noises
    name = f"On {target.title}" if target else "Worst single noise"
    measured = [c for c in noises if c.outcome == "measured"]
    if worst is not None:
        of = f"the worst of {len(measured)} options" if len(measured) > 1 else "the only option measured"
        if target:
            return _loss(audit, name, worst, _target_option(worst, len(measured)), verbs=("loses", "gains"))
        return _loss(audit, name, worst, f"{worst.label}, {of}")
    ran = [c for c in noises if c.outcome in ("identical", "no effect")]
    if any(c.points_lost is not None for c in measured):
        text = f"No effect: {many(len(measured), 'noise option')} measured, none changes a prediction."
        if target:
            text = f"No effect: {', '.join(_short_label(n) for n in measured)}: no prediction changes."
        images = max(c.images for c in measured) or None
        return VerdictLine(
            name, text, audit.command, "good", "no loss", figure="0.00 points lost", images=images
        )
    if measured:
        text = "Nothing to measure: none of the images with noise has an object of an evaluated class."
        return VerdictLine(name, text, audit.command)
    if not ran and noises and target:
        text = "; ".join(f"{n.label} is {n.outcome}{f' ({n.note})' if n.note else ''}" for n in noises)
        return VerdictLine(name, f"Not measured: {text}.", audit.command)
    if not ran and audit.hypothetical:
        text = "Only hypothetical noise options were measured; they are in the table."
        return VerdictLine(name, text, audit.command)
    if not ran:
        return VerdictLine(name, f"{_upper(skip_reason(audit, 'noise'))}.", audit.command)
    text = f"No effect: {many(len(ran), 'noise option')} give identical input or do not apply to this model."
    return VerdictLine(name, text, audit.command, "good", "no loss", figure="0.00 points lost")


def _target_option(worst: NoiseResult, measured: int) -> str:
    """The option as the subject of a sentence."""
    option = _short_label(worst)
    return f"{option}, the worst of its {measured} options," if measured > 1 else option


def _short_label(noise: NoiseResult) -> str:
    return noise.label.removeprefix("precision=")


def _combination(audit: Audit) -> VerdictLine:
    name, combined = "Combined noise", audit.combined
    worst = worst_cell(audit)
    also = ""
    if worst is not None and worst.value is not None:
        also = (
            f" With an attack as well, {audit.clean.title} {_fall(audit, worst, worst.value)} on "
            f"{many(worst.images, 'image')}: {worst.threat} {under(worst.deployment)}."
        )
    if combined is None or combined.points_lost is None:
        note = combined.note if combined is not None else ""
        text = f"{MISSING}: {note}" if note else skip_reason(audit, "combine", "noise")
        return VerdictLine(name, f"{_upper(text)}.{also}", audit.command)
    line = _loss(audit, name, combined, _upper(short_deployment(combined.label)))
    return replace(line, text=line.text + also)


def _fall(audit: Audit, cell: MatrixCell, value: float) -> str:
    """How the metric of the cell compares with the clean metric on the same images."""
    free = {m.deployment: m.value for m in audit.matrix.cells if m.threat == NO_THREAT}
    clean = free.get(TRAINED)
    if free.get(cell.deployment) == value:
        return f"stays at {value:.3f}" + ("" if clean is None else f" (clean: {clean:.3f})")
    return f"falls to {value:.3f}" if clean is None else f"falls from {clean:.3f} to {value:.3f}"


def _loss(
    audit: Audit, name: str, noise: NoiseResult, subject: str, verbs: tuple[str, str] | None = None
) -> VerdictLine:
    """The points lost to a noise, with what its interval allows to conclude.

    With `verbs` for a loss and a gain the sentence is "SUBJECT loses 5.00 points".
    """
    lost = noise.points_lost or 0.0
    number, unit, verb = lost_text(lost).split(" ")
    low, high = facing(lost, noise.low, noise.high)
    interval = "" if low is None or high is None else f", 95% interval {between(low, high)}"
    points_of = f"{number} {unit} of {audit.clean.title}"
    text = f"{subject} {verbs[is_gain(lost)]} {points_of}" if verbs else f"{subject}: {points_of} {verb}"
    if noise.value is not None and noise.before is not None:
        text += f" ({noise.before:.3f} → {noise.value:.3f} on {many(noise.images, 'image')})"
    text += interval
    changed = ""
    if noise.changed is not None:
        changed = f"; predictions change in {noise.changed} of {noise.images} images"
    tone: Tone = "caution"
    if not lost and noise.changed == 0:
        tone, word, text = "good", "no loss", f"{subject}: no effect, no prediction changes."
    elif 0 < noise.images < FEWEST:
        few = many(noise.images, "image")
        word, text = FEW, f"{text}; {few}, too few to judge significance{changed}."
    elif not_significant(low, high):
        why = "there is no interval" if low is None else "the 95% interval contains 0"
        word, text = "not significant", f"{text}; not significant ({why}){changed}."
    else:
        tone, word = ("bad", "significant") if lost > 0 else ("good", "a gain")
        text = f"{text}{changed}."
    command, images = noise.command or audit.command, noise.images or None
    return VerdictLine(name, text, command, tone, word, figure=lost_text(lost), images=images)


def _attack(audit: Audit) -> VerdictLine:
    """The printable patch with the scattered pixels beside it, or the smallest attack without a patch."""
    name, patch = "Printable patch", audit.patch
    levels = sorted((s for s in audit.attacks if s.aimed), key=lambda s: s.pixels)
    if patch is not None and patch.aimed:
        broken, of, command = patch.broken, many(patch.aimed, "image"), patch.command or audit.command
        text = f"{_upper(patch.words)} hides every detected object in {broken} of {of}"
        text += f" ({_after(audit, patch)}){_also_under(audit, patch)}.{_in_views(patch)}"
        text += " A failed attack is not a proof." if not broken else ""
        text += f" {_pixels(audit, levels)}." if levels else ""
        figure, images = f"{broken} of {patch.aimed}", patch.aimed
        if not broken:
            return VerdictLine(name, text, command, "caution", "no success", figure=figure, images=images)
        return VerdictLine(name, text, command, "bad", "success", figure=figure, images=images)
    name = "Smallest attack"
    if not levels and audit.all_attacks:
        text = "Nothing to attack: the model detects no true object in these images."
        return VerdictLine(name, text, audit.command, word="nothing to attack")
    if not levels:
        return VerdictLine(name, f"{_upper(skip_reason(audit, 'attack'))}.", audit.command)
    first = next((s for s in levels if s.broken), None)
    text = f"{_pixels(audit, levels)}."
    shown = first or levels[-1]
    command, images = shown.command or audit.command, shown.aimed
    if first is None:
        text += " A failed attack is not a proof."
        return VerdictLine(name, text, command, "caution", "no success", figure="none", images=images)
    figure = f"{grouped(first.pixels)} px"
    return VerdictLine(name, text, command, "bad", "success", figure=figure, images=images)


def _pixels(audit: Audit, levels: Sequence[AttackLevel]) -> str:
    """The smallest number of scattered pixels that succeeds and the largest, without a full stop."""
    first, last = next((s for s in levels if s.broken), None), levels[-1]
    if first is None:
        return (
            f"Up to {grouped(last.pixels)} scattered pixels hide every detected object in none of "
            f"{many(last.aimed, 'attacked image')} ({_after(audit, last)})"
        )
    text = (
        f"{grouped(first.pixels)} scattered pixels hide every detected object in {first.broken} of "
        f"{many(first.aimed, 'attacked image')} ({_after(audit, first)})"
    )
    if last is not first:
        text += f"; {grouped(last.pixels)} pixels in {last.broken} of {last.aimed} ({_after(audit, last)})"
    return text


def _also_under(audit: Audit, patch: AttackLevel) -> str:
    """Under which deployments of the matrix the patches that break an image still break it."""
    cells = [m for m in audit.matrix.cells if m.threat == patch.threat and m.value is not None]
    real = [m for m in cells if m.deployment not in (TRAINED, *audit.hypothetical) and m.broken_in_training]
    if not real:
        return ""
    of = real[0].broken_in_training
    kept = [_option_name(m.deployment) for m in real if m.still_broken == of]
    lost = sorted((m for m in real if m.still_broken < of), key=lambda m: m.still_broken)
    fewest = [f"{m.still_broken} of {of} after {_option_name(m.deployment)}" for m in lost[:LEAST_KEPT]]
    parts = [f"also after {_listed(kept)} ({of} of {of})"] if kept else []
    parts += [f"but in {_listed(fewest)}"] if fewest else []
    return f", {', '.join(parts)}"


def _in_views(patch: AttackLevel) -> str:
    """How many random views the patches survive."""
    views = patch.views
    if views is None or not views.views:
        return ""
    of = f"{views.hidden} of {views.views} random views of {many(views.images, 'image')}"
    return f" It still hides them in {of} (placement, {', '.join(STICKER)} together)."


def _option_name(deployment: str) -> str:
    """The name of an option without its family: nv12."""
    return short_deployment(deployment).rpartition("=")[2]


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _after(audit: Audit, level: AttackLevel) -> str:
    images = "" if level.images == level.aimed else f" on {many(level.images, 'image')}"
    return f"{audit.clean.title} {level.before:.3f} → {level.after:.3f}{images}"


def _proofs(audit: Audit) -> VerdictLine:
    name, answers = "Proofs", Counter(p.answer for p in audit.proofs)
    if not audit.proofs:
        text = f"{_upper(skip_reason(audit, 'squares', 'specs'))}. Nothing is proven."
        return VerdictLine(name, text, audit.command)
    lost = [r for r in audit.findings if r.was == "holds"]
    sentences = _by_threat(audit)
    if lost:
        count = many(len({(r.threat, r.image) for r in lost}), "proof")
        where = ", ".join(dict.fromkeys(short_deployment(r.deployment) for r in lost))
        sentences.append(f"{count} violated under {where}.")
    bare = [bounds for bounds in audit.bounds if not bounds.prover]
    if bare:
        others = f"the other threats ({', '.join(bounds.threat for bounds in bare)})"
        sentences.append(f"No proof against {bare[0].words if len(bare) == 1 else others}.")
    command = next((p.command for p in audit.proofs if p.command), audit.command)
    figure = f"{answers['holds']} of {len(audit.proofs)}"
    images = len({p.image for p in audit.proofs if p.image}) or None
    tone: Tone = "open"
    word = "unknown"
    if answers["holds"]:
        whole = not (answers["violated"] or answers["unknown"] or lost)
        tone, word = ("good", "proven") if whole else ("caution", "partly proven")
    elif answers["violated"]:
        tone, word = "bad", "violated"
    return VerdictLine(name, " ".join(sentences), command, tone, word, figure=figure, images=images)


def _by_threat(audit: Audit) -> list[str]:
    """One sentence per threat of the bounds, then one for all specifications."""
    words = {bounds.threat: bounds.words for bounds in audit.bounds}
    groups = [
        ([p for p in audit.proofs if p.threat == threat], "image", f" against {words[threat]}")
        for threat in dict.fromkeys(p.threat for p in audit.proofs if p.threat in words)
    ]
    specs = [p for p in audit.proofs if p.threat not in words]
    groups += [(specs, "specification", "")] if specs else []
    sentences = []
    for proofs, thing, against in groups:
        number = Counter[str](p.answer for p in proofs)
        verb = "holds" if 1 in (number["holds"], len(proofs)) else "hold"
        rest = ", ".join(f"{number[answer]} {answer}" for answer in ("violated", "unknown") if number[answer])
        proven = f"{number['holds']} of {many(len(proofs), thing)} {verb}{against}"
        sentences.append(f"{proven}{', ' if rest else ''}{rest}.")
    return sentences


def short_deployment(name: str) -> str:
    """The name of a deployment; of three or more combined options only their number."""
    if name == TRAINED:
        return "the training pipeline"
    if name == TOGETHER:
        return "combined noise"
    count = name.count(" + ") + 1
    return name if count < 3 else f"{count} noise options combined"


def under(deployment: str) -> str:
    """Where a threat was replayed, as the end of a sentence."""
    return f"under {short_deployment(deployment)}"


def _upper(text: str) -> str:
    """The sentence with a capital first letter, unless it begins with a name such as resize=opencv."""
    first = text.split(" ", 1)[0]
    return text if "=" in first else text[:1].upper() + text[1:]
