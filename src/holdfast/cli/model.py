"""`holdfast model`: what is in an ONNX file, its card, and models of other formats."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="Look at a model, write its card, convert darknet files.", no_args_is_help=True)


@app.command("info")
def info(
    path: str = typer.Argument(help="An ONNX file or the name of a shipped model."),
    card: Path = typer.Option(None, help="Its card, if it does not lie beside it."),
    json: Path = typer.Option(None, help="Also write the facts to this JSON file."),
) -> None:
    """Print inputs, outputs, operators and how holdfast would read the model, with reasons."""
    from holdfast.cli.output import write_json
    from holdfast.graph.facts import as_dict, describe, text

    facts = describe(path, card)
    typer.echo(text(facts))
    if json:
        write_json(json, as_dict(facts))


@app.command("card")
def card(
    path: Path = typer.Argument(help="An ONNX file."),
    out: Path = typer.Option(None, "-o", "--out", help="Where to write it; default: beside the model."),
    force: bool = typer.Option(False, help="Overwrite a card that is there."),
) -> None:
    """Inspect the graph, guess how to feed and read it, say why, and write the card."""
    from holdfast.graph.guess import write_guess

    target, reasons = write_guess(path, out, force=force)
    for reason in reasons:
        typer.echo(f"guessed  {reason}")
    typer.echo(f"card written: {target}; check the guesses, then evaluate")


@app.command("list")
def shipped() -> None:
    """Print the models that come with holdfast."""
    from holdfast.graph.load import load_model, shipped

    for name in shipped():
        model = load_model(name)
        size = model.card.input.size
        about = f"{model.card.task}, {size.width}×{size.height}, {len(model.card.classes)} classes"
        typer.echo(f"{name:14} {about}, {model.path.stat().st_size / 1e6:.1f} MB")


@app.command("convert")
def convert(
    cfg: Path = typer.Argument(help="A darknet .cfg file."),
    weights: Path = typer.Argument(help="Its .weights file."),
    out: Path = typer.Option(..., "-o", "--out", help="The ONNX file to write; the card goes beside it."),
    names: Path = typer.Option(None, help="A file with one class name a line."),
    size: int = typer.Option(None, min=32, help="Another input size than the .cfg's."),
    force: bool = typer.Option(False, help="Overwrite a card that is there."),
) -> None:
    """Turn a darknet YOLO network into ONNX and a card; every float of the weights must be used."""
    from holdfast.core.errors import CardError
    from holdfast.core.types import Size
    from holdfast.graph.card_text import write_card
    from holdfast.graph.darknet.convert import convert as convert_darknet

    if out.with_suffix(".toml").exists() and not force:
        raise CardError(f"{out.with_suffix('.toml')}: there is a card already; --force overwrites it")
    made = convert_darknet(cfg, weights, out, names, Size(size, size) if size else None)
    write_card(made, out.with_suffix(".toml"))
    typer.echo(f"written: {out} and {out.with_suffix('.toml')}")
