"""`holdfast noise`: what the deployed system does to a model."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.options import carry, changed, field_of
from holdfast.config.output import say, write_json
from holdfast.config.parser import command_line
from holdfast.evaluate.cli import plan_of, tell_about
from holdfast.evaluate.options import EvaluationOptions, OutputOptions
from holdfast.noise.options import CombineOptions, ListOptions, NoiseOptions

if TYPE_CHECKING:
    from holdfast.core.dataset import Dataset
    from holdfast.evaluate.run import Plan
    from holdfast.noise.vision.combine import Staircase
    from holdfast.noise.vision.result import ModelNoise, Suite
    from holdfast.noise.vision.run import NoisePlan, Prepared

PICTURES_ONLY = ("use", "format", "split", "map", "rule", "classes")  # options that other tasks do not have


def suite(options: NoiseOptions) -> int:
    """Measure what the deployed system does to models: the SysNoise table of your own.

    MODEL… DATA: every decoder, resize, colour path, pooling, upsampling, precision, runtime and box rounding
    that is installed and applies, each alone, then the worst of each together; Δ with flips and an interval.
    """
    options.check_output(None if options.dry_run and not options.runs.exists() else options.runs)
    if options.task != "pictures":
        return _run_task(options)
    plans = list(plans_of(options))
    if options.dry_run:
        return _estimated(plans)
    began = time.perf_counter()
    models = [_one(plan)[1] for plan in plans]
    made = suite_of(models, plans[0].plan.dataset.name, command_line(options), began)
    show_suite(made, options)
    if options.out:
        _page(made, (), options.out)
    return _ending(made, options.runs)


def _run_task(options: NoiseOptions) -> int:
    """Run the suite of language or speech models and return the exit code."""
    reject_options(options, PICTURES_ONLY)
    if options.task == "language":
        from holdfast.noise.language.cli import language

        return language(options)
    from holdfast.noise.speech.cli import speech

    return speech(options)


def reject_options(options: NoiseOptions, names: Sequence[str]) -> None:
    """Raise InputError if one of the options is given, because the task has no use for it."""
    from holdfast.core.errors import InputError

    for name in names:
        if name in changed(options):
            flag = field_of(NoiseOptions, name).label
            raise InputError(f"{flag}: means nothing with --task {options.task}; leave it out")


def combine(options: CombineOptions) -> int:
    """Add the most harmful noise at each step, and see where effects overlap or magnify one another."""
    from holdfast.noise.vision.combine import as_plain, words
    from holdfast.noise.vision.combine import combine as build_up
    from holdfast.noise.vision.sections import staircase_csv, staircase_table

    options.check_output(options.runs)
    began = time.perf_counter()
    plan = plan_for(dataclasses.replace(options, all=False))
    prepared, made = _one(plan)
    stairs = build_up(prepared, made, watch, options.all)
    options.print_table(staircase_csv(stairs) if options.csv else staircase_table(stairs))
    say(words(stairs), sys.stderr if options.csv or options.latex else sys.stdout)
    if options.json:
        write_json(options.json, as_plain(stairs))
    if options.out:
        suite = suite_of([made], plan.plan.dataset.name, command_line(options), began)
        _page(suite, (stairs,), options.out)
    return 0


def listing(options: ListOptions) -> None:
    """List every noise that is installed: stage, options, tasks, and which real systems do it."""
    from holdfast.noise.vision.listing import kinds_table, list_table, list_text

    load_own(options.use)
    options.check_output()
    if options.csv or options.markdown or options.latex:
        return options.print_table(list_table())
    options.print_table(kinds_table())
    return say("\n" + list_text(min(shutil.get_terminal_size().columns, 120)))


def show_suite(made: Suite, options: OutputOptions) -> None:
    """Print the tables, and write the numbers to a JSON file if there is one."""
    from holdfast.noise.vision.result import as_plain
    from holdfast.noise.vision.tables import families_table, models_csv, models_table, options_table

    if options.csv:
        options.print_table(models_csv(made))
    else:
        for model in made.models:
            options.print_table(options_table(model))
            say("")
            options.print_table(families_table(model))
            say("")
        options.print_table(models_table(made))
    if options.json:
        write_json(options.json, as_plain(made))


def plans_of(options: NoiseOptions) -> Iterator[NoisePlan]:
    """A plan for each model; the dataset is last among the words."""
    from holdfast.core.errors import InputError

    *models, data = options.models_data
    if not models:
        raise InputError("expected MODEL… DATA: one model or more, then the dataset; see --help")
    if options.card and len(options.card) != len(models):
        raise InputError(f"--card: expected one for each of {len(models)} models, got {len(options.card)}")
    for model, card in zip(models, options.card or (None,) * len(models), strict=True):
        yield plan_for(carry(options, CombineOptions, model=model, data=data, card=card))


def plan_for(options: CombineOptions) -> NoisePlan:
    """The noise plan of one model."""
    from holdfast.noise.vision.choose import Wanted
    from holdfast.noise.vision.run import NoisePlan

    load_own(options.use)
    wanted = Wanted(options.only, options.skip, options.all)
    wanted.check()
    note_aliases((*wanted.only, *wanted.skip))
    plan = plan_of(carry(options, EvaluationOptions))
    return NoisePlan(plan, wanted, _spare(options, plan), options.calibration_images)


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


def _spare(options: CombineOptions, plan: Plan) -> Dataset | None:
    """Images that are not tested on: those named, other embedded scenes, or those beyond --images."""
    from holdfast.data.open import open_dataset
    from holdfast.noise.vision.calibration import spare_of

    task = plan.model.card.task
    if options.calibration:
        return open_dataset(options.calibration, task=task)
    whole = options.images is not None
    return spare_of(
        options.data, task, options.format, options.split, options.calibration_images, whole=whole
    )


def _one(plan: NoisePlan) -> tuple[Prepared, ModelNoise]:
    from holdfast.noise.vision.run import measure, prepare

    tell_about(plan.plan)
    prepared = prepare(plan)
    return prepared, measure(prepared, watch)


@contextmanager
def watch(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Progress of a sweep, on standard error."""
    from holdfast.engine.progress import progress

    with progress(what, total) as step:
        yield step


def suite_of(models: Sequence[ModelNoise], data: str, command: str, began: float) -> Suite:
    """The suite of these models; it began at `began` (time.perf_counter)."""
    from holdfast.engine.manifest import now
    from holdfast.engine.versions import versions
    from holdfast.noise.vision.result import Suite

    return Suite(
        data,
        tuple(models),
        command=command,
        created=now(),
        seconds=round(time.perf_counter() - began, 3),
        versions=versions(),
    )


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
