"""An audit from end to end: every part within its share of the time, each on what the one before found."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Sequence

from holdfast.audit.cross import SPEC, fewer, matrix_part, recheck_part, squares_plan
from holdfast.audit.made import Made, Ran
from holdfast.audit.options import ENOUGH
from holdfast.audit.plan import LATE, AuditPlan, Clock, open_clock
from holdfast.audit.progress import Board
from holdfast.audit.result import Part, save
from holdfast.audit.specs import decided, questions_of
from holdfast.audit.squares import run as black
from holdfast.audit.squares.map import proofs_of
from holdfast.audit.strike import strikes
from holdfast.audit.summary import audit_of, side_of_evaluation
from holdfast.core.errors import BudgetSpent, DataError, HoldfastError
from holdfast.core.pipeline import open_machine
from holdfast.engine.executor import cores
from holdfast.engine.manifest import now
from holdfast.engine.pipelines import SHARD
from holdfast.engine.store import Store
from holdfast.engine.versions import versions
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import Plan, evaluate, run_folder
from holdfast.noise.suite import CALIBRATION_ITEMS, NoiseSelection, Watch, unwatched
from holdfast.noise.vision.combine import combine
from holdfast.noise.vision.result import Suite, suite_folder
from holdfast.noise.vision.result import save as save_suite
from holdfast.noise.vision.run import NoisePlan, measure, prepare
from holdfast.stages.deployed import Deployed
from holdfast.stages.families import families, options

SHORT = 20.0  # seconds within which one process evaluates more images than several
LEAST = 4  # images that are evaluated whatever the time
CALIBRATIONS = 5  # how often the calibration images are run, about
COARSE = 64  # places of a square below which an image less is better than a place less


def audit(plan: AuditPlan, watch: Watch = unwatched, began: float | None = None) -> Made:
    """Everything the audit found, saved in its folder; a killed one goes on where it was.

    Its time runs from `began` (of time.monotonic) or now. Every part stops at its share of the time left,
    with what it has finished; the result says what was skipped.
    """
    questions_of(plan.plan.model, plan.options.spec)  # a file that is none is told now, not after minutes
    clock = open_clock(plan, began)
    made = Made(plan)
    board = Board(plan.folder, plan.options.parts, watch)
    works: dict[str, Callable[[Made, Clock, Watch], Ran]] = {
        "evaluate": _evaluate, "noise": _noise, "combine": _combine, "attack": _attack, "squares": _squares,
        "specs": _specs, "matrix": matrix_part, "recheck": recheck_part,
    }  # fmt: skip
    try:
        for name in plan.options.parts:
            board.enter(name)
            planned, began = clock.seconds(name), time.monotonic()
            ran = works[name](made, clock, board.watched) if clock.starts(name) else Ran(0, LATE)
            clock.done.append(name)
            if not ran.applies:
                made.notes.append(f"{name}: {ran.left_out}")
                continue
            made.parts.append(
                Part(
                    name,
                    images=ran.images,
                    of=len(plan.plan.dataset),
                    seconds=round(time.monotonic() - began, 3),
                    planned=0.0 if planned == float("inf") else round(planned, 1),
                    left_out=ran.left_out,
                    command=made.whole(name) if ran.left_out else "",
                )
            )
        made.audit = audit_of(made, clock.elapsed)
        save(made.audit, plan.folder)
    except BaseException as problem:
        state = "cancelled" if isinstance(problem, KeyboardInterrupt) else "failed"
        with contextlib.suppress(HoldfastError):  # a full disk: what went wrong is told, not that
            board.write(state, why=str(problem))
        raise
    board.write("done")
    return made


def _plan(made: Made, count: int, until: float = math.inf) -> Plan:
    """The first images of the audit's data, in cells as small as its time asks for."""
    plan = made.plan.plan
    source = {**plan.source, "images": count}
    return dataclasses.replace(
        plan, dataset=made.plan.plan.dataset.first(count), source=source, shard=made.shard, until=until
    )  # fmt: skip


