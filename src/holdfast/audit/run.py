"""An audit from end to end: every part within its share of the time budget."""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import replace

from holdfast.audit.attack_levels import patch_method
from holdfast.audit.attack_part import attack_part
from holdfast.audit.matrix import matrix_part
from holdfast.audit.plan import (
    LATE,
    NO_CALIBRATION,
    AuditPlan,
    Clock,
    ProgressFile,
    open_clock,
    skipped_images,
)
from holdfast.audit.recheck import recheck
from holdfast.audit.result import Part, save
from holdfast.audit.specs import decide_specs, questions_of, recheck_specs
from holdfast.audit.square_map import proofs_of
from holdfast.audit.squares import SquaresPlan, survey
from holdfast.audit.state import AuditState, PartOutcome, audit_of, side_of_evaluation
from holdfast.core.errors import BudgetSpent, DataError, HoldfastError, InputError
from holdfast.core.pipeline import load_pipeline
from holdfast.core.result import in_folder
from holdfast.engine.execution import PartFinished, cell_store, current
from holdfast.engine.executor import cores
from holdfast.engine.pipelines import SHARD
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, evaluate, run_folder
from holdfast.metrics.points import ENOUGH
from holdfast.noise.cli import suite_of
from holdfast.noise.suite import CALIBRATION_ITEMS as CALIBRATION_IMAGES
from holdfast.noise.suite import NoiseSelection, Watch, no_progress
from holdfast.noise.vision.combine import combine
from holdfast.noise.vision.result import save as save_suite
from holdfast.noise.vision.result import suite_folder
from holdfast.noise.vision.run import NoisePlan, measure, prepare
from holdfast.stages.deployed import DeployedInference
from holdfast.stages.families import families, options

SHORT = 20.0  # seconds within which one process finishes more images than several
LEAST = 4  # images evaluated regardless of the time
CALIBRATIONS = 5  # runs over the calibration images, about
SPEC = 60.0  # seconds for a specification, at most
RECHECKED = ("precision", "runtime")  # families under which proofs and counterexamples are replayed
COARSE = 64  # positions of a square below which fewer images are better than fewer positions


def audit(plan: AuditPlan, watch: Watch = no_progress, began: float | None = None) -> AuditState:
    """Run the audit and save it in its folder; one that was killed, or late, continues where it stopped.

    Its time runs from `began` (of time.monotonic) or now. Every part stops at its share of the time left,
    with what it has finished; the result says what was skipped.
    """
    if current().part and plan.options.budget_seconds:
        raise InputError(
            "--part: an audit with a time budget cannot be divided, because each part would plan other work; "
            "add --budget none"
        )
    questions_of(plan.plan.model, plan.options.spec)  # report a bad file before the first part runs
    patch_method(plan.options)  # and a bad size
    clock = open_clock(plan, began)
    state = AuditState(plan)
    progress = ProgressFile(plan.folder, plan.options.parts, watch)
    runners: dict[str, Callable[[AuditState, Clock, Watch], PartOutcome]] = {
        "evaluate": _evaluate, "noise": _noise, "combine": _combine, "attack": attack_part,
        "squares": _squares, "specs": _specs, "matrix": matrix_part, "recheck": _recheck,
    }  # fmt: skip
    finished: PartFinished | None = None  # with --part: cells of other parts are missing
    try:
        for name in plan.options.parts:
            progress.enter(name)
            planned, began = clock.seconds(name), time.monotonic()
            skipped = PartOutcome(0, LATE)
            try:
                outcome = runners[name](state, clock, progress.watching) if clock.starts(name) else skipped
            except PartFinished as problem:
                finished = problem
                continue
            clock.done.append(name)
            if not outcome.applies:
                state.notes.append(f"{name}: {outcome.skipped}")
                continue
            seconds = round(time.monotonic() - began, 3)
            planned = 0.0 if planned == math.inf else round(planned, 1)
            of, why = len(plan.plan.dataset), outcome.skipped
            command = state.full_line(name) if why else ""
            part = Part(name, outcome.images, of, seconds, planned, skipped=why, command=command)
            state.parts.append(part)
        if finished:
            raise finished
        if clock.before:
            state.notes.append("continued: the previous run of this command stopped at its time budget")
        clock.end(state.parts)
        state.audit = audit_of(state, clock.elapsed)
        save(in_folder(state.audit, plan.folder), plan.folder)
    except BaseException as problem:
        ended = "cancelled" if isinstance(problem, KeyboardInterrupt | PartFinished) else "failed"
        with contextlib.suppress(HoldfastError):  # a full disk: report the first problem, not this one
            progress.write(ended, why=str(problem))
        raise
    progress.write("done")
    return state


def _plan(state: AuditState, count: int, until: float = math.inf) -> EvaluationPlan:
    """The plan on the first images of the dataset, with as few images per cell as the time requires."""
    plan = _in_time(state.plan.plan, until)
    source = {**plan.source, "images": count}
    return replace(plan, dataset=plan.dataset.first(count), source=source, shard=state.shard)


