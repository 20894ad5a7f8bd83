"""The answers of square maps put to the same question under other runtimes, precisions and pipelines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.attack.types import check_time
from holdfast.audit.result import Answer, Recheck
from holdfast.audit.squares.map import THREAT, SquareMap, black, to_plain
from holdfast.audit.squares.work import Asker, SquaresPlan, SquareTask, open_asker, task_of, told
from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, ImageError, InputError
from holdfast.core.patch import apply
from holdfast.core.pipeline import Pipeline
from holdfast.core.types import Size
from holdfast.engine.cells import Computed, Missing, Setup, Work, run
from holdfast.engine.pipelines import content_of
from holdfast.engine.store import Store, printable
from holdfast.evaluate.result import CELLS
from holdfast.noise.suite import Watch, unwatched
from holdfast.stages.deployed import Deployed

PLACES = 400  # run again at most, an image and deployment


@dataclass(frozen=True)
class Ask:
    """One map under one deployment."""

    deployment: str
    entry: Entry
    map: SquareMap


@dataclass(frozen=True)
class Now:
    """The answer there, how many places it took, and what is to be said of it."""

    answer: Answer
    tried: int
    note: str = ""


@dataclass
class Opened:
    """What a process holds open: one deployment at a time, or why it cannot be opened."""

    threads: int
    deployment: str = ""
    asker: Asker | None = None
    problem: str = ""

    def use(self, deployment: str, task: SquareTask) -> None:
        """Open a deployment. The one before is closed first: two large models need not fit."""
        if self.deployment == deployment:
            return
        self.deployment, self.asker, self.problem = deployment, None, ""
        try:
            self.asker = open_asker(task, self.threads)
        except Exception as problem:  # noqa: BLE001 - runtimes raise errors of their own kinds
            line = " ".join(str(problem).split())
            self.problem = f"cannot be opened: {line or type(problem).__name__}"


@dataclass(frozen=True)
class RecheckWork(Work[Ask, Opened]):
    """The rechecks; a deployment that cannot be opened does not stop the others."""

    tasks: Mapping[str, SquareTask]
    problems_of: Mapping[str, str]  # of deployments that lack a part
    most: int

    def setups(self) -> list[Setup]:
        """How many places are run at most; everything else is the content of an item."""
        return [Setup("squares", ["recheck", self.most])]

    def contents(self, item: Ask) -> list[Any]:
        """The deployment, the image and its map.

        Of the map all but its seconds: targets and grid say what is rechecked, scores in which order.
        """
        facts = self.tasks[item.deployment].facts if item.deployment in self.tasks else None
        return [[facts, content_of(item.entry), {**to_plain(item.map), "seconds": 0}]]

    def open(self, threads: int) -> Opened:
        """Nothing is open at first."""
        return Opened(threads)

    def compute(self, state: Opened, batch: Sequence[Missing]) -> Iterator[Computed]:
        """The answer of each recheck. Where nothing could be opened, it is not stored."""
        for position, (ask, _) in enumerate(batch):
            if ask.deployment in self.problems_of:
                now = Now("unknown", 0, self.problems_of[ask.deployment])
                yield Computed(position, 0, dataclasses.asdict(now), stored=False)
                continue
            task = self.tasks[ask.deployment]
            state.use(ask.deployment, task)
            now = _now(state, task, ask, self.most)
            yield Computed(position, 0, dataclasses.asdict(now), stored=state.asker is not None)


def recheck(
    plan: SquaresPlan,
    maps: Sequence[SquareMap],
    deployments: Mapping[str, Pipeline],
    watch: Watch = unwatched,
    most: int = PLACES,
    first: int | None = None,
) -> tuple[Recheck, ...]:
    """Every `holds` and every witness of the maps, put to each deployment; a killed run goes on.

    The worst places are run first, and the first that breaks it (twice) is the answer. Else at most `most`
    places are run: it is said to hold only if that is all of them and none failed. Where the plan's time is
    over, the rows finished so far are the result; `first` asks for so many rows only.
    """
    if most < 1:
        raise InputError(f"recheck: expected at least 1 place, got {most}")
    entries = {printable(entry.name): entry for entry in plan.plan.dataset.entries}
    decided = [one for one in maps if one.answer != "unknown"]
    asks = [Ask(name, entries[one.image], one) for name in deployments for one in decided][:first]
    work = _work(plan, deployments, most)
    with watch(f"recheck {plan.plan.model.name}", len(asks)) as progress:
        store = Store(plan.plan.runs / CELLS)
        cells = run(work, asks, store, jobs=plan.plan.jobs, progress=progress, until=plan.plan.until).read()
    return tuple(_row(ask, Now(**plain)) for ask, plain in zip(asks, cells, strict=False))


def _work(plan: SquaresPlan, deployments: Mapping[str, Pipeline], most: int) -> RecheckWork:
    tasks, problems = {}, {}
    for name, pipeline in deployments.items():
        try:
            tasks[name] = task_of(plan, pipeline)
        except HoldfastError as problem:  # a part that is not there
            problems[name] = str(problem)
    return RecheckWork(tasks, problems, most)


def _row(ask: Ask, now: Now) -> Recheck:
    one = ask.map
    return Recheck(THREAT, one.image, ask.deployment, one.answer, now.answer, now.tried, now.note)


def _now(opened: Opened, task: SquareTask, ask: Ask, most: int) -> Now:
    """The answer under a deployment, with a remark if the image was used to calibrate it."""
    if opened.asker is None:
        return Now("unknown", 0, opened.problem)
    now = _judged(opened.asker, ask, most, task.until)
    if ask.entry.name not in _calibrated_on(task.pipeline.infer):
        return now
    said = "; ".join(part for part in (now.note, "this image is one it was calibrated on") if part)
    return dataclasses.replace(now, note=said)


def _calibrated_on(infer: object) -> set[str]:
    if not isinstance(infer, Deployed) or not infer.calibrated or infer.calibration is None:
        return set()
    return {entry.name for entry in infer.calibration.entries}


def _judged(asker: Asker, ask: Ask, most: int, until: float) -> Now:
    one = ask.map
    try:
        data = ask.entry.load().data
        image = asker.decoded(data)
        size = Size(image.shape[1], image.shape[0])
        if size != one.size:
            got, wanted = (f"{s.width}×{s.height}" for s in (size, one.size))
            return Now("unknown", 0, f"its decoder gives a picture of {got} pixels, not of {wanted}")
        if asker.score(image, one.targets) < asker.threshold:
            return Now("violated", 0, "a target is lost there without any square")
    except Exception as problem:  # noqa: BLE001 - whatever it is, nothing is known
        said = "" if isinstance(problem, ImageError) else f"{type(problem).__name__}: "
        return Now("unknown", 0, f"cannot be run without a square: {said}{' '.join(str(problem).split())}")
    doubts: list[str] = []
    tried = 0
    for place in map(tuple, one.tightest[:most].tolist()):
        check_time(until)
        try:
            laid = apply(image, black(one.grid, *place))
            unsafe = asker.score(laid, one.targets) < asker.threshold
            tried += 1
            if unsafe and asker.replayed(data, one.grid, place, one.targets):
                return Now("violated", tried, f"by the square at column {place[0]}, row {place[1]}")
            if unsafe:
                doubts.append(f"at column {place[0]}, row {place[1]}: did not break it a second time")
        except Exception as problem:  # noqa: BLE001 - whatever it is, this place was not judged
            doubts.append(told(problem, place))
    return _unbroken(one, tried, doubts)


def _unbroken(one: SquareMap, tried: int, doubts: Sequence[str]) -> Now:
    """What can be said when no square broke it: that it holds only if all were run."""
    if doubts:
        return Now("unknown", tried, f"{doubts[0]} ({len(doubts)} places are in doubt)")
    if tried == one.scores.size:
        return Now("holds", tried, "" if one.answer == "holds" else "no square of the grid breaks it there")
    which = "the worst square" if tried == 1 else f"the {tried} worst squares"
    does = "does" if tried == 1 else "do"
    return Now("unknown", tried, f"{which} of {one.scores.size} {does} not break it there")
