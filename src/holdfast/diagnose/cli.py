"""`holdfast diagnose`: which step of the deployment lost the metric."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.config.options import carry
from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.noise.cli import load_own, note_aliases, plan_for
from holdfast.noise.options import CombineOptions

if TYPE_CHECKING:
    from holdfast.core.model import Model
    from holdfast.core.pipeline import Pipeline
    from holdfast.diagnose.lockstep import StageApart
    from holdfast.diagnose.run import Blame, Calibrated
    from holdfast.report.tables import Table

LOOKED_AT = 16  # images of a dataset that are run in lockstep


def diagnose(options: DiagnoseOptions) -> int:
    """Find the step of the deployment that loses the metric, by running it beside the training system.

    Reports the first stage that differs; with a dataset also the accuracy drop of each difference alone, what
    comes back if it alone is fixed, and the images it broke. A dump of the target is compared as well.
    """
    check_outputs({"--json": options.json, "--out": options.out}, {})
    load_own(options.use)
    note_aliases([word.strip() for text in (options.train, options.deploy) for word in text.split(",")])
    found = _diagnosed(options)
    say("\n\n".join(to_text_all(found)))
    if options.json:
        write_json(options.json, _plain(found))
    if options.out:
        from holdfast.diagnose.page import write

        subject = (Path(options.model).stem, Path(options.data).name)
        page = write(
            options.out,
            subject,
            found.stages,
            found=found.blame,
            dumps=found.dumps,
            command=command_line(options),
            calibration=found.calibration,
        )
        say(f"page: {page.resolve()}", sys.stderr)
    return 0


class Diagnosis(NamedTuple):
    """A diagnosis; what was not asked for is empty."""

    stages: tuple[StageApart, ...] = ()
    blame: Blame | None = None
    dumps: tuple[Table, ...] = ()
    calibration: Calibrated | None = None


def _diagnosed(options: DiagnoseOptions) -> Diagnosis:
    from holdfast.core.errors import InputError

    dumps = options.input or options.output
    if not (options.deploy or dumps):
        raise InputError("expected --deploy CHOICES, or a dump of the target: --input or --output FILE.npy")
    if is_picture(options.data):
        return _on_picture(options)
    if dumps:
        raise InputError("a dump is compared on one picture: give the picture it is of, not a dataset")
    return _on_data(options)


def is_picture(where: str) -> bool:
    """Whether a word names one picture rather than a data set."""
    path = Path(where)
    return path.is_file() and path.suffix.lower() in (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")


def _on_picture(options: DiagnoseOptions) -> Diagnosis:
    from holdfast.core.pipeline import pipeline_of
    from holdfast.data.open import open_dataset
    from holdfast.diagnose.dump import like_input, like_output, read_dump
    from holdfast.diagnose.lockstep import lockstep
    from holdfast.diagnose.page import like_table
    from holdfast.diagnose.run import Calibrated, calibration_of, for_picture
    from holdfast.evaluate.result import CELLS
    from holdfast.graph.load import load_model
    from holdfast.noise.suite import REWRITTEN
    from holdfast.noise.vision.choose import calibrated
    from holdfast.noise.vision.show import OnePicture

    picture = Path(options.data)
    loaded, data = load_model(options.model, options.card), picture.read_bytes()
    train = _system(pipeline_of(loaded.card), options.train, loaded)
    entry = OnePicture(picture.name, data)
    spare = open_dataset(options.calibration) if options.calibration else None
    images, words = for_picture(loaded, entry, spare, train, options.calibration_images)

    def ready(pipeline: Pipeline) -> Pipeline:
        return calibrated(pipeline, images, options.runs / CELLS / REWRITTEN)

    found = Diagnosis()
    if options.deploy:
        both = ready(train), ready(_system(train, options.deploy, loaded))
        stages = lockstep(loaded, *both, [(picture.name, data)])
        found = Diagnosis(stages, calibration=calibration_of(loaded, words, *both))
    if options.input:
        near = like_input(loaded, train, data, read_dump(options.input))
        found = found._replace(dumps=(like_table(near, "input"),))
    if options.output:
        near = like_output(loaded, train, data, read_dump(options.output), ready)
        seen = found.calibration or Calibrated(len(images.entries), words)
        found = found._replace(dumps=(*found.dumps, like_table(near, "output")), calibration=seen)
    return found


def _system(pipeline: Pipeline, text: str, model: Model) -> Pipeline:
    """The pipeline with the options of a text; InputError if one is not for the task or undoes another."""
    from holdfast.core.errors import InputError
    from holdfast.stages.families import applied, options_of

    chosen = options_of(text)
    for place, one in enumerate(chosen):
        if model.card.task not in one.tasks:
            fitting = ", ".join(one.tasks)
            raise InputError(
                f"{one.label}: is for models to {fitting}; {model.name} is one to {model.card.task}"
            )
        for later in chosen[place + 1 :]:
            both = applied(pipeline, (one, later))
            if one.family == later.family and both == applied(pipeline, (later,)):
                raise InputError(f"{one.label} and {later.label}: the second undoes the first; give one")
    return applied(pipeline, chosen)


def _on_data(options: DiagnoseOptions) -> Diagnosis:
    from holdfast.core.pipeline import pipeline_of
    from holdfast.diagnose.lockstep import lockstep
    from holdfast.diagnose.run import blame, calibration_of
    from holdfast.engine.progress import progress
    from holdfast.noise.suite import spread
    from holdfast.noise.vision.choose import calibrated
    from holdfast.noise.vision.run import prepare_context
    from holdfast.stages.families import options_of

    plan = plan_for(carry(options, CombineOptions))
    base = plan.plan
    train = _system(pipeline_of(base.model.card), options.train, base.model)
    chosen = options_of(options.deploy)
    as_deployed = _system(train, options.deploy, base.model)
    plan = replace(plan, plan=replace(base, pipeline=train))
    prepared = prepare_context(plan)
    context = prepared.context
    train, deploy = (
        calibrated(system, context.calibration, context.folder) for system in (train, as_deployed)
    )
    prepared = replace(prepared, context=replace(context, clean=train))
    few = spread(base.dataset.entries, min(LOOKED_AT, len(base.dataset)))
    pictures = ((entry.name, entry.load().data) for entry in few)
    stages = lockstep(base.model, train, deploy, pictures)
    seen = calibration_of(base.model, context.reserved.words, train, deploy)
    return Diagnosis(stages, blame(prepared, chosen, progress), calibration=seen)


def to_text_all(found: Diagnosis) -> list[str]:
    """The diagnosis as it is printed: tables, then what they say."""
    from holdfast.diagnose.page import blame_table, calibration_words, like_text, stage_table, words
    from holdfast.report.tables import to_text

    parts = [to_text(stage_table(found.stages))] if found.stages else []
    if found.blame is not None:
        parts.append(to_text(blame_table(found.blame)))
    parts += [like_text(table) for table in found.dumps]
    said = words(found.stages, found.blame)
    broken = found.blame.broken if found.blame else ()
    if broken:
        more = f" and {len(broken) - 10} more" if len(broken) > 10 else ""
        said += f"\nbroken   {', '.join(broken[:10])}{more}"
    if found.calibration is not None:
        shares = found.blame.shares if found.blame else ()
        shown = any(share.note == found.calibration.how for share in shares)  # in the table of blame
        said += f"\nnote     {calibration_words(found.calibration, how=not shown)}"
    return [*parts, said.strip()] if said else parts


def _plain(found: Diagnosis) -> dict[str, Any]:
    return {
        "holdfast": 1,
        "kind": "diagnose",
        "stages": [dataclasses.asdict(s) for s in found.stages],
        "blame": dataclasses.asdict(found.blame) if found.blame else None,
        "dumps": [{"columns": [c.name for c in t.heads], "rows": t.rows} for t in found.dumps],
        "calibration": dataclasses.asdict(found.calibration) if found.calibration else None,
    }
