"""An audit from end to end: every part within its share of the time, each on what the one before found."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.attack.types import Rule
from holdfast.core.dataset import Dataset
from holdfast.core.errors import HoldfastError
from holdfast.core.pipeline import Pipeline, open_machine, pipeline_of
from holdfast.metrics.intervals import interval_of
from holdfast.noise.families import families, options
from holdfast.run.attack.result import Outcome
from holdfast.run.audit import squares as black
from holdfast.run.audit.matrix import Threatened, deployments_of, matrix
from holdfast.run.audit.plan import AuditPlan, Clock, open_clock
from holdfast.run.audit.progress import Board
from holdfast.run.audit.result import Audit, Cause, Clean, Matrix, Part, Proof, Recheck, save
from holdfast.run.audit.sandwich import SQUARE, layers
from holdfast.run.audit.specs import Decided, decided, recheck_specs
from holdfast.run.audit.squares import SquareMap, SquaresPlan, described
from holdfast.run.audit.strike import Struck, strikes
from holdfast.run.difference import drawn, side_of
from holdfast.run.evaluate import evaluate, run_folder
from holdfast.run.evaluation import CELLS, Evaluation
from holdfast.run.executor import cores
from holdfast.run.noise.combine import Staircase, combine
from holdfast.run.noise.result import ModelNoise, Row, Suite, suite_folder
from holdfast.run.noise.result import save as save_suite
from holdfast.run.noise.suite import NoisePlan, Prepared, Watch, measure, prepare, unwatched
from holdfast.run.store import Store
from holdfast.run.versions import versions

RULE = Rule()
SPEC = 60.0  # seconds for a specification, at most
RECHECKED = ("precision", "runtime")  # families under which proofs and witnesses are tried again
TITLES = {"mAP": "mAP", "AP": "mAP@.5:.95", "top1": "top-1", "mIoU": "mean IoU", "iou_equal": "IoU × equal"}


@dataclass
class Made:
    """What the parts have made so far; a page is written from it."""

    plan: AuditPlan
    evaluation: Evaluation | None = None
    suite: Suite | None = None
    prepared: Prepared | None = None
    stairs: Staircase | None = None
    outcome: Outcome | None = None
    struck: tuple[Struck, ...] = ()
    maps: tuple[SquareMap, ...] = ()
    decided: tuple[Decided, ...] = ()  # specifications
    proofs: tuple[Proof, ...] = ()
    rechecks: tuple[Recheck, ...] = ()
    matrix: Matrix = field(default_factory=Matrix)
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    seconds_an_image: float = 0.05
    audit: Audit | None = None

    @property
    def found(self) -> Audit:
        """The audit as data; only one that ended has it."""
        if self.audit is None:
            raise RuntimeError("the audit has not ended")
        return self.audit

    @property
    def noise(self) -> ModelNoise | None:
        """The noise of the model; None if it was not measured."""
        return self.suite.models[0] if self.suite else None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline as trained."""
        return self.plan.plan.pipeline or pipeline_of(self.plan.plan.model.card)


def audit(plan: AuditPlan, watch: Watch = unwatched) -> Made:
    """Everything the audit found, saved in its folder; a killed one goes on where it was."""
    clock = open_clock(plan)
    made = Made(plan)
    board = Board(plan.folder, plan.wish.parts, watch)
    works: dict[str, Callable[[Made, Clock, Watch], tuple[int, str]]] = {
        "evaluate": _evaluate, "noise": _noise, "combine": _combine, "attack": _attack, "squares": _squares,
        "specs": _specs, "matrix": _matrix, "recheck": _recheck,
    }  # fmt: skip
    try:
        for name in plan.wish.parts:
            board.enter(name)
            planned, began = clock.seconds(name), time.monotonic()
            images, left_out = works[name](made, clock, board.watched)
            clock.done.append(name)
            made.parts.append(
                Part(
                    name, images, len(plan.plan.dataset), round(time.monotonic() - began, 3),
                    0.0 if planned == float("inf") else round(planned, 1), left_out,
                    plan.command("audit", "--only", name, "--budget", "none") if left_out else "",
                )
            )  # fmt: skip
        made.audit = _audit(made, clock)
        save(made.audit, plan.folder)
    except HoldfastError as problem:
        board.write("failed", why=str(problem))
        raise
    board.write("done")
    return made


