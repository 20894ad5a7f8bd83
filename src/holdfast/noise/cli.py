"""`holdfast noise`: what the deployed system does to a model."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say, write_json
from holdfast.evaluate.cli import (
    Choices,
    Classes,
    Format,
    Images,
    Jobs,
    Renames,
    RuleName,
    Runs,
    Split,
    Strict,
    plan_of,
)
from holdfast.noise.output import Shape
from holdfast.noise.tasks import Beyond, none_of, run_task

if TYPE_CHECKING:
    from holdfast.core.dataset import Dataset
    from holdfast.evaluate.run import Plan
    from holdfast.noise.vision.combine import Staircase
    from holdfast.noise.vision.result import ModelNoise, Suite
    from holdfast.noise.vision.run import NoisePlan, Prepared

WHAT, NOISE, SHOWN, RUN = "What is tested", "Which noise", "How it is shown", "How it is run"

ModelsData = Annotated[
    tuple[str, ...],
    Argument(
        "One model or more (ONNX files or shipped names), then the data set.", "MODEL… DATA", offers.models
    ),
]
Card = Annotated[
    tuple[Path, ...], Option("The card of each model, in order, if it does not lie beside it.", group=WHAT)
]
Only = Annotated[
    tuple[str, ...],
    Option(
        "Only these: families, or FAMILY=OPTION, with commas or repeated.", group=NOISE, values=offers.noises
    ),
]
Skip = Annotated[
    tuple[str, ...],
    Option(
        "Not these: families, or FAMILY=OPTION, with commas or repeated.", group=NOISE, values=offers.noises
    ),
]
Every = Annotated[bool, Option("Also the options that are run on demand only.", "--all", group=NOISE)]
Use = Annotated[tuple[Path, ...], Option("A Python file with noises of your own.", group=NOISE)]
CalibrationData = Annotated[
    str | None,
    Option("Images to calibrate integer precisions on (else some of DATA's).", shown="DATA", group=NOISE),
]
CalibrationImages = Annotated[int, Option("How many images to calibrate on.", group=NOISE, least=1)]
Json = Annotated[Path | None, Option("Write all numbers to this JSON file.", group=SHOWN)]
Csv = Annotated[bool, Option("Print the table as CSV.", group=SHOWN)]
Markdown = Annotated[bool, Option("Print the tables as Markdown.", group=SHOWN)]
Latex = Annotated[bool, Option("Print the tables as LaTeX.", group=SHOWN)]
Page = Annotated[Path | None, Option("Write the page to this HTML file.", short="-o", group=SHOWN)]
Task = Annotated[
    Literal["pictures", "language", "speech"],
    Option("What the models do; language and speech take files of their own.", group=WHAT),
]
DryRun = Annotated[
    bool, Option("Say which cells there are, and how long and how large, from a timed sample.", group=RUN)
]


def suite(
    models_data: ModelsData,
    task: Task = "pictures",
    card: Card = (),
    only: Only = (),
    skip: Skip = (),
    every: Every = False,
    use: Use = (),
    calibration: CalibrationData = None,
    calibration_images: CalibrationImages = 100,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    classes: Classes = "all",
    rename: Renames = (),
    rule: RuleName = None,
    json: Json = None,
    csv: Csv = False,
    markdown: Markdown = False,
    latex: Latex = False,
    out: Page = None,
    runs: Runs = Path("holdfast-runs"),
    jobs: Jobs = 0,
    strict: Strict = False,
    dry_run: DryRun = False,
) -> int:
    """Measure what the deployed system does to models: the SysNoise table of your own.

    MODEL… DATA: every decoder, resize, colour path, pooling, upsampling, precision, runtime and box rounding
    that is installed and applies, each alone, then the worst of each together; Δ with flips and an interval.
    """
    how = Choices(None, data_format, split, images, (), rename, strict, classes == "common", None, runs, jobs)
    shape = Shape(csv, markdown, latex, json, out, None if dry_run and not runs.exists() else runs)
    shape.check()
    if task != "pictures":
        common = classes == "common"
        none_of(task, use=use, format=data_format, split=split, map=rename, rule=rule, classes=common)
        words = Beyond(
            models_data, card, only, skip, every, calibration, calibration_images, images,
            json, csv, markdown, latex, out, runs, jobs, strict, dry_run,
        )  # fmt: skip
        return run_task(task, words)
    asked = Asked(only, skip, every, use, calibration, calibration_images, rule)
    plans = list(plans_of(models_data, card, how, asked))
    if dry_run:
        return _estimated(plans)
    began = time.perf_counter()
    made = _suite([_one(plan)[1] for plan in plans], plans[0].plan.dataset.name, began)
    shape.show(made)
    if out:
        _page(made, (), out)
    return _ending(made, plans[0].plan.runs)


def combine(
    model: Annotated[str, Argument("An ONNX file, or a shipped model.", values=offers.models)],
    data: Annotated[str, Argument("A data set.", values=offers.data_sets)],
    card: Card = (),
    only: Only = (),
    skip: Skip = (),
    every: Annotated[bool, Option("Try every option at each step.", "--all", group=NOISE)] = False,
    use: Use = (),
    calibration: CalibrationData = None,
    calibration_images: CalibrationImages = 100,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    classes: Classes = "all",
    rename: Renames = (),
    rule: RuleName = None,
    json: Json = None,
    csv: Csv = False,
    markdown: Markdown = False,
    latex: Latex = False,
    out: Page = None,
    runs: Runs = Path("holdfast-runs"),
    jobs: Jobs = 0,
    strict: Strict = False,
) -> int:
    """Add the most harmful noise at each step, and see where effects overlap or magnify one another."""
    from holdfast.noise.vision.combine import as_plain, words
    from holdfast.noise.vision.combine import combine as build_up
    from holdfast.noise.vision.sections import staircase_csv, staircase_table

    how = Choices(None, data_format, split, images, (), rename, strict, classes == "common", None, runs, jobs)
    shape = Shape(csv, markdown, latex, json, out, runs)
    shape.check()
    asked = Asked(only, skip, False, use, calibration, calibration_images, rule)
    began = time.perf_counter()
    (plan,) = plans_of((model, data), card, how, asked)
    prepared, made = _one(plan)
    stairs = build_up(prepared, made, watch, every)
    shape.table(staircase_csv(stairs) if csv else staircase_table(stairs))
    say(words(stairs), sys.stderr if csv or latex else sys.stdout)
    if json:
        write_json(json, as_plain(stairs))
    if out:
        _page(_suite([made], plan.plan.dataset.name, began), (stairs,), out)
    return 0


def listing(
    use: Use = (),
    csv: Csv = False,
    markdown: Markdown = False,
    latex: Latex = False,
) -> None:
    """List every noise that is installed: stage, options, tasks, and which real systems do it."""
    from holdfast.noise.vision.listing import kinds_table, list_table, list_text

    load_own(use)
    shape = Shape(csv, markdown, latex)
    shape.check()
    if csv or markdown or latex:
        return shape.table(list_table())
    shape.table(kinds_table())
    return say("\n" + list_text(min(shutil.get_terminal_size().columns, 120)))


class Asked(NamedTuple):
    """Which noises, and what integer precisions are calibrated on."""

    only: tuple[str, ...]
    skip: tuple[str, ...]
    every: bool
    use: tuple[Path, ...]
    calibration: str | None
    images: int
    rule: str | None


def plans_of(words: Sequence[str], cards: Sequence[Path], how: Choices, asked: Asked) -> Iterator[NoisePlan]:
    """A plan for each model, the data set last among the words."""
    from holdfast.core.errors import InputError
    from holdfast.evaluate.score import Settings
    from holdfast.metrics.rules import rule_named
    from holdfast.noise.vision.choose import Wanted
    from holdfast.noise.vision.run import NoisePlan

    if len(words) < 2:
        raise InputError("expected MODEL… DATA: one model or more, then the data set; see --help")
    if cards and len(cards) != len(words) - 1:
        raise InputError(f"--card: expected one for each of {len(words) - 1} models, got {len(cards)}")
    load_own(asked.use)
    wanted = Wanted(words_of(asked.only), words_of(asked.skip), asked.every)
    wanted.check()
    note_aliases((*wanted.only, *wanted.skip))
    settings = Settings(rule_named(asked.rule or "coco"))
    data = words[-1]
    for place, model in enumerate(words[:-1]):
        chosen = replace(how, card=cards[place]) if cards else how
        plan = plan_of(model, data, settings, chosen)
        spare = _spare(data, asked, chosen, plan)
        yield NoisePlan(plan, wanted, spare, asked.images)


def words_of(given: Sequence[str]) -> tuple[str, ...]:
    """The words of an option that may be repeated, or hold several with commas between them."""
    return tuple(word.strip() for text in given for word in text.split(",") if word.strip())


def note_aliases(labels: Sequence[str]) -> None:
    """Write a note for every FAMILY=OPTION that is an alias: which option it stands for."""
    from holdfast.stages.families import alias_notes

    for note in alias_notes(labels):
        sys.stderr.write(f"note     {note}\n")


def load_own(files: Sequence[Path]) -> None:
    """Register the noises of these files."""
    from holdfast.core.registry import load_parts

    for file in files:
        load_parts(file)


def _spare(data: str, asked: Asked, how: Choices, plan: Plan) -> Dataset | None:
    """Images that are not tested on: those named, other embedded scenes, or those beyond --images."""
    from holdfast.data.open import open_dataset
    from holdfast.noise.vision.calibration import spare_of

    task = plan.model.card.task
    if asked.calibration:
        return open_dataset(asked.calibration, task=task)
    return spare_of(data, task, how.data_format, how.split, asked.images, whole=how.images is not None)


def _one(plan: NoisePlan) -> tuple[Prepared, ModelNoise]:
    from holdfast.noise.vision.run import measure, prepare

    for reason in plan.plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    for problem in plan.plan.dataset.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")
    prepared = prepare(plan)
    return prepared, measure(prepared, watch)


@contextmanager
def watch(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Progress of a sweep, on standard error."""
    from holdfast.engine.progress import progress

    with progress(what, total) as step:
        yield step


