"""`holdfast noise --task language`: what the precision of the deployed system does to language models."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.output import say, write_json
from holdfast.config.parser import command_line
from holdfast.engine.manifest import now
from holdfast.noise.options import NoiseOptions

if TYPE_CHECKING:
    from holdfast.core.language import TextSet
    from holdfast.noise.language.open import Subject
    from holdfast.noise.language.plan import LanguagePlan, Prepared
    from holdfast.noise.language.result import LanguageSuite


def language(options: NoiseOptions) -> int:
    """Run, show and save the suite, and return the exit code."""
    from holdfast.engine.progress import progress
    from holdfast.noise.language.plan import prepare
    from holdfast.noise.language.run import measure

    began = time.perf_counter()
    plan = plan_of(options)
    prepared = prepare(plan, progress)
    if options.dry_run:
        return _estimated(prepared)
    made = dataclasses.replace(
        measure(prepared, progress),
        command=command_line(options),
        created=now(),
        seconds=round(time.perf_counter() - began, 3),
    )
    show(made, options)
    if options.out:
        from holdfast.noise.language.page import write

        say(f"report: {write(made, options.out).resolve()}", sys.stderr)
    return _ending(made, plan.runs)


def plan_of(options: NoiseOptions) -> LanguagePlan:
    """The plan of a command line; InputError for words that are neither model nor set."""
    from holdfast.core.errors import InputError
    from holdfast.noise.cli import note_aliases, reject_options
    from holdfast.noise.language.cells import FAMILY, chosen
    from holdfast.noise.language.open import FILES, file_of, shipped
    from holdfast.noise.language.plan import LanguagePlan

    reject_options(options, ("card",))
    precisions = chosen(options.only, options.skip, options.all)
    named = [word for word in (*options.only, *options.skip) if word != FAMILY]
    note_aliases([word if "=" in word else f"{FAMILY}={word}" for word in named])
    files = {word: file_of(word) for word in options.models_data}
    models = [file for word in options.models_data if (file := files[word]) is not None]
    words = [word for word in options.models_data if files[word] is None]
    folder = next((word for word in words if Path(word).is_dir()), None)
    if folder is not None:
        raise InputError(
            f"{folder}: a folder without {' or '.join(FILES)}, so no language model; question sets are files"
        )
    if not models or not words:
        raise InputError(
            f"expected MODEL… SET…: language models (.onnx files, their folders, or {', '.join(shipped())}) "
            "and question sets (files or shipped ones), got "
            f"models: {', '.join(map(str, models)) or 'none'}; sets: {', '.join(words) or 'none'}"
        )
    whole = [_opened(word) for word in words]
    tested = tuple(dataclasses.replace(s, questions=s.questions[: options.images]) for s in whole)
    spare: tuple[TextSet | None, ...] = tuple(whole) if options.images else (None,) * len(whole)
    if options.calibration:
        spare = (_opened(options.calibration),) * len(whole)
    return LanguagePlan(
        _subjects(models),
        tested,
        options.runs,
        precisions=precisions,
        spare=spare,
        given=bool(options.calibration),
        calibration_questions=options.calibration_images,
        jobs=options.jobs,
        strict=options.strict,
    )


def _opened(word: str) -> TextSet:
    from holdfast.noise.language.questions import open_text

    return open_text(Path(word))


def _subjects(files: Sequence[Path]) -> tuple[Subject, ...]:
    """The models, those of one name told apart by their folders."""
    from holdfast.noise.language.open import subject_of

    found = [subject_of(file) for file in files]
    names = [s.name for s in found]
    return tuple(
        dataclasses.replace(s, name=f"{s.path.resolve().parent.name}/{s.name}")
        if names.count(s.name) > 1
        else s
        for s in found
    )


def show(made: LanguageSuite, options: NoiseOptions) -> None:
    """Print the tables, and write the numbers to a JSON file if there is one."""
    from holdfast.noise.language.result import (
        as_plain,
        how_table,
        models_table,
        numbers_table,
        rows_csv,
        rules_table,
    )

    if options.csv:
        options.print_table(rows_csv(made))
    else:
        for model in made.models:
            for of in model.sets:
                options.print_table(numbers_table(of, model.model))
                say("")
            options.print_table(how_table(model))
            say("")
        options.print_table(models_table(made))
        say("")
        options.print_table(rules_table(made))
    if options.json:
        write_json(options.json, as_plain(made))


def _estimated(prepared: Prepared) -> int:
    from holdfast.noise.language.result import estimate_table
    from holdfast.noise.language.run import estimate, graphs_of
    from holdfast.report.tables import to_text

    found = estimate(prepared)
    say(to_text(estimate_table(found)))
    for one in found:
        for reason in one.left_out:
            say(f"not run  {one.model} on {one.data}: {reason}")
    graphs, size = graphs_of(prepared)
    say(f"graphs   {graphs} rewritten ones, {size / 1e6:.1f} MB, are made and kept in {prepared.plan.runs}")
    return 0


def _ending(made: LanguageSuite, runs: Path) -> int:
    from holdfast.noise.language.result import save, suite_folder

    for note in _notes(made):
        sys.stderr.write(f"note     {note}\n")
    for model in made.models:
        for name in [name for of in model.sets for name in of.failed][:20]:
            sys.stderr.write(f"failed   {model.model}: {name}: no likelihood\n")
    folder = suite_folder(made, runs)
    save(made, folder)
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if any(of.failed for model in made.models for of in model.sets) else 0


def _notes(made: LanguageSuite) -> list[str]:
    """What is to be said of the sets, once if it is so for every model, and of the models."""
    said: dict[tuple[str, str], list[str]] = {}
    for model in made.models:
        for of in model.sets:
            for note in (*of.notes, *([f"static 8 bits see {of.calibration}"] if of.calibration else [])):
                said.setdefault((of.data, note), []).append(model.model)
    lines = []
    for (data, note), models in said.items():
        whose = "" if len(models) == len(made.models) else f"{', '.join(models)} on "
        lines.append(f"{whose}{data}: {note}")
    return [*lines, *(f"{model.model}: {note}" for model in made.models for note in model.notes)]
