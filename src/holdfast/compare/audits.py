"""Two audits: clean metric, noise, attacks, proofs, matrix; paired wherever the images are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.audit.result import NO_THREAT, TRAINED, Audit, Cause, Proof, Strike
from holdfast.compare.attacks import EFFECTS, STRUCK, mean_change
from holdfast.compare.change import Change, Stated, Subject, from_stated, in_points
from holdfast.compare.evaluations import compare_evaluations
from holdfast.compare.result import Body, Listed, differences
from holdfast.compare.strikes import records_of
from holdfast.compare.suites import COSTS, compare_suites
from holdfast.core.errors import InputError
from holdfast.evaluate.result import open_run
from holdfast.noise.vision.result import open_suite

CLEAN, PROOFS, MATRIX = "clean", "proofs", "threat × deployment"


def compare_audits(a: Audit, b: Audit, folders: tuple[Path, Path]) -> Body:
    """Every number of the two; InputError if they are of different metrics or data."""
    _check(a, b)
    parts = [
        _evaluations(a, b, folders),
        _noise(a, b, folders),
        _attacks(a, b, folders),
        _proofs(a, b),
        Body(tuple(_matrix(a, b))),
    ]
    return Body(
        tuple(row for part in parts for row in part.changes),
        differences(_description(a), _description(b)),
        (*(one for part in parts for one in part.lists), *_rechecks(a, b)),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        _values(a, b),
    )


def _check(a: Audit, b: Audit) -> None:
    pairs = (
        ("task", a.model.get("task"), b.model.get("task")),
        ("data", a.data.get("name"), b.data.get("name")),
        ("metric", a.clean.metric, b.clean.metric),
        ("rule", a.clean.rule, b.clean.rule),
    )
    for what, first, second in pairs:
        if first != second:
            raise InputError(
                f"the {what} of the audits differs: {first} in A, {second} in B; audit both alike"
            )


def _description(audit: Audit) -> dict[str, Any]:
    told = {"model": audit.model.get("name"), "model file": str(audit.model.get("sha256", ""))[:12]}
    told |= {"images": audit.clean.images, "budget in seconds": audit.budget}
    told |= {f"images of {part.name}": part.images for part in audit.parts}
    return told | {f"version of {n}": v for n, v in audit.versions.items()}


def _part_runs(a: Audit, b: Audit, name: str, folders: tuple[Path, Path]) -> tuple[Path, Path] | None:
    """The folders of a part's own run in both audits; None if one is not there (any more)."""
    found = []
    for audit, folder in zip((a, b), folders, strict=True):
        named = audit.runs.get(name, name)
        places = [where / named for where in (folder.resolve().parent, folder.resolve())]
        found.append(next((place for place in places if place.is_dir()), None))
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _evaluations(a: Audit, b: Audit, folders: tuple[Path, Path]) -> Body:
    """The clean metric and its classes from the records, else what the audits state."""
    places = _part_runs(a, b, "evaluation", folders)
    if places:
        try:
            return compare_evaluations(open_run(places[0]), open_run(places[1]))
        except InputError as problem:
            why = str(problem)
    else:
        why = "a run's folder is not beside its audit"
    about = Subject(CLEAN, a.clean.title, "is better")
    row = from_stated(
        about, *(in_points(c.value, c.low, c.high, images=c.images) for c in (a.clean, b.clean))
    )
    return Body((row,), notes=(f"{a.clean.title} has no paired interval: {why}",))


def _noise(a: Audit, b: Audit, folders: tuple[Path, Path]) -> Body:
    places = _part_runs(a, b, "noise", folders)
    if places:
        try:
            suites = (open_suite(places[0]), open_suite(places[1]))
            found = compare_suites(*suites, places)
            return Body(found.changes[1:], notes=found.notes)  # the clean metric is of the evaluation
        except InputError as problem:
            why = str(problem)
    else:
        without = [side for side, audit in zip("AB", (a, b), strict=True) if not audit.causes]
        why = f"not measured in {without[0]}" if without else "a run's folder is not beside its audit"
    old, new = ({cause.label: cause for cause in audit.causes} for audit in (a, b))
    rows = [_cause(label, old.get(label), new.get(label)) for label in dict.fromkeys([*old, *new])]
    if a.combined or b.combined:
        same = bool(a.combined and b.combined and a.combined.label == b.combined.label)
        said = "all together" if same else "all together (each run's own worst)"
        rows.append(_cause(said, a.combined, b.combined))
    return Body(tuple(rows), notes=(f"noise has no paired interval: {why}",) if rows else ())


def _cause(label: str, old: Cause | None, new: Cause | None) -> Change:
    about = Subject(COSTS, label, "is worse", costs=True)
    return from_stated(about, *(None if c is None else _drop(c) for c in (old, new)))


def _drop(cause: Cause) -> Stated:
    if cause.drop is None and cause.outcome in ("identical", "no effect"):
        return Stated(0.0, 0.0, 0.0, cause.images, cause.outcome)
    return in_points(cause.drop, cause.low, cause.high, images=cause.images, words=cause.outcome)


