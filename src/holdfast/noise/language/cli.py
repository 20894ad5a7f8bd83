"""`holdfast noise --task language`: points that language models lose to the precision of the deployment."""

import dataclasses
import time
from collections.abc import Iterable
from pathlib import Path

from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.core.errors import InputError
from holdfast.core.language import TextSet
from holdfast.engine.executor import progress
from holdfast.noise.cli import finish, note_aliases, print_estimates, stamp
from holdfast.noise.language import result
from holdfast.noise.language.cells import select_precisions
from holdfast.noise.language.open import FILES, file_of, language_subject, shipped
from holdfast.noise.language.page import write
from holdfast.noise.language.questions import open_text
from holdfast.noise.language.result import LanguageSuite
from holdfast.noise.language.run import LanguagePlan, estimate, graphs_of, measure, prepare
from holdfast.noise.options import NoiseOptions
from holdfast.noise.suite import PRECISION


def language(options: NoiseOptions) -> int:
    """Run, print and save the suite, and return the exit code."""
    began = time.perf_counter()
    plan = plan_of(options)
    named = [word for word in (*options.only, *options.skip) if word != PRECISION]
    note_aliases([word if "=" in word else f"{PRECISION}={word}" for word in named])
    prepared = prepare(plan, progress)
    if options.dry_run:
        estimates = estimate(prepared)
        code = print_estimates(estimates, result.estimate_table(estimates))
        graphs, size = graphs_of(prepared)
        say(f"graphs   {graphs} converted graphs ({size / 1e6:.1f} MB) are stored in {options.runs}")
        return code
    suite = dataclasses.replace(measure(prepared, progress), **stamp(command_line(options), began))
    tables = []
    for model in suite.models:
        tables += [result.numbers_table(of, model.model) for of in model.sets]
        tables.append(result.how_table(model))
    tables += [result.models_table(suite), result.rules_table(suite)]
    tables = [result.rows_csv(suite)] if options.csv else tables
    failed = any(of.failed for model in suite.models for of in model.sets)
    return finish(
        options, suite, result, tables=tables, write=write, messages=_messages(suite), failed=failed
    )


def plan_of(options: NoiseOptions) -> LanguagePlan:
    """The plan of the options; InputError for an argument that is neither a model nor a question set."""
    precisions = select_precisions(options.only, options.skip, options.all)
    files = [(word, file_of(word)) for word in options.models_data]
    models = [file for _, file in files if file is not None]
    words = [word for word, file in files if file is None]
    folder = next((word for word in words if Path(word).is_dir()), None)
    if folder is not None:
        raise InputError(
            f"{folder}: expected a language model's folder with {' or '.join(FILES)}, or a question set file"
        )
    if not models or not words:
        raise InputError(
            f"expected MODEL… SET…: language models (.onnx files, their folders, or {', '.join(shipped())}) "
            "and question sets (files or shipped names), got "
            f"models: {', '.join(map(str, models)) or 'none'}; sets: {', '.join(words) or 'none'}"
        )
    whole = [open_text(Path(word)) for word in words]
    calibration: tuple[TextSet | None, ...] = tuple(whole) if options.images else (None,) * len(whole)
    if options.calibration:
        calibration = (open_text(Path(options.calibration)),) * len(whole)
    subjects = [language_subject(file) for file in models]
    names = [s.name for s in subjects]
    for place, subject in enumerate(subjects):  # those of one name are distinguished by their folders
        if names.count(subject.name) > 1:
            name = f"{subject.path.resolve().parent.name}/{subject.name}"
            subjects[place] = dataclasses.replace(subject, name=name)
    return LanguagePlan(
        tuple(subjects),
        tuple(dataclasses.replace(s, questions=s.questions[: options.images]) for s in whole),
        options.runs,
        precisions=precisions,
        calibration=calibration,
        given=bool(options.calibration),
        calibration_questions=options.calibration_images,
        jobs=options.jobs,
        strict=options.strict,
    )


def _messages(suite: LanguageSuite) -> Iterable[str]:
    """The notes on the sets, once where they apply to every model, and on the models."""
    notes: dict[tuple[str, str], list[str]] = {}
    for model in suite.models:
        for of in model.sets:
            calibration = [f"static int8 calibrated on {of.calibration}"] if of.calibration else []
            for note in (*of.notes, *calibration):
                notes.setdefault((of.data, note), []).append(model.model)
    for (data, note), models in notes.items():
        whose = "" if len(models) == len(suite.models) else f"{', '.join(models)} on "
        yield f"note     {whose}{data}: {note}"
    yield from (f"note     {model.model}: {note}" for model in suite.models for note in model.notes)
    for model in suite.models:
        names = [name for of in model.sets for name in of.failed]
        yield from (f"failed   {model.model}: {name}: no likelihood" for name in names[:20])
