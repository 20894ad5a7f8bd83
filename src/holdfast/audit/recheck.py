"""The answers of square maps rechecked under other runtimes, precisions and pipelines."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.attack.types import check_time
from holdfast.audit.result import Recheck, RecheckAnswer
from holdfast.audit.square_map import THREAT, SquareMap, black, to_plain
from holdfast.audit.squares import SquareScorer, SquaresPlan, SquareWork, work_of
from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, ImageError, InputError, one_line
from holdfast.core.patch import apply
from holdfast.core.pipeline import Pipeline
from holdfast.core.text import printable
from holdfast.core.types import Size
from holdfast.engine.cells import CellResult, MissingCells, Setup, Work, run
from holdfast.engine.execution import cell_store
from holdfast.engine.pipelines import content_of
from holdfast.evaluate.result import CELLS
from holdfast.noise.suite import Watch, no_progress
from holdfast.stages.deployed import DeployedInference

PLACES = 400  # positions run again at most per image and deployment


@dataclass(frozen=True)
class RecheckItem:
    """One map under one deployment."""

    deployment: str
    entry: Entry
    map: SquareMap


@dataclass
class OpenDeployment:
    """What a process holds open: one deployment at a time, or why it cannot be opened."""

    threads: int
    deployment: str = ""
    scorer: SquareScorer | None = None
    problem: str = ""

    def use(self, deployment: str, work: SquareWork) -> None:
        """Open a deployment. The one before is closed first: two large models need not fit."""
        if self.deployment == deployment:
            return
        self.deployment, self.scorer, self.problem = deployment, None, ""
        try:
            self.scorer = work.open(self.threads)
        except Exception as problem:  # noqa: BLE001 - runtimes raise errors of their own kinds
            self.problem = f"cannot be opened: {one_line(problem)}"


@dataclass(frozen=True)
class RecheckWork(Work[RecheckItem, OpenDeployment]):
    """The rechecks; a deployment that cannot be opened does not stop the others."""

    works: Mapping[str, SquareWork]  # by deployment
    problems_of: Mapping[str, str]  # of deployments that lack a part
    most: int

    def setups(self) -> list[Setup]:
        """How many places are run at most; everything else is the content of an item."""
        return [Setup("squares", ["recheck", self.most])]

    def contents(self, item: RecheckItem) -> list[Any]:
        """The deployment, the image and its map: targets and grid, and the scores, which give the order."""
        facts = self.works[item.deployment].facts if item.deployment in self.works else None
        return [[facts, content_of(item.entry), {**to_plain(item.map), "seconds": 0}]]

    def open(self, threads: int) -> OpenDeployment:
        """No deployment yet: each is opened when its first item comes."""
        return OpenDeployment(threads)

    def compute(self, state: OpenDeployment, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """The answer of each recheck. Where nothing could be opened, it is not stored."""
        for position, (item, _) in enumerate(batch):
            problem, stored = self.problems_of.get(item.deployment, ""), False
            answer = RecheckAnswer("unknown", 0, problem)
            if not problem:
                work = self.works[item.deployment]
                state.use(item.deployment, work)
                answer, stored = _answer(state, work, item, self.most), state.scorer is not None
            yield CellResult(position, 0, dataclasses.asdict(answer), stored=stored)


def recheck(
    plan: SquaresPlan,
    maps: Sequence[SquareMap],
    deployments: Mapping[str, Pipeline],
    watch: Watch = no_progress,
    most: int = PLACES,
    first: int | None = None,
) -> tuple[Recheck, ...]:
    """Every `holds` and every witness of the maps under each deployment; a killed run is resumed.

    The worst places are run first, and the first that breaks it (twice) is the answer. Else at most `most`
    places are run: it holds only if that is all of them and none failed. Where the plan's time is
    over, the rows finished so far are the result; `first` asks for this many rows only.
    """
    if most < 1:
        raise InputError(f"recheck: expected at least 1 place, got {most}")
    entries = {printable(entry.name): entry for entry in plan.plan.dataset.entries}
    decided = [m for m in maps if m.answer != "unknown"]
    items = [RecheckItem(name, entries[m.image], m) for name in deployments for m in decided][:first]
    works, problems = {}, {}
    for name, pipeline in deployments.items():
        try:
            works[name] = work_of(plan, pipeline)
        except HoldfastError as problem:  # a part that is not there
            problems[name] = str(problem)
    work = RecheckWork(works, problems, most)
    with watch(f"recheck {plan.plan.model.name}", len(items)) as progress:
        store = cell_store(plan.plan.runs / CELLS)
        cells = run(work, items, store, jobs=plan.plan.jobs, progress=progress, until=plan.plan.until).read()
    return tuple(
        Recheck(THREAT, item.map.image, item.deployment, item.map.answer, **cell)
        for item, cell in zip(items, cells, strict=False)
    )


def _answer(opened: OpenDeployment, work: SquareWork, item: RecheckItem, most: int) -> RecheckAnswer:
    """The answer under a deployment, with a remark if the image was used to calibrate it."""
    if opened.scorer is None:
        return RecheckAnswer("unknown", 0, opened.problem)
    answer = _search(opened.scorer, item, most, work.until)
    infer = work.pipeline.infer
    if not isinstance(infer, DeployedInference) or not infer.calibrated or infer.calibration is None:
        return answer
    if item.entry.name not in {entry.name for entry in infer.calibration.entries}:
        return answer
    note = "; ".join(filter(None, (answer.note, "this image was used for calibration")))
    return dataclasses.replace(answer, note=note)


def _search(scorer: SquareScorer, item: RecheckItem, most: int, until: float) -> RecheckAnswer:
    grid, targets = item.map.grid, item.map.targets
    try:
        data = item.entry.load().data
        image = scorer.judge.machine.decode(data)
        size = Size(image.shape[1], image.shape[0])
        if size != item.map.size:
            got, expected = (f"{s.width}×{s.height}" for s in (size, item.map.size))
            why = f"its decoder gives a picture of {got} pixels, not of {expected}"
            return RecheckAnswer("unknown", 0, why)
        if scorer.score(image, targets) < scorer.threshold:
            return RecheckAnswer("violated", 0, "a target is lost there without any square")
    except Exception as problem:  # noqa: BLE001 - whatever it is, nothing is known
        kind = "" if isinstance(problem, ImageError) else f"{type(problem).__name__}: "
        why = f"cannot be run without a square: {kind}{' '.join(str(problem).split())}"
        return RecheckAnswer("unknown", 0, why)
    doubts: list[str] = []
    count = 0
    for place in map(tuple, item.map.tightest[:most].tolist()):
        check_time(until)
        at = f"column {place[0]}, row {place[1]}"
        try:
            unsafe = scorer.score(apply(image, black(grid, *place)), targets) < scorer.threshold
            count += 1
            if unsafe and scorer.replayed(data, grid, place, targets):
                return RecheckAnswer("violated", count, f"square at {at}")
            if unsafe:
                doubts.append(f"at {at}: not confirmed by a second run")
        except Exception as problem:  # noqa: BLE001 - whatever it is, this place was not judged
            doubts.append(f"at {at}: {one_line(problem)}")
    if doubts:
        return RecheckAnswer("unknown", count, f"{doubts[0]} ({len(doubts)} positions not decided)")
    places = item.map.scores.size
    if count == places:
        note = "" if item.map.answer == "holds" else "no square of the grid breaks the image here"
        return RecheckAnswer("holds", count, note)  # only since all of them were run
    which = "the worst square" if count == 1 else f"any of the {count} worst squares"
    return RecheckAnswer("unknown", count, f"not broken by {which} of {places}")
