"""The trials of an experiment: one function per kind of condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.attack.options import AttackSettings
from holdfast.audit.options import AuditSettings
from holdfast.core.errors import InputError
from holdfast.core.model import MODEL_KINDS
from holdfast.engine.manifest import slug
from holdfast.evaluate.difference import difference
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import EvaluationPlan, alignment_of, evaluate, run_folder
from holdfast.experiment import plan as definitions
from holdfast.experiment.context import ExperimentContext, Trial
from holdfast.experiment.result import TrialResult
from holdfast.noise.suite import CALIBRATION_ITEMS
from holdfast.noise.vision.run import NoisePlan, measure, prepare, prepare_context

if TYPE_CHECKING:
    from holdfast.audit.plan import AuditPlan

# Writes the page of a trial and returns its path.
Keep: TypeAlias = Callable[[Trial, Any, TrialResult], Path | None]


def run_trial(context: ExperimentContext, trial: Trial) -> tuple[TrialResult, Any]:
    """Run the trial: its result, and the full result for its page. Errors are raised."""
    runners: dict[str, Callable[[ExperimentContext, Trial, Any], tuple[TrialResult, Any]]] = {
        "evaluate": _evaluate, "noise": _noise, "attack": _attack, "audit": _audit, "verify": _verify,
    }  # fmt: skip
    return runners[trial.condition.do](context, trial, trial.condition.work)


def check_trial(context: ExperimentContext, trial: Trial) -> int:
    """The number of images of a trial. Raise an error if model and dataset do not match. Nothing is run."""
    model, work = context.model(trial.model), trial.condition.work
    if trial.data is None:
        return 0
    if isinstance(work, definitions.Evaluate):
        plan = _evaluation_plan(context, trial, work)
    elif isinstance(work, AuditSettings):
        plan = _audit_plan(context, trial, work).plan
    else:
        plan = context.plan(trial)
    alignment_of(plan)
    if isinstance(work, AttackSettings) and model.card.task not in ("detect", "single"):
        raise InputError(f"{model.name}: expected a detector, got a {MODEL_KINDS[model.card.task]}")
    return len(plan.dataset)


def _evaluation_plan(context: ExperimentContext, trial: Trial, work: definitions.Evaluate) -> EvaluationPlan:
    plan = context.plan(trial)
    ap_options = [name for name in ("rule", "iou", "score") if getattr(work, name) is not None]
    if ap_options and plan.model.card.task != "detect":
        raise InputError(f"{', '.join(ap_options)}: a {MODEL_KINDS[plan.model.card.task]} has no AP")
    return plan


def _evaluate(
    context: ExperimentContext, trial: Trial, work: definitions.Evaluate
) -> tuple[TrialResult, Any]:
    plan, note = _evaluation_plan(context, trial, work), ""
    if work.noise:
        plan, note = _deployed(context, trial, plan, work)
    with context.watch(trial.title, len(plan.dataset)) as step:
        evaluation = evaluate(plan, step)
    metrics = evaluation.result["metrics"]
    metric = next(iter(metrics))  # the main one is first
    failed = len(evaluation.failed)
    line = context.result(
        trial,
        note,
        f"{failed} images failed; first: {evaluation.failed[0]}" if failed else "",
        metric=metric,
        value=metrics[metric],
        images=len(evaluation.records),
        failed=failed,
        folder=str(run_folder(plan)),
        numbers={**evaluation.result, "pipeline": evaluation.about.pipeline},
    )
    # Other evaluations of the same model and dataset are compared with the first one of the file.
    key = (trial.model.name, context.data_of(trial).name)
    if trial.condition == next(c for c in context.experiment.conditions if c.do == "evaluate"):
        context.first[key] = evaluation
        return line, evaluation
    return _with_loss(line, context.first.get(key), evaluation), evaluation


def _with_loss(line: TrialResult, before: Evaluation | None, after: Evaluation) -> TrialResult:
    if before is None:
        return line
    try:
        change = difference(before, after)
    except InputError as problem:
        return replace(line, notes="; ".join(filter(None, (line.notes, f"no points lost: {problem}"))))
    words = f"predictions changed in {change.changed} of {change.images} images"
    numbers = {name: getattr(change, name) for name in ("metric", "images", "before", "after", "changed")}
    # From a change of the metric (0 to 1) to points lost, without a negative zero.
    ends = (change.interval.estimate, change.interval.high, change.interval.low)
    lost, low, high = (-100 * end + 0.0 for end in ends)
    notes = "; ".join(filter(None, (words, line.notes)))
    numbers = {**line.numbers, "difference": {**numbers, "said": str(change)}}
    return replace(line, points_lost=lost, low=low, high=high, notes=notes, numbers=numbers)


def _deployed(
    context: ExperimentContext, trial: Trial, plan: EvaluationPlan, work: definitions.Evaluate
) -> tuple[EvaluationPlan, str]:
    """The plan with noise options and without calibration images, and its notes."""
    from holdfast.noise.vision.choose import build_variant
    from holdfast.stages.families import alias_notes, option

    selected = [option(label) for label in work.noise]
    task = plan.model.card.task
    for noise_option in selected:
        if task not in noise_option.tasks:
            kinds = " or ".join(f"{MODEL_KINDS[task]}s" for task in noise_option.tasks)
            raise InputError(f"{noise_option.label} applies to {kinds}; this model is a {MODEL_KINDS[task]}")
    calibration = context.calibration_data(trial, work.calibration, work.calibration_images)
    noise = NoisePlan(plan, calibration_data=calibration, calibration_images=work.calibration_images)
    candidate = build_variant(prepare_context(noise).context, selected)
    if candidate is None:
        return plan, f"{' + '.join(work.noise)} is the training pipeline"
    if candidate.status == "no effect":
        return plan, f"{candidate.option.label} has no effect: {candidate.note}"
    if candidate.variant is None:
        raise InputError(f"{' + '.join(work.noise)}: {candidate.note}")
    without = candidate.variant.without
    remaining = tuple(entry for entry in plan.dataset.entries if entry.name not in without)
    notes = [*alias_notes(work.noise)]
    notes += [f"{len(without)} calibration images skipped"] if without else []
    dataset = replace(plan.dataset, entries=remaining)
    return replace(plan, pipeline=candidate.variant.pipeline, dataset=dataset), "; ".join(notes)


def _noise(context: ExperimentContext, trial: Trial, work: definitions.Noise) -> tuple[TrialResult, Any]:
    from holdfast.noise.cli import selection_of, suite_of
    from holdfast.noise.vision.result import as_plain, save, suite_folder

    began = time.perf_counter()
    plan = context.plan(trial)
    calibration = context.calibration_data(trial, work.calibration, work.calibration_images)
    selection = selection_of(work)
    noise = NoisePlan(plan, selection, calibration, work.calibration_images)
    result = measure(prepare(noise), context.watch)
    suite = suite_of([result], noise, plan.command, began)
    folder = suite_folder(suite, context.runs)
    save(suite, folder)
    worst, combined = result.worst, result.combined
    notes = [f"clean {result.clean:.4f}", "no single noise loses accuracy"]
    if worst and (worst.points_lost or 0.0) > 0:
        notes[1] = f"worst single noise {worst.label}"
    if combined is not None and combined.points_lost is not None:
        notes.append(f"combined: {combined.points_lost:z.2f} points lost")
    loss: dict[str, Any] = {"value": result.clean, "points_lost": 0.0}
    if worst:
        loss = {name: getattr(worst, name) for name in ("value", "points_lost", "low", "high")}
    line = context.result(
        trial,
        *notes,
        **loss,
        metric=result.metric,
        images=result.images,
        failed=len(result.failed),
        folder=str(folder),
        numbers=as_plain(suite),
    )
    return line, suite


def _attack(context: ExperimentContext, trial: Trial, work: AttackSettings) -> tuple[TrialResult, Any]:
    """The result of an attack, and (its plan, its outcome)."""
    from holdfast.attack.cli import attack_plan
    from holdfast.attack.plan import apart, check_attack, is_scattered
    from holdfast.attack.run import add_contiguous, as_plain
    from holdfast.attack.run import attack as run
    from holdfast.attack.universal import make_universal

    plan = context.plan(trial)
    name = slug(f"attack-{plan.model.name}-on-{plan.dataset.name}-{len(plan.dataset)}")
    planned = attack_plan(plan, work, context.runs / name, context.experiment.seed)
    check_attack(planned)
    planned = apart(planned, alignment_of(plan))
    patch = None
    if work.universal != "none":
        with context.watch(f"universal patch, {trial.title}", work.steps * work.restarts) as step:
            patch = make_universal(planned, step)
    with context.watch(trial.title, len(plan.dataset)) as step:
        result = run(planned, step, patch)
    if work.contiguous and is_scattered(planned):
        with context.watch(f"contiguous squares, {trial.title}", len(plan.dataset)) as step:
            result = add_contiguous(result, planned, step)
    effect, aimed = result.effects[0], len(result.aimed)
    succeeded = sum(a.success for a in result.aimed)
    contiguous = result.contiguous
    line = context.result(
        trial,
        f"{effect.before:.4f} before",
        f"S_e {effect.effect:.3f}" if effect.effect is not None else "",
        f"success in {succeeded} of {aimed} images",
        f"{result.mean(lambda a: a.pixels):.0f} px changed on average" if aimed else "",
        f"contiguous squares: {contiguous.effects[0].after:.4f}" if contiguous else "",
        metric="mAP" if work.rule != "coco" else "AP50",
        value=effect.after,
        points_lost=100 * (effect.before - effect.after),
        images=len(result.attempts),
        failed=len(result.failed),
        folder=str(planned.out),
        numbers={key: value for key, value in as_plain(result).items() if key != "images"},
    )
    return line, (planned, result)


def _audit_plan(context: ExperimentContext, trial: Trial, work: AuditSettings) -> AuditPlan:
    """The plan of an audit; raise InputError if a gate names a metric that the model does not have."""
    from holdfast.audit.gates import check
    from holdfast.audit.options import AuditOptions
    from holdfast.audit.plan import AuditPlan
    from holdfast.audit.state import gate_metric

    plan = context.plan(trial)
    check(context.experiment.gates, metrics=(gate_metric(plan),))
    calibration = context.calibration_data(trial, work.calibration, CALIBRATION_ITEMS, part=True)
    return AuditPlan(plan, context.options(trial, AuditOptions), calibration)


def _audit(context: ExperimentContext, trial: Trial, work: AuditSettings) -> tuple[TrialResult, Any]:
    from holdfast.audit.gates import judge
    from holdfast.audit.result import as_plain
    from holdfast.audit.run import audit

    state = audit(_audit_plan(context, trial, work), context.watch)
    result = state.result
    verdicts = judge(context.experiment.gates, result)
    notes = [f"clean, n = {result.clean.images}"]
    if result.worst is not None and (result.worst.points_lost or 0.0) > 0:
        notes.append(f"worst single noise {result.worst.label}: {result.worst.points_lost:.2f} points lost")
    if result.findings:
        notes.append(f"{len(result.findings)} answers change under a runtime or precision")
    skipped = ", ".join(part.name for part in result.parts if part.skipped)
    notes += [f"skipped partly: {skipped}"] if skipped else []
    for word in ("failed", "not decided"):
        count = sum(verdict.verdict == word for verdict in verdicts)
        notes += [f"{count} of {len(verdicts)} gates {word}"] if count else []
    line = context.result(
        trial,
        *notes,
        metric=result.clean.metric,
        value=result.clean.value,
        images=result.clean.images,
        failed=len(result.failed),
        folder=str(state.plan.folder),
        gates=tuple(verdicts),
        numbers=as_plain(result),
    )
    return line, state


def _verify(context: ExperimentContext, trial: Trial, work: definitions.Verify) -> tuple[TrialResult, Any]:
    """The result of one specification; an error of the verifier is an error of the trial."""
    from holdfast.core.model import Network
    from holdfast.core.property import Budget
    from holdfast.engine.executor import cores
    from holdfast.graph.load import find_model
    from holdfast.verify.run import verify
    from holdfast.verify.vnnlib import property_of, read_vnnlib

    if trial.spec is None:
        raise InputError(f"{trial.condition.name}: expected a specification, got none")
    path = find_model(trial.model.path)
    question = property_of(read_vnnlib(trial.spec), Network(trial.model.name, path))
    seconds = work.timeout if work.seconds is None else work.seconds
    budget = Budget(seconds, jobs=context.jobs or cores(), seed=context.experiment.seed)
    verdict = verify(question, budget)
    if verdict.status == "error":
        raise InputError(verdict.note)
    engine = f"by {verdict.engine}" if verdict.engine != "none" else ""
    keys = ("status", "engine", "seconds", "bound", "note", "real_only")
    witness = None if verdict.witness is None else verdict.witness.ravel().tolist()
    numbers = {**{key: getattr(verdict, key) for key in keys}, "spec": str(trial.spec), "witness": witness}
    return context.result(trial, engine, verdict.note, metric=verdict.status, numbers=numbers), verdict
