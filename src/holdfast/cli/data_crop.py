"""`holdfast data crop`: pictures of single targets out of any detection data set."""

from __future__ import annotations

import sys

from holdfast.cli.options import CropOptions
from holdfast.config.output import say


def crop(options: CropOptions) -> None:
    """Cut a detection data set into small square pictures of one target each.

    The folder can be read as a data set: holdfast evaluate signs-single OUT, holdfast patchbench make DIR
    --data OUT.
    """
    from holdfast.data.crop import Cut
    from holdfast.data.crop import crop as cut_out
    from holdfast.data.open import open_dataset
    from holdfast.engine.progress import progress

    found = open_dataset(
        options.data, task="detect", format=options.format, split=options.split, images=options.images
    )
    cut = Cut(
        size=options.size,
        margin=options.margin,
        shift=options.shift,
        least=options.least,
        crowded=options.crowded,
        seed=options.seed,
    )
    with progress("crop", len(found)) as step:
        made = cut_out(found, options.out, cut, step)
    say(f"{made.pictures:,} pictures of {made.targets:,} targets written: {made.folder} ({made.format})")
    for why, count in sorted(made.skipped.items(), key=lambda pair: -pair[1]):
        say(f"left out  {count:,}: {why}")
    if made.unreadable:
        sys.stderr.write(f"{len(made.unreadable)} images could not be read, first: {made.unreadable[0]}\n")
