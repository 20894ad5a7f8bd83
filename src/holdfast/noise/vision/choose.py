"""What a suite runs: every option that is installed, fits the task and can change something; or why not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast.core.errors import InputError, ModelError, UnknownName
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import Pipeline
from holdfast.graph.rewrite.follow.walk import unchanged
from holdfast.noise.vision.calibration import Reserved
from holdfast.noise.vision.variants import Variant
from holdfast.stages.boxes import no_effect
from holdfast.stages.deployed import Calibration, Deployed
from holdfast.stages.families import Family, Option, families, option, options
from holdfast.stages.normalise import square

Status: TypeAlias = Literal["run", "no effect", "impossible", "not installed"]


@dataclass(frozen=True)
class Asked:
    """An option of the suite: the variant that measures it, or in words why there is nothing to measure."""

    option: Option
    status: Status
    note: str = ""
    variant: Variant | None = None


@dataclass(frozen=True)
class Wanted:
    """Which options: families or FAMILY=OPTION; empty `only` means all that run by default."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    every: bool = False

    def check(self) -> None:
        """Raise UnknownName for a family or option that does not exist."""
        for text in (*self.only, *self.skip):
            if "=" in text:
                option(text)
            elif text not in (known := [f.name for f in families()]):
                raise UnknownName("noise", text, known)

    def singles_out(self, found: Option) -> bool:
        """Whether `only` has this option by name, not just its family."""
        return bool(set(found.labels) & set(self.only))

    def takes(self, found: Option) -> bool:
        """Whether the option is to be run."""
        if found.family in self.skip or set(found.labels) & set(self.skip):
            return False
        if self.singles_out(found):
            return True
        named = not self.only or found.family in self.only
        return named and (found.default or self.every)


@dataclass(frozen=True)
class Ground:
    """What all variants of one model have in common."""

    model: Model
    clean: Pipeline
    reserved: Reserved
    folder: Path  # where rewritten models are kept


def asked(ground: Ground, wanted: Wanted) -> list[Asked]:
    """Every option that is wanted, in the order of the paper's table, each tried out as far as it can be."""
    wanted.check()
    found = [made for of in families() for made in _of_family(of, ground, wanted)]
    if not found:
        raise InputError(_nothing(ground.model, wanted))
    return found


def _nothing(model: Model, wanted: Wanted) -> str:
    """Why no option is left: skipped, not for the task, or what the model has anyway."""
    task = model.card.task
    taken = [found for of in families() for found in options(of) if wanted.takes(found)]
    if not taken:
        why = "--only and --skip leave none"
    elif any(task in found.tasks for found in taken):
        why = f"what is asked for is how {model.name} is fed and run anyway"
    else:
        names = ", ".join(sorted({found.family for found in taken}))
        why = f"{names}: not for a model to {task}, which {model.name} is"
    return f"no noise is left to run: {why}; see `holdfast noise list`"


def _of_family(of: Family, ground: Ground, wanted: Wanted) -> Iterator[Asked]:
    task = ground.model.card.task
    for offered in options(of):
        if not wanted.takes(offered):
            continue
        named = wanted.singles_out(offered)
        if task not in offered.tasks:
            if named:
                fitting = ", ".join(offered.tasks)
                raise InputError(
                    f"--only {offered.label}: is for models to {fitting}; "
                    f"{ground.model.name} is one to {task}"
                )
            continue
        if offered.missing:
            if named:
                raise InputError(f"--only {offered.label}: {offered.missing}")
            yield Asked(offered, "not installed", offered.missing)
            continue
        made = tried(ground, [offered])
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


def tried(ground: Ground, chosen: Sequence[Option]) -> Asked | None:
    """The options applied one after the other and built; None if that is the pipeline as it was trained."""
    pipeline = ground.clean
    for one in chosen:
        pipeline = one.noise(pipeline)
    last = chosen[-1]
    if pipeline.infer == Deployed():
        pipeline = pipeline.replace(infer="onnxruntime")
    if pipeline == ground.clean:
        return None
    name = " + ".join(one.label for one in chosen)
    useless = no_effect(last.name, ground.model.card) if last.family == "boxes" else ""
    useless = useless or no_fit(pipeline, ground.clean, ground.model.card.input)
    if useless and len(chosen) == 1:
        return Asked(last, "no effect", useless)
    pipeline = calibrated(pipeline, ground.reserved.calibration, ground.folder)
    infer = pipeline.infer
    if not isinstance(infer, Deployed):
        return Asked(last, "run", "", Variant(name, pipeline))
    try:
        built = infer.built(ground.model)
    except ModelError as reason:
        return Asked(last, "impossible", reason_of(str(reason), ground.model))
    if infer.rewrites and not built.changed and len(chosen) == 1:
        said = "; ".join(built.how) or unchanged(ground.model.read(), last.family)
        return Asked(last, "no effect", said)
    without = ground.reserved.without if infer.calibrated else frozenset()
    return Asked(last, "run", "; ".join(built.how), Variant(name, pipeline, without))
