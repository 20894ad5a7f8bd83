"""Mix training of a user's classifier, tested on held-out data."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.core.model import Model
from holdfast.data.entries import FileEntry
from holdfast.data.open import open_dataset
from holdfast.engine.store import write_atomic
from holdfast.evaluate.run import EvaluationPlan, alignment_of
from holdfast.graph.card import card_path, write_card
from holdfast.graph.load import load_model
from holdfast.noise.suite import Watch
from holdfast.train.loop import threads
from holdfast.train.mitigate.rows import shared_images
from holdfast.train.mitigate.training import correct_predictions
from holdfast.train.pictures import PreparedImages, Preprocessing, Say, prepare_images
from holdfast.train.tune import Tuning, trainable_of, tune

if TYPE_CHECKING:
    from holdfast.train.options import MixOptions


@dataclass(frozen=True)
class AccuracyChange:
    """Accuracy under one choice before and after training, in percent."""

    choice: str
    before: float
    after: float


@dataclass(frozen=True)
class MixResult:
    """The accuracy of a model before and after mix training, on images it was not trained on."""

    old: str
    new: str
    data: str
    tested: str
    trained_on: int
    tested_on: int
    steps: int
    weights: int  # tensors of the file that were trained
    numbers: int  # their elements
    kept: tuple[str, ...]  # float constants of the file that are no weights
    lines: tuple[AccuracyChange, ...]
    held_out: str = ""  # the list of images that were held out
    left_out: tuple[str, ...] = ()

    def spread(self, of: str) -> tuple[float, float]:
        """Mean and standard deviation over the choices, `before` or `after`."""
        values = np.array([getattr(line, of) for line in self.lines])
        return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


# Options of `train mix` that Tuning has too.
TUNED = [
    "mix_per",
    "batch",
    "rate",
    "augment",
    "adversarial",
    "shift",
    "statistics",
    "smoothing",
    "consistency",
]


def mix(
    plan: EvaluationPlan, options: MixOptions, mixed: tuple[Preprocessing, ...],
    reported: tuple[Preprocessing, ...], say: Say, watch: Watch,
) -> MixResult:  # fmt: skip
    """Train on the mixed choices, write the new model and its card, and return the accuracies.

    Accuracy is measured under the card's own choice and the reported ones. Images, checkpoint and predictions
    are stored in the folder `work`: an interrupted run resumes and gives the same bytes.
    """
    model, work = plan.model, options.work
    test = open_dataset(options.test, task="classify", images=options.images) if options.test else None
    check_out(options.out, model)
    if not 0 < options.held_out < 1:
        raise InputError(f"--held-out: expected a share between 0 and 1, got {options.held_out}")
    shared = {name: getattr(options, name) for name in TUNED}
    tuning = Tuning(options.steps or 300, mix=mixed, **shared)
    tuning.check()
    net = trainable_of(model)  # report an untrainable graph before the images are prepared
    places = places_of(plan)
    train_data, tested = parts_of(plan.dataset, test, options.held_out, options.seed)
    if options.epochs is not None:
        steps = max(1, math.ceil(options.epochs * len(train_data) / tuning.batch))
        tuning = dataclasses.replace(tuning, steps=steps)
    if len(train_data) < tuning.batch:
        raise DataError(
            f"expected at least one batch of training images ({tuning.batch}), got {len(train_data)} "
            f"({len(tested)} of {train_data.name} are held out); use more images or a smaller --batch"
        )
    with watch("training images", len(train_data), "images") as step:
        pictures = prepare_images(model, train_data, mixed, work, plan.jobs, say, places, step)
    reported = tuple(dict.fromkeys((Preprocessing(model.card.decode, model.card.resize), *reported)))
    places = places if test is None else places_of(dataclasses.replace(plan, dataset=test))
    with watch("test images", len(tested), "images") as step:
        test_pictures = prepare_images(model, tested, reported, work, plan.jobs, say, places, step)
    with watch("train", tuning.steps, "steps") as step, threads(plan.jobs):
        proto = tune(model, pictures, tuning, options.seed, work / f"{model.name}.pt", say, step)
    write_atomic(options.out, proto.SerializeToString())
    write_card(model.card, options.out.with_suffix(".toml"), model.guessed)
    both = (model, load_model(options.out))
    before, after = (100 * correct_predictions(m, test_pictures, work).mean(1) for m in both)
    accuracies = zip(reported, before, after, strict=True)
    return MixResult(
        old=str(model.path),
        new=str(options.out),
        data=plan.dataset.name,
        tested=tested.name,
        trained_on=len(pictures),
        tested_on=len(test_pictures),
        steps=tuning.steps,
        weights=len(net.weights),
        numbers=sum(w.numel() for w in net.weights.values()),
        kept=net.plan.untrained,
        lines=tuple(AccuracyChange(choice.label, float(b), float(a)) for choice, b, a in accuracies),
        held_out=_write_list(options.out, tested, test_pictures) if test is None else "",
        left_out=(*pictures.left_out, *test_pictures.left_out),
    )


def check_out(out: Path, model: Model | None = None) -> None:
    """Raise InputError or OutputError if the new model cannot be written, before anything is computed."""
    if out.suffix != ".onnx" or out.is_dir():
        raise InputError(f"--out {out}: expected the name of a new .onnx file")
    if model is not None and out.exists() and out.samefile(model.path):
        raise InputError(f"--out {out}: expected another file than the model, which is not modified")
    card = out.with_suffix(".toml")
    own = None if model is None else card_path(model.path)
    if card.exists() and (not out.exists() or card == own):
        raise InputError(f"--out {out}: {card} exists and is the card of another model; choose another name")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"--out {out}: cannot be written there: {problem.strerror}") from problem
    if not os.access(out.parent, os.W_OK):
        raise OutputError(f"--out {out}: {out.parent} cannot be written to; choose another folder")


def places_of(plan: EvaluationPlan) -> Sequence[int] | None:
    """The model's class index of each class of the data; None if the data has no class names."""
    alignment = alignment_of(plan)
    return alignment.places() if plan.dataset.classes else None


