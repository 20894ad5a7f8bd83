"""Many pipelines of one model on one dataset, run together: what they have in common is computed once.

Each variant's cells are those a plain evaluation of its pipeline would write, so the two share them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.dataset import Dataset
from holdfast.core.errors import BudgetSpent, HoldfastError
from holdfast.core.pipeline import Pipeline
from holdfast.engine.cells import CellSet, count_missing, run
from holdfast.engine.execution import cell_store
from holdfast.engine.executor import Progress, silent
from holdfast.engine.pipelines import ImagePipeline, ImageRecords, PipelineWork, read_records
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, check_task, work_for
from holdfast.noise.suite import check_distinct

CLEAN = "clean"


@dataclass(frozen=True)
class Variant:
    """A named pipeline; `without` are images it must not be tested on, because it was calibrated on them."""

    name: str  # "clean", "resize=opencv-nearest", "decode=ffmpeg + precision=int8"
    pipeline: Pipeline
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SweepResult:
    """The finished cells of a variant, whose records are read on demand, one variant at a time."""

    variant: Variant
    cells: CellSet | None = field(default=None, repr=False)
    images: int = 0  # of the dataset that were finished in time, those it is not tested on included
    problem: str = ""  # why the pipeline cannot be run on any image; it then has no cells

    def read(self) -> ImageRecords:
        """Records, notes and input hashes of all its images."""
        return read_records(self.cells) if self.cells else ImageRecords()


def same_inputs(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[int, int]:
    """How many common images have the same input tensor, and how many are common."""
    common = first.keys() & second.keys()
    return sum(first[name] == second[name] for name in common), len(common)


@dataclass(frozen=True)
class SweepPlan(EvaluationPlan):
    """One model, one dataset and the pipelines to run on it."""

    variants: tuple[Variant, ...] = ()
    partial: bool = False  # whether the images finished by `until` are enough


def sweep(plan: SweepPlan, progress: Progress = silent) -> dict[str, SweepResult]:
    """Variant name -> its finished cells, or why it cannot be run; progress counts images × variants.

    Finished cells are never computed again, whoever wrote them. With `strict` the first image that fails ends
    it. BudgetSpent if not all images (with `partial`: none) are finished in time.
    """
    check_distinct([v.name for v in plan.variants], "variants")
    data = plan.dataset
    check_task(plan.model, data)
    runnable, problems = _runnable(plan)
    results = {v.name: SweepResult(v, problem=problems.get(v.name, "")) for v in plan.variants}
    for name in problems:
        progress(images(data, results[name].variant), 0)
    entries, store = data.entries if runnable else (), cell_store(plan.runs / CELLS)
    cells = run(_work(plan, runnable), entries, store, jobs=plan.jobs, progress=progress, until=plan.until)
    if len(cells.items) < len(entries) and not plan.partial:
        raise BudgetSpent("the time was over before all images were finished")
    for n, variant in enumerate(runnable):
        problem = cells.problems.get(n, "")
        finished = None if problem else cells.of(n)
        results[variant.name] = SweepResult(variant, finished, len(cells.items), problem)
    return results


def unfinished(plan: SweepPlan) -> int:
    """How many cells are still to be computed; if any is there, every image is read and hashed."""
    runnable, _ = _runnable(plan)
    store = cell_store(plan.runs / CELLS)
    if store.is_new:
        return sum(images(plan.dataset, variant) for variant in runnable)
    return count_missing(_work(plan, runnable), plan.dataset.entries, store)


def _work(plan: SweepPlan, variants: Sequence[Variant]) -> PipelineWork:
    return work_for(plan, *(ImagePipeline(v.pipeline, v.without) for v in variants))


def _runnable(plan: SweepPlan) -> tuple[list[Variant], dict[str, str]]:
    """The variants whose parts are all there, and why the others are not, by name."""
    runnable: list[Variant] = []
    problems: dict[str, str] = {}
    for variant in plan.variants:
        try:
            _work(plan, [variant]).setups()
            runnable.append(variant)
        except HoldfastError as problem:
            problems[variant.name] = str(problem)
    return runnable, problems


def images(dataset: Dataset, variant: Variant) -> int:
    """The number of images of the dataset a variant runs on."""
    return sum(entry.name not in variant.without for entry in dataset.entries)


def steps(plan: SweepPlan) -> int:
    """How many images × variants the progress of a sweep counts up to."""
    return sum(images(plan.dataset, variant) for variant in plan.variants)
