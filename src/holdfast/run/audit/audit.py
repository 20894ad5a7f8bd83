"""An audit from end to end: every part within its share of the time, each on what the one before found."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Collection, Sequence

from holdfast.attack.types import Rule
from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, HoldfastError
from holdfast.core.pipeline import open_machine
from holdfast.noise.families import families, options
from holdfast.run.audit import squares as black
from holdfast.run.audit.made import Made, Ran, rule_words
from holdfast.run.audit.matrix import Threatened, deployments_of, matrix
from holdfast.run.audit.plan import AuditPlan, Clock, open_clock
from holdfast.run.audit.progress import Board
from holdfast.run.audit.result import Part, save
from holdfast.run.audit.sandwich import SQUARE
from holdfast.run.audit.specs import decided, questions_of, recheck_specs
from holdfast.run.audit.squares import SquaresPlan
from holdfast.run.audit.strike import spent, strikes
from holdfast.run.audit.summary import audit_of, now, side_of_evaluation
from holdfast.run.evaluate import evaluate, run_folder
from holdfast.run.evaluation import CELLS
from holdfast.run.executor import cores
from holdfast.run.noise.combine import combine
from holdfast.run.noise.result import Suite, suite_folder
from holdfast.run.noise.result import save as save_suite
from holdfast.run.noise.suite import NoisePlan, Watch, measure, prepare, unwatched
from holdfast.run.store import Store, printable
from holdfast.run.versions import versions

RULE = Rule()
USED_UP = "the time was used up"
COARSE = 64  # places of a square below which an image less is better than a place less
SPEC = 60.0  # seconds for a specification, at most
OPENING = 3.0  # seconds that torch and the network to attack take, about, where it could not be seen
RECHECKED = ("precision", "runtime")  # families under which proofs and witnesses are tried again


def audit(plan: AuditPlan, watch: Watch = unwatched) -> Made:
    """Everything the audit found, saved in its folder; a killed one goes on where it was."""
    questions_of(plan.plan.model, plan.wish.specs)  # a file that is none is told now, not after minutes
    clock = open_clock(plan)
    made = Made(plan)
    board = Board(plan.folder, plan.wish.parts, watch)
    works: dict[str, Callable[[Made, Clock, Watch], Ran]] = {
        "evaluate": _evaluate, "noise": _noise, "combine": _combine, "attack": _attack, "squares": _squares,
        "specs": _specs, "matrix": _matrix, "recheck": _recheck,
    }  # fmt: skip
    try:
        for name in plan.wish.parts:
            board.enter(name)
            planned, began = clock.seconds(name), time.monotonic()
            ran = works[name](made, clock, board.watched) if clock.starts(name) else Ran(0, USED_UP)
            clock.done.append(name)
            if not ran.applies:
                made.notes.append(f"{name}: {ran.left_out}")
                continue
            made.parts.append(
                Part(
                    name, ran.images, len(plan.plan.dataset), round(time.monotonic() - began, 3),
                    0.0 if planned == float("inf") else round(planned, 1), ran.left_out,
                    made.whole(name) if ran.left_out else "",
                )
            )  # fmt: skip
        made.audit = audit_of(made, clock.elapsed)
        save(made.audit, plan.folder)
    except BaseException as problem:
        state = "cancelled" if isinstance(problem, KeyboardInterrupt) else "failed"
        with contextlib.suppress(HoldfastError):  # a full disk: what went wrong is told, not that
            board.write(state, why=str(problem))
        raise
    board.write("done")
    return made


def _first(made: Made, count: int) -> Dataset:
    return made.plan.plan.dataset.first(count)


def _fewer(count: int, whole: int, part: str, given: int | None = None) -> str:
    """What was left out of a part, in words; empty if nothing."""
    why = f"the time for {part} does not take more" if given is None else f"{given} asked for"
    return f"{whole - count} of {whole} images: {why}" if count < whole else ""


def _evaluate(made: Made, clock: Clock, watch: Watch) -> Ran:
    plan = made.plan.plan
    whole = len(plan.dataset)
    made.seconds_an_image = _timed(made)
    allowed = clock.seconds("evaluate") / made.seconds_an_image
    count = clock.number("evaluate", None, allowed, min(whole, 20), whole)
    some = dataclasses.replace(plan, dataset=_first(made, count), source={**plan.source, "images": count})
    with watch(f"evaluate {plan.model.name}", count) as step:
        made.evaluation = evaluate(some, step)
    if math.isnan(side_of_evaluation(made.evaluation, plan.settings).value):
        raise DataError(
            f"{plan.dataset.name}: none of the {count} images evaluated has anything true of a class "
            "the metric counts: nothing can be measured; give data with truth"
        )
    made.runs["evaluation"] = run_folder(some).name
    return Ran(count, _fewer(count, whole, "evaluation"))


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
    task = plan.model.card.task
    cells = sum(task in o.tasks and o.default and not o.missing for f in families() for o in options(f))
    allowed = clock.seconds("noise") / (cells * made.seconds_an_image)  # calibrating and compiling included
    count = clock.number("noise", made.plan.wish.noise_images, allowed, min(whole, 8), whole)
    some = dataclasses.replace(plan, dataset=_first(made, count), source={**plan.source, "images": count})
    made.counts["noise"] = count
    began = time.monotonic()
    made.prepared = prepare(NoisePlan(some, spare=made.plan.spare, replicates=made.plan.replicates))
    found = measure(made.prepared, watch)
    command = made.plan.command("noise", *rule_words(plan), *made.plan.calibrated, "--images", count)
    made.suite = Suite(
        plan.dataset.name, (found,), command, now(), round(time.monotonic() - began, 3), versions()
    )
    folder = suite_folder(made.suite, plan.runs)
    save_suite(made.suite, folder)
    made.runs["noise"] = folder.name
    return Ran(count, _fewer(count, whole, "noise", made.plan.wish.noise_images))


def _combine(made: Made, clock: Clock, watch: Watch) -> Ran:
    if made.prepared is None or made.noise is None:
        return Ran(0, "no noise was measured")
    steps = len({r.family for r in made.noise.rows if r.outcome == "measured"})
    cost = 0.6 * steps * (steps + 1) / 2 * made.seconds_an_image * made.noise.images  # much is shared
    if steps == 0:
        return Ran(0, "no noise changes anything", False)
    if not clock.number("combine", None, clock.seconds("combine") / cost, 0, 1):
        return Ran(0, f"{steps} kinds of noise, one upon the other, take about {cost:.0f} s")
    made.stairs = combine(made.prepared, made.noise, watch)
    return Ran(made.noise.images, "")


def _attack(made: Made, clock: Clock, watch: Watch) -> Ran:
    plan = made.plan.plan
    if plan.model.card.task not in ("detect", "single"):
        return Ran(0, f"a patch attack is for detectors; this is a model to {plan.model.card.task}", False)
    names = [e.name for e in plan.dataset.entries]
    try:
        return _attacked(made, clock, watch, names)
    except DataError as problem:  # images that cannot be read are told; the other parts still say something
        return Ran(0, str(problem))


def _attacked(made: Made, clock: Clock, watch: Watch, names: Sequence[str]) -> Ran:
    plan, whole = made.plan.plan, len(names)
    given, allowed = made.plan.wish.attack_images, float("inf")
    if given is None and made.plan.wish.budget and "attack" not in clock.kept:
        began = time.monotonic()
        unread = {f.name for f in made.evaluation.failed} if made.evaluation else set()
        able = [name for name in names if printable(name) not in unread]
        found = strikes(made.plan, (able or names)[:1], watch)  # kept: one of those that follow
        took, before = time.monotonic() - began, spent(found)
        first = max(took if took >= before else before + OPENING, 0.5)  # less: found finished already
        allowed = 1 + (clock.seconds("attack") - first) / first * min(plan.jobs or cores(), cores())
    count = clock.number("attack", given, allowed, 1, whole)
    found = strikes(made.plan, names[:count], watch)
    made.counts["attack"] = count
    made.outcome, made.runs = found.outcome, made.runs | found.runs
    made.struck = tuple(one.with_command(made.again("attack")) for one in found.struck)
    return Ran(count, _fewer(count, whole, "the attack", given))


def _squares(made: Made, clock: Clock, watch: Watch) -> Ran:
    plan, whole = made.plan.plan, len(made.plan.plan.dataset)
    if plan.model.card.task == "segment":
        return Ran(0, "a segmenter has no detection a square could hide", False)
    count = _covered(made, clock, whole)
    found = black.survey(_squares_plan(made, count), watch)
    made.maps = found.maps
    made.notes += [f"squares: {found.note}"] if found.note else []
    made.counts["square"] = count
    made.proofs += black.proofs_of(made.maps, made.again("squares"))
    return Ran(count, _fewer(count, whole, "the squares", made.plan.wish.square_images))


def _covered(made: Made, clock: Clock, whole: int) -> int:
    """On how many images the square is laid, and at how many places: fewer of these, then of the images.

    The attack's images are covered if a coarse grid lets them be, since the matrix needs both.
    """
    wish, many = made.plan.wish, len(made.outcome.attempts) if made.outcome else 0
    affordable = clock.seconds("squares") / made.seconds_an_image  # places in all
    coarse = min(COARSE, wish.places)
    images = min(many, affordable / coarse) if many else affordable / wish.places
    count = clock.number("squares", wish.square_images, max(images, affordable / wish.places), 1, whole)
    if wish.budget and wish.square_images is None:
        made.places = clock.number("places", None, affordable / count, coarse, wish.places)
    else:
        made.places = wish.places
    return count


def _squares_plan(made: Made, count: int) -> SquaresPlan:
    wish, plan = made.plan.wish, made.plan.plan
    names = tuple(e.name for e in plan.dataset.entries[:count])
    return SquaresPlan(plan, made.pipeline, RULE, wish.share, made.places or wish.places, names)


def _specs(made: Made, clock: Clock, watch: Watch) -> Ran:
    files, plan = made.plan.wish.specs, made.plan.plan
    if not files:
        return Ran(0, "no VNN-LIB specification was given (--spec FILE)", False)
    seconds = min(clock.seconds("specs"), SPEC * len(files))
    with watch("specifications", len(files)) as step:
        store = Store(plan.runs / CELLS)
        made.decided = decided(plan.model, files, seconds, plan.jobs or cores(), store, step)
    made.proofs += tuple(one.proof for one in made.decided)
    unknown = sum(one.proof.answer == "unknown" for one in made.decided)
    late = f"{unknown} of {len(files)} specifications are not decided in {seconds:.0f} s"
    return Ran(0, late if unknown else "")


def _matrix(made: Made, clock: Clock, watch: Watch) -> Ran:
    if made.prepared is None or made.noise is None:
        return Ran(0, "no noise was measured")
    tested = made.prepared.noise.plan.dataset.entries
    threats = _threats(made, {printable(e.name) for e in tested})
    chosen = deployments_of(made.noise, made.prepared, most=12)
    names = _both_met(made, {printable(e.name) for e in tested})
    cost = len(chosen) * (1 + len(threats)) * made.seconds_an_image  # of an image
    affordable = clock.seconds("matrix") / cost
    if names:
        count = clock.number("matrix images", None, affordable, 0, len(names))
    else:  # no threat: all that met the noises, since by them the deployments were chosen
        count = len(tested) * clock.number("matrix", None, affordable / len(tested), 0, 1)
    if not count:
        return Ran(0, f"{1 + len(threats)} threats × {len(chosen)} deployments take {cost:.1f} s an image")
    found = matrix(made.prepared, chosen, threats, watch, names[:count] or None, made.plan.replicates)
    places = {printable(e.name): n for n, e in enumerate(made.plan.plan.dataset.entries, 1)}
    again = made.again("matrix", places[printable(names[count - 1])] if names else None)
    made.matrix = dataclasses.replace(
        found, meetings=tuple(dataclasses.replace(m, command=again) for m in found.meetings)
    )
    return Ran(count, _fewer(count, len(names) or count, "the matrix"))


def _both_met(made: Made, there: Collection[str]) -> list[str]:
    """The images with threats that met the noises too, in order; of two threats those that met both."""
    names = [a.name for a in made.struck[0].attempts] if made.struck else [m.image for m in made.maps]
    names = [name for name in names if printable(name) in there]
    if made.struck and made.maps:
        covered = {printable(e.name) for e in made.plan.plan.dataset.entries[: made.counts["square"]]}
        names = [name for name in names if printable(name) in covered] or names
    return names


def _threats(made: Made, there: Collection[str]) -> tuple[Threatened, ...]:
    """Every threat that was made as trained: the square at its worst place, the attack within each budget.

    Of the images that met the noises only: more may have been attacked.
    """
    found = []
    if made.maps:
        squares = {name: patch for name, patch in black.worst(made.maps).items() if printable(name) in there}
        found.append(Threatened(SQUARE, squares, "a black square at its worst place", "any"))
    for one in made.struck:
        patches = {a.name: a.patch for a in one.attempts if a.pixels and printable(a.name) in there}
        found.append(Threatened(one.strike.threat, patches, f"{one.strike.pixels} pixels"))
    return tuple(found)


def _recheck(made: Made, clock: Clock, watch: Watch) -> Ran:
    if made.prepared is None:
        return Ran(0, "no precision or runtime was built")
    under = {
        a.variant.name: a.variant.pipeline
        for a in made.prepared.asked
        if a.variant is not None and a.option.family in RECHECKED
    }
    if not under or not made.proofs:
        why = "no precision or runtime applies" if made.proofs else "nothing was proven or refuted"
        return Ran(0, why, False)
    allowed = clock.seconds("recheck") / (max(1, len(made.maps)) * len(under) * made.seconds_an_image)
    places = clock.number("recheck places", None, allowed, 8, made.places or made.plan.wish.places)
    if made.maps:
        given = _squares_plan(made, len(made.plan.plan.dataset))
        made.rechecks += black.recheck(given, made.maps, under, watch, most=places)
    if made.decided:
        seconds = min(clock.seconds("recheck"), SPEC)
        made.rechecks += recheck_specs(made.plan.plan.model, made.decided, under, seconds)
    fewer = f"only the {places} tightest places of every square" if places < made.places else ""
    return Ran(len(made.maps), fewer)
