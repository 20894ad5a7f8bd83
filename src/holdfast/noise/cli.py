"""`holdfast noise`: measure system noise, the points a model loses in deployment."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.config.options import carry, changed, field_of
from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.engine.execution import each
from holdfast.evaluate.cli import print_data_notes
from holdfast.evaluate.options import EvaluationOptions
from holdfast.noise.options import CombineOptions, ListOptions, NoiseOptions, SelectionOptions, ShowOptions

if TYPE_CHECKING:
    from holdfast.evaluate.run import EvaluationPlan
    from holdfast.noise.suite import Estimate, NoiseSelection, SuiteName
    from holdfast.noise.vision.result import ModelNoise, NoiseSuite
    from holdfast.noise.vision.run import NoisePlan, PreparedNoise
    from holdfast.report.tables import Table

_IMAGES_ONLY = (
    "use",
    "format",
    "split",
    "map",
    "rule",
    "classes",
    "defend",
    "predictions_out",
    "per_image",
    "suite",
    "deploy_model",
    "provider",
    "slice_",
    "slice_file",
)
# Options that a task does not have.
UNSUPPORTED = {"pictures": (), "language": (*_IMAGES_ONLY, "card"), "speech": _IMAGES_ONLY}


def suite(options: NoiseOptions) -> int:
    """Measure the points that models lose to system noise: the SysNoise table for your own models.

    Runs every decoder, resize, colour conversion, pooling, upsampling, precision, runtime and box rounding
    that is installed and applies, each alone, then the worst of each family combined.
    """
    from holdfast.core.errors import InputError

    options.check_output(None if options.dry_run and not options.runs.exists() else options.runs)
    options.check_records()
    if options.task == "pictures":
        return _images(options)
    for name in unsupported_options(options):
        flag = field_of(NoiseOptions, name).label
        raise InputError(f"{flag}: not supported with --task {options.task}")
    if options.task == "language":
        from holdfast.noise.language.cli import language

        return language(options)
    from holdfast.noise.speech.cli import speech

    return speech(options)


def _images(options: NoiseOptions) -> int:
    from holdfast.evaluate.per_image import check_task, write_records
    from holdfast.noise.suite import estimate_table
    from holdfast.noise.vision import page, result, run, tables

    models, data = models_and_data(options, "MODEL… DATA: one model or more, then the dataset")
    plans = [plan_for(carry(options, CombineOptions, model=m, data=data, card=card)) for m, card in models]
    plans = [run.with_file(plan, options.deploy_model, len(plans)) for plan in plans]
    note_aliases((*options.only, *options.skip))
    check_task(options, plans[0].plan.model.card.task)
    if options.dry_run:
        estimates = [run.estimate(plan) for plan in plans]
        counted = "cached cells and Combined are not counted"
        return print_estimates(estimates, estimate_table(estimates, "image", "variants", counted, digits=1))
    began = time.perf_counter()
    suite = suite_of(each(plans, lambda plan: _measure(plan)[1]), plans[0], command_line(options), began)
    write_records(options, run.record_sets(suite, options.runs), plans[0].plan.dataset)
    per_model = [tables.model_tables(model) for model in suite.models]
    shown = [*chain(*per_model), tables.models_table(suite)]
    if options.csv:
        shown = [tables.models_csv(suite), *chain(*map(tables.slice_tables, suite.models))]
    messages = list[str]()
    for model in suite.models:
        messages += [f"warning  {model.model}: {warning}" for warning in model.warnings]
        if model.calibration:
            messages.append(f"note     {model.model}: integer precisions calibrated on {model.calibration}")
        messages += [f"failed   {failure}" for failure in model.failed[:20]]
    failed = any(model.failed for model in suite.models)
    return finish(options, suite, result, tables=shown, write=page.write, messages=messages, failed=failed)


def finish(
    options: NoiseOptions, suite: Any, module: ModuleType, *, tables: Sequence[Table],
    write: Callable[[Any, Path], Path], messages: Iterable[str], failed: bool,
) -> int:  # fmt: skip
    """Print, save and export a finished suite, and return the exit code; `module` is that of its result."""
    for place, table in enumerate(tables):  # first, so that they are not lost if the disk is full
        if place:
            say("")
        options.print_table(table)
    folder = module.suite_folder(suite, options.runs)
    module.SUITES.save(suite, folder)
    if options.json:
        write_json(options.json, module.SUITES.to_plain(suite))
    if options.out:
        say(f"report   {write(suite, options.out).resolve()}", sys.stderr)
    for message in messages:
        sys.stderr.write(f"{message}\n")
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if failed else 0


def print_estimates(estimates: Iterable[Estimate], table: Table) -> int:
    """Print the estimates and the options that would be skipped, and return the exit code."""
    from holdfast.report.tables import to_text

    say(to_text(table))
    for estimate in estimates:
        for reason in estimate.skipped:
            say(f"skipped  {estimate.name}: {reason}")
    return 0


def stamp(command: str, began: float) -> dict[str, Any]:
    """Command, date and duration of a result that began at `began` (time.perf_counter)."""
    from holdfast.engine.manifest import now

    return {"command": command, "created": now(), "seconds": round(time.perf_counter() - began, 3)}


def models_and_data(options: Any, expected: str) -> tuple[list[tuple[str, Path | None]], str]:
    """The models with their cards, and the data, which is the last argument."""
    from holdfast.core.errors import InputError

    *models, data = options.models_data
    if not models:
        raise InputError(f"expected {expected}; see --help")
    if options.card and len(options.card) != len(models):
        raise InputError(f"--card: expected one card per model ({len(models)}), got {len(options.card)}")
    return list(zip(models, options.card or (None,) * len(models), strict=True)), data


def unsupported_options(options: NoiseOptions) -> list[str]:
    """The names of the given options that the task does not have."""
    given = changed(options)
    return [name for name in UNSUPPORTED[options.task] if name in given]


def combine(options: CombineOptions) -> int:
    """Add the most harmful noise option at each step, and report which effects overlap or amplify."""
    from holdfast.engine.executor import progress
    from holdfast.noise.vision import combine as combining
    from holdfast.noise.vision import page, tables

    options.check_output(options.runs)
    began = time.perf_counter()
    plan = plan_for(dataclasses.replace(options, all=False))
    note_aliases((*options.only, *options.skip))
    prepared, noise = _measure(plan)
    combination = combining.combine(prepared, noise, progress, options.all)
    table = tables.combination_csv if options.csv else tables.combination_table
    options.print_table(table(combination))
    text = combining.describe_combination(combination)
    say(text, sys.stderr if options.csv or options.latex else sys.stdout)
    if options.json:
        write_json(options.json, combining.as_plain(combination))
    if options.out:
        suite = suite_of([noise], plan, command_line(options), began)
        say(f"report   {page.write(suite, options.out, (combination,)).resolve()}", sys.stderr)
    return 0


def listing(options: ListOptions) -> None:
    """List all noise options: stage, family, tasks, whether they are installed, which systems use them."""
    from holdfast.noise.listing import kinds_table, list_table, list_text

    load_user_noise(options.use)
    options.check_output()
    if options.csv or options.markdown or options.latex:
        return options.print_table(list_table())
    options.print_table(kinds_table())
    return say("\n" + list_text(min(shutil.get_terminal_size().columns, 120)))


def show(options: ShowOptions) -> int:
    """Show what each noise option does to an image: before, after, and the amplified difference."""
    from holdfast.core.errors import ImageError, InputError
    from holdfast.core.limits import limit, read_file, too_large
    from holdfast.data.images import sniff
    from holdfast.data.open import open_dataset
    from holdfast.graph.load import load_model
    from holdfast.noise.vision.show import examples_table, features, noise_examples, save_images, write
    from holdfast.report.tables import to_text

    load_user_noise(options.use)
    selection = selection_of(options)
    selection.check()
    note_aliases((*options.only, *options.skip))
    check_outputs({"--out": options.out}, {"--folder": options.folder})
    image = options.image
    data = read_file(image, "image-mb", kind="image")
    width, height = sniff(data, str(image)).size
    if width * height > limit("shown-megapixels") * 1_000_000:
        raise InputError(f"{image}: {too_large('shown-megapixels', f'{width}×{height} pixels')}")
    loaded = load_model(options.model, options.card) if options.model else None
    try:
        examples = list(noise_examples(data, loaded, selection))
    except ImageError as problem:
        raise InputError(f"{image}: {problem}") from problem
    images = open_dataset(options.calibration, images=100).entries if options.calibration else ()
    maps = list(features(loaded, data, selection, images)) if loaded else []
    if not examples and not maps:
        hint = "" if loaded else "; options that rewrite the graph need --model"
        raise InputError(f"nothing to show: no selected option changes an image or a feature map{hint}")
    say(to_text(examples_table([*examples, *maps])))
    if options.folder:
        save_images(examples, options.folder)
    say(f"report   {write(examples, maps, image.name, options.out, command_line(options)).resolve()}")
    return 0


def plan_for(options: CombineOptions, plan: EvaluationPlan | None = None) -> NoisePlan:
    """The noise plan of one model; `plan` is what to evaluate, if it is opened already."""
    from holdfast.data.open import open_dataset
    from holdfast.evaluate.run import evaluation_plan
    from holdfast.noise.vision.choose import calibration_pool
    from holdfast.noise.vision.run import NoisePlan

    load_user_noise(options.use)
    selection = selection_of(options)
    selection.check()
    plan, count = plan or evaluation_plan(carry(options, EvaluationOptions)), options.calibration_images
    task, source = plan.model.card.task, plan.source
    if options.calibration:
        return NoisePlan(plan, selection, open_dataset(options.calibration, task=task), count)
    if "data" not in source:  # a dataset in memory
        return NoisePlan(plan, selection, None, count)
    # Calibration images that are not tested on: other embedded scenes, or those beyond --images.
    reading = task, source.get("format"), source.get("split")
    part = source.get("images") is not None or "selection" in source
    return NoisePlan(plan, selection, calibration_pool(source["data"], *reading, count, whole=part), count)


def selection_of(options: SelectionOptions) -> NoiseSelection:
    """The selected options; `--only paper` is the same as `--suite paper`."""
    from holdfast.noise.suite import NoiseSelection

    only = tuple(word for word in options.only if word != "paper")
    suite: SuiteName = getattr(options, "suite", "default")
    suite = suite if only == options.only else "paper"
    return NoiseSelection(only, options.skip, getattr(options, "all", False), suite)


def note_aliases(labels: Sequence[str]) -> None:
    """Print a note for every FAMILY=OPTION that is an alias of another."""
    from holdfast.stages.families import alias_notes

    for note in alias_notes(labels):
        sys.stderr.write(f"note     {note}\n")


def load_user_noise(files: Sequence[Path]) -> None:
    """Register the noise options of these files."""
    from holdfast.core.registry import load_parts

    for file in files:
        load_parts(file)


def _measure(plan: NoisePlan) -> tuple[PreparedNoise, ModelNoise]:
    from holdfast.engine.executor import progress
    from holdfast.noise.vision.run import measure, prepare

    print_data_notes(plan.plan)
    prepared = prepare(plan)
    return prepared, measure(prepared, progress)


def suite_of(models: Sequence[ModelNoise], plan: NoisePlan, command: str, began: float) -> NoiseSuite:
    """The suite of these models; it began at `began` (time.perf_counter)."""
    from holdfast.core.sources import versions
    from holdfast.noise.vision.result import NoiseSuite

    data = plan.plan.dataset.name
    return NoiseSuite(data, tuple(models), versions=versions(), **stamp(command, began))
