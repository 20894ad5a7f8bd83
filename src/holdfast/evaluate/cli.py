"""`holdfast evaluate`: a model on a data set, two COCO files, or the lecture's example."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say

if TYPE_CHECKING:
    from holdfast.evaluate.run import Plan
    from holdfast.evaluate.score import Settings


MOST_IMAGES = 2**31 - 1
WHAT, HOW, SHOWN, RUN = "What is evaluated", "How it is scored", "How it is shown", "How it is run"


Model = Annotated[
    str | None, Argument("An ONNX file, or a shipped model such as signs-yolo.", values=offers.models)
]
Data = Annotated[
    str | None,
    Argument("A data set: folder or file, or 'signs' (signs:SEED:COUNT).", values=offers.data_sets),
]
Truth = Annotated[Path | None, Option("Instead of a model: COCO truth file.", group=WHAT)]
Predictions = Annotated[Path | None, Option("Instead of a model: COCO result file.", group=WHAT)]
Card = Annotated[Path | None, Option("The model's card, if it does not lie beside it.", group=WHAT)]
Format = Annotated[
    str | None,
    Option("Read the data as this format.", "--format", shown="NAME", group=WHAT, values=offers.formats),
]
Split = Annotated[str | None, Option("Which split of the data.", shown="NAME", group=WHAT)]
Images = Annotated[int | None, Option("Only the first N images.", group=WHAT, least=1, most=MOST_IMAGES)]
Classes = Annotated[
    Literal["all", "common"], Option("'common': only classes both model and data know.", group=WHAT)
]
Renames = Annotated[
    tuple[str, ...],
    Option("'data class=model class'. May be repeated.", "--map", shown="DATA=MODEL", group=WHAT),
]
RuleName = Annotated[
    str | None,
    Option("AP rule: coco (default), voc, voc2007 or lecture.", shown="NAME", group=HOW, values=offers.rules),
]
Iou = Annotated[
    float | None,
    Option("IoU threshold of counts and of AP (coco AP: .5 to .95).", group=HOW, least=0, most=1),
]
Score = Annotated[
    float | None, Option("Score threshold of counts, precision and recall.", group=HOW, least=0, most=1)
]
Json = Annotated[Path | None, Option("Write all numbers to this JSON file.", group=SHOWN)]
Csv = Annotated[bool, Option("Print the tables as CSV.", group=SHOWN)]
Markdown = Annotated[bool, Option("Print the tables as Markdown.", group=SHOWN)]
Explain = Annotated[bool, Option("Walk through AP step by step.", group=SHOWN)]
OfClass = Annotated[
    str | None, Option("With --explain: the class to walk through.", "--class", shown="NAME", group=SHOWN)
]
Against = Annotated[
    Path | None,
    Option("An earlier run on the same images: print the paired difference.", shown="RUN", group=SHOWN),
]
Stages = Annotated[
    tuple[str, ...],
    Option(
        "Exchange a stage: resize=opencv-bilinear. May be repeated.",
        shown="KIND=NAME",
        group=RUN,
        values=offers.stages,
    ),
]
Runs = Annotated[Path, Option("Where runs and finished cells are kept.", shown="FOLDER", group=RUN)]
Jobs = Annotated[int, Option("Processes; 0: one a core.", group=RUN, least=0)]
Strict = Annotated[bool, Option("End at the first image that fails.", group=RUN)]


def evaluate(
    model: Model = None,
    data: Data = None,
    truth: Truth = None,
    predictions: Predictions = None,
    rule: RuleName = None,
    iou: Iou = None,
    score: Score = None,
    json: Json = None,
    csv: Csv = False,
    markdown: Markdown = False,
    explain: Explain = False,
    of_class: OfClass = None,
    card: Card = None,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    stage: Stages = (),
    classes: Classes = "all",
    rename: Renames = (),
    against: Against = None,
    runs: Runs = Path("holdfast-runs"),
    jobs: Jobs = 0,
    strict: Strict = False,
) -> int:
    """Evaluate a model on data, or predictions against truth, by a named rule.

    With no arguments but --explain: the worked example of the detection lecture.
    Exit code 4 means: done, but some images failed and were left out.
    """
    from holdfast.core.errors import InputError

    if csv and markdown:
        raise InputError("expected --csv or --markdown, not both")
    if of_class and not explain:
        raise InputError("--class names the class --explain walks through; add --explain")
    if json and json.is_dir():
        raise InputError(f"--json {json}: is a folder; give the name of a file")
    shape = Shape(csv, markdown, json)
    stated, settings = _settings(rule, iou, score)
    common = classes == "common"
    choices = Choices(card, data_format, split, images, stage, rename, strict, common, against)
    if model and data and not (truth or predictions):
        plan = plan_of(model, data, settings, replace(choices, runs=runs, jobs=jobs))
        if stated and plan.model.card.task != "detect":
            raise InputError(f"{', '.join(stated)}: a model to {plan.model.card.task} has no AP")
        return run_plan(plan, shape, explain=explain, of_class=of_class, against=against)
    _without_model(choices)
    if truth and predictions and not model:
        return _files(truth, predictions, settings, explain, of_class, shape)
    if truth or predictions:
        raise InputError("expected MODEL DATA, or both --truth FILE and --predictions FILE")
    if not explain or model:
        raise InputError("expected MODEL DATA, --truth with --predictions, or --explain; see --help")
    return _lecture(shape)


def _settings(rule: str | None, iou: float | None, score: float | None) -> tuple[list[str], Settings]:
    """The options that were given, and the settings with the defaults of the others."""
    from holdfast.evaluate.score import Settings
    from holdfast.metrics.rules import rule_named

    given = {"rule": rule, "iou": iou, "score": score}
    stated = [f"--{name}" for name, value in given.items() if value is not None]
    levels = (0.5 if iou is None else iou, 0.5 if score is None else score)
    return stated, Settings(rule_named(rule or "coco"), *levels)


@dataclass(frozen=True)
class Choices:
    """How the model and the data are opened and run."""

    card: Path | None = None
    data_format: str | None = None
    split: str | None = None
    images: int | None = None
    stages: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    strict: bool = False
    common: bool = False
    against: Path | None = None
    runs: Path = Path("holdfast-runs")
    jobs: int = 0


_OPTIONS = {"data_format": "format", "stages": "stage", "renames": "map", "common": "classes"}


def _without_model(choices: Choices) -> None:
    """Nothing, or InputError if an option was given that only a model with data can obey."""
    from holdfast.core.errors import InputError

    given = [f.name for f in fields(choices) if getattr(choices, f.name) != f.default]
    if given:
        named = ", ".join(f"--{_OPTIONS.get(name, name)}" for name in given)
        raise InputError(f"{named}: of use only with MODEL DATA")


@dataclass(frozen=True)
class Shape:
    """How the result is to be shown."""

    csv: bool = False
    markdown: bool = False
    json: Path | None = None

    def show(self, result: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
        """Nothing; the result is printed, and written as JSON if asked for."""
        from holdfast.config.output import write_json
        from holdfast.evaluate.tables import as_json, by_class, headline
        from holdfast.report.tables import to_csv, to_markdown, to_text

        if self.json:
            write_json(self.json, {**as_json(result), **(extra or {})})
        if self.csv:
            say(to_csv(by_class(result, every=True, overall=True)), end="")
            return
        write = to_markdown if self.markdown else to_text
        say(write(headline(result)) + "\n\n" + write(by_class(result, every=self.markdown)))


def plan_of(model: str, data: str, settings: Settings, choices: Choices) -> Plan:
    """The model and the data opened, ready to be run."""
    from holdfast.core.pipeline import pipeline_of
    from holdfast.data.open import open_dataset
    from holdfast.evaluate.run import Plan
    from holdfast.graph.load import load_model

    loaded = load_model(model, choices.card)
    how: dict[str, Any] = {"format": choices.data_format, "split": choices.split, "images": choices.images}
    stages = _pairs(choices.stages, "--stage", "resize=opencv-bilinear")
    return Plan(
        loaded,
        open_dataset(data, task=loaded.card.task, **how),
        pipeline_of(loaded.card).replace(**stages),
        settings,
        runs=choices.runs,
        jobs=choices.jobs,
        strict=choices.strict,
        common_classes=choices.common,
        renames=_pairs(choices.renames, "--map", "stop=stop sign"),
        source={"data": _absolute(data), **how},
        command=shlex.join(["holdfast", *sys.argv[1:]]),
    )


def _absolute(data: str) -> str:
    """The path so that a report can be made from another folder; the name of the embedded data as it is."""
    from holdfast.data.embedded import is_embedded

    return data if is_embedded(data) else str(Path(data).resolve())


def _pairs(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    from holdfast.core.errors import InputError

    for text in texts:
        if "=" not in text:
            raise InputError(f"{option}: expected NAME=VALUE such as {example!r}, got {text!r}")
    return dict(text.split("=", 1) for text in texts)


def run_plan(
    plan: Plan,
    shape: Shape,
    *,
    explain: bool = False,
    of_class: str | None = None,
    against: Path | None = None,
) -> int:
    """The exit code after the plan was run and its result shown."""
    from holdfast.core.errors import InputError
    from holdfast.engine.progress import progress
    from holdfast.evaluate.result import open_run
    from holdfast.evaluate.run import evaluate as run
    from holdfast.evaluate.run import run_folder

    before = open_run(against) if against else None
    task = plan.model.card.task
    if explain and task != "detect":
        raise InputError(f"--explain walks through AP; a {task} model has none")
    if before and before.about.task != task:
        raise InputError(
            f"--against: a run to {before.about.task} has no paired difference with one to {task}"
        )
    for reason in plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    for problem in plan.dataset.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")
    if len(plan.dataset.problems) > 10:
        sys.stderr.write(
            f"data     and {len(plan.dataset.problems) - 10} more problems: holdfast data info\n"
        )
    with progress("evaluate", len(plan.dataset)) as step:
        done = run(plan, step)
    shape.show(done.result, {"run": str(run_folder(plan)), "failed": len(done.failed)})
    if explain:
        from holdfast.evaluate.explain import explain_run

        say("\n" + explain_run(done, plan.settings, of_class), sys.stderr if shape.csv else sys.stdout)
    if before:
        from holdfast.evaluate.difference import difference

        say(f"\n{difference(before, done)}", sys.stderr if shape.csv else sys.stdout)
    return _ending(done, run_folder(plan))


def _ending(done: Any, folder: Path) -> int:
    warnings = done.result.get("warnings", ())
    for note in done.notes[:10]:
        sys.stderr.write(f"{'warning' if note in warnings else 'note':8} {note}\n")
    for failure in done.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    if done.failed:
        total = len(done.failed) + len(done.records)
        verb = "is" if len(done.failed) == 1 else "are"
        sys.stderr.write(f"{len(done.failed)} of {total} images failed and {verb} not in the numbers\n")
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if done.failed else 0


def _files(
    truth: Path,
    predictions: Path,
    settings: Settings,
    explain: bool,
    of_class: str | None,
    shape: Shape,
) -> int:
    from holdfast.evaluate.files import score_files

    shape.show(score_files(truth, predictions, settings))
    if explain:
        from holdfast.evaluate.explain import explain_files

        say(
            "\n" + explain_files(truth, predictions, settings, of_class),
            sys.stderr if shape.csv else sys.stdout,
        )
    return 0


def _lecture(shape: Shape) -> int:
    from holdfast.evaluate.explain import explain_lecture

    text, result = explain_lecture()
    if shape.json:
        from holdfast.config.output import write_json

        write_json(shape.json, result)
    say(text)
    return 0
