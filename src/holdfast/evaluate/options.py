"""The options of `holdfast evaluate`, and those that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options

if TYPE_CHECKING:
    from holdfast.report.tables import Table

INPUT, SCORING, OUTPUT, EXECUTION = "Input", "Scoring", "Output", "Execution"


@dataclass(frozen=True, kw_only=True)
class CardOptions(Options):
    """The card of a model."""

    card: Annotated[Path | None, Option("Model card (default: next to the model).", group=INPUT)] = None


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(Options):
    """How a dataset is read."""

    format: Annotated[
        str | None,
        Option(
            "Read the data in this format.",
            metavar="NAME",
            group=INPUT,
            names=completions.registered("reader"),
        ),
    ] = None
    split: Annotated[str | None, Option("Split of the data.", metavar="NAME", group=INPUT)] = None
    images: Annotated[int | None, Option("Only the first N images.", group=INPUT, least=1)] = None


@dataclass(frozen=True, kw_only=True)
class MapOptions(Options):
    """How the classes of the data are called by the model."""

    map: Annotated[
        Mapping[str, str],
        Option(
            "Class of the data = class of the model. May be repeated.",
            metavar="DATA=MODEL",
            group=INPUT,
            example="stop=stop sign",
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClassOptions(MapOptions):
    """Which classes count, and how they are called by the model."""

    classes: Annotated[
        Literal["all", "common"], Option("common: only classes known to both model and data.", group=INPUT)
    ] = "all"


@dataclass(frozen=True, kw_only=True)
class SubjectOptions(CardOptions, ReadingOptions):
    """A model on a dataset."""

    model: Annotated[
        str, Argument("An ONNX file, or a shipped model such as signs-yolo.", completions=completions.models)
    ]
    data: Annotated[
        str,
        Argument(
            "A dataset: folder or file, or 'signs' (signs:SEED:COUNT).", completions=completions.datasets
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(Options):
    """How predictions are scored."""

    rule: Annotated[
        str | None,
        Option(
            "AP rule: coco (default), voc, voc2007 or lecture.",
            metavar="NAME",
            group=SCORING,
            names=completions.rules,
        ),
    ] = None
    iou: Annotated[
        float | None,
        Option("IoU threshold of counts and of AP (coco AP: .5 to .95).", group=SCORING, least=0, most=1),
    ] = None
    score: Annotated[
        float | None,
        Option("Score threshold of counts, precision and recall.", group=SCORING, least=0, most=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class StageOptions(Options):
    """Replaced stages of the pipeline."""

    stage: Annotated[
        tuple[str, ...],
        Option(
            "Replace a pipeline stage: resize=opencv-bilinear. May be repeated.",
            metavar="KIND=NAME",
            group=EXECUTION,
            names=completions.stages,
            example="resize=opencv-bilinear",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class JobsOptions(Options):
    """Worker processes."""

    jobs: Annotated[int, Option("Worker processes (0 = one per core).", group=EXECUTION, least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class RunOptions(JobsOptions):
    """Where and how work runs."""

    runs: Annotated[
        Path, Option("Folder of runs and completed cells.", metavar="FOLDER", group=EXECUTION)
    ] = Path("holdfast-runs")


@dataclass(frozen=True, kw_only=True)
class StrictOptions(Options):
    """What an image that fails does to a run."""

    strict: Annotated[bool, Option("Stop at the first image that fails.", group=EXECUTION)] = False


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """How tables are printed and where numbers are written."""

    json: Annotated[Path | None, Option("Write all numbers to this JSON file.", group=OUTPUT)] = None
    csv: Annotated[bool, Option("Print the tables as CSV.", group=OUTPUT)] = False
    markdown: Annotated[bool, Option("Print the tables as Markdown.", group=OUTPUT)] = False

    def check_output(self, runs: Path | None = None) -> None:
        """Raise an error if two formats are given at once, or if a file cannot be written."""
        from holdfast.config.output import check_outputs
        from holdfast.core.errors import InputError

        flags = [f"--{name}" for name in ("csv", "markdown", "latex") if hasattr(self, name)]
        if sum(getattr(self, flag[2:]) for flag in flags) > 1:
            several = "both" if len(flags) == 2 else "several"
            raise InputError(f"expected one of {', '.join(flags[:-1])} and {flags[-1]}, not {several}")
        check_outputs({"--json": self.json, "--out": getattr(self, "out", None)}, {"--runs": runs})

    def print_table(self, table: Table) -> None:
        """Print a table in the format of choice."""
        from holdfast.config.output import say
        from holdfast.report.tables import to_csv, to_latex, to_markdown, to_text

        if self.csv:
            say(to_csv(table), end="")
        else:
            latex = getattr(self, "latex", False)
            say((to_latex if latex else to_markdown if self.markdown else to_text)(table))


@dataclass(frozen=True, kw_only=True)
class LatexOptions(OutputOptions):
    """Output with tables as LaTeX."""

    latex: Annotated[bool, Option("Print the tables as LaTeX.", group=OUTPUT)] = False


@dataclass(frozen=True, kw_only=True)
class PageOptions(LatexOptions):
    """Output with a page."""

    out: Annotated[Path | None, Option("Write the page to this HTML file.", short="-o", group=OUTPUT)] = None


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(
    ScoreOptions, SubjectOptions, ClassOptions, StageOptions, RunOptions, StrictOptions, command="evaluate"
):
    """One evaluation: a model on a dataset, how it is scored and run."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EvaluationOptions, OutputOptions):
    """The options of `holdfast evaluate`; `model` and `data` may be left empty."""

    model: Annotated[
        str, Argument("An ONNX file, or a shipped model such as signs-yolo.", completions=completions.models)
    ] = ""
    data: Annotated[
        str,
        Argument(
            "A dataset: folder or file, or 'signs' (signs:SEED:COUNT).", completions=completions.datasets
        ),
    ] = ""
    truth: Annotated[Path | None, Option("Instead of a model: COCO truth file.", group=INPUT)] = None
    predictions: Annotated[Path | None, Option("Instead of a model: COCO result file.", group=INPUT)] = None
    explain: Annotated[bool, Option("Explain AP step by step.", group=OUTPUT)] = False
    class_: Annotated[
        str | None, Option("With --explain: the class to explain.", metavar="NAME", group=OUTPUT)
    ] = None
    against: Annotated[
        Path | None,
        Option(
            "An earlier run on the same images: print the paired difference.", metavar="RUN", group=OUTPUT
        ),
    ] = None
