"""What the noise suites of images, language and speech have in common.

Each selects options, reserves data that integer precisions are calibrated on, builds a variant per option,
measures it against the clean one, and reports one row per option.
"""

import contextlib
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from holdfast.core import fingerprint
from holdfast.core.errors import InputError, UnknownName
from holdfast.core.registry import part
from holdfast.core.sources import code_of
from holdfast.engine.executor import Progress, silent
from holdfast.graph.artifacts import Artifact, cached_artifact
from holdfast.graph.session import runtime
from holdfast.report.tables import Column, Table, many
from holdfast.stages.families import NoiseOption, families, options

SuiteName: TypeAlias = Literal["default", "paper", "corruptions"]
Outcome: TypeAlias = Literal["measured", "identical", "no effect", "impossible", "not installed"]
# Outcomes as they are printed, where that is not the word itself.
OUTCOMES = {"identical": "identical input", "impossible": "not supported"}
Watch: TypeAlias = Callable[..., AbstractContextManager[Progress]]  # of what, how many, and their unit
Item = TypeVar("Item")

REWRITTEN = "rewritten"  # the folder of rewritten models, next to the cells
PRECISION = "precision"
CORRUPTIONS = "corruptions"  # the family that the suite of this name adds
# Families with an eq. of their own in the paper's appendix, of which its tables measure one option.
PAPER_ONLY = {"colour": "nv12"}
CALIBRATION_ITEMS = 100  # more change the ranges little, fewer make them jump


def no_progress(what: str, total: int, unit: str = "") -> AbstractContextManager[Progress]:
    """No-op progress."""
    return contextlib.nullcontext(silent)


@dataclass(frozen=True)
class NoiseSelection:
    """Which options: families or FAMILY=OPTION; empty `only` means all that run by default."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    every: bool = False
    suite: SuiteName = "default"

    def check(self, offered: Sequence[NoiseOption] | None = None, what: str = "noise family") -> None:
        """Raise UnknownName for a family or option that is not offered (default: those of image models)."""
        if offered is None:
            offered = [option for family in families() for option in options(family)]
        known = tuple(dict.fromkeys(option.family for option in offered))
        for text in (*self.only, *self.skip):
            family, _, name = text.partition("=")
            if family not in known:
                either = what if "=" in text else what.replace("family", "family or option")
                raise UnknownName(either, family, known)
            if "=" in text and not any(text in option.labels for option in offered):
                raise UnknownName(family, name, [o.name for o in offered if o.family == family])

    def singles_out(self, option: NoiseOption) -> bool:
        """Whether `only` has this option by name, not just its family."""
        return bool(set(option.labels) & set(self.only))

    def takes(self, option: NoiseOption) -> bool:
        """Whether the option is selected."""
        if option.family in self.skip or set(option.labels) & set(self.skip):
            return False
        if self.suite == "paper" and not in_paper(option):
            return False
        if option.on_request:
            added = self.suite == option.family and not self.only
            named, wanted = added or option.family in self.only, True
        else:
            named, wanted = not self.only or option.family in self.only, option.default or self.every
        return self.singles_out(option) or (named and wanted)


def in_paper(option: NoiseOption) -> bool:
    """Whether the paper's Tables 2 to 4 measure this option."""
    return option.paper and PAPER_ONLY.get(option.family, option.name) == option.name


@dataclass(frozen=True)
class Candidate(Generic[Item]):
    """A selected option with the variant that measures it, or the reason why there is nothing to measure."""

    option: NoiseOption
    status: Outcome
    note: str = ""
    variant: Item | None = None


def skipped_options(candidates: Iterable[Candidate[Item]]) -> tuple[str, ...]:
    """The options that would not be run, each with the reason."""
    skipped = (c for c in candidates if c.variant is None)
    return tuple(f"{c.option.label}: {OUTCOMES.get(c.status, c.status)}, {c.note}" for c in skipped)


@dataclass(frozen=True)
class Reserved(Generic[Item]):
    """Items to calibrate on, the tested ones that calibrated variants must skip for it, and both in words."""

    items: tuple[Item, ...]
    words: str
    without: frozenset[str] = frozenset()
    lack: str = ""  # why there is nothing to calibrate on


@dataclass(frozen=True)
class ConvertedGraphs:
    """Rewritten graphs on disk, by suffix; without changes there is nothing to measure."""

    paths: Mapping[str, Path]
    key: str
    changed: bool
    how: str


def is_calibrated(precision: str) -> bool:
    """Whether a precision needs calibration data."""
    return bool(part("rewrite", precision).facts.get("calibrated", False))


def conversion_key(task: str, precision: str, content: Sequence[Any]) -> str:
    """The key of the graphs of that content in a precision."""
    import onnx

    code = [precision, part("rewrite", precision).function, code_of(task)]
    return fingerprint.of([*content, code, onnx.__version__, runtime().__version__])


