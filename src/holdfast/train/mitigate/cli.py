"""`holdfast train matrix` and `compare`: which way of training helps a model against system noise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.config.output import say, write_json
from holdfast.train.options import MatrixOptions, MitigateOptions, MitigationOptions

if TYPE_CHECKING:
    from holdfast.core.dataset import Dataset
    from holdfast.train.mitigate.training import Training

HELD_OUT = 4  # every fourth image is tested on if no test data is given


def matrix(options: MatrixOptions) -> int:
    """Train a model on each decoder or resize and on their mix, test each on all: the paper's Tables 7 and 8.

    Every row starts from the model's own weights. A row that is robust has a low std over its cells.
    """
    from holdfast.train.mitigate.matrix import as_plain, verdict
    from holdfast.train.mitigate.matrix import matrix as made_of
    from holdfast.train.mitigate.rows import DECODERS, RESIZES, matrix_rows
    from holdfast.train.mitigate.training import orders, train
    from holdfast.train.tables import matrix_csv, matrix_table

    options.check_output()
    training, tested = _opened(options)
    over = options.over
    names = options.with_ or (RESIZES if over == "resize" else DECODERS)
    rows = matrix_rows(training.model, over, names, names)
    seeds = range(options.seed, options.seed + options.seeds)
    models = train(training, orders(rows, seeds), _progress)
    found = made_of(training, tested, over, models, names, _progress)
    if options.json:
        write_json(options.json, as_plain(found))
    options.print_table(matrix_csv(found) if options.csv else matrix_table(found))
    if not options.csv:
        say(verdict(found))
    return 0


def compare(options: MitigateOptions) -> int:
    """Train a model with each mitigation and measure what every family of noise then costs it: Fig. 4.

    Standard, AugMix, APR-SP, DeepAugment alone and with both, adversarial and mix training, all starting
    from the model's own weights; then the noise suite of each.
    """
    from holdfast.engine.progress import progress
    from holdfast.noise.suite import NoiseSelection
    from holdfast.noise.vision.result import as_plain
    from holdfast.train.mitigate.matrix import FAMILIES, Trial, families
    from holdfast.train.mitigate.rows import mitigations
    from holdfast.train.mitigate.training import orders, train
    from holdfast.train.tables import families_csv, families_table

    options.check_output()
    NoiseSelection(options.only).check()
    training, tested = _opened(options)
    rows = mitigations(training.model, options.with_)
    how = Trial(tested, options.work, options.only or FAMILIES, options.jobs)
    models = train(training, orders(rows, (options.seed,)), _progress)
    found = families(training, models, how, progress)
    if options.json:
        write_json(options.json, as_plain(found))
    name = training.model.name
    options.print_table(families_csv(found, name) if options.csv else families_table(found, name))
    return 0


def _opened(options: MitigationOptions) -> tuple[Training, Dataset]:
    """What is trained, and the images it is tested on, none of which it is trained on."""
    from holdfast.core.errors import InputError
    from holdfast.data.open import open_dataset
    from holdfast.graph.load import load_model
    from holdfast.train.cli import check_torch
    from holdfast.train.mitigate.rows import apart, held_out, some
    from holdfast.train.mitigate.training import Training

    check_torch()
    model = load_model(options.model, options.card)
    if model.card.task != "classify":
        raise InputError(
            f"{options.model}: expected a classifier, got a model of the task {model.card.task!r}"
        )
    whole = some(open_dataset(options.data, task="classify"), options.images)
    if options.test is None:
        seen, tested = held_out(whole, HELD_OUT)
    else:
        seen, tested = apart(whole, some(open_dataset(options.test, task="classify"), options.images))
    training = Training(
        model,
        seen,
        options.work,
        steps=options.steps,
        batch=options.batch,
        rate=options.rate,
        shift=options.shift,
        jobs=options.jobs,
    )
    return training, tested


def _progress(text: str) -> None:
    say(text, sys.stderr)
