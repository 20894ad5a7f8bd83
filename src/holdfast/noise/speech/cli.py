"""`holdfast noise --task speech`: what the deployed system does to an acoustic model."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.output import say, write_json
from holdfast.config.parser import command_line
from holdfast.engine.manifest import now
from holdfast.noise.options import NoiseOptions

if TYPE_CHECKING:
    from holdfast.noise.speech.clips import ClipSet
    from holdfast.noise.speech.page import Shown
    from holdfast.noise.speech.result import SpeechSuite
    from holdfast.noise.speech.run import SpeechPlan


def speech(options: NoiseOptions) -> int:
    """Run, show and save the suite of every model, and return the exit code."""
    from holdfast.noise.speech.page import save_shown

    plans = plans_of(options)
    if options.dry_run:
        return _estimated(plans)
    from holdfast.noise.speech.result import save, suite_folder

    made, sounds = suite_of(plans, command_line(options))
    folder = suite_folder(made, options.runs)
    save(made, folder)
    for sound in sounds:
        save_shown(sound, folder)
    show(made, options)
    if options.out:
        _page(made, sounds, options.out)
    return _ending(made, folder) or (4 if plans[0].data.problems else 0)


def suite_of(plans: Sequence[SpeechPlan], command: str) -> tuple[SpeechSuite, list[Shown]]:
    """The suite of all models, and a clip of each to look at and listen to."""
    from holdfast.engine.versions import versions
    from holdfast.noise.speech.page import shown
    from holdfast.noise.speech.result import SpeechSuite
    from holdfast.noise.speech.run import measure, prepare

    began = time.perf_counter()
    models, sounds = [], []
    for plan in plans:
        prepared = prepare(plan)
        models.append(measure(prepared, watch))
        sound = shown(prepared, models[-1])
        sounds += [sound] if sound is not None else []
    suite = SpeechSuite(
        plans[0].data.name,
        tuple(models),
        command=command,
        created=now(),
        seconds=round(time.perf_counter() - began, 3),
        versions=versions("speech"),
    )
    return suite, sounds


def plans_of(options: NoiseOptions) -> list[SpeechPlan]:
    """A plan for each model, the clips last among the words."""
    from holdfast.core.errors import DataError, InputError
    from holdfast.noise.cli import note_aliases
    from holdfast.noise.speech.card import load_speech
    from holdfast.noise.speech.clips import open_clips
    from holdfast.noise.speech.options import PRECISION, Wanted
    from holdfast.noise.speech.run import SpeechPlan

    if len(options.models_data) < 2:
        raise InputError("expected MODEL… CLIPS: one acoustic model or more, then the clips; see --help")
    *names, data = options.models_data
    if options.card and len(options.card) != len(names):
        raise InputError(f"--card: expected one for each of {len(names)} models, got {len(options.card)}")
    wanted = Wanted(options.only, options.skip, options.all)
    wanted.taken()
    note_aliases([word for word in (*wanted.only, *wanted.skip) if word.startswith(f"{PRECISION}=")])
    clips, spare = open_clips(data, options.images), _spare(options, data)
    if clips.problems and options.strict:
        raise DataError(clips.problems[0])
    for problem in clips.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")
    if len(clips.problems) > 10:
        sys.stderr.write(f"data     and {len(clips.problems) - 10} lines more that cannot be used\n")
    cards = options.card or (None,) * len(names)
    models = [load_speech(name, card) for name, card in zip(names, cards, strict=True)]
    return [
        SpeechPlan(
            model,
            clips,
            wanted=wanted,
            spare=spare,
            calibration=options.calibration_images,
            runs=options.runs,
            jobs=options.jobs,
            strict=options.strict,
        )
        for model in models
    ]


def _spare(options: NoiseOptions, data: str) -> ClipSet | None:
    """Clips that are not tested on: those named, or those beyond --images."""
    from holdfast.noise.speech.clips import open_clips

    if options.calibration:
        return open_clips(options.calibration)
    return open_clips(data) if options.images is not None else None


@contextmanager
def watch(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Progress of a sweep, on standard error."""
    from holdfast.engine.progress import progress

    with progress(what, total, "clips × systems") as step:
        yield step


def show(made: SpeechSuite, options: NoiseOptions) -> None:
    """Print the tables, and write the numbers to a JSON file if there is one."""
    from holdfast.noise.speech.result import as_plain, csv_table, options_table, paper_table

    if options.csv:
        options.print_table(csv_table(made))
    else:
        for model in made.models:
            options.print_table(options_table(model))
            say("")
        options.print_table(paper_table(made))
    if options.json:
        write_json(options.json, as_plain(made))


def _estimated(plans: Sequence[SpeechPlan]) -> int:
    from holdfast.noise.speech.result import estimate_table
    from holdfast.noise.speech.run import estimate
    from holdfast.report.tables import to_text

    found = [estimate(plan) for plan in plans]
    say(to_text(estimate_table(found)))
    for one in found:
        for reason in one.left_out:
            say(f"not run  {one.model}: {reason}")
    return 0


def _page(made: SpeechSuite, sounds: Sequence[Shown], out: Path) -> None:
    from holdfast.noise.speech.page import write

    say(f"report: {write(made, out, sounds).resolve()}", sys.stderr)


def report(run: Path, out: Path) -> None:
    """Write a finished run as a page, with the sounds next to it."""
    from holdfast.noise.speech.page import open_shown, write
    from holdfast.noise.speech.result import open_suite

    made = open_suite(run)
    folder = run if run.is_dir() else run.parent
    found = [open_shown(folder, model.model) for model in made.models]
    say(f"report: {write(made, out, [one for one in found if one is not None]).resolve()}")


def _ending(made: SpeechSuite, folder: Path) -> int:
    for model in made.models:
        lines = [f"integer precisions calibrated on {model.calibration}"] if model.calibration else []
        for note in (*lines, *model.notes):
            sys.stderr.write(f"note     {model.model}: {note}\n")
        for failure in model.failed[:20]:
            sys.stderr.write(f"failed   {model.model}: {failure}\n")
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if any(m.failed for m in made.models) else 0
