"""`holdfast diagnose`: which step of the deployment lost the metric."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.options import carry
from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.noise.cli import load_own, note_aliases, plan_for
from holdfast.noise.options import CombineOptions

if TYPE_CHECKING:
    from holdfast.core.model import Model
    from holdfast.core.pipeline import Pipeline
    from holdfast.diagnose.run import Diagnosis

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
LOOKED_AT = 16  # images of a dataset that are run in lockstep


def diagnose(options: DiagnoseOptions) -> int:
    """Find the step of the deployment that loses the metric, by running it beside the training system.

    Reports the first stage that differs; with a dataset also the accuracy drop of each difference alone, what
    comes back if it alone is fixed, and the images it broke. A dump of the target is compared as well.
    """
    check_outputs({"--json": options.json, "--out": options.out}, {})
    load_own(options.use)
    note_aliases([word.strip() for text in (options.train, options.deploy) for word in text.split(",")])
    from holdfast.diagnose.page import to_texts, write
    from holdfast.engine.manifest import to_plain

    found = _diagnosis(options)
    say("\n\n".join(to_texts(found)))
    if options.json:
        dumps = [{"columns": [c.name for c in t.heads], "rows": t.rows} for t in found.dumps]
        write_json(options.json, {"holdfast": 1, "kind": "diagnose", **to_plain(found), "dumps": dumps})
    if options.out:
        subject = (Path(options.model).stem, Path(options.data).name)
        page = write(found, subject, command_line(options), options.out)
        say(f"page: {page.resolve()}", sys.stderr)
    return 0


def _diagnosis(options: DiagnoseOptions) -> Diagnosis:
    from holdfast.core.errors import InputError

    dumps = options.input or options.output
    if not (options.deploy or dumps):
        raise InputError("expected --deploy CHOICES, or a dump of the target: --input or --output FILE.npy")
    path = Path(options.data)
    if path.is_file() and path.suffix.lower() in PICTURES:
        return _on_picture(options)
    if dumps:
        raise InputError("a dump is compared on one picture: give the picture it is of, not a dataset")
    return _on_data(options)


def _on_picture(options: DiagnoseOptions) -> Diagnosis:
    from holdfast.core.pipeline import pipeline_of
    from holdfast.data.open import open_dataset
    from holdfast.diagnose.dump import like_input, like_output, read_dump
    from holdfast.diagnose.lockstep import lockstep
    from holdfast.diagnose.page import like_table
    from holdfast.diagnose.run import Calibrated, Diagnosis, calibration_of, for_picture
    from holdfast.evaluate.result import CELLS
    from holdfast.graph.load import load_model
    from holdfast.noise.suite import REWRITTEN
    from holdfast.noise.vision.choose import calibrated
    from holdfast.noise.vision.show import OnePicture

    picture = Path(options.data)
    loaded, data = load_model(options.model, options.card), picture.read_bytes()
    train = _system(pipeline_of(loaded.card), options.train, loaded)
    spare = open_dataset(options.calibration) if options.calibration else None
    entry = OnePicture(picture.name, data)
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
        found = replace(found, dumps=(like_table(near, "input"),))
    if options.output:
        near = like_output(loaded, train, data, read_dump(options.output), ready)
        seen = found.calibration or Calibrated(len(images.entries), words)
        found = replace(found, dumps=(*found.dumps, like_table(near, "output")), calibration=seen)
    return found


def _system(pipeline: Pipeline, text: str, model: Model) -> Pipeline:
    """The pipeline with the options of a text; InputError if one is not for the task or undoes another."""
    from holdfast.core.errors import InputError
    from holdfast.noise.vision.choose import not_for
    from holdfast.stages.families import applied, options_of

    chosen = options_of(text)
    for place, one in enumerate(chosen):
        if unfit := not_for(one, model):
            raise InputError(f"{one.label}: {unfit}")
        for later in chosen[place + 1 :]:
            both = applied(pipeline, (one, later))
            if one.family == later.family and both == applied(pipeline, (later,)):
                raise InputError(f"{one.label} and {later.label}: the second undoes the first; give one")
    return applied(pipeline, chosen)


def _on_data(options: DiagnoseOptions) -> Diagnosis:
    from holdfast.core.pipeline import pipeline_of
    from holdfast.diagnose.lockstep import lockstep
    from holdfast.diagnose.run import Diagnosis, blame, calibration_of
    from holdfast.engine.progress import progress
    from holdfast.noise.suite import spread
    from holdfast.noise.vision.choose import calibrated
    from holdfast.noise.vision.run import prepare_context
    from holdfast.stages.families import options_of

    plan = plan_for(carry(options, CombineOptions))
    base = plan.plan
    train = _system(pipeline_of(base.model.card), options.train, base.model)
    systems = train, _system(train, options.deploy, base.model)
    prepared = prepare_context(replace(plan, plan=replace(base, pipeline=train)))
    context = prepared.context
    train, deploy = (calibrated(system, context.calibration, context.folder) for system in systems)
    prepared = replace(prepared, context=replace(context, clean=train))
    few = spread(base.dataset.entries, min(LOOKED_AT, len(base.dataset)))
    pictures = ((entry.name, entry.load().data) for entry in few)
    stages = lockstep(base.model, train, deploy, pictures)
    seen = calibration_of(base.model, context.reserved.words, train, deploy)
    costs = blame(prepared, options_of(options.deploy), progress)
    return Diagnosis(stages, costs, calibration=seen)
