"""The pieces of an experiment that search: attacks, proofs, and the audit that has both."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import InputError
from holdfast.engine.manifest import slug
from holdfast.evaluate.run import alignment_of
from holdfast.experiment import plan as given
from holdfast.experiment.bench import Bench, Piece
from holdfast.experiment.result import Line
from holdfast.noise.vision.calibration import IMAGES

if TYPE_CHECKING:
    from holdfast.audit.plan import AuditPlan


def attacked(bench: Bench, piece: Piece, work: given.Attack) -> tuple[Line, Any]:
    """The line of an attack, and (its plan, its outcome)."""
    from holdfast.attack.cli import attack_plan
    from holdfast.attack.plan import apart, check_attack
    from holdfast.attack.run import as_plain
    from holdfast.attack.run import attack as run
    from holdfast.attack.universal import make_universal

    plan = bench.plan(piece)
    name = f"attack-{plan.model.name}-on-{plan.dataset.name}-{len(plan.dataset)}"
    out = bench.runs / slug(name)
    wanted = attack_plan(plan, work, out, bench.experiment.seed)
    check_attack(wanted)
    wanted = apart(wanted, alignment_of(plan))
    patch = None
    if work.universal != "none":
        with bench.watch(f"universal patch, {piece.title}", work.steps * work.restarts) as step:
            patch = make_universal(wanted, step)
    with bench.watch(piece.title, len(plan.dataset)) as step:
        found = run(wanted, step, patch)
    effect, aimed = found.effects[0], len(found.aimed)
    reached = sum(a.success for a in found.aimed)
    words = [f"{effect.before:.4f} before", f"{reached} of {aimed} images with a target broken"]
    if effect.effect is not None:
        words.insert(1, f"S_e {effect.effect:.3f}")
    if aimed:
        words.append(f"{found.mean(lambda a: a.pixels):.0f} px changed in the mean")
    plain = {key: value for key, value in as_plain(found).items() if key != "images"}
    line = bench.line(
        piece,
        metric="mAP" if work.rule != "coco" else "AP50",
        value=effect.after,
        delta=effect.after - effect.before,
        images=len(found.attempts),
        failed=len(found.failed),
        words="; ".join(words),
        folder=str(wanted.out),
        numbers=plain,
    )
    return line, (wanted, found)


def audit_plan(bench: Bench, piece: Piece, work: given.Audit) -> AuditPlan:
    """The plan of an audit; InputError if a gate names a metric that this model is not measured by."""
    from holdfast.audit.gates import check
    from holdfast.audit.options import AuditOptions
    from holdfast.audit.plan import AuditPlan
    from holdfast.audit.summary import gate_metric

    plan = bench.plan(piece)
    check(bench.experiment.gates, metrics=(gate_metric(plan),))
    spare = bench.spare(piece, work.calibration, IMAGES, part=True)
    return AuditPlan(plan, bench.options(piece, AuditOptions), spare)


def audited(bench: Bench, piece: Piece, work: given.Audit) -> tuple[Line, Any]:
    """The line of an audit with its gates judged, and what the audit made."""
    from holdfast.audit.gates import judge
    from holdfast.audit.result import as_plain
    from holdfast.audit.run import audit

    made = audit(audit_plan(bench, piece, work), bench.watch)
    found = made.found
    judged = judge(bench.experiment.gates, found)
    words = [f"clean of {found.clean.images} images"]
    if found.worst is not None and (found.worst.drop or 0.0) > 0:
        words.append(f"worst single {found.worst.label} costs {found.worst.drop:.4f}")
    if found.findings:
        words.append(f"{len(found.findings)} answers are others under a runtime or precision")
    left = [part.name for part in found.parts if part.left_out]
    words += [f"left out in part: {', '.join(left)}"] if left else []
    broken, open_ones = sum(one.failed for one in judged), sum(not one.decided for one in judged)
    words += [f"{broken} of {len(judged)} gates failed"] if broken else []
    words += [f"{open_ones} of {len(judged)} gates not decided"] if open_ones else []
    line = bench.line(
        piece,
        metric=found.clean.metric,
        value=found.clean.value,
        images=found.clean.images,
        failed=len(found.failed),
        words="; ".join(words),
        folder=str(made.plan.folder),
        gates=tuple(judged),
        numbers=as_plain(found),
    )
    return line, made


def verified(bench: Bench, piece: Piece, work: given.Verify) -> tuple[Line, Any]:
    """The line of one specification; an error of the verifier is one of the piece."""
    from holdfast.core.model import Network
    from holdfast.core.property import Budget
    from holdfast.engine.executor import cores
    from holdfast.graph.load import find_model
    from holdfast.verify.run import verify
    from holdfast.verify.vnnlib import property_of, read_vnnlib

    if piece.spec is None:
        raise InputError(f"{piece.condition.name}: expected a specification, got none")
    path = find_model(piece.model.path)
    question = property_of(read_vnnlib(piece.spec), Network(piece.model.name, path))
    seconds = work.timeout if work.seconds is None else work.seconds
    budget = Budget(seconds, jobs=bench.jobs or cores(), seed=bench.experiment.seed)
    verdict = verify(question, budget)
    if verdict.status == "error":
        raise InputError(verdict.note)
    words = [f"by {verdict.engine}" if verdict.engine != "none" else "", verdict.note]
    plain = {f.name: getattr(verdict, f.name) for f in dataclasses.fields(verdict)}
    kept = {key: plain[key] for key in ("status", "engine", "seconds", "bound", "note", "real_only")}
    witness = None if verdict.witness is None else verdict.witness.ravel().tolist()
    line = bench.line(
        piece,
        metric=verdict.status,
        words="; ".join(part for part in words if part),
        numbers={**kept, "spec": str(piece.spec), "witness": witness},
    )
    return line, verdict
