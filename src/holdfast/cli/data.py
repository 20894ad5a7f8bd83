"""`holdfast data`: what is in a data set, and the embedded one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say


def info(
    path: Annotated[
        str, Argument("A folder or file in any known format, or 'signs'.", values=offers.data_sets)
    ],
    data_format: Annotated[
        str | None,
        Option(
            "Read it as this format instead of recognising it.",
            "--format",
            shown="NAME",
            values=offers.formats,
        ),
    ] = None,
    split: Annotated[str | None, Option("Which split, where the format has several.", shown="NAME")] = None,
    json: Annotated[Path | None, Option("Also write the facts to this JSON file.")] = None,
) -> None:
    """Recognise the format and print counts, classes, sizes and every problem found."""
    from holdfast.config.output import write_json
    from holdfast.data.info import as_dict, describe, text
    from holdfast.data.open import open_dataset

    facts = describe(open_dataset(path, format=data_format, split=split))
    say(text(facts))
    if json:
        write_json(json, as_dict(facts))


def make(
    what: Annotated[
        str, Argument("'signs': procedural road scenes with traffic signs.", values=lambda: ["signs"])
    ],
    folder: Annotated[Path, Argument("A new or empty folder.")],
    images: Annotated[int, Option("How many scenes.", least=1, most=10_000_000)] = 1000,
    seed: Annotated[int, Option("Another seed, other scenes.", least=0)] = 0,
) -> None:
    """Write the embedded data set as JPEG files with COCO annotations and masks."""
    from holdfast.core.errors import UnknownName
    from holdfast.data.signs import make as make_signs
    from holdfast.engine.progress import progress

    if what != "signs":
        raise UnknownName("data set", what, ["signs"])
    with progress("signs", images) as step:
        path = make_signs(folder, images, seed, progress=lambda done: step(1, 0))
    say(f"{images} scenes written: {path}")
