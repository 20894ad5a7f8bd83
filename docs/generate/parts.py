"""One page per kind of registered part: descriptions, facts and options."""

from collections.abc import Iterator, Mapping
from typing import Any

from generate.markdown import cell, field_table, intro, prose, table, toctree
from holdfast.core import registry
from holdfast.core.extras import extra_of

KINDS = {  # kind of part -> title of its page, what it does
    "decode": ("Decoders", "Encoded bytes to RGB pixels. Noise family `decode`."),
    "colour": ("Colour conversions", "Pixels to pixels. Noise family `colour`."),
    "fit": ("Fits", "How the image is placed in the input of the network. Noise family `resize`."),
    "resize": ("Resizes", "Pixels to the size that the fit needs. Noise family `resize`."),
    "normalise": ("Normalisations", "Pixels to the input tensor."),
    "infer": ("Inference", "The input tensor to raw outputs."),
    "post": ("Post-processing", "Raw outputs to a prediction."),
    "rewrite": ("Graph rewrites", "Rewrites of the ONNX graph. Families `ceil`, `upsample`, `precision`."),
    "runtime": ("Runtimes", "Inference engines. Noise family `runtime`."),
    "boxes": ("Box options", "Variants of box post-processing. Noise family `boxes`."),
    "head": ("Heads", "How the outputs of a network are read. `head.name` in a model card."),
    "reader": ("Dataset readers", "Dataset formats. Option `--format`."),
    "mask": ("Attack masks", "Which pixels an attack may change. Option `--mask` of `holdfast attack`."),
    "candidates": ("Differentiable heads", "Candidate boxes with gradients, for gradient attacks."),
    "transform": ("Attack transforms", "Expectation over transformations. Option `--transform`."),
    "features": ("Feature networks", "Networks of the Fréchet distance. Option `--features`."),
    "augment": ("Augmentations", "Training augmentations. Option `--augment` of `holdfast train mix`."),
    "stft": ("STFT operators", "Libraries that compute the short-time Fourier transform."),
    "spectrum": ("Spectrum options", "Settings of the spectrogram that differ between systems."),
}
ABOUT = (
    "A registered part is a plain function that is found by its name. "
    "[Write your own part](../../how-to/own-parts.md) shows how to add one.\n"
)


def part_pages() -> Iterator[tuple[str, str]]:
    """File name and text of the list of kinds and of each page."""
    rows = [(f"[{title}]({kind}.md)", f"`{kind}`", about) for kind, (title, about) in KINDS.items()]
    listed = toctree(list(KINDS), hidden=True)
    kinds = table(("parts", "kind", "used for"), rows)
    yield "parts/index.md", f"# Registered parts\n\n{ABOUT}\n{kinds}\n{listed}"
    for kind in KINDS:
        yield f"parts/{kind}.md", part_page(kind)


def part_page(kind: str) -> str:
    """All parts of one kind, after the equations that they share."""
    title, about = KINDS[kind]
    text = [f"# {title}\n", about + "\n", intro(kind)]
    for name in registry.names(kind):
        part = registry.part(kind, name)
        text += [f"## `{name}`\n", prose(part.function.__doc__ or "") + "\n"]
        text += [*(f"- {name}: {fact}" for name, fact in facts_of(part.facts)), ""]
        shape = part.facts.get("options")
        if shape is not None:
            text.append(field_table(shape, first="option"))
    return "\n".join(text)


def facts_of(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The registered facts that a user can act on, in words."""
    if facts.get("systems"):
        yield "Systems that do this", cell(facts["systems"])
    if facts.get("alike"):
        yield "Same output as", cell(f"all parts of the class {facts['alike']}")
    if extra := facts.get("extra") or extra_of(facts.get("needs") or ""):
        yield "Install", f"`pip install 'holdfast[{extra}]'`"
    if facts.get("aliases"):
        yield "Aliases", ", ".join(f"`{alias}`" for alias in facts["aliases"])
    if facts.get("task") or facts.get("tasks"):
        yield "Tasks", ", ".join(facts.get("tasks") or (facts["task"],))
    if facts.get("default") is False:
        yield "In the suite", "on demand only"
