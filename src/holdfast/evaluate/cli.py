"""`holdfast evaluate`: a model on a dataset, two COCO files, or the lecture's example; and `--explain`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.config.options import changed, field_of
from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.core.errors import InputError, UnknownName
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.options import EvaluateOptions
from holdfast.evaluate.score import (
    WORST,
    Settings,
    as_json,
    class_table,
    counts_table,
    csv_table,
    headline,
    score_files,
    score_tables,
    tables,
)
from holdfast.evaluate.slices import slice_tables
from holdfast.metrics.boxes import DetectionTable, TruthTable
from holdfast.metrics.cocofile import read_predictions, read_truth

if TYPE_CHECKING:
    from holdfast.evaluate.result import Evaluation
    from holdfast.evaluate.run import EvaluationPlan

FILE_OPTIONS = (
    "rule", "iou", "score", "truth", "predictions", "explain", "class_", "json", "csv", "markdown", "latex",
    "top", "all_classes", "out",
)  # fmt: skip


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate a model on a dataset, or predictions against ground truth, by a named AP rule.

    --explain without other arguments prints the worked example of the detection lecture.
    Exit code 4: finished, but some images failed and are not included in the numbers.
    """
    options.check_output()
    options.check_records()
    if options.class_ and not options.explain:
        raise InputError("--class: expected with --explain; it names the class to explain")
    if options.top and options.all_classes:
        raise InputError("expected --top or --all-classes, not both")
    files = options.truth or options.predictions
    if options.model and options.data and not files:
        from holdfast.evaluate.run import evaluation_plan, with_file

        return run_plan(with_file(evaluation_plan(options), options.deploy_model), options)
    unused = [name for name in changed(options) if name not in (*FILE_OPTIONS, "model", "data")]
    if unused:
        flags = ", ".join(field_of(EvaluateOptions, name).label for name in unused)
        raise InputError(f"{flags}: expected only with MODEL DATA")
    if options.truth and options.predictions and not options.model:
        settings = options.settings()
        result = score_files(options.truth, options.predictions, settings)
        options.write_json(as_json(result))
        _print_tables(options, result)
        _explain_files(options, options.truth, options.predictions, result)
        return 0
    if files:
        raise InputError("expected MODEL DATA, or both --truth FILE and --predictions FILE")
    if not options.explain or options.model:
        raise InputError("expected MODEL DATA, --truth with --predictions, or --explain; see --help")
    text, result = _explain_lecture()
    options.write_json(result)
    say(text)
    if options.out:
        _write_lecture(options.out, text)
    return 0


def _explain_files(
    options: EvaluateOptions, truth: Path, predictions: Path, result: Mapping[str, Any]
) -> None:
    """Print the explanation and write the page of two files, if they are asked for."""
    if not (options.explain or options.out):
        return
    true, text, settings = read_truth(truth), "", options.settings()
    boxes = true.table, read_predictions(predictions, true)
    if options.explain:
        text = _explain_class(*boxes, true.image_names, true.class_names, settings, options.class_)
        say("\n" + text, sys.stderr if options.csv else sys.stdout)
    if options.out:
        from holdfast.evaluate import files_page

        scored = files_page.ScoredTables(*boxes, true.class_names, true.images)
        names = predictions.name, truth.name
        page = files_page.page(names, scored, settings, result, text, command_line(options))
        sys.stderr.write(f"report   {files_page.write(options.out, page).resolve()}\n")


def _write_lecture(out: Path, text: str) -> None:
    """Write the page of the lecture's example."""
    from holdfast.evaluate import files_page
    from holdfast.metrics.explain import LECTURE_DETECTIONS, LECTURE_IOU, LECTURE_TRUTH
    from holdfast.metrics.rules import RULES

    settings = Settings(RULES["lecture"], iou=LECTURE_IOU)
    scored = files_page.ScoredTables(LECTURE_TRUTH, LECTURE_DETECTIONS, ("car",), images=1)
    result = score_tables(LECTURE_TRUTH, LECTURE_DETECTIONS, 1, ("car",), settings)
    page = files_page.page(("example", "the lecture"), scored, settings, {"images": 1, **result}, text)
    sys.stderr.write(f"report   {files_page.write(out, page).resolve()}\n")


def print_data_notes(plan: EvaluationPlan) -> None:
    """Print guessed properties of the model and problems of the data to standard error."""
    for reason in plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    for problem in plan.dataset.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")


