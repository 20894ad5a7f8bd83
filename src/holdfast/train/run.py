"""Mix training of a user's classifier, with part of the data held out to see what it did."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.data.entries import FileEntry
from holdfast.engine.store import write_atomic
from holdfast.evaluate.run import Plan, alignment_of
from holdfast.graph.card import card_path, write_card
from holdfast.graph.load import load_model
from holdfast.train.mitigate.judge import right
from holdfast.train.mitigate.rows import in_both

if TYPE_CHECKING:
    from holdfast.train.pictures import Pictures
    from holdfast.train.shown import Choice
    from holdfast.train.tune import Tuning

Say = Callable[[str], None]
Watch = Callable[[str, int, str], AbstractContextManager[Callable[[int, int], None]]]


@dataclass(frozen=True)
class MixPlan:
    """What is trained on what, and where it goes; `tuning` holds the choices that are mixed."""

    plan: Plan  # the model and all data
    out: Path
    tuning: Tuning
    reported: tuple[Choice, ...]  # the choices that accuracy is reported under
    work: Path
    seed: int = 0
    held_out: float = 0.25  # part of the data
    test: Dataset | None = None  # instead of part of the data
    epochs: float | None = None  # instead of the tuning's steps


@dataclass(frozen=True)
class Line:
    """Accuracy under one choice before and after training, in percent."""

    choice: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """By how much it rose, in points."""
        return self.after - self.before


@dataclass(frozen=True)
class Mixed:
    """What mix training did to a model, on images it was not trained on."""

    old: str
    new: str
    data: str
    tested: str
    trained_on: int
    tested_on: int
    steps: int
    weights: int  # tensors of the file that were trained
    numbers: int  # in these
    kept: tuple[str, ...]  # float numbers of the file that are no weights
    lines: tuple[Line, ...]
    held_out: str = ""  # the list of images that were held out
    left_out: tuple[str, ...] = ()

    def spread(self, of: str) -> tuple[float, float]:
        """Mean and standard deviation over the choices, `before` or `after`."""
        values = np.array([getattr(line, of) for line in self.lines])
        return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def check_mix(wanted: MixPlan) -> None:
    """Raise an error of one line about what cannot be trained, before anything is computed."""
    model, out = wanted.plan.model, wanted.out
    if model.card.task != "classify":
        raise InputError(
            f"{model.path}: mix training is for models to classify, this is one to {model.card.task}"
        )
    if out.suffix != ".onnx" or out.is_dir():
        raise InputError(f"--out {out}: expected the name of a new .onnx file")
    if out.exists() and out.samefile(model.path):
        raise InputError(
            f"--out {out}: is the model that is trained, which is never changed; choose another name"
        )
    card = out.with_suffix(".toml")
    if card.exists() and (not out.exists() or card == card_path(model.path)):
        raise InputError(
            f"--out {out}: its card {card} is there already, another model's; choose another name"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"--out {out}: cannot be written there: {problem.strerror}") from problem
    if not os.access(out.parent, os.W_OK):
        raise OutputError(f"--out {out}: {out.parent} cannot be written to; choose another folder")
    if not 0 < wanted.held_out < 1:
        raise InputError(f"--held-out: expected a part between 0 and 1, got {wanted.held_out}")
    wanted.tuning.check()


def mix(wanted: MixPlan, say: Say, watch: Watch) -> Mixed:
    """Train, write the new model and its card next to each other, and return what training did.

    Pictures, checkpoint and what was judged are kept in the plan's folder: the same call after a kill goes on
    and gives the same bytes.
    """
    from holdfast.train.loop import threads
    from holdfast.train.shown import Choice
    from holdfast.train.tune import trainable_of, tune

    check_mix(wanted)
    model = wanted.plan.model
    net = trainable_of(model)  # a graph that cannot be trained is told before the pictures are made
    places = places_of(wanted.plan)
    seen, tested = _parts(wanted)
    tuning = wanted.tuning
    if wanted.epochs is not None:
        steps = max(1, math.ceil(wanted.epochs * len(seen) / tuning.batch))
        tuning = dataclasses.replace(tuning, steps=steps)
    if len(seen) < tuning.batch:
        raise DataError(
            f"expected at least as many images to train on as a batch holds, {tuning.batch}, got {len(seen)} "
            f"({len(tested)} of {seen.name} are held out); give more images or a smaller --batch"
        )
    usual = Choice(model.card.decode, model.card.resize)
    reported = tuple(dict.fromkeys((usual, *wanted.reported)))
    pictures = _pictures(wanted, seen, tuning.mix, places, "pictures", say, watch)
    shown = _pictures(wanted, tested, reported, None if wanted.test else places, "held out", say, watch)
    with watch("train", tuning.steps, "steps") as step, threads(wanted.plan.jobs):
        proto = tune(model, pictures, tuning, wanted.seed, wanted.work / f"{model.name}.pt", say, step)
    write_atomic(wanted.out, proto.SerializeToString())
    write_card(model.card, wanted.out.with_suffix(".toml"), model.guessed)
    new = load_model(wanted.out)
    before, after = (100 * right(one, shown, wanted.work).mean(1) for one in (model, new))
    lines = tuple(
        Line(choice.label, float(b), float(a)) for choice, b, a in zip(reported, before, after, strict=True)
    )
    return Mixed(
        old=str(model.path),
        new=str(wanted.out),
        data=wanted.plan.dataset.name,
        tested=tested.name,
        trained_on=len(pictures),
        tested_on=len(shown),
        steps=tuning.steps,
        weights=len(net.weights),
        numbers=sum(w.numel() for w in net.weights.values()),
        kept=net.plan.kept,
        lines=lines,
        held_out=_write_list(wanted, tested, shown),
        left_out=(*pictures.left_out, *shown.left_out),
    )


def places_of(plan: Plan) -> Sequence[int] | None:
    """For each class of the data its place among the model's; None if the data does not name its classes."""
    found = alignment_of(plan)
    return found.places() if plan.dataset.classes else None


