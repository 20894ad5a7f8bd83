"""`holdfast data`: what is in a data set, and the embedded one."""

from __future__ import annotations

from holdfast.cli.options import DataInfoOptions, DataMakeOptions
from holdfast.config.output import say


def info(options: DataInfoOptions) -> None:
    """Recognise the format and print counts, classes, sizes and every problem found."""
    from holdfast.config.output import write_json
    from holdfast.data.info import as_dict, describe, text
    from holdfast.data.open import open_dataset

    facts = describe(open_dataset(options.path, format=options.format, split=options.split))
    say(text(facts))
    if options.json:
        write_json(options.json, as_dict(facts))


def make(options: DataMakeOptions) -> None:
    """Write the embedded data set as JPEG files with COCO annotations and masks."""
    from holdfast.core.errors import UnknownName
    from holdfast.data.signs import make as make_signs
    from holdfast.engine.progress import progress

    if options.what != "signs":
        raise UnknownName("data set", options.what, ["signs"])
    with progress("signs", options.images) as step:
        path = make_signs(options.folder, options.images, options.seed, progress=lambda done: step(1, 0))
    say(f"{options.images} scenes written: {path}")
