"""The answers of square maps put to the same question under other runtimes, precisions and pipelines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from holdfast.attack.types import check_time
from holdfast.audit.result import Answer, Recheck
from holdfast.audit.squares.map import THREAT, SquareMap, black, to_plain
from holdfast.audit.squares.work import Asker, SquaresPlan, SquareTask, open_asker, task_of, told
from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, ImageError, InputError, one_line
from holdfast.core.patch import apply
from holdfast.core.pipeline import Pipeline
from holdfast.core.types import Size
from holdfast.engine.executor import execute
from holdfast.engine.job import content_of
from holdfast.engine.store import printable, to_json
from holdfast.noise.vision.run import Watch, unwatched
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


@dataclass(frozen=True)
class Opened:
    """What a process holds open: one deployment, or why it cannot be opened."""

    deployment: str
    asker: Asker | None
    problem: str = ""


@dataclass(frozen=True)
class RecheckWork:
    """The rechecks as work for any number of processes; what cannot be opened does not stop the others."""

    tasks: Mapping[str, SquareTask]
    problems: Mapping[str, str]
    most: int

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules other processes must import first."""
        return tuple(sorted({name for task in self.tasks.values() for name in task.modules}))

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of parts other processes must load first."""
        return tuple(dict.fromkeys(path for task in self.tasks.values() for path in task.files))

    def on(self, threads: int) -> RecheckWork:
        """The same work with so many threads a process."""
        tasks = {name: dataclasses.replace(task, threads=threads) for name, task in self.tasks.items()}
        return dataclasses.replace(self, tasks=tasks)

    def work(
        self, opened: Opened | None, shard: Sequence[Ask]
    ) -> tuple[tuple[Recheck, ...], Opened | None, tuple[int, int]]:
        """The rechecks, what is open now, and how far that brings the run."""
        made, found = [], 0
        for ask in shard:
            if ask.deployment in self.problems:
                made.append(_row(ask, Now("unknown", 0, self.problems[ask.deployment])))
                continue
            task = self.tasks[ask.deployment]
            # All of a map but its seconds: targets and grid say what is asked, scores in which order.
            asked = {**to_plain(ask.map), "seconds": 0}
            key = task.key("recheck", self.most, content_of([ask.entry]), asked)
            held = task.store.get(key)
            found += held is not None
            if held is None:
                if opened is None or opened.deployment != ask.deployment:
                    opened = None  # the one before is let go first: two large models need not fit
                    opened = _opened(ask.deployment, task)
                now = _now(opened, task, ask, self.most)
                if opened.asker is not None:
                    task.store.put(key, to_json(dataclasses.asdict(now)))
            else:
                now = Now(**orjson.loads(held))
            made.append(_row(ask, now))
        return tuple(made), opened, (len(shard), found)


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
        answers = execute(work, asks, plan.plan.jobs, progress, size=1, until=plan.plan.until)
    return tuple(row for answer in answers for row in answer)


def _work(plan: SquaresPlan, deployments: Mapping[str, Pipeline], most: int) -> RecheckWork:
    tasks, problems = {}, {}
    for name, pipeline in deployments.items():
        try:
            tasks[name] = task_of(plan, pipeline)
        except HoldfastError as problem:  # a part that is not there
            problems[name] = str(problem)
    return RecheckWork(tasks, problems, most)


def _opened(deployment: str, task: SquareTask) -> Opened:
    try:
        return Opened(deployment, open_asker(task))
    except Exception as problem:  # noqa: BLE001 - runtimes raise errors of their own kinds
        return Opened(deployment, None, f"cannot be opened: {one_line(problem)}")


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
