"""A card guessed from the graph alone, with a reason for every field it states."""

from pathlib import Path
from typing import Any

from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.graph.card import BUILT_IN, numbered, write_card
from holdfast.graph.evidence import GraphFacts, Proposal, gather_facts
from holdfast.graph.guess_rules import RULES

NORMALISES = frozenset({"Sub", "Div", "Mul", "Add", "BatchNormalization"})
PLAIN: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
IMAGENET: dict[str, Any] = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def guess(path: Path) -> tuple[Card, tuple[str, ...]]:
    """The card that fits the graph best, and one line for each guess: "field: value, because ..."."""
    facts = gather_facts(path)
    proposal = next(filter(None, (rule(facts) for rule in RULES)), None)
    if proposal is None:
        raise CardError(
            f"{path}: no known head fits the outputs {facts.shapes()}; write a card {path.stem}.toml "
            "next to it (docs/how-to/your-model.md) that names its head, or register a head of your own"
        )
    classes, why_classes = _classes(facts, proposal)
    image, why_image = _input(facts, proposal)
    task, head = proposal.task, Head(proposal.head, proposal.options)
    why_head = (f"task: {task}, because of the head", f"head: {head.name}, because {proposal.because}")
    reasons = (*why_head, why_classes, *why_image, *proposal.warnings)
    return Card(task, image, head, classes, resize=proposal.resize, **proposal.thresholds), reasons


def write_guess(path: Path, out: Path | None = None, *, force: bool = False) -> tuple[Path, tuple[str, ...]]:
    """Write the guessed card next to the model (or to `out`); return its path and the reasons."""
    stem = path.name.removesuffix(".gz").removesuffix(".onnx")
    target = out or path.with_name(f"{stem}.toml")
    if target.exists() and not force:
        raise CardError(f"{target}: the card already exists; use --force to overwrite it")
    card, reasons = guess(path)
    write_card(card, target, reasons)
    return target, reasons


def _classes(facts: GraphFacts, proposal: Proposal) -> tuple[tuple[str, ...], str]:
    count = proposal.classes
    if facts.names and count in (None, len(facts.names)):
        return facts.names, f"classes: {len(facts.names)} names, because the file's metadata lists them"
    if count is None:
        why = "assumed: the number of classes cannot be read from labels after NMS"
        return BUILT_IN[proposal.names], f"classes: {proposal.names}, {why}"
    if count in (80, 91):
        return BUILT_IN[f"coco{count}"], f"classes: coco{count}, because there are {count} classes"
    if proposal.task == "single" and count == 3:
        return BUILT_IN["cctsdb3"], "classes: cctsdb3, because a single-object head has 3"
    named = f"the metadata names {len(facts.names)}" if facts.names else "no names are stored"
    return numbered(count), f"classes: {count} without names, because the graph has {count} and {named}"


def _input(facts: GraphFacts, proposal: Proposal) -> tuple[Input, list[str]]:
    """Preprocessing: facts from the graph, completed by the training conventions of such networks."""
    size = proposal.size or facts.size
    fields: dict[str, Any] = {"size": size, "layout": facts.layout, **proposal.input}
    pixels = f"{size.width}×{size.height}"
    reasons = [
        f"size: {pixels}, assumed: the size in the graph is dynamic"
        if facts.free_size
        else f"size: {pixels}, because the graph's input is {facts.info.inputs[0]}",
        f"layout: {facts.layout}, because the input is {facts.info.inputs[0]}",
    ]
    if facts.dtype in ("float16", "uint8"):
        fields["dtype"] = facts.dtype
        reasons.append(f"dtype: {facts.dtype}, because the input of the graph has this type")
    inside = facts.starts & NORMALISES
    begins = f"the graph begins with {', '.join(sorted(inside))}"
    if facts.dtype != "uint8" and facts.takes_unit:
        fields |= {**PLAIN, "scale": 1 / 255}
        reasons.append(f"scale: 1/255, because {begins} of constants for values in 0..1")
    elif inside or facts.dtype == "uint8":
        fields |= {**PLAIN, "scale": 1.0}
        reasons.append(f"scale: 1, because {begins if inside else 'it takes bytes'}")
    else:
        fields = {**(IMAGENET if proposal.imagenet else {"scale": 1 / 255}), **fields}
        scale = "1/255" if fields["scale"] == 1 / 255 else f"{fields['scale']:g}"
        reasons.append(f"scale: {scale}, assumed, as in {proposal.like}: the graph does not normalise")
        if "mean" in fields:
            for name in ("mean", "std"):
                numbers = " ".join(f"{v:g}" for v in fields[name])
                reasons.append(f"{name}: {numbers}, assumed, as in {proposal.like}")
    image = Input(**fields)
    for name, value in (("colour", image.colour), ("policy", image.policy)):
        reasons.append(f"{name}: {value}, assumed, as in {proposal.like}: it cannot be read from the graph")
    return image, reasons
