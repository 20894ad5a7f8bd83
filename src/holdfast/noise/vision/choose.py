"""Selection of the options of a suite, with the reason for each that cannot run; calibration images."""

import dataclasses
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import InputError, ModelError
from holdfast.core.fingerprint import of_bytes
from holdfast.core.model import Input, Model, Task
from holdfast.core.pipeline import Pipeline
from holdfast.core.registry import lookup
from holdfast.data.embedded import EmbeddedEntry, is_embedded
from holdfast.data.entries import FileEntry, read_image_file
from holdfast.data.open import open_dataset
from holdfast.graph.rewrite.follow.walk import unchanged
from holdfast.noise.suite import (
    CALIBRATION_ITEMS,
    Candidate,
    NoiseSelection,
    Reserved,
    calibration_subset,
    spread,
)
from holdfast.noise.vision.sweep import Variant
from holdfast.report.tables import many
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.families import NoiseOption, applied, families, options
from holdfast.stages.families import option as by_label
from holdfast.stages.post import no_effect

# The paper's DALI decodes on a GPU by nvJPEG.
STAND_IN = {"decode=dali": "decode=no-fancy-upsampling"}
IN_PLACE = "in place of"  # how the note of such an option begins
WHY = "DALI decodes on a GPU by nvJPEG, whose default repeats chroma samples as this option does"

ImageCandidate: TypeAlias = Candidate[Variant]


@dataclass(frozen=True)
class SuiteContext:
    """What all variants of one model have in common."""

    model: Model
    clean: Pipeline
    reserved: Reserved[Entry]
    calibration: Calibration
    folder: Path  # where rewritten models are stored


def select_options(context: SuiteContext, selection: NoiseSelection) -> list[ImageCandidate]:
    """Every selected option in the order of the paper's table, each built as far as it can be."""
    selection.check()
    model, task = context.model, context.model.card.task
    taken = [option for of in families() for option in options(of) if selection.takes(option)]
    candidates: list[ImageCandidate] = []
    if selection.suite == "paper":
        candidates += [c for option in taken if (c := substitute(context, option))]
    for option in taken:
        unfit = task_mismatch(option, model)
        if (unfit or option.missing) and selection.singles_out(option):
            raise InputError(f"--only {option.label}: {unfit or option.missing}")
        if option.missing and not unfit:
            candidates.append(Candidate(option, "not installed", option.missing))
        elif not unfit and (candidate := build_variant(context, [option])):
            candidates.append(candidate)
    if candidates:
        return in_table_order(candidates)
    why = "--only and --skip exclude all"
    if any(task in option.tasks for option in taken):
        why = f"the selected options are already part of the training pipeline of {model.name}"
    elif taken:
        names = ", ".join(sorted({option.family for option in taken}))
        why = f"{names}: not applicable to {model.name}, whose task is {task}"
    raise InputError(f"no noise option is left to run: {why}; see `holdfast noise list`")


def in_table_order(candidates: Iterable[ImageCandidate]) -> list[ImageCandidate]:
    """The candidates in the order of the families, those of one family in the order given."""
    order = {each.name: place for place, each in enumerate(families())}
    return sorted(candidates, key=lambda c: order.get(c.option.family, len(order)))


def substitute(context: SuiteContext, option: NoiseOption) -> ImageCandidate | None:
    """The option that stands in for one that is not installed, with a note; None if there is no need."""
    instead = STAND_IN.get(option.label) if option.missing else None
    if instead is None:
        return None
    candidate = build_variant(context, [by_label(instead)])
    return candidate and dataclasses.replace(
        candidate, note=f"{IN_PLACE} {option.label}, not installed: {WHY}"
    )


def task_mismatch(option: NoiseOption, model: Model) -> str:
    """Why an option does not concern a model of this task; empty if it does."""
    task = model.card.task
    if task in option.tasks:
        return ""
    return f"applies to the tasks {', '.join(option.tasks)}; the task of {model.name} is {task}"


def reason_of(text: str, model: Model) -> str:
    """A reason in one line without the model's path, which the row states already."""
    return " ".join(text.split()).removeprefix(f"{model.path}: ")


def with_calibration(pipeline: Pipeline, calibration: Calibration, folder: Path) -> Pipeline:
    """The pipeline with the folder of a rewritten graph and, unless it has some, these calibration images."""
    if not isinstance(infer := pipeline.infer, DeployedInference):
        return pipeline
    images = infer.calibration or calibration
    return pipeline.replace(infer=dataclasses.replace(infer, calibration=images, folder=folder))


def fit_no_effect(pipeline: Pipeline, clean: Pipeline, fed: Input) -> str:
    """Why a fit alone changes nothing for a card with this input; empty if it changes it."""
    if pipeline.fit == clean.fit or pipeline.replace(fit=clean.fit) != clean:
        return ""
    if pipeline.fit == "square" and fed.policy != "crop":
        return f"applies only to cards with the input policy crop; this card has {fed.policy}"
    return "does not change the input of this model" if lookup("fit", pipeline.fit)(fed) == fed else ""