def _suite(models: Sequence[ModelNoise], data: str, began: float) -> Suite:
    from holdfast.engine.versions import versions
    from holdfast.noise.vision.result import Suite

    command = shlex.join(["holdfast", *sys.argv[1:]])
    created = datetime.now(UTC).isoformat(timespec="seconds")
    seconds = round(time.perf_counter() - began, 3)
    return Suite(data, tuple(models), command, created, seconds, versions())


def _estimated(plans: Sequence[NoisePlan]) -> int:
    from holdfast.noise.vision.estimate import estimate
    from holdfast.noise.vision.tables import estimate_table
    from holdfast.report.tables import to_text

    found = [estimate(plan) for plan in plans]
    say(to_text(estimate_table(found)))
    for one in found:
        for reason in one.left_out:
            say(f"not run  {one.model}: {reason}")
    return 0


def _page(made: Suite, stairs: Sequence[Staircase], out: Path) -> None:
    from holdfast.noise.vision.page import write

    say(f"report: {write(made, out, stairs).resolve()}", sys.stderr)


def _ending(made: Suite, runs: Path) -> int:
    from holdfast.noise.vision.result import save, suite_folder

    for model in made.models:
        for warning in model.warnings:
            sys.stderr.write(f"warning  {model.model}: {warning}\n")
        if model.calibration:
            sys.stderr.write(
                f"note     {model.model}: integer precisions calibrated on {model.calibration}\n"
            )
        for failure in model.failed[:20]:
            sys.stderr.write(f"failed   {failure}\n")
    folder = suite_folder(made, runs)
    save(made, folder)
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if any(m.failed for m in made.models) else 0
