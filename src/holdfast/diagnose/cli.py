"""`holdfast diagnose`: which step of the deployment lost the metric."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say, write_json
from holdfast.evaluate.cli import Choices, Classes, Format, Images, Jobs, Renames, RuleName, Runs, Split
from holdfast.noise.cli import (
    Asked,
    CalibrationData,
    CalibrationImages,
    Use,
    load_own,
    note_aliases,
    plans_of,
    watch,
    words_of,
)
from holdfast.noise.output import Shape

if TYPE_CHECKING:
    from holdfast.core.dataset import Dataset
    from holdfast.core.model import Model
    from holdfast.core.pipeline import Pipeline
    from holdfast.diagnose.calibration import Calibrated
    from holdfast.diagnose.lockstep import StageApart
    from holdfast.diagnose.run import Blame
    from holdfast.report.tables import Table

LOOKED_AT = 16  # images of a data set that are run in lockstep
WHAT, SHOWN = "What is compared", "How it is shown"

Train = Annotated[
    str, Option("How it was trained, FAMILY=OPTION,… (else as its card says).", shown="CHOICES", group=WHAT)
]
Deploy = Annotated[
    str, Option("How it is deployed: FAMILY=OPTION,FAMILY=OPTION.", shown="CHOICES", group=WHAT)
]
InputDump = Annotated[
    Path | None, Option("A .npy of the tensor the target's model is fed.", "--input", group=WHAT)
]
OutputDump = Annotated[
    Path | None, Option("A .npy of what the target's model gives.", "--output", group=WHAT)
]


def diagnose(
    model: Annotated[str, Argument("An ONNX file, or a shipped model.", values=offers.models)],
    images_or_data: Annotated[str, Argument("A picture, or a data set.", "IMAGE|DATA", offers.data_sets)],
    train: Train = "",
    deploy: Deploy = "",
    input_dump: InputDump = None,
    output_dump: OutputDump = None,
    card: Annotated[
        Path | None, Option("The model's card, if it does not lie beside it.", group=WHAT)
    ] = None,
    use: Use = (),
    calibration: CalibrationData = None,
    calibration_images: CalibrationImages = 100,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    classes: Classes = "all",
    rename: Renames = (),
    rule: RuleName = None,
    json: Annotated[Path | None, Option("Write everything to this JSON file.", group=SHOWN)] = None,
    out: Annotated[Path | None, Option("Write the page to this HTML file.", short="-o", group=SHOWN)] = None,
    runs: Runs = Path("holdfast-runs"),
    jobs: Jobs = 0,
) -> int:
    """Find the step of the deployment that loses the metric, by running it beside the training system.

    The first stage that differs; with a data set also what each difference costs alone, what comes back if
    it alone is mended, and the images it broke. A dump of the target is matched with what is known.
    """
    Shape(json=json, out=out).check()
    load_own(use)
    note_aliases(words_of((train, deploy)))
    given = Given(train, deploy, input_dump, output_dump, calibration, calibration_images, rule)
    how = Choices(card, data_format, split, images, (), rename, False, classes == "common", None, runs, jobs)
    found = _diagnosed(model, images_or_data, how, given)
    say("\n\n".join(to_text_all(found)))
    if json:
        write_json(json, _plain(found))
    if out:
        from holdfast.diagnose.page import write

        command = shlex.join(["holdfast", *sys.argv[1:]])
        subject = (Path(model).stem, Path(images_or_data).name)
        page = write(out, subject, found.stages, found.blame, found.dumps, command, found.calibration)
        say(f"page: {page.resolve()}", sys.stderr)
    return 0


class Given(NamedTuple):
    """What the user said of the two systems and of the target."""

    train: str
    deploy: str
    input_dump: Path | None
    output_dump: Path | None
    calibration: str | None
    calibration_images: int
    rule: str | None


class Found(NamedTuple):
    """A diagnosis; what was not asked for is empty."""

    stages: tuple[StageApart, ...] = ()
    blame: Blame | None = None
    dumps: tuple[Table, ...] = ()
    calibration: Calibrated | None = None


def _diagnosed(model: str, where: str, how: Choices, given: Given) -> Found:
    from holdfast.core.errors import InputError

    if not (given.deploy or given.input_dump or given.output_dump):
        raise InputError("expected --deploy CHOICES, or a dump of the target: --input or --output FILE.npy")
    if is_picture(where):
        return _on_picture(model, Path(where), how, given)
    if given.input_dump or given.output_dump:
        raise InputError("a dump is compared on one picture: give the picture it is of, not a data set")
    return _on_data(model, where, how, given)


def is_picture(where: str) -> bool:
    """Whether a word names one picture rather than a data set."""
    path = Path(where)
    return path.is_file() and path.suffix.lower() in (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")


def _on_picture(model: str, picture: Path, how: Choices, given: Given) -> Found:
    from holdfast.core.pipeline import pipeline_of
    from holdfast.diagnose.calibration import Calibrated, calibration_of, for_picture
    from holdfast.diagnose.dump import like_input, like_output, read_dump
    from holdfast.diagnose.lockstep import lockstep
    from holdfast.diagnose.page import like_table
    from holdfast.evaluate.result import CELLS
    from holdfast.graph.load import load_model
    from holdfast.noise.vision.choose import calibrated
    from holdfast.noise.vision.run import REWRITTEN
    from holdfast.noise.vision.show import OnePicture

    loaded, data = load_model(model, how.card), picture.read_bytes()
    train = _system(pipeline_of(loaded.card), given.train, loaded)
    entry = OnePicture(picture.name, data)
    images, words = for_picture(loaded, entry, _spare(given), train, given.calibration_images)

    def ready(pipeline: Pipeline) -> Pipeline:
        return calibrated(pipeline, images, how.runs / CELLS / REWRITTEN)

    found = Found()
    if given.deploy:
        both = ready(train), ready(_system(train, given.deploy, loaded))
        stages = lockstep(loaded, *both, [(picture.name, data)])
        found = Found(stages, calibration=calibration_of(loaded, words, *both))
    if given.input_dump:
        near = like_input(loaded, train, data, read_dump(given.input_dump))
        found = found._replace(dumps=(like_table(near, "input"),))
    if given.output_dump:
        near = like_output(loaded, train, data, read_dump(given.output_dump), ready)
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


def _spare(given: Given) -> Dataset | None:
    from holdfast.data.open import open_dataset

    return open_dataset(given.calibration) if given.calibration else None


def _on_data(model: str, where: str, how: Choices, given: Given) -> Found:
    from holdfast.core.pipeline import pipeline_of
    from holdfast.diagnose.calibration import calibration_of
    from holdfast.diagnose.lockstep import lockstep
    from holdfast.diagnose.run import blame
    from holdfast.noise.vision.calibration import spread
    from holdfast.noise.vision.choose import calibrated
    from holdfast.noise.vision.run import ground_of
    from holdfast.stages.families import options_of

    asked = Asked((), (), False, (), given.calibration, given.calibration_images, given.rule)
    (plan,) = plans_of((model, where), (), how, asked)
    base = plan.plan
    train = _system(pipeline_of(base.model.card), given.train, base.model)
    chosen = options_of(given.deploy)
    as_deployed = _system(train, given.deploy, base.model)
    plan = replace(plan, plan=replace(base, pipeline=train))
    prepared = ground_of(plan)
    ground, reserved = prepared.ground, prepared.ground.reserved
    train, deploy = (
        calibrated(system, reserved.calibration, ground.folder) for system in (train, as_deployed)
    )
    prepared = replace(prepared, ground=replace(ground, clean=train))
    few = spread(base.dataset.entries, min(LOOKED_AT, len(base.dataset)))
    pictures = ((entry.name, entry.load().data) for entry in few)
    stages = lockstep(base.model, train, deploy, pictures)
    seen = calibration_of(base.model, reserved.words, train, deploy)
    return Found(stages, blame(prepared, chosen, watch), calibration=seen)


def to_text_all(found: Found) -> list[str]:
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
        told = any(share.note == found.calibration.how for share in shares)  # in the table of blame
        said += f"\nnote     {calibration_words(found.calibration, how=not told)}"
    return [*parts, said.strip()] if said else parts


def _plain(found: Found) -> dict[str, Any]:
    return {
        "holdfast": 1,
        "kind": "diagnose",
        "stages": [dataclasses.asdict(s) for s in found.stages],
        "blame": dataclasses.asdict(found.blame) if found.blame else None,
        "dumps": [{"columns": [c.name for c in t.heads], "rows": t.rows} for t in found.dumps],
        "calibration": dataclasses.asdict(found.calibration) if found.calibration else None,
    }