def build_variant(context: SuiteContext, chosen: Sequence[NoiseOption]) -> ImageCandidate | None:
    """The options applied one after the other and built; None if that is the training pipeline."""
    pipeline, last = applied(context.clean, chosen), chosen[-1]
    if pipeline.infer == DeployedInference():
        pipeline = pipeline.replace(infer="onnxruntime")
    if pipeline == context.clean:
        return None
    name = " + ".join(option.label for option in chosen)
    useless = no_effect(last.name, context.model.card) if last.family == "boxes" else ""
    useless = useless or fit_no_effect(pipeline, context.clean, context.model.card.input)
    if useless and len(chosen) == 1:
        return Candidate(last, "no effect", useless)
    pipeline = with_calibration(pipeline, context.calibration, context.folder)
    infer = pipeline.infer
    if not isinstance(infer, DeployedInference):
        return Candidate(last, "measured", "", Variant(name, pipeline))
    try:
        built = infer.built(context.model)
    except ModelError as reason:
        return Candidate(last, "impossible", reason_of(str(reason), context.model))
    if infer.rewrites and not built.changed and len(chosen) == 1:
        why = "; ".join(built.how) or unchanged(context.model.read(), last.family)
        return Candidate(last, "no effect", why)
    without = context.reserved.without if infer.calibrated else frozenset()
    return Candidate(last, "measured", "; ".join(built.how), Variant(name, pipeline, without))


def reserve(tested: Dataset, others: Dataset | None, images: int = CALIBRATION_ITEMS) -> Reserved[Entry]:
    """Images of `others` that are not tested on; else some of the tested, which are then skipped."""
    if others is not None and (free := images_not_in(others.entries, tested.entries)):
        chosen = spread(free, min(images, len(free)))
        verb = "is" if len(chosen) == 1 else "are"
        return Reserved(chosen, f"{many(len(chosen), 'image')} of {others.name} that {verb} not tested on")
    none = "" if others is None else f" ({others.name} has no others)"
    chosen = calibration_subset(tested.entries, images)
    # Copies of a chosen image are skipped, too.
    rest = {entry.name for entry in images_not_in(tested.entries, chosen)}
    if not rest:
        count = many(len(tested), "image")
        lack = f"{count}{none}: no image would be left to test on; add --calibration DATA"
        return Reserved((), f"no image: {lack}", lack=lack)
    words = (
        f"{len(chosen)} of the {len(tested)} images{none}; calibrated variants skip these images, and their "
        "points lost are relative to the clean result on the other images"
    )
    return Reserved(chosen, words, frozenset(e.name for e in tested.entries if e.name not in rest))


def images_not_in(entries: Sequence[Entry], tested: Sequence[Entry]) -> tuple[Entry, ...]:
    """The images that are not among the tested ones, by their bytes, without those that cannot be read.

    Files are read only where two have the same size.
    """
    origins = {_origin(entry) for entry in tested}
    others = tuple(entry for entry in entries if _origin(entry) not in origins)
    if all(isinstance(entry, EmbeddedEntry) for entry in (*others, *tested)):
        return others  # another seed or index is another scene: nothing need be drawn
    sizes, tested_sizes = [_size(entry) for entry in others], [_size(entry) for entry in tested]
    shared = set(sizes) & set(tested_sizes)
    known = {of_bytes(_data(e)) for e, size in zip(tested, tested_sizes, strict=True) if size in shared}
    pairs = zip(others, sizes, strict=True)
    return tuple(e for e, size in pairs if size and (size not in shared or of_bytes(_data(e)) not in known))


def calibration_pool(
    data: str,
    task: Task,
    format: str | None,  # noqa: A002 (the name of the option)
    split: str | None,
    count: int = CALIBRATION_ITEMS,
    *,
    whole: bool = True,
) -> Dataset | None:
    """Other embedded scenes, or all of the data (`reserve` skips the tested images); else None."""
    words = data.split(":")
    if is_embedded(data):
        seed = int(words[1]) if len(words) > 1 else 0
        return open_dataset(f"{words[0]}:{seed + 1}:{count}", task=task)
    return open_dataset(data, task=task, format=format, split=split) if whole else None


def _origin(entry: Entry) -> Hashable:
    """Equal for two entries of the same image, and known without loading it."""
    if isinstance(entry, FileEntry):
        return entry.path
    if isinstance(entry, EmbeddedEntry):
        return entry.data, entry.seed, entry.index
    return id(entry)


def _size(entry: Entry) -> int:
    """How many bytes the encoded image has; 0 if it cannot be read."""
    if not isinstance(entry, FileEntry):
        return len(_data(entry))
    try:
        return os.stat(entry.path).st_size  # noqa: PTH116 (entries keep paths as text)
    except OSError:
        return 0


def _data(entry: Entry) -> bytes:
    """The encoded image; empty if it cannot be read."""
    try:
        return read_image_file(entry.path) if isinstance(entry, FileEntry) else entry.load().data
    except InputError:
        return b""
