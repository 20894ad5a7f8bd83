"""`holdfast data`: what is in a data set, and the embedded one."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="Look at a data set, or make the embedded one.", no_args_is_help=True)


@app.command("info")
def info(
    path: str = typer.Argument(help="A folder or file in any known format, or 'signs'."),
    data_format: str = typer.Option(
        None, "--format", help="Read it as this format instead of recognising it."
    ),
    split: str = typer.Option(None, help="Which split, where the format has several."),
    json: Path = typer.Option(None, help="Also write the facts to this JSON file."),
) -> None:
    """Recognise the format and print counts, classes, sizes and every problem found."""
    from holdfast.cli.output import write_json
    from holdfast.data.info import as_dict, describe, text
    from holdfast.data.open import open_dataset

    facts = describe(open_dataset(path, format=data_format, split=split))
    typer.echo(text(facts))
    if json:
        write_json(json, as_dict(facts))


@app.command("make")
def make(
    what: str = typer.Argument(help="'signs': procedural road scenes with traffic signs."),
    folder: Path = typer.Argument(help="A new or empty folder."),
    images: int = typer.Option(1000, min=1, max=10_000_000, help="How many scenes."),
    seed: int = typer.Option(0, min=0, help="Another seed, other scenes."),
) -> None:
    """Write the embedded data set as JPEG files with COCO annotations and masks."""
    from holdfast.cli.progress import progress
    from holdfast.core.errors import UnknownName
    from holdfast.data.signs import make as make_signs

    if what != "signs":
        raise UnknownName("data set", what, ["signs"])
    with progress("signs", images) as step:
        path = make_signs(folder, images, seed, progress=lambda done: step(1, 0))
    typer.echo(f"{images} scenes written: {path}")
