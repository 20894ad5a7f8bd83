"""`holdfast noise --task language`: what the precision of the deployed system does to language models."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.output import say, write_json
from holdfast.noise.output import Shape
from holdfast.noise.tasks import Beyond

if TYPE_CHECKING:
    from holdfast.core.language import TextSet
    from holdfast.noise.language.plan import LanguagePlan, Prepared
    from holdfast.noise.language.result import LanguageSuite
    from holdfast.noise.language.subject import Subject


def language(how: Beyond) -> int:
    """The exit code of the suite: models and sets told apart, run, shown, written and kept."""
    from holdfast.engine.progress import progress
    from holdfast.noise.language.plan import prepare
    from holdfast.noise.language.run import measure

    shape = Shape(how.csv, how.markdown, how.latex, how.json, how.out, None if how.dry_run else how.runs)
    shape.check()
    began = time.perf_counter()
    plan = plan_of(how)
    prepared = prepare(plan, progress)
    if how.dry_run:
        return _estimated(prepared)
    made = _told(measure(prepared, progress), began)
    show(made, shape)
    if how.out:
        from holdfast.noise.language.page import write

        say(f"report: {write(made, how.out).resolve()}", sys.stderr)
    return _ending(made, plan.runs)


def plan_of(how: Beyond) -> LanguagePlan:
    """The plan of a command line; InputError for words that are neither model nor set."""
    from holdfast.core.errors import InputError
    from holdfast.noise.cli import note_aliases, words_of
    from holdfast.noise.language.model.shipped import shipped
    from holdfast.noise.language.plan import LanguagePlan
    from holdfast.noise.language.precisions import FAMILY, chosen
    from holdfast.noise.language.subject import FILES, file_of

    if how.card:
        raise InputError("--card: means nothing with --task language; leave it out")
    precisions = chosen(words_of(how.only), words_of(how.skip), how.every)
    named = [word for word in words_of((*how.only, *how.skip)) if word != FAMILY]
    note_aliases([word if "=" in word else f"{FAMILY}={word}" for word in named])
    files = {word: file_of(word) for word in how.words}
    models = [file for word in how.words if (file := files[word]) is not None]
    words = [word for word in how.words if files[word] is None]
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
    tested = tuple(dataclasses.replace(s, questions=s.questions[: how.images]) for s in whole)
    spare: tuple[TextSet | None, ...] = tuple(whole) if how.images else (None,) * len(whole)
    if how.calibration:
        spare = (_opened(how.calibration),) * len(whole)
    return LanguagePlan(
        _subjects(models), tested, how.runs, precisions, spare, bool(how.calibration),
        how.calibration_images, how.jobs, how.strict,
    )  # fmt: skip


def _opened(word: str) -> TextSet:
    from holdfast.noise.language.data.open import open_text

    return open_text(Path(word))


def _subjects(files: Sequence[Path]) -> tuple[Subject, ...]:
    """The models, those of one name told apart by their folders."""
    from holdfast.noise.language.subject import subject_of

    found = [subject_of(file) for file in files]
    names = [s.name for s in found]
    return tuple(
        dataclasses.replace(s, name=f"{s.path.resolve().parent.name}/{s.name}")
        if names.count(s.name) > 1
        else s
        for s in found
    )


def show(made: LanguageSuite, shape: Shape) -> None:
    """Nothing; the tables are printed, and written as JSON if asked for."""
    from holdfast.noise.language.result import as_plain
    from holdfast.noise.language.tables import how_table, models_table, numbers_table, rows_csv, rules_table

    if shape.csv:
        shape.table(rows_csv(made))
    else:
        for model in made.models:
            for of in model.sets:
                shape.table(numbers_table(of, model.model))
                say("")
            shape.table(how_table(model))
            say("")
        shape.table(models_table(made))
        say("")
        shape.table(rules_table(made))
    if shape.json:
        write_json(shape.json, as_plain(made))


def _told(made: LanguageSuite, began: float) -> LanguageSuite:
    return dataclasses.replace(
        made,
        command=shlex.join(["holdfast", *sys.argv[1:]]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - began, 3),
    )


def _estimated(prepared: Prepared) -> int:
    from holdfast.noise.language.estimate import estimate, graphs_of
    from holdfast.noise.language.tables import estimate_table
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
