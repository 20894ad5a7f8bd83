"""`holdfast noise`: what the deployed system does to a model."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.config.options import carry, changed, field_of
from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.evaluate.cli import tell_about
from holdfast.evaluate.options import EvaluationOptions
from holdfast.noise.options import CombineOptions, ListOptions, NoiseOptions, ShowOptions

if TYPE_CHECKING:
    from holdfast.evaluate.run import Plan
    from holdfast.noise.suite import Estimate, NoiseSelection
    from holdfast.noise.vision.result import ModelNoise, Suite
    from holdfast.noise.vision.run import NoisePlan, Prepared
    from holdfast.report.tables import Table

# Options that other tasks do not have.
PICTURES_ONLY = ("use", "format", "split", "map", "rule", "classes", "predictions_out", "per_image")


def suite(options: NoiseOptions) -> int:
    """Measure what the deployed system does to models: the SysNoise table of your own.

    MODEL… DATA: every decoder, resize, colour path, pooling, upsampling, precision, runtime and box rounding
    that is installed and applies, each alone, then the worst of each together; Δ with flips and an interval.
    """
    options.check_output(None if options.dry_run and not options.runs.exists() else options.runs)
    options.check_records()
    if options.task == "pictures":
        return _pictures(options)
    reject_options(options, PICTURES_ONLY)
    if options.task == "language":
        from holdfast.noise.language.cli import language

        return language(options)
    from holdfast.noise.speech.cli import speech

    return speech(options)


def _pictures(options: NoiseOptions) -> int:
    """Run, show and save the suite of image models, and return the exit code."""
    from holdfast.evaluate.per_image import check_task, write_records
    from holdfast.noise.suite import cost_table
    from holdfast.noise.vision import page, result, run, tables
    from holdfast.noise.vision.per_image import record_sets

    models, data = models_and_data(options, "MODEL… DATA: one model or more, then the dataset")
    plans = [plan_for(carry(options, CombineOptions, model=m, data=data, card=card)) for m, card in models]
    note_aliases((*options.only, *options.skip))
    check_task(options, plans[0].plan.model.card.task)
    if options.dry_run:
        estimates = [run.estimate(plan) for plan in plans]
        counted = "finished cells and Combined are not counted"
        return print_estimates(estimates, cost_table(estimates, "image", "variants", counted, digits=1))
    began = time.perf_counter()
    made = suite_of([_measure(plan)[1] for plan in plans], plans[0], command_line(options), began)
    write_records(options, record_sets(made, options.runs), plans[0].plan.dataset)
    each = [table for m in made.models for table in (tables.options_table(m), tables.families_table(m))]
    shown = [tables.models_csv(made)] if options.csv else [*each, tables.models_table(made)]
    messages = list[str]()
    for model in made.models:
        messages += [f"warning  {model.model}: {warning}" for warning in model.warnings]
        if model.calibration:
            messages.append(f"note     {model.model}: integer precisions calibrated on {model.calibration}")
        messages += [f"failed   {failure}" for failure in model.failed[:20]]
    failed = any(model.failed for model in made.models)
    return finish(options, made, result, tables=shown, write=page.write, messages=messages, failed=failed)


def finish(
    options: NoiseOptions,
    suite: Any,
    module: ModuleType,
    *,
    tables: Sequence[Table],
    write: Callable[[Any, Path], Path],
    messages: Iterable[str],
    failed: bool,
) -> int:
    """Print, save and export a finished suite, and return the exit code.

    `module` is that of its result, with `SUITES` and `suite_folder`. The tables come first: they are there
    even if the disk is full.
    """
    for place, table in enumerate(tables):
        if place:
            say("")
        options.print_table(table)
    folder = module.suite_folder(suite, options.runs)
    module.SUITES.save(suite, folder)
    if options.json:
        write_json(options.json, module.SUITES.to_plain(suite))
    if options.out:
        say(f"report: {write(suite, options.out).resolve()}", sys.stderr)
    for message in messages:
        sys.stderr.write(f"{message}\n")
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if failed else 0


def print_estimates(estimates: Iterable[Estimate], table: Table) -> int:
    """Print what suites would take and which options they would skip, and return the exit code."""
    from holdfast.report.tables import to_text

    say(to_text(table))
    for one in estimates:
        for reason in one.skipped:
            say(f"not run  {one.name}: {reason}")
    return 0


def stamp(command: str, began: float) -> dict[str, Any]:
    """The fields of a result that tell how it was made; it began at `began` (time.perf_counter)."""
    from holdfast.engine.manifest import now

    return {"command": command, "created": now(), "seconds": round(time.perf_counter() - began, 3)}


def models_and_data(options: NoiseOptions, expected: str) -> tuple[list[tuple[str, Path | None]], str]:
    """The models with their cards, and the data, which is the last of the words."""
    from holdfast.core.errors import InputError

    *models, data = options.models_data
    if not models:
        raise InputError(f"expected {expected}; see --help")
    if options.card and len(options.card) != len(models):
        raise InputError(f"--card: expected one for each of {len(models)} models, got {len(options.card)}")
    return list(zip(models, options.card or (None,) * len(models), strict=True)), data


def reject_options(options: NoiseOptions, names: Sequence[str]) -> None:
    """Raise InputError if one of the options is given, because the task has no use for it."""
    from holdfast.core.errors import InputError

    for name in names:
        if name in changed(options):
            flag = field_of(NoiseOptions, name).label
            raise InputError(f"{flag}: means nothing with --task {options.task}; leave it out")


def combine(options: CombineOptions) -> int:
    """Add the most harmful noise at each step, and see where effects overlap or magnify one another."""
    from holdfast.engine.progress import progress
    from holdfast.noise.vision import combine as combination
    from holdfast.noise.vision import page, tables

    options.check_output(options.runs)
    began = time.perf_counter()
    plan = plan_for(dataclasses.replace(options, all=False))
    note_aliases((*options.only, *options.skip))
    prepared, made = _measure(plan)
    stairs = combination.combine(prepared, made, progress, options.all)
    options.print_table(tables.staircase_csv(stairs) if options.csv else tables.staircase_table(stairs))
    say(combination.words(stairs), sys.stderr if options.csv or options.latex else sys.stdout)
    if options.json:
        write_json(options.json, combination.as_plain(stairs))
    if options.out:
        suite = suite_of([made], plan, command_line(options), began)
        say(f"report: {page.write(suite, options.out, (stairs,)).resolve()}", sys.stderr)
    return 0


def listing(options: ListOptions) -> None:
    """List every noise that is installed: stage, options, tasks, and which real systems do it."""
    from holdfast.noise.listing import kinds_table, list_table, list_text

    load_own(options.use)
    options.check_output()
    if options.csv or options.markdown or options.latex:
        return options.print_table(list_table())
    options.print_table(kinds_table())
    return say("\n" + list_text(min(shutil.get_terminal_size().columns, 120)))


def show(options: ShowOptions) -> int:
    """See what each noise does to a picture: before, after, and the difference stretched to 0 … 255."""
    from holdfast.core.errors import ImageError, InputError
    from holdfast.data.open import open_dataset
    from holdfast.graph.load import load_model
    from holdfast.noise.vision.show import features, save_pictures, shown, shown_table, write
    from holdfast.report.tables import to_text

    load_own(options.use)
    selection = selection_of(options.only, options.skip)
    note_aliases((*options.only, *options.skip))
    check_outputs({"--out": options.out}, {"--folder": options.folder})
    image = options.image
    try:
        data = image.read_bytes()
    except OSError as problem:
        raise InputError(f"{image}: cannot be read: {problem.strerror}; expected a picture") from problem
    loaded = load_model(options.model, options.card) if options.model else None
    try:
        made = list(shown(data, loaded, selection))
    except ImageError as problem:
        raise InputError(f"{image}: {problem}") from problem
    images = open_dataset(options.calibration, images=100).entries if options.calibration else ()
    maps = list(features(loaded, data, selection, images)) if loaded else []
    if not made and not maps:
        hint = "" if loaded else "; what changes the graph needs --model"
        raise InputError(f"nothing to show: no noise asked for changes a picture or a feature map{hint}")
    say(to_text(shown_table([*made, *maps])))
    if options.folder:
        save_pictures(made, options.folder)
    say(f"page: {write(made, maps, image.name, options.out, command_line(options)).resolve()}")
    return 0


def plan_for(options: CombineOptions, plan: Plan | None = None) -> NoisePlan:
    """The noise plan of one model; `plan` is what to evaluate, if it is opened already."""
    from holdfast.data.open import open_dataset
    from holdfast.evaluate.run import plan_of
    from holdfast.noise.vision.choose import spare_of
    from holdfast.noise.vision.run import NoisePlan

    load_own(options.use)
    selection = selection_of(options.only, options.skip, options.all)
    plan, count = plan or plan_of(carry(options, EvaluationOptions)), options.calibration_images
    task, source = plan.model.card.task, plan.source
    if options.calibration:
        return NoisePlan(plan, selection, open_dataset(options.calibration, task=task), count)
    if "data" not in source:  # a dataset in memory
        return NoisePlan(plan, selection, None, count)
    # Images that are not tested on: other embedded scenes, or those beyond --images.
    reading = task, source.get("format"), source.get("split")
    part = source.get("images") is not None or "selection" in source
    return NoisePlan(plan, selection, spare_of(source["data"], *reading, count, whole=part), count)


def selection_of(only: tuple[str, ...], skip: tuple[str, ...], every: bool = False) -> NoiseSelection:
    """The selection of noises of image models; UnknownName for a word that is none."""
    from holdfast.noise.suite import NoiseSelection

    selection = NoiseSelection(only, skip, every)
    selection.check()
    return selection


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


def _measure(plan: NoisePlan) -> tuple[Prepared, ModelNoise]:
    from holdfast.engine.progress import progress
    from holdfast.noise.vision.run import measure, prepare

    tell_about(plan.plan)
    prepared = prepare(plan)
    return prepared, measure(prepared, progress)


def suite_of(models: Sequence[ModelNoise], plan: NoisePlan, command: str, began: float) -> Suite:
    """The suite of these models; it began at `began` (time.perf_counter)."""
    from holdfast.core.sources import versions
    from holdfast.noise.vision.result import Suite

    data = plan.plan.dataset.name
    return Suite(data, tuple(models), versions=versions(), **stamp(command, began))