def _evaluate(made: Made, clock: Clock, watch: Watch) -> Ran:
    plan = made.plan.plan
    whole = len(plan.dataset)
    made.seconds_an_image = _timed(made)
    made.shard = clock.number("shard", None, _shard(made, clock), 1, SHARD)
    count = clock.finished("evaluate") or whole
    seconds = max(
        clock.seconds("evaluate"),
        min(0.25 * made.plan.options.budget_seconds, 1.5 * ENOUGH * made.seconds_an_image),
    )
    until = math.inf if clock.finished("evaluate") else time.monotonic() + seconds
    with watch(f"evaluate {plan.model.name}", count) as step:
        try:
            made.evaluation = evaluate(_alone_if_short(_plan(made, count, until)), step)
        except BudgetSpent:  # there is no audit without an evaluation
            count = min(whole, LEAST)
            made.evaluation = evaluate(dataclasses.replace(_plan(made, count), jobs=1), step)
    done = clock.ended("evaluate", min(count, len(made.evaluation.cells or ())))
    if done < count:  # its cells are there: the evaluation of these images alone
        made.evaluation = evaluate(dataclasses.replace(_plan(made, done), jobs=1))
    if math.isnan(side_of_evaluation(made.evaluation, plan.settings).value):
        raise DataError(
            f"{plan.dataset.name}: none of the {done} images evaluated has anything true of a class "
            "the metric counts: nothing can be measured; give data with truth"
        )
    made.runs["evaluation"] = run_folder(_plan(made, done)).name
    return Ran(done, fewer(done, whole))


def _alone_if_short(plan: Plan) -> Plan:
    """The plan in this process if the time is short: to start others takes longer than it saves."""
    short = plan.until - time.monotonic() < SHORT
    return dataclasses.replace(plan, jobs=1) if short else plan


def _shard(made: Made, clock: Clock) -> float:
    """Images per cell so that the longest part, the noises, can stop ten times within its share."""
    return clock.seconds("noise") / (10 * _options(made) * made.seconds_an_image)


def _options(made: Made) -> int:
    """How many noises there are, about."""
    task = made.plan.plan.model.card.task
    return sum(task in o.tasks and o.default and not o.missing for f in families() for o in options(f))


