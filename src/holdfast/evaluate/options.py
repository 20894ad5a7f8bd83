"""The options of `holdfast evaluate`, and those that several commands share."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options
from holdfast.config.output import check_outputs, say, write_json
from holdfast.core.errors import InputError
from holdfast.report.tables import Table, to_csv, to_latex, to_markdown, to_text

if TYPE_CHECKING:
    from holdfast.evaluate.score import Settings

INPUT, SCORING, OUTPUT, EXECUTION = "Input", "Scoring", "Output", "Execution"
ModelArgument = Annotated[
    str, Argument("An ONNX file, or a shipped model such as signs-yolo.", completions=completions.models)
]
DataArgument = Annotated[
    str,
    Argument("A dataset: folder or file, or 'signs' (signs:SEED:COUNT).", completions=completions.datasets),
]


@dataclass(frozen=True, kw_only=True)
class CardOptions(Options, group=INPUT):
    """The card of a model."""

    card: Annotated[Path | None, Option("Model card (default: next to the model).")] = None


@dataclass(frozen=True, kw_only=True)
class FormatOptions(Options, group=INPUT):
    """How a dataset is read."""

    format: Annotated[str | None, Option("Read the data in this format.", names=completions.readers)] = None
    split: Annotated[str | None, Option("Split of the data.", metavar="NAME")] = None


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(FormatOptions, group=INPUT):
    """How a dataset is read, and how much of it."""

    images: Annotated[int | None, Option("Only the first N images.", least=1)] = None


@dataclass(frozen=True, kw_only=True)
class MapOptions(Options, group=INPUT):
    """How the classes of the data are called by the model."""

    map: Annotated[
        Mapping[str, str],
        Option(
            "Class of the data = class of the model. May be repeated.",
            metavar="DATA=MODEL",
            example="stop=stop sign",
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClassOptions(MapOptions, group=INPUT):
    """Which classes count, and how they are called by the model."""

    classes: Annotated[
        Literal["all", "common"], Option("common: only classes known to both model and data.")
    ] = "all"


@dataclass(frozen=True, kw_only=True)
class SubjectOptions(CardOptions, ReadingOptions):
    """A model on a dataset."""

    model: ModelArgument
    data: DataArgument


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(Options, group=SCORING):
    """How predictions are scored."""

    rule: Annotated[
        str | None, Option("AP rule: coco (default), voc, voc2007 or lecture.", names=completions.rules)
    ] = None
    iou: Annotated[
        float | None, Option("IoU threshold of counts and of AP (coco AP: .5 to .95).", least=0, most=1)
    ] = None
    score: Annotated[
        float | None, Option("Score threshold of counts, precision and recall.", least=0, most=1)
    ] = None

    def settings(self) -> "Settings":
        """The rule and the thresholds."""
        from holdfast.evaluate.score import Settings
        from holdfast.metrics.rules import rule_named

        return Settings(
            rule_named(self.rule or "coco"),
            iou=0.5 if self.iou is None else self.iou,
            score=0.5 if self.score is None else self.score,
        )


@dataclass(frozen=True, kw_only=True)
class SliceOptions(Options, group=SCORING):
    """Parts of the data with numbers of their own."""

    slice_: Annotated[
        tuple[str, ...],
        Option(
            "Also by size, class, brightness, or a column of a CSV file. May be repeated.",
            metavar="NAME",
            commas=True,
            example="size,weather",
        ),
    ] = ()
    slice_file: Annotated[
        Path | None,
        Option("CSV file with a column image and others to slice by (default: one in the data's folder)."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class StageOptions(Options, group=EXECUTION):
    """Replaced stages of the pipeline."""

    stage: Annotated[
        tuple[str, ...],
        Option(
            "Replace a pipeline stage: resize=opencv-bilinear. May be repeated.",
            metavar="KIND=NAME",
            names=completions.stages,
            example="resize=opencv-bilinear",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class DefenceOptions(Options, group=EXECUTION):
    """A defence around the model."""

    defend: Annotated[
        str | None,
        Option(
            "Wrap the detector: masks, masks:lines=30,squares=8,patch=16,alpha=0.6, or a run of certify.",
            metavar="DEFENCE",
            example="masks:lines=30,alpha=0.6",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ProviderOptions(Options, group=EXECUTION):
    """Where ONNX Runtime runs the model."""

    provider: Annotated[
        tuple[str, ...],
        Option(
            "Execution providers of ONNX Runtime, in order (default: cpu).",
            metavar="NAME",
            commas=True,
            example="cuda,cpu",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class DeployModelOptions(Options, group=EXECUTION):
    """A converted file of the model."""

    deploy_model: Annotated[
        Path | None,
        Option("The converted file that is deployed: .tflite, .xml, .param or .onnx.", metavar="FILE"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobsOptions(Options, group=EXECUTION):
    """Worker processes."""

    jobs: Annotated[int, Option("Worker processes (0 = one per core).", least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions(JobsOptions, group=EXECUTION):
    """Where work runs and where its cells are stored."""

    store: Annotated[
        str | None,
        Option(
            "Folder or URL of completed cells: s3://…, gs://… or az://… (default: in the folder of runs).",
            metavar="URL",
            example="s3://bucket/cells",
        ),
    ] = None
    part: Annotated[
        str | None,
        Option(
            "Compute one part of the work and stop; without --part, join all.", metavar="N/OF", example="3/8"
        ),
    ] = None

    on: Annotated[
        str | None,
        Option("Run on a Ray cluster: that of RAY_ADDRESS, else one on this machine.", metavar="ray"),
    ] = None

    def context(self) -> AbstractContextManager[None]:
        """The store, the part and the cluster of this command."""
        from holdfast.engine.execution import Execution, Part, check_cluster, executing
        from holdfast.engine.store import open_store

        if self.on is not None:
            check_cluster(self.on)
        part = None if self.part is None else Part.parse(self.part)
        if self.store is not None:
            open_store(self.store)  # a URL that cannot be used is reported before anything runs
        return executing(Execution(self.store or "", part, self.on or ""))


@dataclass(frozen=True, kw_only=True)
class RunOptions(ExecutionOptions, group=EXECUTION):
    """Where and how work runs."""

    runs: Annotated[Path, Option("Folder of runs and completed cells.", metavar="FOLDER")] = Path(
        "holdfast-runs"
    )


@dataclass(frozen=True, kw_only=True)
class StrictOptions(Options, group=EXECUTION):
    """What an image that fails does to a run."""

    strict: Annotated[bool, Option("Stop at the first image that fails.")] = False


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options, group=OUTPUT):
    """How tables are printed and where numbers are written."""

    csv: Annotated[bool, Option("Print the tables as CSV.")] = False
    markdown: Annotated[bool, Option("Print the tables as Markdown.")] = False
    latex: Annotated[bool, Option("Print the tables as LaTeX.")] = False
    json: Annotated[Path | None, Option("Write all numbers to this JSON file.")] = None

    def check_output(self, runs: Path | None = None) -> None:
        """Raise an error if two formats are given at once, or if a file cannot be written."""
        if self.csv + self.markdown + self.latex > 1:
            raise InputError("expected one of --csv, --markdown and --latex, not several")
        check_outputs({"--json": self.json, "--out": getattr(self, "out", None)}, {"--runs": runs})

    def write_json(self, numbers: Any) -> None:
        """Write the numbers to the JSON file, if one is given."""
        if self.json:
            write_json(self.json, numbers)

    def print_table(self, table: Table) -> None:
        """Print a table in the format of choice."""
        if self.csv:
            return say(to_csv(table), end="")
        return say((to_latex if self.latex else to_markdown if self.markdown else to_text)(table))


@dataclass(frozen=True, kw_only=True)
class RecordOptions(Options, group=OUTPUT):
    """Where results per image are written."""

    predictions_out: Annotated[
        Path | None, Option("Write all detections to this JSON file, in the results format of COCO.")
    ] = None
    per_image: Annotated[
        Path | None, Option("Write one row per image to this CSV file: true and false positives, misses, AP.")
    ] = None

    def check_records(self) -> None:
        """Raise an error if a file cannot be written."""
        check_outputs({"--predictions-out": self.predictions_out, "--per-image": self.per_image}, {})


@dataclass(frozen=True, kw_only=True)
class PageOptions(OutputOptions, group=OUTPUT):
    """Output with a page."""

    out: Annotated[Path | None, Option("Write the page to this HTML file.", short="-o")] = None


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(
    ScoreOptions,
    SliceOptions,
    SubjectOptions,
    ClassOptions,
    StageOptions,
    ProviderOptions,
    DefenceOptions,
    RunOptions,
    StrictOptions,
    command="evaluate",
    examples=(
        "holdfast evaluate signs-yolo signs:0:20",
        "holdfast evaluate signs-yolo signs:0:20 --stage resize=opencv-nearest --rule voc",
    ),
):
    """One evaluation: a model on a dataset, how it is scored and run."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EvaluationOptions, DeployModelOptions, PageOptions, RecordOptions, group=OUTPUT):
    """The options of `holdfast evaluate`; `model` and `data` may be left empty."""

    model: ModelArgument = ""
    data: DataArgument = ""
    truth: Annotated[Path | None, Option("Instead of a model: COCO truth file.", group=INPUT)] = None
    predictions: Annotated[Path | None, Option("Instead of a model: COCO result file.", group=INPUT)] = None
    explain: Annotated[bool, Option("Explain AP step by step.")] = False
    class_: Annotated[str | None, Option("With --explain: the class to explain.", metavar="NAME")] = None
    against: Annotated[
        Path | None, Option("An earlier run on the same images: print the points lost.", metavar="RUN")
    ] = None
    top: Annotated[int | None, Option("Print this many of the worst classes (default: 10).", least=1)] = None
    all_classes: Annotated[bool, Option("Print all classes.")] = False
