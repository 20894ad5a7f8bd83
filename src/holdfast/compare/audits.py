"""Compare two audits: clean metric, noise, attacks, proofs, matrix; paired where records are available."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.attack.result import Attempt
from holdfast.attack.run import MANIFEST
from holdfast.audit.attack_levels import carry_over
from holdfast.audit.result import NO_THREAT, TRAINED, AttackLevel, Audit, NoiseResult
from holdfast.audit.values import values_of
from holdfast.compare import evaluations, result
from holdfast.compare.evaluations import ATTACK, EFFECTS, AttackRun, NotPaired
from holdfast.compare.result import (
    Change,
    ComparedNumber,
    ComparisonContent,
    ImageList,
    StatedNumber,
    from_stated,
    in_points,
    zero_if_unchanged,
)
from holdfast.compare.suites import COMBINED, LOSSES, compare_suites
from holdfast.core.errors import InputError
from holdfast.evaluate.result import open_run
from holdfast.noise.vision.result import open_suite

CLEAN, PROOFS, MATRIX = "clean", "proofs", "threat × deployment"
NOT_NEXT_TO = "the folder of a run is not next to its audit"


def compare_audits(a: Audit, b: Audit, folders: tuple[Path, Path]) -> ComparisonContent:
    """Every number of the two; InputError if they are of different metrics or data."""
    facts = [(x.model.get("task"), x.data.get("name"), x.clean.metric, x.clean.rule) for x in (a, b)]
    for what, first, second in zip(("task", "data", "metric", "rule"), *facts, strict=True):
        if first != second:
            values = f"{first} in A, {second} in B"
            raise InputError(f"the {what} of the audits differs: {values}; run both with the same one")
    clean, noise, attacks = (part(a, b, folders) for part in (_evaluations, _noise, _attacks))
    parts = [clean, noise, attacks, _proofs(a, b), ComparisonContent(tuple(_matrix(a, b)))]
    old, new = values_of(a), values_of(b)
    return ComparisonContent(
        tuple(row for part in parts for row in part.changes),
        result.differences(_description(a), _description(b)),
        (*(images for part in parts for images in part.lists), *_rechecks(a, b)),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        tuple((name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])),
        rule=clean.rule,
    )


def _description(audit: Audit) -> dict[str, Any]:
    facts = {"model": audit.model.get("name"), "model file": str(audit.model.get("sha256", ""))[:12]}
    facts |= {"images": audit.clean.images, "budget in seconds": audit.budget}
    facts |= {f"images of {part.name}": part.images for part in audit.parts}
    return facts | {f"version of {n}": v for n, v in audit.versions.items()}


def _run_folders(a: Audit, b: Audit, part: str, folders: tuple[Path, Path]) -> tuple[Path, Path]:
    """The folders of a part's own runs, next to the audits; InputError if one is not there."""
    runs = []
    for audit, folder in zip((a, b), folders, strict=True):
        parents = folder.resolve().parent, folder.resolve()
        runs += [run for parent in parents if (run := parent / audit.runs.get(part, part)).is_dir()][:1]
    if len(runs) < 2:
        raise InputError(NOT_NEXT_TO)
    return runs[0], runs[1]


def _evaluations(a: Audit, b: Audit, folders: tuple[Path, Path]) -> ComparisonContent:
    """The clean metric and its classes from the records, else from the audits."""
    try:
        first, second = _run_folders(a, b, "evaluation", folders)
        return evaluations.compare_evaluations(open_run(first), open_run(second))
    except InputError as problem:
        sides = [in_points(c.value, c.low, c.high, images=c.images) for c in (a.clean, b.clean)]
        row = from_stated(ComparedNumber(CLEAN, a.clean.title, "is better"), *sides)
        return ComparisonContent((row,), notes=(f"{a.clean.title} has no paired interval: {problem}",))