def _timed(made: Made, images: int = 6) -> float:
    """Seconds an image takes by the trained pipeline, all cores together."""
    machine = open_machine(made.pipeline, made.plan.plan.model)
    times = []
    for entry in made.plan.plan.dataset.entries[: images + 1]:
        try:
            data = entry.load().data
            began = time.perf_counter()
            machine.predict(machine.prepare(data))
            times.append(time.perf_counter() - began)
        except HoldfastError:  # told when it is evaluated
            continue
    return max(1e-4, sorted(times)[len(times) // 2]) if times else 0.05


def _noise(made: Made, clock: Clock, watch: Watch) -> Ran:
    plan, whole = made.plan.plan, len(made.plan.plan.dataset)
    until, seconds = clock.until("noise"), clock.seconds("noise")
    allowed = seconds / (_options(made) * made.seconds_an_image)
    count = clock.number("noise", made.plan.options.noise_images, allowed, min(whole, ENOUGH), whole)
    skipped = _too_slow(made, clock, seconds)
    began = time.monotonic()
    wanted = NoiseSelection(skip=tuple(skipped))
    some = NoisePlan(_plan(made, count, until), wanted, made.plan.spare, replicates=made.plan.replicates)
    done = clock.finished("noise")
    if done == 0:
        return Ran(0, LATE)
    prepared = prepare(some)
    try:
        prepared = prepared if done is None else prepared.first(done)
        found = measure(prepared, watch, clock.finished("noise together") != 0)
    except BudgetSpent:
        clock.ended("noise", 0)
        return Ran(0, f"{LATE}: no image met all {len(prepared.variants)} options in {seconds:.0f} s")
    done = clock.ended("noise", min(count, len(found.items)))
    clock.ended("noise together", int(found.combined is not None))
    took = time.monotonic() - began
    made.prepared = prepared.first(done).within(math.inf)
    made.counts["noise"] = done
    if until < math.inf:
        made.seconds_an_image = max(made.seconds_an_image, took / (done * len(prepared.variants)))
    command = made.plan.noise_line(done, skip=tuple(skipped))
    made.suite = Suite(
        plan.dataset.name,
        (found,),
        command=command,
        created=now(),
        seconds=round(took, 3),
        versions=versions(),
    )
    folder = suite_folder(made.suite, plan.runs)
    save_suite(made.suite, folder)
    made.runs["noise"] = folder.name
    said = [fewer(done, whole, made.plan.options.noise_images)]
    said += [f"{', '.join(skipped)}: no time to calibrate"] if skipped else []
    return Ran(done, "; ".join(filter(None, said)))


def _too_slow(made: Made, clock: Clock, seconds: float) -> list[str]:
    """The options that are calibrated, where that would take too much of the noises' time."""
    cost = CALIBRATIONS * CALIBRATION_ITEMS * made.seconds_an_image
    if clock.number("calibrate", None, float(cost <= 0.4 * seconds), 0, 1):
        return []
    found = []
    for one in (one for family in families() for one in options(family) if one.default and not one.missing):
        infer = one.noise(made.pipeline).infer
        if isinstance(infer, Deployed) and infer.calibrated:
            found.append(one.label)
    return found


def _combine(made: Made, clock: Clock, watch: Watch) -> Ran:
    if made.prepared is None or made.noise is None:
        return Ran(0, "no noise was measured")
    if not any(r.outcome == "measured" for r in made.noise.rows):
        return Ran(0, "no noise changes anything", False)
    most = clock.finished("combine")
    with contextlib.suppress(BudgetSpent):
        if most != 0:
            made.stairs = combine(made.prepared.within(clock.until("combine")), made.noise, watch, most=most)
    if not clock.ended("combine", len(made.stairs.steps) if made.stairs else 0):
        made.stairs = None
        return Ran(0, LATE)
    late = made.stairs is not None and any(LATE in text for text in made.stairs.left_out)
    return Ran(made.noise.images, f"the last steps of the staircase: {LATE}" if late else "")


def _attack(made: Made, clock: Clock, watch: Watch) -> Ran:
    plan = made.plan.plan
    if plan.model.card.task not in ("detect", "single"):
        return Ran(0, f"a patch attack is for detectors; this is a model to {plan.model.card.task}", False)
    names = [e.name for e in plan.dataset.entries]
    try:
        return _attacked(made, clock, watch, names)
    except BudgetSpent:
        clock.ended("attack", 0)
        return Ran(0, f"{LATE}: the first image was not finished")
    except DataError as problem:  # images that cannot be read are told; the other parts still say something
        return Ran(0, str(problem))


def _attacked(made: Made, clock: Clock, watch: Watch, names: Sequence[str]) -> Ran:
    given, whole = made.plan.options.attack_images, len(names)
    before, until = clock.finished("attack"), clock.until("attack")
    if before == 0:
        return Ran(0, LATE)
    asked = names[: before or given or whole]
    found = strikes(made.plan, asked, watch, until, clock.finished("attack budgets"))
    count = clock.ended("attack", len(found.outcome.attempts) + len(found.outcome.failed))
    budgets = clock.ended("attack budgets", len(found.struck))
    made.counts["attack"] = count
    made.outcome, made.runs = found.outcome, made.runs | found.runs
    made.struck = tuple(one.with_command(made.again("attack")) for one in found.struck)
    larger = list(made.plan.options.pixels)[budgets:]
    said = [fewer(count, whole, given)]
    said += [f"budgets of {', '.join(map(str, larger))} pixels: {LATE}"] if larger else []
    return Ran(count, "; ".join(filter(None, said)))


def _squares(made: Made, clock: Clock, watch: Watch) -> Ran:
    plan, whole = made.plan.plan, len(made.plan.plan.dataset)
    if plan.model.card.task == "segment":
        return Ran(0, "a segmenter has no detection a square could hide", False)
    count, before, until = _covered(made, clock, whole), clock.finished("squares"), clock.until("squares")
    try:
        if before == 0:
            raise BudgetSpent(LATE)
        found = black.survey(squares_plan(made, before or count, until), watch)
    except BudgetSpent:
        clock.ended("squares", 0)
        return Ran(0, f"{LATE}: the first image was not finished")
    count = clock.ended("squares", found.images)
    made.maps = found.maps
    made.notes += [f"squares: {found.note}"] if found.note else []
    made.counts["square"] = count
    made.proofs += proofs_of(made.maps, made.again("squares"))
    return Ran(count, fewer(count, whole, made.plan.options.square_images))


def _covered(made: Made, clock: Clock, whole: int) -> int:
    """On how many images the square is laid, and at how many places: fewer of these, then of the images.

    The attack's images are covered if a coarse grid lets them be, since the matrix needs both.
    """
    options, many = made.plan.options, len(made.outcome.attempts) if made.outcome else 0
    affordable = clock.seconds("squares") / made.seconds_an_image  # places in all
    coarse = min(COARSE, options.places)
    images = min(many, affordable / coarse) if many else affordable / options.places
    count = clock.number("squares", options.square_images, max(images, affordable / options.places), 1, whole)
    if options.budget_seconds and options.square_images is None:
        made.places = clock.number("places", None, affordable / count, coarse, options.places)
    else:
        made.places = options.places
    return count


def _specs(made: Made, clock: Clock, watch: Watch) -> Ran:
    files, plan = made.plan.options.spec, made.plan.plan
    if not files:
        return Ran(0, "no VNN-LIB specification was given (--spec FILE)", False)
    seconds = min(clock.seconds("specs"), SPEC * len(files))
    with watch("specifications", len(files)) as step:
        store = Store(plan.runs / CELLS)
        made.decided = decided(plan.model, files, seconds, store, plan.jobs or cores(), step)
    made.proofs += tuple(one.proof for one in made.decided)
    unknown = sum(one.proof.answer == "unknown" for one in made.decided)
    late = f"{unknown} of {len(files)} specifications are not decided in {seconds:.0f} s"
    return Ran(0, late if unknown else "")
