"""The pieces of an experiment: a function for each thing a condition does, on the engines of the commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import InputError
from holdfast.engine.manifest import now
from holdfast.engine.versions import versions
from holdfast.evaluate.difference import difference
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import Plan, alignment_of, evaluate, run_folder
from holdfast.experiment import plan as given
from holdfast.experiment.bench import Bench, Piece
from holdfast.experiment.result import Line
from holdfast.experiment.struck import attacked, audit_plan, audited, verified
from holdfast.noise.vision.run import NoisePlan, measure, prepare, prepare_context


@dataclass(frozen=True)
class Done:
    """The line of a piece, and the thing itself for whoever writes its page."""

    line: Line
    made: Any = None


def run_piece(bench: Bench, piece: Piece) -> Done:
    """The piece, run; its errors are the caller's."""
    work = piece.condition.work
    if isinstance(work, given.Evaluate):
        return _evaluated(bench, piece, work)
    if isinstance(work, given.Noise):
        return _noised(bench, piece, work)
    if isinstance(work, given.Attack):
        return Done(*attacked(bench, piece, work))
    if isinstance(work, given.Audit):
        return Done(*audited(bench, piece, work))
    return Done(*verified(bench, piece, work))


def check_piece(bench: Bench, piece: Piece) -> int:
    """The number of images of a piece; an error if the model does not fit its data. Nothing is run."""
    model, work = bench.model(piece.model), piece.condition.work
    if piece.data is None:
        return 0
    if isinstance(work, given.Evaluate):
        plan = _evaluation_plan(bench, piece, work)
    elif isinstance(work, given.Audit):
        plan = audit_plan(bench, piece, work).plan
    else:
        plan = bench.plan(piece)
    alignment_of(plan)
    if isinstance(work, given.Attack) and model.card.task not in ("detect", "single"):
        raise InputError(f"{model.name}: expected a detector, got a model to {model.card.task}")
    return len(plan.dataset)


def _evaluation_plan(bench: Bench, piece: Piece, work: given.Evaluate) -> Plan:
    plan = bench.plan(piece)
    stated = [name for name in ("rule", "iou", "score") if getattr(work, name) is not None]
    if stated and plan.model.card.task != "detect":
        raise InputError(f"{', '.join(stated)}: a model to {plan.model.card.task} has no AP")
    return plan


def _evaluated(bench: Bench, piece: Piece, work: given.Evaluate) -> Done:
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
        words="; ".join(part for part in (note, failed) if part),
        folder=str(run_folder(plan)),
        numbers={**found.result, "pipeline": found.about.pipeline},
    )
    key = (piece.model.name, bench.data_of(piece).name)
    if bench.is_first(piece):
        bench.first[key] = found
        return Done(line, found)
    return Done(_compared(line, bench.first.get(key), found), found)


def _compared(line: Line, before: Evaluation | None, after: Evaluation) -> Line:
    """The line with its difference to the first evaluation of the same model on the same data."""
    if before is None:
        return line
    try:
        found = difference(before, after)
    except InputError as problem:
        return replace(line, words="; ".join(part for part in (line.words, f"no Δ: {problem}") if part))
    words = f"{found.changed} of {found.images} predictions changed"
    return replace(
        line,
        delta=found.interval.estimate,
        low=found.interval.low,
        high=found.interval.high,
        words="; ".join(part for part in (words, line.words) if part),
        numbers={
            **line.numbers,
            "difference": {
                "metric": found.metric, "images": found.images, "before": found.before,
                "after": found.after, "changed": found.changed, "said": str(found),
            },
        },
    )  # fmt: skip


def _deployed(bench: Bench, piece: Piece, plan: Plan, work: given.Evaluate) -> tuple[Plan, str]:
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


def _noised(bench: Bench, piece: Piece, work: given.Noise) -> Done:
    from holdfast.noise.suite import NoiseSelection
    from holdfast.noise.vision.result import Suite, as_plain, save, suite_folder

    began = time.perf_counter()
    plan = bench.plan(piece)
    spare = bench.spare(piece, work.calibration, work.calibration_images)
    wanted = NoiseSelection(work.only, work.skip, work.all)
    found = measure(prepare(NoisePlan(plan, wanted, spare, work.calibration_images)), bench.watch)
    seconds = round(time.perf_counter() - began, 3)
    created = now()
    suite = Suite(
        plan.dataset.name,
        (found,),
        command=plan.command,
        created=created,
        seconds=seconds,
        versions=versions(),
    )
    folder = suite_folder(suite, bench.runs)
    save(suite, folder)
    worst, both = found.worst, found.combined
    costs = worst is not None and (worst.drop or 0.0) > 0
    words = [f"clean {found.clean:.4f}"]
    words.append(f"worst single {worst.label}" if worst and costs else "no single noise costs anything")
    if both is not None and both.drop is not None:
        words.append(f"worst of each together {_change(both.drop):+.4f}")
    line = bench.line(
        piece,
        metric=found.metric,
        value=worst.value if worst else found.clean,
        delta=_change(worst.drop) if worst else 0.0,
        low=_change(worst.high) if worst else None,
        high=_change(worst.low) if worst else None,
        images=found.images,
        failed=len(found.failed),
        words="; ".join(words),
        folder=str(folder),
        numbers=as_plain(suite),
    )
    return Done(line, suite)


def _change(points: float | None) -> float | None:
    """Points lost as a change of the metric, 0 to 1."""
    return None if points is None else -points / 100 + 0.0


Keep = Callable[[Piece, Any, Line], Path | None]  # writes the page of a piece, gives its path
