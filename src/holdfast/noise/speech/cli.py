"""`holdfast noise --task speech`: system noise of acoustic models."""

import sys
import time
from collections.abc import Sequence
from functools import partial

from holdfast.config.parser import command_line
from holdfast.core.errors import DataError
from holdfast.core.sources import versions
from holdfast.engine.executor import progress
from holdfast.noise.cli import finish, models_and_data, note_aliases, print_estimates, stamp
from holdfast.noise.options import NoiseOptions
from holdfast.noise.speech import result
from holdfast.noise.speech.card import load_speech
from holdfast.noise.speech.clips import open_clips
from holdfast.noise.speech.options import select_options
from holdfast.noise.speech.page import ClipExample, clip_example, save_example, write
from holdfast.noise.speech.result import SpeechSuite
from holdfast.noise.speech.run import SpeechPlan, estimate, measure, prepare
from holdfast.noise.suite import PRECISION, NoiseSelection, Watch, estimate_table


def speech(options: NoiseOptions) -> int:
    """Run, print and save the suite of every model, and return the exit code."""
    plans = plans_of(options)
    note_aliases([word for word in (*options.only, *options.skip) if word.startswith(f"{PRECISION}=")])
    _print_problems(plans[0].data.problems)
    if options.dry_run:
        estimates = [estimate(plan) for plan in plans]
        counted = "cached cells are not run again"
        return print_estimates(estimates, estimate_table(estimates, "clip", "systems", counted, digits=2))
    suite, examples = suite_of(plans, command_line(options), progress)
    tables = [*map(result.options_table, suite.models), result.paper_table(suite)]
    messages = []
    for model in suite.models:
        calibrated = [f"integer precisions calibrated on {model.calibration}"] if model.calibration else []
        messages += [f"note     {model.model}: {note}" for note in (*calibrated, *model.notes)]
        messages += [f"failed   {model.model}: {failure}" for failure in model.failed[:20]]
    code = finish(
        options,
        suite,
        result,
        tables=[result.csv_table(suite)] if options.csv else tables,
        write=partial(write, examples=examples),
        messages=messages,
        failed=any(m.failed for m in suite.models) or bool(plans[0].data.problems),
    )
    for example in examples:
        save_example(example, result.suite_folder(suite, options.runs))
    return code


def suite_of(
    plans: Sequence[SpeechPlan], command: str, watch: Watch
) -> tuple[SpeechSuite, list[ClipExample]]:
    """The suite of all models, and a clip of each to look at and listen to."""
    began = time.perf_counter()
    models, examples = [], []
    for plan in plans:
        prepared = prepare(plan)
        models.append(measure(prepared, watch))
        if example := clip_example(prepared, models[-1]):
            examples.append(example)
    about = {"versions": versions("speech"), **stamp(command, began)}
    clips = plans[0].data
    return SpeechSuite(clips.name, tuple(models), problems=clips.problems, **about), examples


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems[:10]:
        sys.stderr.write(f"data     {problem}\n")
    if len(problems) > 10:
        sys.stderr.write(f"data     {len(problems) - 10} more lines that cannot be used\n")


def plans_of(options: NoiseOptions) -> list[SpeechPlan]:
    """One plan per model; the clips are the last argument."""
    expected = "MODEL… CLIPS: one acoustic model or more, then the clips"
    names, data = models_and_data(options, expected)
    selection = NoiseSelection(options.only, options.skip, options.all)
    select_options(selection)
    clips = open_clips(data, options.images)
    # Calibration clips that are not tested on: those named, or those beyond --images.
    source = options.calibration or (data if options.images is not None else None)
    calibration = open_clips(source) if source else None
    if clips.problems and options.strict:
        raise DataError(clips.problems[0])
    models = [load_speech(name, card) for name, card in names]
    count, running = options.calibration_images, (options.runs, options.jobs, options.strict)
    return [SpeechPlan(model, clips, selection, calibration, count, *running) for model in models]