def conversion_stem(folder: Path, key: str) -> Path:
    """The files of converted graphs without their endings."""
    return folder / key[:32]


def convert_graphs(
    task: str, precision: str, content: Sequence[Any], folder: Path, rewrite: Callable[[], Artifact]
) -> ConvertedGraphs:
    """The graphs of that content in a precision, rewritten now if they are not there."""
    key = conversion_key(task, precision, content)
    paths, facts = cached_artifact(conversion_stem(folder, key), key, rewrite)
    return ConvertedGraphs(paths, key, bool(facts["changed"]), str(facts["how"]))


def check_distinct(names: Sequence[str], what: str) -> None:
    """Raise InputError if two have the same name."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"expected {what} with different names, got {twice[0]!r} twice")


def spread(items: Sequence[Item], count: int) -> tuple[Item, ...]:
    """`count` items, evenly spread over all: files are often sorted."""
    return tuple(items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count))


def calibration_subset(tested: Sequence[Item], count: int) -> tuple[Item, ...]:
    """Items of the tested to calibrate on where there are no others: at most a quarter of them."""
    return spread(tested, min(count, max(1, len(tested) // 4)))


class OptionRow:
    """What the rows of image and speech models have in common."""

    family: str
    option: str
    outcome: Outcome
    alike: str  # an earlier option of the family with the same effect

    @property
    def label(self) -> str:
        """family=option, as the command line takes it."""
        return f"{self.family}={self.option}"

    @property
    def loss(self) -> float | None:
        """The number that options are ranked by; None if nothing was measured."""
        raise NotImplementedError

    @property
    def harm(self) -> tuple[float, int]:
        """The key that orders options from harmless to harmful."""
        return self.loss or 0.0, 0

    @property
    def group(self) -> str:
        """The column of the paper's table: the family, or FP16, BF16, INT8 of the family precision."""
        return self.option.split("-")[0].upper() if self.family == PRECISION else self.family


Row = TypeVar("Row", bound=OptionRow)


def distinct_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows that have numbers and differ from the clean system and from one another."""
    return [row for row in rows if row.outcome == "measured" and row.loss is not None and not row.alike]


def worst_per_group(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[Row]:
    """Of each group of rows the most harmful one; the first of equals."""
    best: dict[Hashable, Row] = {}
    for row in rows:
        if (group := key(row)) not in best or row.harm > best[group].harm:
            best[group] = row
    return list(best.values())


def common_outcome(rows: Sequence[OptionRow]) -> str:
    """The outcome of rows of which none was measured."""
    outcomes = {row.outcome for row in rows}
    ranked = ("identical", "no effect", "impossible", "not installed")
    return next((outcome for outcome in ranked if outcome in outcomes), "not run")


def excludes_zero(low: float | None, high: float | None) -> bool:
    """Whether an interval does not contain 0: the difference is significant."""
    return low is not None and high is not None and (low > 0 or high < 0)


def outcome_text(row: Any) -> str:
    """The outcome of a row as it is printed."""
    return OUTCOMES.get(row.outcome, str(row.outcome))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the suite of one model would take, in one process."""

    model: str
    data: str = ""  # the question set of a language model
    items: int  # images, questions or clips
    variants: int  # that would be run, the clean one among them
    cells: int  # in all
    missing: int  # of those, not finished yet
    seconds: float = 0.0
    bytes: int = 0
    sample: int = 0  # items that were timed
    skipped: tuple[str, ...] = ()  # options that would not be run, and why

    @property
    def name(self) -> str:
        """The model, and the set it is asked about."""
        return f"{self.model} on {self.data}" if self.data else self.model


def extrapolate(untimed: Estimate, sample: int, folder: Path, run: Callable[[], object]) -> Estimate:
    """The estimate with time and size, from `sample` items that `run` measures now into the folder."""
    began = time.perf_counter()
    run()
    seconds = time.perf_counter() - began
    written = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    # What variants share is counted as if each had its part of it.
    times = untimed.items / sample * untimed.missing / untimed.cells
    return replace(untimed, seconds=seconds * times, bytes=round(written * times), sample=sample)


def estimate_table(
    estimates: Sequence[Estimate], item: str, variants: str, counted: str, digits: int
) -> Table:
    """The estimated cells, time and disk space; `item` and `variants` are the task's own words."""
    caption = f"Estimate from a sample that was run in one process; {counted}"
    columns: list[Column[Estimate]] = [
        Column("model", get=lambda e: e.model),
        Column(f"{item}s", get=lambda e: e.items),
        Column(variants, get=lambda e: e.variants),
        Column("cells to run", get=lambda e: f"{e.missing} of {e.cells}"),
        Column("seconds (estimate)", 0, get=lambda e: e.seconds),
        Column("MB (estimate)", digits, get=lambda e: e.bytes / 1e6),
        Column("timed on", get=lambda e: many(e.sample, item) if e.sample else "all cells are cached"),
    ]
    return Table.of(estimates, columns, caption)