def parts_of(data: Dataset, test: Dataset | None, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
    """The training and the test images, drawn by the seed, without overlap."""
    if test is not None:
        if duplicates := shared_images(data, test):
            raise DataError(f"{len(duplicates)} test images are also in {data.name}, first {duplicates[0]}")
        return data, test
    count = round(len(data) * held_out)
    if not 0 < count < len(data):
        raise DataError(f"{data.name}: expected enough images to hold out some, got {len(data)}")
    order = np.random.default_rng(seed).permutation(len(data))
    trained, tested = (
        dataclasses.replace(data, entries=tuple(data.entries[index] for index in sorted(part)))
        for part in (order[count:], order[:count])
    )
    return trained, tested


def _write_list(out: Path, tested: Dataset, pictures: PreparedImages) -> str:
    """Write the list of held-out images with their classes, if they are files, and return its path or ""."""
    files = {e.name: e.path for e in tested.entries if isinstance(e, FileEntry)}
    if not all(name in files for name in pictures.names):
        return ""
    path = out.with_name(f"{out.stem}-held-out.txt")
    pairs = zip(pictures.names, pictures.labels, strict=True)
    text = "".join(f"{Path(files[name]).resolve()}\t{label}\n" for name, label in pairs)
    write_atomic(path, text.encode(errors="surrogateescape"))
    return str(path)


def as_plain(result: MixResult) -> dict[str, Any]:
    """The result as JSON values."""
    spread = {of: dict(zip(("mean", "std"), result.spread(of), strict=True)) for of in ("before", "after")}
    return {"holdfast": 1, "kind": "mix training", **dataclasses.asdict(result), **spread}
