"""The pieces of an experiment: a function for each thing a condition does, on the engines of the commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.attack.options import AttackSettings
from holdfast.audit.options import AuditSettings
from holdfast.core.errors import InputError
from holdfast.engine.manifest import slug
from holdfast.evaluate.difference import difference
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import EvaluationPlan, alignment_of, evaluate, run_folder
from holdfast.experiment import plan as given
from holdfast.experiment.bench import Bench, Piece
from holdfast.experiment.result import Line
from holdfast.noise.suite import CALIBRATION_ITEMS
from holdfast.noise.vision.run import NoisePlan, measure, prepare, prepare_context

if TYPE_CHECKING:
    from holdfast.audit.plan import AuditPlan

Keep: TypeAlias = Callable[[Piece, Any, Line], Path | None]  # writes the page of a piece, returns its path


def run_piece(bench: Bench, piece: Piece) -> tuple[Line, Any]:
    """Run the piece: its line, and the result itself for whoever writes its page. Its errors are raised."""
    parts: dict[str, Callable[[Bench, Piece, Any], tuple[Line, Any]]] = {
        "evaluate": _evaluate,
        "noise": _noise,
        "attack": _attack,
        "audit": _audit,
        "verify": _verify,
    }
    return parts[piece.condition.do](bench, piece, piece.condition.work)


def check_piece(bench: Bench, piece: Piece) -> int:
    """The number of images of a piece; an error if the model does not fit its data. Nothing is run."""
    model, work = bench.model(piece.model), piece.condition.work
    if piece.data is None:
        return 0
    if isinstance(work, given.Evaluate):
        plan = _evaluation_plan(bench, piece, work)
    elif isinstance(work, AuditSettings):
        plan = _audit_plan(bench, piece, work).plan
    else:
        plan = bench.plan(piece)
    alignment_of(plan)
    if isinstance(work, AttackSettings) and model.card.task not in ("detect", "single"):
        raise InputError(f"{model.name}: expected a detector, got a model to {model.card.task}")
    return len(plan.dataset)


def _evaluation_plan(bench: Bench, piece: Piece, work: given.Evaluate) -> EvaluationPlan:
    plan = bench.plan(piece)
    stated = [name for name in ("rule", "iou", "score") if getattr(work, name) is not None]
    if stated and plan.model.card.task != "detect":
        raise InputError(f"{', '.join(stated)}: a model to {plan.model.card.task} has no AP")
    return plan


def _evaluate(bench: Bench, piece: Piece, work: given.Evaluate) -> tuple[Line, Any]:
    plan, note = _evaluation_plan(bench, piece, work), ""
    if work.noise:
        plan, note = _deployed(bench, piece, plan, work)
    with bench.watch(piece.title, len(plan.dataset)) as step:
        found = evaluate(plan, step)
    metrics = found.result["metrics"]
    metric = next(iter(metrics))  # the main one is first
    failed = f"failed: {len(found.failed)} of the images; first {found.failed[0]}" if found.failed else ""
    line = bench.line(
        piece,
        metric=metric,
        value=metrics[metric],
        images=len(found.records),
        failed=len(found.failed),
        words="; ".join(filter(None, (note, failed))),
        folder=str(run_folder(plan)),
        numbers={**found.result, "pipeline": found.about.pipeline},
    )
    # Others of the same model and data are compared with the first evaluation of the file.
    key = (piece.model.name, bench.data_of(piece).name)
    if piece.condition == next(c for c in bench.experiment.conditions if c.do == "evaluate"):
        bench.first[key] = found
        return line, found
    return _compared(line, bench.first.get(key), found), found


def _compared(line: Line, before: Evaluation | None, after: Evaluation) -> Line:
    """The line with its difference to the first evaluation of the same model on the same data."""
    if before is None:
        return line
    try:
        found = difference(before, after)
    except InputError as problem:
        return replace(line, words="; ".join(filter(None, (line.words, f"no Δ: {problem}"))))
    words = f"{found.changed} of {found.images} predictions changed"
    numbers = {name: getattr(found, name) for name in ("metric", "images", "before", "after", "changed")}
    return replace(
        line,
        delta=found.interval.estimate,
        low=found.interval.low,
        high=found.interval.high,
        words="; ".join(filter(None, (words, line.words))),
        numbers={**line.numbers, "difference": {**numbers, "said": str(found)}},
    )


def _deployed(
    bench: Bench, piece: Piece, plan: EvaluationPlan, work: given.Evaluate
) -> tuple[EvaluationPlan, str]:
    """The plan with options of noise, without the images calibrated on, and what is to be said of it."""
    from holdfast.noise.vision.choose import build_variant
    from holdfast.stages.families import alias_notes, option

    chosen = [option(label) for label in work.noise]
    task = plan.model.card.task
    for one in chosen:
        if task not in one.tasks:
            raise InputError(f"{one.label}: is for models to {', '.join(one.tasks)}; this is one to {task}")
    spare = bench.spare(piece, work.calibration, work.calibration_images)
    noise = NoisePlan(plan, spare=spare, calibration_images=work.calibration_images)
    made = build_variant(prepare_context(noise).context, chosen)
    if made is None:
        return plan, f"{' + '.join(work.noise)} is how the model is fed and run anyway"
    if made.status == "no effect":
        return plan, f"{made.option.label} has no effect: {made.note}"
    if made.variant is None:
        raise InputError(f"{' + '.join(work.noise)}: {made.note}")
    without = made.variant.without
    kept = tuple(entry for entry in plan.dataset.entries if entry.name not in without)
    notes = [*alias_notes(work.noise)]
    notes += [f"{len(without)} images were calibrated on and left out"] if without else []
    dataset = replace(plan.dataset, entries=kept)
    return replace(plan, pipeline=made.variant.pipeline, dataset=dataset), "; ".join(notes)


def _noise(bench: Bench, piece: Piece, work: given.Noise) -> tuple[Line, Any]:
    from holdfast.noise.cli import suite_of
    from holdfast.noise.suite import NoiseSelection
    from holdfast.noise.vision.result import as_plain, save, suite_folder

    began = time.perf_counter()
    plan = bench.plan(piece)
    spare = bench.spare(piece, work.calibration, work.calibration_images)
    wanted = NoiseSelection(work.only, work.skip, work.all)
    noise = NoisePlan(plan, wanted, spare, work.calibration_images)
    found = measure(prepare(noise), bench.watch)
    suite = suite_of([found], noise, plan.command, began)
    folder = suite_folder(suite, bench.runs)
    save(suite, folder)
    worst, both = found.worst, found.combined
    costs = worst is not None and (worst.points_lost or 0.0) > 0
    words = [f"clean {found.clean:.4f}"]
    words.append(f"worst single {worst.label}" if worst and costs else "no single noise costs anything")
    if both is not None and both.points_lost is not None:
        words.append(f"worst of each together {_change(both.points_lost):+.4f}")
    line = bench.line(
        piece,
        metric=found.metric,
        value=worst.value if worst else found.clean,
        delta=_change(worst.points_lost) if worst else 0.0,
        low=_change(worst.high) if worst else None,
        high=_change(worst.low) if worst else None,
        images=found.images,
        failed=len(found.failed),
        words="; ".join(words),
        folder=str(folder),
        numbers=as_plain(suite),
    )
    return line, suite


def _change(points: float | None) -> float | None:
    """Points lost as a change of the metric, 0 to 1."""
    return None if points is None else -points / 100 + 0.0


def _attack(bench: Bench, piece: Piece, work: AttackSettings) -> tuple[Line, Any]:
    """The line of an attack, and (its plan, its outcome)."""
    from holdfast.attack.cli import attack_plan
    from holdfast.attack.plan import apart, check_attack
    from holdfast.attack.run import as_plain
    from holdfast.attack.run import attack as run
    from holdfast.attack.universal import make_universal

    plan = bench.plan(piece)
    name = slug(f"attack-{plan.model.name}-on-{plan.dataset.name}-{len(plan.dataset)}")
    wanted = attack_plan(plan, work, bench.runs / name, bench.experiment.seed)
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
    line = bench.line(
        piece,
        metric="mAP" if work.rule != "coco" else "AP50",
        value=effect.after,
        delta=effect.after - effect.before,
        images=len(found.attempts),
        failed=len(found.failed),
        words="; ".join(words),
        folder=str(wanted.out),
        numbers={key: value for key, value in as_plain(found).items() if key != "images"},
    )
    return line, (wanted, found)


def _audit_plan(bench: Bench, piece: Piece, work: AuditSettings) -> AuditPlan:
    """The plan of an audit; InputError if a gate names a metric that this model is not measured by."""
    from holdfast.audit.gates import check
    from holdfast.audit.options import AuditOptions
    from holdfast.audit.plan import AuditPlan
    from holdfast.audit.state import gate_metric

    plan = bench.plan(piece)
    check(bench.experiment.gates, metrics=(gate_metric(plan),))
    spare = bench.spare(piece, work.calibration, CALIBRATION_ITEMS, part=True)
    return AuditPlan(plan, bench.options(piece, AuditOptions), spare)


def _audit(bench: Bench, piece: Piece, work: AuditSettings) -> tuple[Line, Any]:
    """The line of an audit with its gates judged, and what the audit made."""
    from holdfast.audit.gates import judge
    from holdfast.audit.result import as_plain
    from holdfast.audit.run import audit

    state = audit(_audit_plan(bench, piece, work), bench.watch)
    found = state.result
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
        folder=str(state.plan.folder),
        gates=tuple(judged),
        numbers=as_plain(found),
    )
    return line, state


def _verify(bench: Bench, piece: Piece, work: given.Verify) -> tuple[Line, Any]:
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
    kept = ("status", "engine", "seconds", "bound", "note", "real_only")
    numbers = {key: getattr(verdict, key) for key in kept}
    witness = None if verdict.witness is None else verdict.witness.ravel().tolist()
    line = bench.line(
        piece,
        metric=verdict.status,
        words="; ".join(filter(None, words)),
        numbers={**numbers, "spec": str(piece.spec), "witness": witness},
    )
    return line, verdict