def _first(made: Made, count: int) -> Dataset:
    return made.plan.plan.dataset.first(count)


def _fewer(count: int, whole: int, part: str) -> str:
    """What was left out of a part, in words; empty if nothing."""
    return (
        f"{whole - count} of {whole} images: the time for {part} does not take more" if count < whole else ""
    )


def _evaluate(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    plan = made.plan.plan
    whole = len(plan.dataset)
    made.seconds_an_image = _timed(made)
    allowed = clock.seconds("evaluate") / made.seconds_an_image
    count = clock.number("evaluate", None, allowed, min(whole, 20), whole)
    some = dataclasses.replace(plan, dataset=_first(made, count), source={**plan.source, "images": count})
    with watch(f"evaluate {plan.model.name}", count) as step:
        made.evaluation = evaluate(some, step)
    made.runs["evaluation"] = run_folder(some).name
    return count, _fewer(count, whole, "evaluation")


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


def _noise(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    plan, whole = made.plan.plan, len(made.plan.plan.dataset)
    task = plan.model.card.task
    cells = sum(task in o.tasks and o.default and not o.missing for f in families() for o in options(f))
    allowed = clock.seconds("noise") / (0.8 * cells * made.seconds_an_image)
    count = clock.number("noise", made.plan.wish.noise_images, allowed, min(whole, 8), whole)
    some = dataclasses.replace(plan, dataset=_first(made, count), source={**plan.source, "images": count})
    began = time.monotonic()
    made.prepared = prepare(NoisePlan(some, spare=made.plan.spare, replicates=made.plan.replicates))
    found = measure(made.prepared, watch)
    command = made.plan.command("noise", *_rule(made), "--images", count)
    made.suite = Suite(
        plan.dataset.name, (found,), command, _now(), round(time.monotonic() - began, 3), versions()
    )
    folder = suite_folder(made.suite, plan.runs)
    save_suite(made.suite, folder)
    made.runs["noise"] = folder.name
    return count, _fewer(count, whole, "noise")


def _combine(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    if made.prepared is None or made.noise is None:
        return 0, "no noise was measured"
    steps = len({r.family for r in made.noise.rows if r.outcome == "measured"})
    cost = steps * (steps + 1) / 2 * made.seconds_an_image * made.noise.images
    if steps == 0:
        return 0, "no noise changes anything"
    if not clock.number("combine", None, clock.seconds("combine") / cost, 0, 1):
        return 0, f"the staircase of {steps} noises takes about {cost:.0f} s"
    made.stairs = combine(made.prepared, made.noise, watch)
    return made.noise.images, ""


def _attack(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    plan, whole = made.plan.plan, len(made.plan.plan.dataset)
    if plan.model.card.task not in ("detect", "single"):
        return 0, f"a patch attack is for detectors; this is a model to {plan.model.card.task}"
    names = [e.name for e in plan.dataset.entries]
    given, allowed = made.plan.wish.attack_images, float("inf")
    if given is None and made.plan.wish.budget and "attack" not in clock.kept:
        began = time.monotonic()
        strikes(made.plan, names[:1], watch)  # kept: the first of those that follow
        first = max(time.monotonic() - began, 0.5)
        allowed = 1 + (clock.seconds("attack") - first) / first * min(plan.jobs or cores(), cores())
    count = clock.number("attack", given, allowed, 1, whole)
    made.outcome, made.struck = strikes(made.plan, names[:count], watch)
    return count, _fewer(count, whole, "the attack")


def _squares(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    plan, whole = made.plan.plan, len(made.plan.plan.dataset)
    if plan.model.card.task == "segment":
        return 0, "a segmenter has no detection a square could hide"
    allowed = clock.seconds("squares") / (made.plan.wish.places * made.seconds_an_image)
    count = clock.number("squares", made.plan.wish.square_images, allowed, 1, whole)
    found = black.survey(_squares_plan(made, count), watch)
    made.maps = found.maps
    made.notes += [f"squares: {found.note}"] if found.note else []
    command = made.plan.command(
        "audit", "--only", "squares", "--square-images", count, "--places", made.plan.wish.places
    )
    made.proofs += black.proofs_of(made.maps, command)
    return count, _fewer(count, whole, "the squares")


def _squares_plan(made: Made, count: int) -> SquaresPlan:
    wish, plan = made.plan.wish, made.plan.plan
    names = tuple(e.name for e in plan.dataset.entries[:count])
    return SquaresPlan(plan, made.pipeline, RULE, wish.share, wish.places, names)


def _specs(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    files, plan = made.plan.wish.specs, made.plan.plan
    if not files:
        return 0, "no VNN-LIB specification was given (--spec FILE)"
    seconds = min(clock.seconds("specs"), SPEC * len(files))
    with watch("specifications", len(files)) as step:
        made.decided = decided(
            plan.model, files, seconds, plan.jobs or cores(), store=Store(plan.runs / CELLS)
        )
        step(len(files), 0)
    made.proofs += tuple(one.proof for one in made.decided)
    unknown = sum(one.proof.answer == "unknown" for one in made.decided)
    return (
        0,
        f"{unknown} of {len(files)} specifications are not decided in {seconds:.0f} s" if unknown else "",
    )


def _matrix(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    if made.prepared is None or made.noise is None:
        return 0, "no noise was measured"
    threats = _threats(made)
    chosen = deployments_of(made.noise, made.prepared, most=12)
    names = [a.name for a in made.struck[0].attempts] if made.struck else [m.image for m in made.maps]
    few = min(len(names) or made.noise.images, made.noise.images)
    cost = few * len(chosen) * (1 + len(threats)) * made.seconds_an_image
    if not clock.number("matrix", None, clock.seconds("matrix") / cost, 0, 1):
        return 0, f"{1 + len(threats)} threats × {len(chosen)} deployments take about {cost:.0f} s"
    made.matrix = matrix(made.prepared, chosen, threats, watch, names or None, made.plan.replicates)
    return few, ""


def _threats(made: Made) -> tuple[Threatened, ...]:
    """Every threat that was made as trained: the square at its worst place, the attack within each budget."""
    found = []
    if made.maps:
        found.append(Threatened(SQUARE, black.worst(made.maps), "a black square at its worst place", "any"))
    for one in made.struck:
        patches = {a.name: a.patch for a in one.attempts if a.pixels}
        found.append(Threatened(one.strike.threat, patches, f"{one.strike.pixels} pixels"))
    return tuple(found)


def _recheck(made: Made, clock: Clock, watch: Watch) -> tuple[int, str]:
    if made.prepared is None:
        return 0, "no precision or runtime was built"
    under = {
        a.variant.name: a.variant.pipeline
        for a in made.prepared.asked
        if a.variant is not None and a.option.family in RECHECKED
    }
    if not under or not made.proofs:
        return 0, "no precision or runtime applies" if made.proofs else "nothing was proven or refuted"
    allowed = clock.seconds("recheck") / (max(1, len(made.maps)) * len(under) * made.seconds_an_image)
    places = clock.number("recheck places", None, allowed, 8, made.plan.wish.places)
    if made.maps:
        given = _squares_plan(made, len(made.plan.plan.dataset))
        made.rechecks += black.recheck(given, made.maps, under, watch, most=places)
    if made.decided:
        seconds = min(clock.seconds("recheck"), SPEC)
        made.rechecks += recheck_specs(made.plan.plan.model, made.decided, under, seconds)
    fewer = f"only the {places} tightest places of every square" if places < made.plan.wish.places else ""
    return len(made.maps), fewer


def _audit(made: Made, clock: Clock) -> Audit:
    """The audit as data."""
    plan = made.plan.plan
    if made.evaluation is None:
        raise RuntimeError("an audit has an evaluation")
    return Audit(
        model={
            "name": plan.model.name, "path": str(plan.model.path), "sha256": plan.model.sha256,
            "task": plan.model.card.task, "classes": len(plan.model.card.classes),
            "guessed": list(plan.model.guessed), "pipeline": made.pipeline.describe(),
        },
        data={"name": plan.dataset.name, "images": len(plan.dataset), "source": dict(plan.source)},
        clean=_clean(made, made.evaluation),
        causes=tuple(_cause(made, r) for r in made.noise.rows) if made.noise else (),
        combined=_cause(made, made.noise.combined) if made.noise and made.noise.combined else None,
        strikes=tuple(s.strike for s in made.struck),
        proofs=made.proofs,
        rechecks=made.rechecks,
        sandwich=layers(made.proofs, described(made.maps) if made.maps else "", made.struck),
        matrix=made.matrix,
        parts=tuple(made.parts),
        notes=tuple(dict.fromkeys(_notes(made, made.evaluation))),
        failed=tuple(map(str, made.evaluation.failed)),
        runs=made.runs,
        command=plan.command,
        created=_now(),
        seconds=round(clock.elapsed, 3),
        budget=made.plan.wish.budget,
        versions=versions(),
    )  # fmt: skip


def _clean(made: Made, evaluation: Evaluation) -> Clean:
    plan = made.plan.plan
    side = side_of(plan, evaluation.alignment, evaluation.records) if evaluation.alignment else None
    if side is None:
        raise RuntimeError("an evaluation has an alignment")
    found = interval_of(drawn(side, [r.name for r in side.records], replicates=made.plan.replicates))
    metric, title = metric_of(side.metric, plan.settings.iou)
    others = {k: float(v) for k, v in evaluation.result["metrics"].items() if isinstance(v, int | float)}
    at = evaluation.result.get("at_score", {})
    others |= {k: float(at[k]) for k in ("precision", "recall", "f1") if isinstance(at.get(k), int | float)}
    count = len(evaluation.records)
    command = made.plan.command("evaluate", *_rule(made), "--images", evaluation.about.data["images"])
    return Clean(metric, title, side.value, found.low, found.high, count, side.rule, others, command)


def _rule(made: Made) -> tuple[str, ...]:
    """The option that names the rule, for detectors."""
    plan = made.plan.plan
    return ("--rule", plan.settings.rule.name) if plan.model.card.task == "detect" else ()


def metric_of(name: str, iou: float) -> tuple[str, str]:
    """The metric's name in gates and for people: map50 and mAP@.5."""
    if name == "mAP":
        return f"map{100 * iou:g}", f"mAP@{iou:g}".replace("@0.", "@.")
    return {"AP": "map", "mIoU": "miou"}.get(name, name), TITLES.get(name, name)


def _cause(made: Made, row: Row) -> Cause:
    count = made.prepared and len(made.prepared.noise.plan.dataset)
    label = row.option if row.family == "combined" else row.label
    only = label.replace(" + ", ",") if row.family == "combined" else label
    verb = ("noise", "combine") if row.family == "combined" else ("noise",)
    command = made.plan.command(verb[0], *verb[1:], "--only", only, *_rule(made), "--images", count or 0)

    def share(points: float | None) -> float | None:
        return None if points is None else round(points / 100, 12)

    return Cause(
        label, row.family, row.outcome, share(row.drop), share(row.low), share(row.high), row.changed,
        row.images, row.note, command,
    )  # fmt: skip


def _notes(made: Made, evaluation: Evaluation) -> list[str]:
    said: list[str] = [*evaluation.notes, *made.notes]
    if made.noise is not None and made.noise.calibration:
        said.append(f"integer precisions are calibrated on {made.noise.calibration}")
    return said


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
