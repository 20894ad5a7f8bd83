"""`holdfast model`: what is in an ONNX file, its card, and models of other formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say


def info(
    path: Annotated[str, Argument("An ONNX file or the name of a shipped model.", values=offers.models)],
    card: Annotated[Path | None, Option("Its card, if it does not lie beside it.")] = None,
    json: Annotated[Path | None, Option("Also write the facts to this JSON file.")] = None,
) -> None:
    """Print inputs, outputs, operators and how holdfast would read the model, with reasons."""
    from holdfast.config.output import write_json
    from holdfast.graph.load import describe

    facts = describe(path, card)
    say(facts.text())
    if json:
        write_json(json, facts.to_dict())


def card(
    path: Annotated[Path, Argument("An ONNX file.")],
    out: Annotated[Path | None, Option("Where to write it; default: beside the model.", short="-o")] = None,
    force: Annotated[bool, Option("Overwrite a card that is there.")] = False,
) -> None:
    """Inspect the graph, guess how to feed and read it, say why, and write the card."""
    from holdfast.graph.guess import write_guess

    target, reasons = write_guess(path, out, force=force)
    for reason in reasons:
        say(f"guessed  {reason}")
    say(f"card written: {target}; check the guesses, then evaluate")


def shipped() -> None:
    """Print the models that come with holdfast."""
    from holdfast.graph.load import load_model, shipped

    for name in shipped():
        model = load_model(name)
        size = model.card.input.size
        about = f"{model.card.task}, {size.width}×{size.height}, {len(model.card.classes)} classes"
        say(f"{name:14} {about}, {model.path.stat().st_size / 1e6:.1f} MB")


def convert(
    cfg: Annotated[Path, Argument("A darknet .cfg file.")],
    weights: Annotated[Path, Argument("Its .weights file.")],
    out: Annotated[Path, Option("The ONNX file to write; the card goes beside it.", short="-o")],
    names: Annotated[Path | None, Option("A file with one class name a line.")] = None,
    size: Annotated[int | None, Option("Another input size than the .cfg's.", least=32)] = None,
    force: Annotated[bool, Option("Overwrite a card that is there.")] = False,
) -> None:
    """Turn a darknet YOLO network into ONNX and a card; every float of the weights must be used."""
    from holdfast.core.errors import CardError
    from holdfast.core.types import Size
    from holdfast.graph.card import write_card
    from holdfast.graph.darknet.convert import convert as convert_darknet

    if out.with_suffix(".toml").exists() and not force:
        raise CardError(f"{out.with_suffix('.toml')}: there is a card already; --force overwrites it")
    made = convert_darknet(cfg, weights, out, names, Size(size, size) if size else None)
    write_card(made, out.with_suffix(".toml"))
    say(f"written: {out} and {out.with_suffix('.toml')}")
