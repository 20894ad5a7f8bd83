"""`holdfast noise --task speech`: what the deployed system does to an acoustic model."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.output import say, write_json
from holdfast.noise.output import Shape
from holdfast.noise.tasks import Beyond

if TYPE_CHECKING:
    from holdfast.noise.speech.clips import ClipSet
    from holdfast.noise.speech.result import SpeechSuite
    from holdfast.noise.speech.run import SpeechPlan
    from holdfast.noise.speech.show import Shown


def speech(how: Beyond) -> int:
    """The exit code; the suite of every model is run, printed, and written where it was asked for."""
    from holdfast.noise.speech.show import save_shown

    shape = Shape(how.csv, how.markdown, how.latex, how.json, how.out, None if how.dry_run else how.runs)
    shape.check()
    plans = plans_of(how)
    if how.dry_run:
        return _estimated(plans)
    from holdfast.noise.speech.result import save, suite_folder

    made, sounds = suite_of(plans)
    folder = suite_folder(made, how.runs)
    save(made, folder)
    for sound in sounds:
        save_shown(sound, folder)
    show(made, shape)
    if how.out:
        _page(made, sounds, how.out)
    return _ending(made, folder) or (4 if plans[0].data.problems else 0)


def suite_of(plans: Sequence[SpeechPlan]) -> tuple[SpeechSuite, list[Shown]]:
    """The suite of all models, and a clip of each to look at and listen to."""
    from holdfast.noise.speech.result import SpeechSuite, libraries
    from holdfast.noise.speech.run import measure, prepare
    from holdfast.noise.speech.show import shown

    began = time.perf_counter()
    models, sounds = [], []
    for plan in plans:
        prepared = prepare(plan)
        models.append(measure(prepared, watch))
        sound = shown(prepared, models[-1])
        sounds += [sound] if sound is not None else []
    command = shlex.join(["holdfast", *sys.argv[1:]])
    created = datetime.now(UTC).isoformat(timespec="seconds")
    seconds = round(time.perf_counter() - began, 3)
    return SpeechSuite(plans[0].data.name, tuple(models), command, created, seconds, libraries()), sounds


def plans_of(how: Beyond) -> list[SpeechPlan]:
    """A plan for each model, the clips last among the words."""
    from holdfast.core.errors import DataError, InputError
    from holdfast.noise.cli import note_aliases, words_of
    from holdfast.noise.speech.clips import open_clips
    from holdfast.noise.speech.model.card import load_speech
    from holdfast.noise.speech.options import PRECISION, Wanted
    from holdfast.noise.speech.run import SpeechPlan

    if len(how.words) < 2:
        raise InputError("expected MODEL… CLIPS: one acoustic model or more, then the clips; see --help")
    *names, data = how.words
    if how.card and len(how.card) != len(names):
        raise InputError(f"--card: expected one for each of {len(names)} models, got {len(how.card)}")
    if how.images is not None and how.images < 1:
        raise InputError(f"--images: expected a number of clips of 1 or more, got {how.images}")
    wanted = Wanted(words_of(how.only), words_of(how.skip), how.every)
    wanted.taken()
    note_aliases([word for word in (*wanted.only, *wanted.skip) if word.startswith(f"{PRECISION}=")])
    clips, spare = open_clips(data, how.images), _spare(how, data)
    if clips.problems and how.strict:
        raise DataError(clips.problems[0])
    for problem in clips.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")
    if len(clips.problems) > 10:
        sys.stderr.write(f"data     and {len(clips.problems) - 10} lines more that cannot be used\n")
    cards = how.card or (None,) * len(names)
    models = [load_speech(name, card) for name, card in zip(names, cards, strict=True)]
    return [
        SpeechPlan(m, clips, wanted, spare, how.calibration_images, how.runs, how.jobs, how.strict)
        for m in models
    ]


def _spare(how: Beyond, data: str) -> ClipSet | None:
    """Clips that are not tested on: those named, or those beyond --images."""
    from holdfast.noise.speech.clips import open_clips

    if how.calibration:
        return open_clips(how.calibration)
    return open_clips(data) if how.images is not None else None


@contextmanager
def watch(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Progress of a sweep, on standard error."""
    from holdfast.engine.progress import progress

    with progress(what, total, "clips × systems") as step:
        yield step


def show(made: SpeechSuite, shape: Shape) -> None:
    """Nothing; the tables are printed, and written as JSON if asked for."""
    from holdfast.noise.speech.result import as_plain
    from holdfast.noise.speech.tables import csv_table, options_table, paper_table

    if shape.csv:
        shape.table(csv_table(made))
    else:
        for model in made.models:
            shape.table(options_table(model))
            say("")
        shape.table(paper_table(made))
    if shape.json:
        write_json(shape.json, as_plain(made))


def _estimated(plans: Sequence[SpeechPlan]) -> int:
    from holdfast.noise.speech.estimate import estimate
    from holdfast.noise.speech.tables import estimate_table
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
    """Nothing; a finished run is written as a page, with the sounds that lie beside it."""
    from holdfast.noise.speech.page import write
    from holdfast.noise.speech.result import open_suite
    from holdfast.noise.speech.show import open_shown

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
