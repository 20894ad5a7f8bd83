"""`holdfast data crop`: pictures of single targets out of any detection data set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say


def crop(
    data: Annotated[
        str,
        Argument(
            "A detection data set: folder or file in any known format, or 'signs'.", values=offers.data_sets
        ),
    ],
    out: Annotated[Path, Argument("A new or empty folder.")],
    size: Annotated[int, Option("Side of the pictures.", least=8, most=4096)] = 64,
    margin: Annotated[
        float,
        Option("What is seen around a target on each side, in parts of its longer side.", least=0, most=10),
    ] = 0.2,
    shift: Annotated[
        float, Option("How far it may lie off the middle: 0 never, 1 up to the border.", least=0, most=1)
    ] = 0.5,
    least: Annotated[float, Option("Leave out targets of fewer pixels.", least=1)] = 8.0,
    crowded: Annotated[bool, Option("Keep windows that other targets reach into.")] = False,
    seed: Annotated[int, Option("Another seed, other shifts.", least=0)] = 0,
    images: Annotated[int | None, Option("Only the first N images.", least=1)] = None,
    data_format: Annotated[
        str | None, Option("Read the data as this format.", "--format", shown="NAME", values=offers.formats)
    ] = None,
    split: Annotated[str | None, Option("Which split of the data.", shown="NAME")] = None,
) -> None:
    """Cut a detection data set into small square pictures of one target each.

    The folder can be read as a data set: holdfast evaluate signs-single OUT, holdfast patchbench make DIR
    --data OUT.
    """
    from holdfast.data.crop import Cut
    from holdfast.data.crop import crop as cut_out
    from holdfast.data.open import open_dataset
    from holdfast.engine.progress import progress

    found = open_dataset(data, task="detect", format=data_format, split=split, images=images)
    cut = Cut(size, margin, shift, least, crowded, seed)
    with progress("crop", len(found)) as step:
        made = cut_out(found, out, cut, step)
    say(f"{made.pictures:,} pictures of {made.targets:,} targets written: {made.folder} ({made.format})")
    for why, count in sorted(made.skipped.items(), key=lambda pair: -pair[1]):
        say(f"left out  {count:,}: {why}")
    if made.unreadable:
        sys.stderr.write(f"{len(made.unreadable)} images could not be read, first: {made.unreadable[0]}\n")