def _parts(wanted: MixPlan) -> tuple[Dataset, Dataset]:
    """The images to train on and those to test on, drawn by the seed; none is in both."""
    data = wanted.plan.dataset
    if wanted.test is not None:
        if twice := in_both(data, wanted.test):
            raise DataError(f"{len(twice)} images to test on are in {data.name} too, first {twice[0]}")
        return data, wanted.test
    count = round(len(data) * wanted.held_out)
    if not 0 < count < len(data):
        raise DataError(f"{data.name}: expected enough images to hold some out, got {len(data)}")
    order = np.random.default_rng(wanted.seed).permutation(len(data))
    held, rest = (tuple(data.entries[at] for at in sorted(part)) for part in (order[:count], order[count:]))
    return dataclasses.replace(data, entries=rest), dataclasses.replace(data, entries=held)


def _pictures(
    wanted: MixPlan, data: Dataset, choices: Sequence[Choice], places: Sequence[int] | None, what: str,
    say: Say, watch: Watch,
) -> Pictures:  # fmt: skip
    from holdfast.train.pictures import pictures_of

    model, jobs = wanted.plan.model, wanted.plan.jobs
    if wanted.test is not None and data is wanted.test:
        places = places_of(dataclasses.replace(wanted.plan, dataset=data))
    with watch(what, len(data), "images") as step:
        return pictures_of(model, data, choices, wanted.work, jobs, say, places, step)


def _write_list(wanted: MixPlan, tested: Dataset, shown: Pictures) -> str:
    """Write the list of held-out images with their classes, if they are files, and return its path or ""."""
    files = {e.name: e.path for e in tested.entries if isinstance(e, FileEntry)}
    if wanted.test is not None or not all(name in files for name in shown.names):
        return ""
    path = wanted.out.with_name(f"{wanted.out.stem}-held-out.txt")
    pairs = zip(shown.names, shown.labels, strict=True)
    text = "".join(f"{Path(files[name]).resolve()}\t{label}\n" for name, label in pairs)
    write_atomic(path, text.encode(errors="surrogateescape"))
    return str(path)


def as_plain(found: Mixed) -> dict[str, Any]:
    """The result as JSON values."""
    spread = {of: dict(zip(("mean", "std"), found.spread(of), strict=True)) for of in ("before", "after")}
    return {"holdfast": 1, "kind": "mix training", **dataclasses.asdict(found), **spread}
