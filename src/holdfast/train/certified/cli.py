"""`holdfast train certified`: a shallow detector with bounds under a patch of any content."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from holdfast.config.output import say
from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError
from holdfast.data.open import open_dataset
from holdfast.engine.executor import progress
from holdfast.report.tables import Column, Table
from holdfast.train.cli import check_torch, other_seed
from holdfast.train.options import CertifiedOptions
from holdfast.train.run import check_out, parts_of

FEW = 20  # images below which a figure is an indication


def certified(options: CertifiedOptions) -> int:
    """Train a shallow single-object detector whose answer withstands a small patch of any content.

    Interval bounds of the worst content at a random position are part of the loss; the patch and their weight
    grow during training. The figures are measured on images that are held out.
    """
    options.check_output()
    check_torch()
    from holdfast.train.certified.run import as_plain, card_of, read_examples, train_certified
    from holdfast.train.loop import threads

    if not 0 < options.held_out < 1:
        raise InputError(f"--held-out: expected a share between 0 and 1, got {options.held_out}")
    check_out(options.out)
    data = _dataset(options, options.data)
    if len(data.classes) < 2:
        raise DataError(f"{data.name}: expected two classes or more, got {len(data.classes)}")
    test = open_dataset(options.test, task="single", images=options.images) if options.test else None
    if test is not None and test.classes != data.classes:
        raise DataError(f"{test.name}: expected the classes of {data.name}, {', '.join(data.classes)}")
    train, tested = parts_of(data, test, options.held_out, options.seed)
    card = card_of(data.classes)
    with progress("images", len(train) + len(tested)) as step:
        examples, held_out = (read_examples(part, card, step) for part in (train, tested))
    with threads(1):  # so that the weights do not depend on the machine's cores
        result = train_certified(options, examples, held_out, card, _say)
    options.write_json(as_plain(result))
    few = ", an indication" if result.bounded_images < FEW else ""
    caption = (
        f"{Path(result.new).name}: trained for {result.steps} steps on {result.trained_on} images, measured "
        f"on {result.tested_on} others of {result.tested}. Positions bounded: share of the positions of a "
        f"{result.patch}×{result.patch} patch of any content at which interval bounds keep the class and "
        f"IoU > 0.5 (100 positions of each of {result.bounded_images} images{few}; without rounding errors)"
    )
    names = ("IoU × class", "IoU × class > 0.5, %", "positions bounded, %")
    row = [result.iou_equal, 100 * result.above_half, 100 * result.bounded]
    columns: list[Column | str] = [Column(names[0], 3), Column(names[1], 1), Column(names[2], 1)]
    options.print_table(Table(columns, [row], caption))
    for failure in result.left_out[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"model    {result.new} (card: {Path(result.new).with_suffix('.toml')})\n")
    unseen = options.test or other_seed(options.data) or options.data
    words = ("holdfast", "patchbench", "certify", result.new, unseen, "--patch", str(options.patch))
    say(f"Next: {shlex.join(words)}")
    return 4 if result.left_out else 0


def _dataset(options: CertifiedOptions, data: str) -> Dataset:
    return open_dataset(
        data, task="single", format=options.format, split=options.split, images=options.images
    )


def _say(text: str) -> None:
    say(text, sys.stderr)