def _attacks(a: Audit, b: Audit, folders: tuple[Path, Path]) -> Body:
    """Every budget: the images that broke, and mAP and S_e from the attacks' records if they are there."""
    old, new = ({strike.threat: strike for strike in audit.strikes} for audit in (a, b))
    rows: list[Change] = []
    lists: list[Listed] = []
    records, why = records_of((a, b), folders)
    for threat in dict.fromkeys([*old, *new]):
        paired = records(threat) if records else []
        rows += paired or _strike(threat, old.get(threat), new.get(threat))
        broken = [_broken(audit, threat) for audit in (a, b)]
        names = [name for name in broken[0] if name in broken[1]]
        about = Subject(STRUCK, f"{threat}: images broken", "is worse")
        if names:
            rows.append(mean_change(about, *([100.0 * side[n] for n in names] for side in broken)))
            lists += _fallen(threat, *({n for n in names if side[n]} for side in broken))
        else:
            whole = [
                None if s is None else _share(s.broken, s.aimed) for s in (old.get(threat), new.get(threat))
            ]
            rows.append(from_stated(about, *whole))
    note = f"mAP and S_e of the attacks have no paired interval: {why}"
    return Body(tuple(rows), lists=tuple(lists), notes=(note,) if why and old.keys() & new.keys() else ())


def _strike(threat: str, old: Strike | None, new: Strike | None) -> Iterator[Change]:
    for what, key, rise, _ in EFFECTS:
        name = "effect" if key == "S_e" else key
        about = Subject(STRUCK, f"{threat}: {what}", rise)
        sides = [None if s is None else in_points(getattr(s, name), images=s.images) for s in (old, new)]
        yield from_stated(about, *sides)


def _broken(audit: Audit, threat: str) -> dict[str, bool]:
    """Image -> whether the threat breaks it, as the sandwich has it; empty if it is not in there."""
    return {s.image: s.broken for layer in audit.sandwich if layer.threat == threat for s in layer.standings}


def _fallen(threat: str, before: set[str], after: set[str]) -> Iterator[Listed]:
    yield Listed(f"{threat}: withstood in A, broken in B", tuple(sorted(after - before)), "worse")
    yield Listed(f"{threat}: broken in A, withstood in B", tuple(sorted(before - after)), "better")


def _share(part: int, whole: int) -> Stated:
    return Stated(100.0 * part / whole if whole else None, images=whole)


def _proofs(a: Audit, b: Audit) -> Body:
    """The share of images proven to hold, on those both were asked about, and which changed sides."""
    rows: list[Change] = []
    lists: list[Listed] = []
    notes: list[str] = []
    threats = dict.fromkeys(proof.threat for audit in (a, b) for proof in audit.proofs)
    for threat in threats:
        old, new = ({p.image: p for p in audit.proofs if p.threat == threat} for audit in (a, b))
        names = [name for name in old if name in new]
        about = Subject(PROOFS, f"{threat}: proven to hold", "is better")
        if not names:
            whole = [
                _share(sum(p.answer == "holds" for p in s.values()), len(s)) if s else None
                for s in (old, new)
            ]
            rows.append(from_stated(about, *whole))
            continue
        rows.append(
            mean_change(about, *([100.0 * (s[n].answer == "holds") for n in names] for s in (old, new)))
        )
        lists += _turned(threat, old, new, names)
        if any(old[n].members != new[n].members for n in names):
            notes.append(f"{threat}: the sets that were proven are not of the same size in A and B")
    return Body(tuple(rows), lists=tuple(lists), notes=tuple(notes))


def _turned(threat: str, old: dict[str, Proof], new: dict[str, Proof], names: list[str]) -> Iterator[Listed]:
    held = [{n for n in names if side[n].answer == "holds"} for side in (old, new)]
    lost = tuple(f"{n} (now {new[n].answer})" for n in names if n in held[0] - held[1])
    won = tuple(f"{n} (was {old[n].answer})" for n in names if n in held[1] - held[0])
    yield Listed(f"{threat}: held in A, no longer in B", lost, "worse")
    yield Listed(f"{threat}: holds in B, did not in A", won, "better")


def _rechecks(a: Audit, b: Audit) -> Iterator[Listed]:
    """Answers that are others under some runtime or precision, in one audit only."""
    found = [
        {f"{r.image} under {r.deployment}: {r.threat} {r.was}, there {r.now}" for r in audit.findings}
        for audit in (a, b)
    ]
    yield Listed("proof turned under a deployment in B only", tuple(sorted(found[1] - found[0])), "worse")
    yield Listed("proof turned under a deployment in A only", tuple(sorted(found[0] - found[1])), "better")


def _matrix(a: Audit, b: Audit) -> Iterator[Change]:
    """The metric of every threat under every deployment both have."""
    for one in a.matrix.meetings:
        other = b.matrix.at(one.threat, one.deployment)
        if other is None or (one.threat, one.deployment) == (NO_THREAT, TRAINED):
            continue
        about = Subject(MATRIX, f"{one.threat} under {one.deployment}", "is better")
        sides = [in_points(m.value, images=m.images, words=m.note) for m in (one, other)]
        yield from_stated(about, *sides)


def _values(a: Audit, b: Audit) -> tuple[tuple[str, float | None, float | None], ...]:
    from holdfast.audit.values import values_of

    old, new = values_of(a), values_of(b)
    return tuple((name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new]))