def run_plan(plan: EvaluationPlan, options: EvaluateOptions) -> int:
    """Run the plan, print its result and return the exit code."""
    from holdfast.engine.executor import progress
    from holdfast.evaluate import per_image, run
    from holdfast.evaluate.difference import difference
    from holdfast.evaluate.result import open_run

    task = plan.model.card.task
    stated = [f"--{name}" for name in ("rule", "iou", "score") if getattr(options, name) is not None]
    if stated and task != "detect":
        raise InputError(f"{', '.join(stated)}: only detectors have an AP; this model's task is {task}")
    per_image_files = options.predictions_out or options.per_image
    if per_image_files:
        per_image.check_task(options, task)
    before = open_run(options.against) if options.against else None
    if options.explain and task != "detect":
        raise InputError(f"--explain: only detectors have an AP; this model's task is {task}")
    if before and before.about.task != task:
        raise InputError(f"--against: expected a run of the task {task}, got one of {before.about.task}")
    print_data_notes(plan)
    if len(plan.dataset.problems) > 10:
        sys.stderr.write(
            f"data     {len(plan.dataset.problems) - 10} more problems; `holdfast data info` lists all\n"
        )
    with progress("evaluate", len(plan.dataset)) as step:
        done = run.evaluate(plan, step)
    folder = run.run_folder(plan)
    if per_image_files:
        per_image.write_records(options, [per_image.records_of(done)], plan.dataset)
    change = difference(before, done) if before else None
    extra = {"run": str(folder), "failed": len(done.failed)}
    against = {"against": {"run": str(options.against), **change.to_plain()}} if change else {}
    options.write_json({**as_json(done.result), **extra, **against})
    _print_tables(options, done.result)
    more = sys.stderr if options.csv else sys.stdout
    if options.explain:
        records = [record for record in done.records if isinstance(record, DetectionRecord)]
        names = tuple(record.name for record in records)
        text = _explain_class(*tables(records), names, done.about.classes, plan.settings, options.class_)
        say("\n" + text, more)
    if options.out:
        from holdfast.evaluate import page

        written = page.write(done, options.out, page.pictures(done))
        sys.stderr.write(f"report   {written.resolve()}\n")
    if change:
        say(f"\nAgainst {options.against}: {change}.", more)
    return _finish(done, folder)


def _print_tables(options: EvaluateOptions, result: Mapping[str, Any]) -> None:
    if options.csv:
        options.print_table(csv_table(result))
        for table in slice_tables(result["slices"]) if "slices" in result else []:
            say("")
            options.print_table(table)
        return
    top = None if options.all_classes else options.top or WORST
    classes = class_table(result, top=top, all_columns=options.markdown or options.latex)
    sliced = slice_tables(result["slices"]) if "slices" in result else []
    for place, table in enumerate(filter(None, (headline(result), counts_table(result), classes, *sliced))):
        if place:
            say("")
        options.print_table(table)
    return


def _finish(done: Evaluation, folder: Path) -> int:
    warnings = done.result.get("warnings", ())
    for note in done.notes[:10]:
        sys.stderr.write(f"{'warning' if note in warnings else 'note':8} {note}\n")
    for failure in done.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    if done.failed:
        total = len(done.failed) + len(done.records)
        verb = "is" if len(done.failed) == 1 else "are"
        sys.stderr.write(
            f"{len(done.failed)} of {total} images failed and {verb} not included in the numbers\n"
        )
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if done.failed else 0


def _explain_lecture() -> tuple[str, dict[str, Any]]:
    from holdfast.metrics.explain import LECTURE_SCORES, explain_lecture, lecture_text

    story = explain_lecture()
    at = {f"{s:g}": {k: getattr(story.at(s), k) for k in ("tp", "fp", "fn")} for s in LECTURE_SCORES}
    steps = [dict(vars(step)) for step in story.steps]
    return lecture_text(story), {"AP": story.ap, "at_score": at, "steps": steps, **story.by_interpolation}


def _explain_class(
    truth: TruthTable,
    detections: DetectionTable,
    images: tuple[str, ...],
    classes: tuple[str, ...],
    settings: Settings,
    class_name: str | None,
) -> str:
    from holdfast.metrics.explain import explain, explanation_text

    if class_name is not None and class_name not in classes:
        raise UnknownName("class", class_name, classes)
    if not classes:
        raise InputError("--explain: the ground truth has no class to explain")
    counts = np.bincount(truth.category, minlength=len(classes))
    index = classes.index(class_name) if class_name is not None else int(counts.argmax())
    known: dict[str, Any] = {"images": len(images), "class_names": classes, "class_index": index}
    story = explain(truth, detections, settings.rule, iou=settings.iou, **known)
    hint = "" if class_name else " (the class with the most true boxes; --class NAME selects another)"
    text = explanation_text(story, scores=(settings.score,), image_names=images)
    return f"AP step by step{hint}\n\n{text}"