def _noise(a: Audit, b: Audit, folders: tuple[Path, Path]) -> ComparisonContent:
    """Points lost to noise from the records, else from the audits."""
    try:
        runs = _run_folders(a, b, "noise", folders)
        suites = compare_suites(open_suite(runs[0]), open_suite(runs[1]), runs)
        # The clean metric is that of the evaluation.
        return ComparisonContent(suites.changes[1:], notes=suites.notes)
    except InputError as problem:
        why = str(problem)
    without = [side for side, audit in zip("AB", (a, b), strict=True) if not audit.noises]
    if without and why == NOT_NEXT_TO:
        why = f"not measured in {without[0]}"
    old, new = ({noise.label: noise for noise in audit.noises} for audit in (a, b))
    rows = [_noise_change(label, old.get(label), new.get(label)) for label in dict.fromkeys([*old, *new])]
    if a.combined or b.combined:
        same = bool(a.combined and b.combined and a.combined.label == b.combined.label)
        label = COMBINED if same else f"{COMBINED} (worst options of each run)"
        rows.append(_noise_change(label, a.combined, b.combined))
    return ComparisonContent(tuple(rows), notes=(f"noise has no paired interval: {why}",) if rows else ())


def _noise_change(label: str, old: NoiseResult | None, new: NoiseResult | None) -> Change:
    sides = [
        zero_if_unchanged(StatedNumber(c.points_lost, c.low, c.high, c.images, c.outcome)) if c else None
        for c in (old, new)
    ]
    return from_stated(ComparedNumber(LOSSES, label, "is worse", costs=True), *sides)


def _attacks(a: Audit, b: Audit, folders: tuple[Path, Path]) -> ComparisonContent:
    """The patch and every pixel budget: the broken images, and mAP and S_e from the records if available."""
    old, new = ({level.threat: level for level in audit.all_attacks} for audit in (a, b))
    rows: list[Change] = []
    lists: list[ImageList] = []
    why = ""
    try:
        paired = _paired_levels((a, b), folders)
    except NotPaired as reason:
        paired, why = {}, str(reason)
    for threat in dict.fromkeys([*old, *new]):
        levels = (old.get(threat), new.get(threat))
        rows += paired.get(threat) or _stated_effects(threat, levels)
        broken = [_broken(audit, threat) for audit in (a, b)]
        shares = [None if level is None else _share(level.broken, level.aimed) for level in levels]
        about = ComparedNumber(ATTACK, f"{threat}: images broken", "is worse")
        rows.append(result.share_change(about, broken, shares))
        if broken[0].keys() & broken[1].keys():
            lists += result.changed_images([dict(sorted(side.items())) for side in broken], f"{threat}: ")
    note = f"mAP and S_e of the attacks have no paired interval: {why}"
    notes = (note,) if why and old.keys() & new.keys() else ()
    return ComparisonContent(tuple(rows), lists=tuple(lists), notes=notes)


def _stated_effects(threat: str, levels: Sequence[AttackLevel | None]) -> Iterator[Change]:
    for what, key, rise, _ in EFFECTS:
        name = "effect" if key == "S_e" else key
        sides = [x if x is None else in_points(getattr(x, name), images=x.images) for x in levels]
        yield from_stated(ComparedNumber(ATTACK, f"{threat}: {what}", rise), *sides)


def _broken(audit: Audit, threat: str) -> dict[str, bool]:
    """Whether the threat breaks each image, by the bounds of the audit; empty if it has none."""
    return {i.image: i.broken for bounds in audit.bounds if bounds.threat == threat for i in bounds.per_image}


def _share(part: int, whole: int) -> StatedNumber:
    return StatedNumber(100.0 * part / whole if whole else None, images=whole)


def _proofs(a: Audit, b: Audit) -> ComparisonContent:
    rows: list[Change] = []
    lists: list[ImageList] = []
    notes: list[str] = []
    for threat in dict.fromkeys(proof.threat for audit in (a, b) for proof in audit.proofs):
        old, new = ({p.image: p for p in audit.proofs if p.threat == threat} for audit in (a, b))
        holds = [{name: p.answer == "holds" for name, p in side.items()} for side in (old, new)]
        shares = [_share(sum(side.values()), len(side)) if side else None for side in holds]
        about = ComparedNumber(PROOFS, f"{threat}: proofs that hold", "is better")
        rows.append(result.share_change(about, holds, shares))
        names = [name for name in old if name in new]
        if names:
            lost = tuple(f"{n} (now {new[n].answer})" for n in names if holds[0][n] and not holds[1][n])
            won = tuple(f"{n} (was {old[n].answer})" for n in names if holds[1][n] and not holds[0][n])
            lists.append(ImageList(f"{threat}: holds in A, not in B", lost, "worse"))
            lists.append(ImageList(f"{threat}: holds in B, not in A", won, "better"))
        if any(old[n].members != new[n].members for n in names):
            notes.append(f"{threat}: the proven input sets differ in size between A and B")
    return ComparisonContent(tuple(rows), lists=tuple(lists), notes=tuple(notes))


