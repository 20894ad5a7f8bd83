"""`holdfast model`: what is in an ONNX file, its card, and models of other formats."""

from __future__ import annotations

from holdfast.cli.options import ModelCardOptions, ModelConvertOptions, ModelInfoOptions, ModelListOptions
from holdfast.config.output import say


def info(options: ModelInfoOptions) -> None:
    """Print inputs, outputs, operators and how holdfast would read the model, with reasons."""
    from holdfast.config.output import write_json
    from holdfast.graph.load import describe

    facts = describe(options.path, options.card)
    say(facts.text())
    if options.json:
        write_json(options.json, facts.to_dict())


def card(options: ModelCardOptions) -> None:
    """Inspect the graph, guess how to feed and read it, say why, and write the card."""
    from holdfast.graph.guess import write_guess

    target, reasons = write_guess(options.path, options.out, force=options.force)
    for reason in reasons:
        say(f"guessed  {reason}")
    say(f"card written: {target}; check the guesses, then evaluate")


def shipped(_options: ModelListOptions) -> None:
    """Print the models that come with holdfast."""
    from holdfast.graph.load import load_model, shipped

    for name in shipped():
        model = load_model(name)
        size = model.card.input.size
        about = f"{model.card.task}, {size.width}×{size.height}, {len(model.card.classes)} classes"
        say(f"{name:14} {about}, {model.path.stat().st_size / 1e6:.1f} MB")


def convert(options: ModelConvertOptions) -> None:
    """Turn a darknet YOLO network into ONNX and a card; every float of the weights must be used."""
    from holdfast.core.errors import CardError
    from holdfast.core.types import Size
    from holdfast.graph.card import write_card
    from holdfast.graph.darknet.convert import convert as convert_darknet

    out, size = options.out, options.size
    if out.with_suffix(".toml").exists() and not options.force:
        raise CardError(f"{out.with_suffix('.toml')}: there is a card already; --force overwrites it")
    made = convert_darknet(
        options.cfg, options.weights, out, options.names, Size(size, size) if size else None
    )
    write_card(made, out.with_suffix(".toml"))
    say(f"written: {out} and {out.with_suffix('.toml')}")
