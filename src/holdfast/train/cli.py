"""`holdfast train mix` and `tent`: classifiers made robust against system noise, or tried to."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say, write_json
from holdfast.evaluate.cli import Card, Choices, Format, Images, Jobs, Renames, Split
from holdfast.noise.cli import words_of
from holdfast.noise.output import Shape

if TYPE_CHECKING:
    from holdfast.evaluate.run import Plan
    from holdfast.report.tables import Table
    from holdfast.train.run import Mixed, MixPlan
    from holdfast.train.shown import Choice

MIXED, HOW, SHOWN, RUN = "What is mixed", "How it is trained", "How it is shown", "How it is run"


ModelFile = Annotated[str, Argument("A classifier: an ONNX file or a shipped name.", values=offers.models)]
Data = Annotated[
    str, Argument("A data set to classify: a folder a class, a list, signs.", values=offers.data_sets)
]
Out = Annotated[
    Path, Option("The new ONNX file; its card is written beside it.", short="-o", shown="NEW.onnx")
]
Decode = Annotated[
    tuple[str, ...],
    Option(
        "Decoders to draw from, with commas or repeated.", shown="NAMES", group=MIXED, values=offers.decoders
    ),
]
Resize = Annotated[
    tuple[str, ...],
    Option(
        "Resizes to draw from, with commas or repeated.", shown="NAMES", group=MIXED, values=offers.resizes
    ),
]
Augment = Annotated[
    tuple[str, ...],
    Option("Augmentations, in this order: standard, augmix, apr-sp, deep.", shown="NAMES", group=MIXED),
]
Adversarial = Annotated[
    float,
    Option("Train on PGD examples within so many levels of 255; 0: none.", group=MIXED, least=0, most=255),
]
Consistency = Annotated[
    float,
    Option(
        "Answers to augmented images shall be alike: AugMix's second half, 12 in its paper; 0: none.",
        group=MIXED,
        least=0,
    ),
]
Steps = Annotated[int | None, Option("Steps of training (300).", group=HOW, least=1)]
Epochs = Annotated[float | None, Option("Instead: how often each image is seen.", group=HOW, least=0.01)]
Batch = Annotated[int, Option("Images a step.", group=HOW, least=1)]
Rate = Annotated[float, Option("The highest learning rate.", group=HOW, least=0)]
Shift = Annotated[int, Option("Move each image by up to so many pixels.", group=HOW, least=0)]
Smoothing = Annotated[float, Option("Label smoothing.", group=HOW, least=0, most=0.9)]
Statistics = Annotated[
    Literal["moving", "file"],
    Option("Statistics of batch normalisation: moved by training, or as in the file.", group=HOW),
]
Seed = Annotated[int, Option("Another seed, other draws.", group=HOW, least=0)]
HeldOut = Annotated[
    float, Option("Part of DATA that is not trained on but tested on.", group=HOW, least=0, most=1)
]
Test = Annotated[
    str | None, Option("Instead: other data to test on.", shown="DATA", group=HOW, values=offers.data_sets)
]
Work = Annotated[
    Path, Option("Where pictures and checkpoints are kept; a killed run goes on.", shown="FOLDER", group=RUN)
]
Json = Annotated[Path | None, Option("Write all numbers to this JSON file.", group=SHOWN)]
Csv = Annotated[bool, Option("Print the table as CSV.", group=SHOWN)]
Markdown = Annotated[bool, Option("Print the table as Markdown.", group=SHOWN)]
Latex = Annotated[bool, Option("Print the table as LaTeX.", group=SHOWN)]


def mix(
    model: ModelFile,
    data: Data,
    out: Out,
    decode: Decode = (),
    resize: Resize = (),
    augment: Augment = (),
    adversarial: Adversarial = 0.0,
    consistency: Consistency = 0.0,
    steps: Steps = None,
    epochs: Epochs = None,
    batch: Batch = 64,
    rate: Rate = 3e-4,
    shift: Shift = 0,
    smoothing: Smoothing = 0.0,
    statistics: Statistics = "moving",
    seed: Seed = 0,
    held_out: HeldOut = 0.25,
    test: Test = None,
    card: Card = None,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    rename: Renames = (),
    json: Json = None,
    csv: Csv = False,
    markdown: Markdown = False,
    latex: Latex = False,
    work: Work = Path("holdfast-train"),
    jobs: Jobs = 0,
) -> int:
    """Fine-tune a classifier on several decoders and resizes at once, drawn for each image (mix training).

    Without --decode and --resize three classes of decoders and the paper's six resizes are mixed; with one
    of them only that one. The graph stays as it is, its weights become others; MODEL is never changed.
    """
    from holdfast.core.errors import InputError
    from holdfast.data.open import open_dataset
    from holdfast.train.run import MixPlan, as_plain

    shape = Shape(csv, markdown, latex, json)
    shape.check()
    if steps and epochs:
        raise InputError("expected --steps or --epochs, not both")
    check_torch()
    from holdfast.train.tune import Tuning

    plan = _plan(model, data, Choices(card, data_format, split, images, renames=rename, jobs=jobs))
    mixed, reported = _choices(plan, words_of(decode), words_of(resize))
    tuning = Tuning(
        steps or 300, batch, rate, mixed, words_of(augment), adversarial, shift, statistics,
        label_smoothing=smoothing, consistency=consistency,
    )  # fmt: skip
    tested = open_dataset(test, task="classify", images=images) if test else None
    found = _trained(MixPlan(plan, out, tuning, reported, work, seed, held_out, tested, epochs))
    if json:
        write_json(json, as_plain(found))
    shape.table(mix_table(found))
    _ending(found, model, data, test)
    return 4 if found.left_out else 0


def tent(
    model: ModelFile,
    data: Data,
    only: Annotated[
        tuple[str, ...],
        Option("Only these: families, or FAMILY=OPTION, with commas or repeated.", values=offers.noises),
    ] = (),
    batch: Annotated[int, Option("Images a batch.", group=HOW, least=2)] = 100,
    rate: Annotated[float, Option("Learning rate of Adam.", group=HOW, least=0)] = 1e-3,
    steps: Annotated[int, Option("Steps a batch.", group=HOW, least=1)] = 1,
    seed: Annotated[int, Option("Another seed, another order of images.", group=HOW, least=0)] = 0,
    card: Card = None,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    json: Json = None,
    csv: Csv = False,
    markdown: Markdown = False,
    latex: Latex = False,
    work: Work = Path("holdfast-train"),
    jobs: Jobs = 0,
) -> int:
    """Measure what TENT does to a classifier under noise of decoder, resize and colour (the paper's Table 6).

    TENT lowers the entropy of the model's own answers, batch by batch, by its normalisation layers. MODEL is
    as in its file before each option.
    """
    import os

    from holdfast.train.mitigate.adapt import FAMILIES, Adaptation, adapt, as_plain
    from holdfast.train.tables import tent_csv, tent_table

    shape = Shape(csv, markdown, latex, json)
    shape.check()
    check_torch()
    from holdfast.train.loop import threads
    from holdfast.train.tune import check_adaptable, trainable_of

    plan = _plan(model, data, Choices(card, data_format, split, images, jobs=jobs))
    over = words_of(only) or FAMILIES
    _check_families(over, FAMILIES)
    check_adaptable(trainable_of(plan.model), plan.model.name)
    how = Adaptation(batch, rate, steps, seed)
    with threads(jobs):
        found = adapt(plan.model, plan.dataset, work, how, _told, jobs or os.cpu_count() or 1, over)
    if json:
        write_json(json, as_plain(found))
    shape.table(tent_csv([found]) if csv else tent_table([found]))
    return 0


def mix_table(found: Mixed) -> Table:
    """Accuracy under each choice before and after, the mean and the standard deviation."""
    from holdfast.report.tables import Column, Table

    rows: list[list[str | float]] = [[o.choice, o.before, o.after, o.gain] for o in found.lines]
    means, stds = zip(found.spread("before"), found.spread("after"), strict=True)
    rows += [["mean", *means, means[1] - means[0]], ["std", *stds, stds[1] - stds[0]]]
    caption = (
        f"top-1 in % on {found.tested_on} images of {found.tested} that were not trained on; trained for "
        f"{found.steps} steps on {found.trained_on}. Δ = after − before: higher is better"
    )
    columns: list[Column | str] = ["decode + resize", *(Column(name, 2) for name in ("before", "after", "Δ"))]
    return Table(columns, rows, caption)


def check_torch() -> None:
    """Nothing, or MissingExtra if torch is not installed."""
    import importlib.util

    from holdfast.core.errors import MissingExtra

    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("training", "torch", "torch")


def _plan(model: str, data: str, how: Choices) -> Plan:
    """Model and data opened; a model that is no classifier is told before the data is looked at."""
    from holdfast.core.errors import InputError
    from holdfast.evaluate.cli import plan_of
    from holdfast.evaluate.score import Settings
    from holdfast.graph.load import load_model
    from holdfast.metrics.rules import RULES

    task = load_model(model, how.card).card.task
    if task != "classify":
        raise InputError(
            f"{model}: expected a classifier, got a model of the task {task!r}; only classifiers are trained"
        )
    return plan_of(model, data, Settings(RULES["coco"]), how)


def _check_families(over: tuple[str, ...], known: tuple[str, ...]) -> None:
    from holdfast.core.errors import UnknownName
    from holdfast.stages.families import option

    for word in over:
        if word.split("=")[0] not in known:
            raise UnknownName("family of noise before the network", word.split("=")[0], known)
        if "=" in word:
            option(word)


def _choices(
    plan: Plan, decode: tuple[str, ...], resize: tuple[str, ...]
) -> tuple[tuple[Choice, ...], tuple[Choice, ...]]:
    """Every pair of a decoder and a resize that are mixed, and those that accuracy is reported under."""
    from holdfast.core.registry import lookup
    from holdfast.train.mitigate.rows import DECODERS, RESIZES
    from holdfast.train.shown import Choice

    card = plan.model.card
    if not decode and not resize:
        decode, resize = DECODERS, RESIZES
    decode, resize = decode or (card.decode,), resize or (card.resize,)
    for kind, names in (("decode", decode), ("resize", resize)):
        for name in names:
            lookup(kind, name)
    every = tuple(Choice(d, r) for d in decode for r in resize)
    alone = (*(Choice(d, card.resize) for d in decode), *(Choice(card.decode, r) for r in resize))
    return every, every if len(every) <= len(alone) else alone


def _trained(wanted: MixPlan) -> Mixed:
    from holdfast.train.run import mix as run

    for reason in wanted.plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    for problem in wanted.plan.dataset.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")
    return run(wanted, _told, _watch)


@contextmanager
def _watch(what: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
    from holdfast.engine.progress import progress

    with progress(what, total, unit) as step:
        yield step


def _told(text: str) -> None:
    if not sys.stderr.isatty():  # a terminal has the bar
        say(text, sys.stderr)


def _ending(found: Mixed, model: str, data: str, test: str | None) -> None:
    """Nothing; what was trained and what to do next is said."""
    kept = f"; {len(found.kept)} other float constants are as they were" if found.kept else ""
    sys.stderr.write(f"trained  {found.numbers:,} numbers in {found.weights} weights{kept}\n")
    for failure in found.left_out[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"model    {found.new} ({Path(found.new).with_suffix('.toml')} is its card)\n")
    say(f"next: {shlex.join(['holdfast', 'noise', model, found.new, test or data])}")
    unseen = found.held_out or ("" if test else _other_seed(data))
    if unseen:
        command = shlex.join(["holdfast", "noise", model, found.new, unseen])
        say(f"on images it was not trained on: {command}")


def _other_seed(data: str) -> str:
    """Embedded data of the next seed; empty for other data."""
    from holdfast.data.embedded import NAMES

    name, *numbers = data.split(":")
    seed = int(numbers[0]) if numbers else 0
    return ":".join([name, str(seed + 1), *numbers[1:]]) if name in NAMES else ""