def _rechecks(a: Audit, b: Audit) -> Iterator[ImageList]:
    """Verdicts that change under a deployment, in one audit only."""
    old, new = (
        {f"{r.image} under {r.deployment}: {r.threat} {r.was} → {r.now}" for r in audit.findings}
        for audit in (a, b)
    )
    yield ImageList("verdict changes under a deployment in B only", tuple(sorted(new - old)), "worse")
    yield ImageList("verdict changes under a deployment in A only", tuple(sorted(old - new)), "better")


def _matrix(a: Audit, b: Audit) -> Iterator[Change]:
    """The metric of every threat under every deployment that both have."""
    for cell in a.matrix.cells:
        other = b.matrix.at(cell.threat, cell.deployment)
        if other is not None and (cell.threat, cell.deployment) != (NO_THREAT, TRAINED):
            about = ComparedNumber(MATRIX, f"{cell.threat} under {cell.deployment}", "is better")
            sides = [in_points(m.value, images=m.images, words=m.note) for m in (cell, other)]
            yield from_stated(about, *sides)


def _paired_levels(audits: tuple[Audit, Audit], folders: tuple[Path, Path]) -> dict[str, list[Change]]:
    """Threat -> mAP and S_e, paired on the attempts of both audits; NotPaired if they are not there."""
    (about_a, a), (about_b, b) = map(_level_attempts, audits, folders, "AB")
    if about_a.get("settings") != about_b.get("settings"):
        raise NotPaired("the rule of the metric differs")
    rows = {}
    for threat, old in a.items():
        new = b.get(threat, {})
        names = [name for name in old if name in new]
        sides = [[side[name] for name in names] for side in (old, new)]
        rows[threat] = evaluations.effect_changes(about_a, about_b, sides, f"{threat}: ") if names else []
    return rows


def _level_attempts(
    audit: Audit, folder: Path, which: str
) -> tuple[dict[str, Any], dict[str, dict[str, Attempt]]]:
    """What the attacks of an audit have in common, and threat -> image -> attempt, from their own runs.

    A level consists of several attacks: the smallest budget on all images, larger ones on those that
    withstood. NotPaired if the attempts are gone or do not reproduce the numbers of the audit.
    """
    runs: dict[str, AttackRun] = {}
    for name, run in audit.runs.items():
        if name.startswith("attack "):
            with suppress(InputError):
                manifest = folder.resolve().parent / run / MANIFEST
                runs[name.removeprefix("attack ")] = evaluations.open_attack(manifest)
    levels = sorted(audit.attacks, key=lambda level: level.pixels)
    if not levels or levels[0].threat not in runs:
        raise NotPaired(f"the attacks of {which} are no longer next to it")
    aimed = _broken(audit, levels[0].threat)
    about = runs[levels[0].threat].about
    attempts, by_threat = dict[str, Attempt](), dict[str, dict[str, Attempt]]()
    for level in levels:
        if level.threat in runs:
            larger = evaluations.attempts_of(runs[level.threat], which).values()
            attempts = carry_over(attempts, (a for a in larger if not a.targets or a.name in aimed))
        by_threat[level.threat] = attempts
        before, after, _ = evaluations.effect_draws(about, list(attempts.values()), replicates=1)
        if abs(before[0] - 100 * level.before) > 1e-6 or abs(after[0] - 100 * level.after) > 1e-6:
            raise NotPaired(f"the attacks next to {which} do not reproduce its numbers")
    if audit.patch is not None and audit.patch.threat in runs:
        by_threat[audit.patch.threat] = dict(evaluations.attempts_of(runs[audit.patch.threat], which))
    return about, by_threat
