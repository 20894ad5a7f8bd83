"""`holdfast train matrix` and `compare`: which way of training helps a model against system noise."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say, write_json
from holdfast.noise.cli import words_of
from holdfast.noise.output import Shape

if TYPE_CHECKING:
    from holdfast.core.dataset import Dataset
    from holdfast.train.mitigate.training import Training

WHAT, HOW, SHOWN, RUN = "What is trained", "How it is trained", "How it is shown", "How it is run"
HELD_OUT = 4  # every so manieth image is tested on if no test data is named

ModelFile = Annotated[str, Argument("A classifier: an ONNX file or a shipped name.", values=offers.models)]
Data = Annotated[str, Argument("Images to train on: a folder a class, a list, far.", values=offers.data_sets)]
Card = Annotated[Path | None, Option("The model's card, if it does not lie beside it.", group=WHAT)]
Test = Annotated[
    str | None,
    Option("Images to test on (else every fourth of DATA, not trained on).", group=WHAT, shown="DATA"),
]
Images = Annotated[int | None, Option("Only N images of each, evenly spread.", group=WHAT, least=8)]
Steps = Annotated[int, Option("Steps of training each row.", group=HOW, least=1)]
Batch = Annotated[int, Option("Images a step.", group=HOW, least=2)]
Rate = Annotated[float, Option("The highest learning rate.", group=HOW, least=0)]
Shift = Annotated[int, Option("Move each training image by up to so many pixels.", group=HOW, least=0)]
Seed = Annotated[int, Option("The first seed of training.", group=HOW, least=0)]
Seeds = Annotated[int, Option("Train each row so many times and give the mean.", group=HOW, least=1)]
Work = Annotated[
    Path,
    Option(
        "Where pictures, checkpoints and trained models are kept; a killed run goes on.",
        shown="FOLDER",
        group=RUN,
    ),
]
Jobs = Annotated[int, Option("Rows trained at once, each on one core.", group=RUN, least=1)]
Json = Annotated[Path | None, Option("Write all numbers to this JSON file.", group=SHOWN)]
Csv = Annotated[bool, Option("Print the table as CSV.", group=SHOWN)]
Markdown = Annotated[bool, Option("Print the table as Markdown.", group=SHOWN)]
Latex = Annotated[bool, Option("Print the table as LaTeX.", group=SHOWN)]


class Asked(NamedTuple):
    """What both commands are told of model, data and training."""

    model: str
    data: str
    card: Path | None
    test: str | None
    images: int | None
    steps: int
    batch: int
    rate: float
    shift: int
    work: Path
    jobs: int


def matrix(
    model: ModelFile,
    data: Data,
    over: Annotated[Literal["resize", "decode"], Option("What is exchanged.", group=WHAT)] = "resize",
    chosen: Annotated[
        tuple[str, ...],
        Option("These instead of the paper's, with commas or repeated.", "--with", group=WHAT),
    ] = (),
    card: Card = None,
    test: Test = None,
    images: Images = None,
    steps: Steps = 300,
    batch: Batch = 64,
    rate: Rate = 1e-3,
    shift: Shift = 2,
    seed: Seed = 0,
    seeds: Seeds = 1,
    work: Work = Path("holdfast-train"),
    jobs: Jobs = 1,
    json: Json = None,
    csv: Csv = False,
    markdown: Markdown = False,
    latex: Latex = False,
) -> int:
    """Train a model on each decoder or resize and on their mix, test each on all: the paper's Tables 7 and 8.

    Every row starts from the model's own weights. A row that is robust has a low std over its cells.
    """
    from holdfast.train.mitigate.matrix import as_plain, verdict
    from holdfast.train.mitigate.matrix import matrix as made_of
    from holdfast.train.mitigate.rows import DECODERS, RESIZES, matrix_rows
    from holdfast.train.mitigate.training import orders, train
    from holdfast.train.tables import matrix_csv, matrix_table

    shape = Shape(csv, markdown, latex, json)
    shape.check()
    asked = Asked(model, data, card, test, images, steps, batch, rate, shift, work, jobs)
    training, tested = _opened(asked)
    names = words_of(chosen) or (RESIZES if over == "resize" else DECODERS)
    rows = matrix_rows(training.model, over, names, names)
    models = train(training, orders(rows, range(seed, seed + seeds)), _progress)
    found = made_of(training, tested, over, models, names, _progress)
    if json:
        write_json(json, as_plain(found))
    shape.table(matrix_csv(found) if csv else matrix_table(found))
    if not csv:
        say(verdict(found))
    return 0


def compare(
    model: ModelFile,
    data: Data,
    chosen: Annotated[
        tuple[str, ...],
        Option(
            "Only these: standard, augmix, apr-sp, deep, deep+apr-sp, deep+augmix, adversarial, mix.",
            "--with",
            group=WHAT,
        ),
    ] = (),
    only: Annotated[tuple[str, ...], Option("Only these families of noise.", group=WHAT)] = (),
    card: Card = None,
    test: Test = None,
    images: Images = None,
    steps: Steps = 300,
    batch: Batch = 64,
    rate: Rate = 1e-3,
    shift: Shift = 2,
    seed: Seed = 0,
    work: Work = Path("holdfast-train"),
    jobs: Jobs = 1,
    json: Json = None,
    csv: Csv = False,
    markdown: Markdown = False,
    latex: Latex = False,
) -> int:
    """Train a model with each mitigation and measure what every family of noise then costs it: Fig. 4.

    Standard, AugMix, APR-SP, DeepAugment alone and with both, adversarial and mix training, all starting
    from the model's own weights; then the noise suite of each.
    """
    from holdfast.engine.progress import progress
    from holdfast.noise.vision.choose import Wanted
    from holdfast.noise.vision.result import as_plain
    from holdfast.train.mitigate.matrix import FAMILIES, Trial, families
    from holdfast.train.mitigate.rows import mitigations
    from holdfast.train.mitigate.training import orders, train
    from holdfast.train.tables import families_csv, families_table

    shape = Shape(csv, markdown, latex, json)
    shape.check()
    Wanted(words_of(only)).check()
    asked = Asked(model, data, card, test, images, steps, batch, rate, shift, work, jobs)
    training, tested = _opened(asked)
    rows = mitigations(training.model, words_of(chosen))
    how = Trial(tested, work, words_of(only) or FAMILIES, jobs)
    models = train(training, orders(rows, (seed,)), _progress)
    found = families(training, models, how, progress)
    if json:
        write_json(json, as_plain(found))
    name = training.model.name
    shape.table(families_csv(found, name) if csv else families_table(found, name))
    return 0


def _opened(asked: Asked) -> tuple[Training, Dataset]:
    """What is trained, and the images it is tested on, none of which it is trained on."""
    from holdfast.core.errors import InputError
    from holdfast.data.open import open_dataset
    from holdfast.graph.load import load_model
    from holdfast.train.cli import check_torch
    from holdfast.train.mitigate.rows import apart, held_out, some
    from holdfast.train.mitigate.training import Training

    check_torch()
    model = load_model(asked.model, asked.card)
    if model.card.task != "classify":
        raise InputError(f"{asked.model}: expected a classifier, got a model of the task {model.card.task!r}")
    whole = some(open_dataset(asked.data, task="classify"), asked.images)
    if asked.test is None:
        seen, tested = held_out(whole, HELD_OUT)
    else:
        seen, tested = apart(whole, some(open_dataset(asked.test, task="classify"), asked.images))
    training = Training(
        model, seen, asked.work, asked.steps, asked.batch, asked.rate, asked.shift, asked.jobs
    )  # fmt: skip
    return training, tested


def _progress(text: str) -> None:
    say(text, sys.stderr)
