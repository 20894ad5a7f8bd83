"""What a suite runs: every option that is installed, fits the task and can change something; or why not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from holdfast.core.dataset import Entry
from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import Pipeline
from holdfast.graph.rewrite.follow.walk import unchanged
from holdfast.noise.suite import Candidate, NoiseSelection, Reserved
from holdfast.noise.vision.sweep import Variant
from holdfast.stages.boxes import no_effect
from holdfast.stages.deployed import Calibration, Deployed
from holdfast.stages.families import Family, Option, families, options
from holdfast.stages.normalise import square

ImageCandidate: TypeAlias = Candidate[Option, Variant]


@dataclass(frozen=True)
class SuiteContext:
    """What all variants of one model have in common."""

    model: Model
    clean: Pipeline
    reserved: Reserved[Entry]
    calibration: Calibration
    folder: Path  # where rewritten models are kept


def select_options(context: SuiteContext, selection: NoiseSelection) -> list[ImageCandidate]:
    """Every selected option in the order of the paper's table, each built as far as it can be."""
    selection.check()
    found = [made for of in families() for made in _of_family(of, context, selection)]
    if not found:
        raise InputError(_nothing(context.model, selection))
    return found


def _nothing(model: Model, selection: NoiseSelection) -> str:
    """Why no option is left: skipped, not for the task, or what the model has anyway."""
    task = model.card.task
    taken = [found for of in families() for found in options(of) if selection.takes(found)]
    if not taken:
        why = "--only and --skip leave none"
    elif any(task in found.tasks for found in taken):
        why = f"what is asked for is how {model.name} is fed and run anyway"
    else:
        names = ", ".join(sorted({found.family for found in taken}))
        why = f"{names}: not for a model to {task}, which {model.name} is"
    return f"no noise is left to run: {why}; see `holdfast noise list`"


def _of_family(of: Family, context: SuiteContext, selection: NoiseSelection) -> Iterator[ImageCandidate]:
    task = context.model.card.task
    for offered in options(of):
        if not selection.takes(offered):
            continue
        named = selection.singles_out(offered)
        if task not in offered.tasks:
            if named:
                fitting = ", ".join(offered.tasks)
                raise InputError(
                    f"--only {offered.label}: is for models to {fitting}; "
                    f"{context.model.name} is one to {task}"
                )
            continue
        if offered.missing:
            if named:
                raise InputError(f"--only {offered.label}: {offered.missing}")
            yield Candidate(offered, "not installed", offered.missing)
            continue
        made = build_variant(context, [offered])
        if made is not None:
            yield made


def reason_of(text: str, model: Model) -> str:
    """A reason in one line without the model's path: the row says which model it is."""
    return " ".join(text.split()).removeprefix(f"{model.path}: ")


def calibrated(pipeline: Pipeline, calibration: Calibration, folder: Path) -> Pipeline:
    """The pipeline with what a rewritten graph needs: images to calibrate on, and a folder to be kept in."""
    if not isinstance(pipeline.infer, Deployed):
        return pipeline
    return pipeline.replace(infer=dataclasses.replace(pipeline.infer, calibration=calibration, folder=folder))


def no_fit(pipeline: Pipeline, clean: Pipeline, fed: Input) -> str:
    """Why the fit `square` alone changes nothing for a card with this input; empty if it changes it."""
    if pipeline.fit != "square" or pipeline.replace(fit=clean.fit) != clean or square(fed) != fed:
        return ""
    return f"applies to cards of policy crop only; this one's is {fed.policy}"


def build_variant(context: SuiteContext, chosen: Sequence[Option]) -> ImageCandidate | None:
    """The options applied one after the other and built; None if that is the pipeline as it was trained."""
    pipeline = context.clean
    for one in chosen:
        pipeline = one.noise(pipeline)
    last = chosen[-1]
    if pipeline.infer == Deployed():
        pipeline = pipeline.replace(infer="onnxruntime")
    if pipeline == context.clean:
        return None
    name = " + ".join(one.label for one in chosen)
    useless = no_effect(last.name, context.model.card) if last.family == "boxes" else ""
    useless = useless or no_fit(pipeline, context.clean, context.model.card.input)
    if useless and len(chosen) == 1:
        return Candidate(last, "no effect", useless)
    pipeline = calibrated(pipeline, context.calibration, context.folder)
    infer = pipeline.infer
    if not isinstance(infer, Deployed):
        return Candidate(last, "measured", "", Variant(name, pipeline))
    try:
        built = infer.built(context.model)
    except ModelError as reason:
        return Candidate(last, "impossible", reason_of(str(reason), context.model))
    if infer.rewrites and not built.changed and len(chosen) == 1:
        said = "; ".join(built.how) or unchanged(context.model.read(), last.family)
        return Candidate(last, "no effect", said)
    without = context.reserved.without if infer.calibrated else frozenset()
    return Candidate(last, "measured", "; ".join(built.how), Variant(name, pipeline, without))