def _in_time(plan: EvaluationPlan, until: float) -> EvaluationPlan:
    """The plan that stops at `until`; in one process if starting others would take longer than it saves."""
    short = until - time.monotonic() < SHORT
    return replace(plan, until=until, jobs=1 if short else plan.jobs)


def _evaluate(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    plan = state.plan.plan
    whole = len(plan.dataset)
    state.seconds_an_image = _seconds_per_image(state)
    # Images per cell so that the longest part, the noises, can stop ten times within its share.
    shard = clock.seconds("noise") / (10 * _options(state) * state.seconds_an_image)
    state.shard = clock.number("shard", None, shard, 1, SHARD)
    count = clock.finished("evaluate") or whole
    enough = min(0.25 * state.plan.options.budget_seconds, 1.5 * ENOUGH * state.seconds_an_image)
    seconds = max(clock.seconds("evaluate"), enough)
    until = math.inf if clock.finished("evaluate") else time.monotonic() + seconds
    with watch(f"evaluate {plan.model.name}", count) as step:
        try:
            state.evaluation = evaluate(_plan(state, count, until), step)
        except BudgetSpent:  # there is no audit without an evaluation
            count = min(whole, LEAST)
            state.evaluation = evaluate(replace(_plan(state, count), jobs=1), step)
    done = clock.ended("evaluate", min(count, len(state.evaluation.cells or ())))
    if done < count:  # its cells are there: the evaluation of these images alone
        state.evaluation = evaluate(replace(_plan(state, done), jobs=1))
    if math.isnan(side_of_evaluation(state.evaluation, plan.settings).value):
        raise DataError(
            f"{plan.dataset.name}: none of the {done} evaluated images has ground truth of a class that the "
            "metric counts; use a dataset with ground truth"
        )
    state.runs["evaluation"] = run_folder(_plan(state, done)).name
    return PartOutcome(done, skipped_images(done, whole))


def _options(state: AuditState) -> int:
    """The approximate number of noise options."""
    task = state.plan.plan.model.card.task
    return sum(task in o.tasks and o.default and not o.missing for f in families() for o in options(f))


def _seconds_per_image(state: AuditState, images: int = 6) -> float:
    """Seconds per image of the training pipeline, all cores together."""
    machine = load_pipeline(state.pipeline, state.plan.plan.model)
    times = []
    for entry in state.plan.plan.dataset.entries[: images + 1]:
        try:
            data = entry.load().data
            began = time.perf_counter()
            machine.predict(machine.prepare(data))
            times.append(time.perf_counter() - began)
        except HoldfastError:  # reported when it is evaluated
            continue
    return max(1e-4, sorted(times)[len(times) // 2]) if times else 0.05


def _noise(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    plan, whole = state.plan.plan, len(state.plan.plan.dataset)
    until, seconds = clock.until("noise"), clock.seconds("noise")
    allowed = seconds / (_options(state) * state.seconds_an_image)
    count = clock.number("noise", state.plan.options.noise_images, allowed, min(whole, ENOUGH), whole)
    skipped = _slow_options(state, clock, seconds)
    began = time.perf_counter()
    selection = NoiseSelection(skip=tuple(skipped))
    calibration, replicates = state.plan.calibration, state.plan.replicates
    noise = NoisePlan(_plan(state, count, until), selection, calibration, replicates=replicates)
    done = clock.finished("noise")
    if done == 0:
        return PartOutcome(0, LATE)
    prepared = prepare(noise)
    try:
        prepared = prepared if done is None else prepared.first(done)
        result = measure(prepared, watch, clock.finished("noise together") != 0)
    except BudgetSpent:
        clock.ended("noise", 0)
        return PartOutcome(
            0, f"{LATE}: no image was finished under all {len(prepared.variants)} options in {seconds:.0f} s"
        )
    done = clock.ended("noise", min(count, len(result.items)))
    clock.ended("noise together", int(result.combined is not None))
    elapsed = time.perf_counter() - began
    state.prepared = prepared.first(done).within(math.inf)
    state.counts["noise"] = done
    if until < math.inf:
        state.seconds_an_image = max(state.seconds_an_image, elapsed / (done * len(prepared.variants)))
    state.suite = suite_of([result], noise, state.plan.noise_line(done, skip=tuple(skipped)), began)
    folder = suite_folder(state.suite, plan.runs)
    save_suite(state.suite, folder)
    state.runs["noise"] = folder.name
    notes = [skipped_images(done, whole, state.plan.options.noise_images)]
    notes += [f"{', '.join(skipped)} ({NO_CALIBRATION})"] if skipped else []
    return PartOutcome(done, "; ".join(filter(None, notes)))


def _slow_options(state: AuditState, clock: Clock, seconds: float) -> list[str]:
    """The calibrated options, if calibration would take too much of the time for noise."""
    cost = CALIBRATIONS * CALIBRATION_IMAGES * state.seconds_an_image
    if clock.number("calibrate", None, float(cost <= 0.4 * seconds), 0, 1):
        return []
    default = [o for family in families() for o in options(family) if o.default and not o.missing]
    infers = {o.label: o.noise(state.pipeline).infer for o in default}
    return [label for label, i in infers.items() if isinstance(i, DeployedInference) and i.calibrated]


def _combine(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    if state.prepared is None or state.noise is None:
        return PartOutcome(0, "no noise was measured")
    if not any(r.outcome == "measured" and not r.hypothetical for r in state.noise.rows):
        return PartOutcome(0, "no noise option has an effect", False)
    most = clock.finished("combine")
    with contextlib.suppress(BudgetSpent):
        if most != 0:
            prepared = state.prepared.within(clock.until("combine"))
            state.combination = combine(prepared, state.noise, watch, most=most)
    if not clock.ended("combine", len(state.combination.steps) if state.combination else 0):
        state.combination = None
        return PartOutcome(0, LATE)
    late = state.combination is not None and any(LATE in text for text in state.combination.skipped)
    return PartOutcome(state.noise.images, f"the last steps of the combination ({LATE})" if late else "")


def _squares(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    plan, whole = state.plan.plan, len(state.plan.plan.dataset)
    if plan.model.card.task == "segment":
        return PartOutcome(0, "a segmenter has no detections for a square to hide", False)
    count = _square_count(state, clock, whole)
    before, until = clock.finished("squares"), clock.until("squares")
    try:
        if before == 0:
            raise BudgetSpent(LATE)
        result = survey(_squares_plan(state, before or count, until), watch)
    except BudgetSpent:
        clock.ended("squares", 0)
        return PartOutcome(0, f"all images ({LATE} before the first was finished)")
    count = clock.ended("squares", result.images)
    state.maps = result.maps
    state.notes += [f"squares: {result.note}"] if result.note else []
    state.counts["square"] = count
    state.proofs += proofs_of(state.maps, state.repeat_line("squares"))
    return PartOutcome(count, skipped_images(count, whole, state.plan.options.square_images))


def _square_count(state: AuditState, clock: Clock, whole: int) -> int:
    """The number of images for the square, after the number of positions has been reduced to fit the time.

    The images of the attack are covered if a coarse grid allows it, because the matrix needs both.
    """
    options, many = state.plan.options, len(state.outcome.attempts) if state.outcome else 0
    affordable = clock.seconds("squares") / state.seconds_an_image  # places in all
    coarse = min(COARSE, options.places)
    images = min(many, affordable / coarse) if many else affordable / options.places
    count = clock.number("squares", options.square_images, max(images, affordable / options.places), 1, whole)
    if options.budget_seconds and options.square_images is None:
        state.places = clock.number("places", None, affordable / count, coarse, options.places)
    else:
        state.places = options.places
    return count


def _specs(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    files, plan = state.plan.options.spec, state.plan.plan
    if not files:
        return PartOutcome(0, "no VNN-LIB specification (--spec FILE)", False)
    seconds = min(clock.seconds("specs"), SPEC * len(files))
    with watch("specifications", len(files)) as step:
        store = cell_store(plan.runs / CELLS)
        state.spec_verdicts = decide_specs(plan.model, files, seconds, store, plan.jobs or cores(), step)
    state.proofs += tuple(verdict.proof for verdict in state.spec_verdicts)
    unknown = sum(verdict.proof.answer == "unknown" for verdict in state.spec_verdicts)
    late = f"{unknown} of {len(files)} specifications (not decided within {seconds:.0f} s)"
    return PartOutcome(0, late if unknown else "")


def _recheck(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    if state.prepared is None:
        return PartOutcome(0, "no precision or runtime was available")
    built = [c.variant for c in state.prepared.candidates if c.option.family in RECHECKED]
    under = {variant.name: variant.pipeline for variant in built if variant is not None}
    if not under or not state.proofs:
        why = "no precision or runtime applies" if state.proofs else "there is no proof or counterexample"
        return PartOutcome(0, why, False)
    allowed = clock.seconds("recheck") / (max(1, len(state.maps)) * len(under) * state.seconds_an_image)
    places = clock.number("recheck places", None, allowed, 8, state.places or state.plan.options.places)
    total = sum(m.answer != "unknown" for m in state.maps) * len(under)
    until = clock.until("recheck")
    if state.maps:
        squares = _squares_plan(state, len(state.plan.plan.dataset), until)
        with contextlib.suppress(BudgetSpent):
            state.rechecks += recheck(squares, state.maps, under, watch, places, clock.finished("recheck"))
    done = clock.ended("recheck", len(state.rechecks))
    if state.spec_verdicts:
        seconds = min(clock.seconds("recheck"), SPEC)
        state.rechecks += recheck_specs(state.plan.plan.model, state.spec_verdicts, under, seconds)
    notes = [f"{total - done} of {total} rechecks ({LATE})"] if done < total else []
    notes += [f"all but the {places} worst positions of every square"] if places < state.places else []
    return PartOutcome(len(state.maps), "; ".join(notes))


def _squares_plan(state: AuditState, count: int, until: float = math.inf) -> SquaresPlan:
    """The plan of the square on the first images, with the planned number of positions."""
    options, plan = state.plan.options, state.plan.plan
    plan = replace(_in_time(plan, until), dataset=plan.dataset.first(count))
    return SquaresPlan(plan, state.pipeline, share=options.square, most=state.places or options.places)
