"""A card guessed from the graph alone, with a reason for every field it states."""

from pathlib import Path
from typing import Any

from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.graph import exporter_rules, shape_rules
from holdfast.graph.card import BUILT_IN, numbered, write_card
from holdfast.graph.evidence import GraphFacts, Proposal, Rule, gather_facts

# The first rule that proposes is taken: what a file says of itself goes before the shapes of its outputs.
RULES: tuple[Rule, ...] = (*exporter_rules.RULES, *shape_rules.RULES)
NORMALISES = frozenset({"Sub", "Div", "Mul", "Add", "BatchNormalization"})
PLAIN: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
IMAGENET: dict[str, Any] = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def guess(path: Path) -> tuple[Card, tuple[str, ...]]:
    """The card that fits the graph best, and one line for each guess: "field: value, because ..."."""
    seen = gather_facts(path)
    proposal = next(filter(None, (rule(seen) for rule in RULES)), None)
    if proposal is None:
        raise CardError(
            f"{path}: no known head fits the outputs {seen.shapes()}; write a card {path.stem}.toml "
            "next to it (docs/how-to/your-model.md) that names its head, or register a head of your own"
        )
    classes, why_classes = _classes(seen, proposal)
    image, why_image = _input(seen, proposal)
    task, head = proposal.task, Head(proposal.head, proposal.options)
    reasons = (
        f"task: {task}, because of the head",
        f"head: {proposal.head}, because {proposal.because}",
        why_classes,
        *why_image,
        *proposal.warnings,
    )
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


def _classes(seen: GraphFacts, proposal: Proposal) -> tuple[tuple[str, ...], str]:
    count = proposal.classes
    if seen.names and count in (None, len(seen.names)):
        return seen.names, f"classes: {len(seen.names)} names, because the file's metadata lists them"
    if count is None:
        why = (
            f"classes: {proposal.names}, assumed: the number of classes cannot be read from labels after NMS"
        )
        return BUILT_IN[proposal.names], why
    if count in (80, 91):
        return BUILT_IN[f"coco{count}"], f"classes: coco{count}, because there are {count} classes"
    if proposal.task == "single" and count == 3:
        return BUILT_IN["cctsdb3"], "classes: cctsdb3, because a single-object head has 3"
    named = f"the metadata names {len(seen.names)}" if seen.names else "no names are stored"
    return numbered(count), f"classes: {count} without names, because the graph has {count} and {named}"


def _input(seen: GraphFacts, proposal: Proposal) -> tuple[Input, list[str]]:
    """How the image is fed: what the graph shows, and for the rest how such networks are trained."""
    size = proposal.size or seen.size
    facts: dict[str, Any] = {"size": size, "layout": seen.layout, **proposal.input}
    pixels = f"{size.width}×{size.height}"
    reasons = [
        f"size: {pixels}, assumed: the size in the graph is dynamic"
        if seen.free_size
        else f"size: {pixels}, because the graph's input is {seen.info.inputs[0]}",
        f"layout: {seen.layout}, because the input is {seen.info.inputs[0]}",
    ]
    if seen.dtype in ("float16", "uint8"):
        facts["dtype"] = seen.dtype
        reasons.append(f"dtype: {seen.dtype}, because the input of the graph has this type")
    inside = seen.starts & NORMALISES
    begins = f"the graph begins with {', '.join(sorted(inside))}"
    if seen.dtype != "uint8" and seen.takes_unit:
        facts |= {**PLAIN, "scale": 1 / 255}
        reasons.append(f"scale: 1/255, because {begins} of constants for values in 0..1")
    elif inside or seen.dtype == "uint8":
        facts |= {**PLAIN, "scale": 1.0}
        reasons.append(f"scale: 1, because {begins if inside else 'it takes bytes'}")
    else:
        facts = {**(IMAGENET if proposal.imagenet else {"scale": 1 / 255}), **facts}
        scale = "1/255" if facts["scale"] == 1 / 255 else f"{facts['scale']:g}"
        reasons.append(f"scale: {scale}, assumed, as in {proposal.like}: the graph does not normalise")
        if "mean" in facts:
            for name in ("mean", "std"):
                numbers = " ".join(f"{v:g}" for v in facts[name])
                reasons.append(f"{name}: {numbers}, assumed, as in {proposal.like}")
    image = Input(**facts)
    for name, value in (("colour", image.colour), ("policy", image.policy)):
        reasons.append(f"{name}: {value}, assumed, as in {proposal.like}: it cannot be read from the graph")
    return image, reasons
