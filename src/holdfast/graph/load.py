"""Models by name or path: the shipped ones, or the user's file with its card or a guess from the graph."""

import dataclasses
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import numpy as np

from holdfast.core.errors import CardError, InputError, ModelError, UnknownName
from holdfast.core.model import Card, Feed, Head, Input, Model, existing_file
from holdfast.core.registry import lookup
from holdfast.graph.card import BUILT_IN, card_path, numbered, read_card, write_card
from holdfast.graph.evidence import GraphFacts, Proposal, gather_facts
from holdfast.graph.feeds import KNOWN
from holdfast.graph.formats import onnx_of
from holdfast.graph.guess_rules import RULES
from holdfast.graph.inspect import ModelInfo, image_input, inspect, other_inputs, rows

QUIET = -30.0  # as a logit it is no object; as a probability it is below every threshold


def check_card(card: Card, info: ModelInfo) -> None:
    """Raise a CardError naming the model if its input or outputs contradict the card."""
    tensor = image_input(info)
    width, height = card.input.size
    expected = card.input.shape
    if any(isinstance(g, int) and g != w for g, w in zip(tensor.shape[-3:], expected, strict=True)):
        shape = f"(1, {', '.join(map(str, expected))}) ({card.input.layout}, {width}×{height})"
        takes = f"the model takes {tensor}; correct `size` or `layout`"
        raise CardError(f"{info.path}: the card describes an input {shape}, {takes}")
    sides = tensor.shape[-2:] if card.input.layout == "nchw" else tensor.shape[-3:-1]
    if card.input.policy == "short-side" and any(isinstance(side, int) for side in sides):
        takes = f"the model takes {tensor}; correct `policy`, or export it with free sides"
        raise CardError(f'{info.path}: policy "short-side" needs an input of any height and width, {takes}')
    if tensor.dtype != card.input.dtype:
        described = f"the card describes an input of type {card.input.dtype}"
        raise CardError(f"{info.path}: {described}, the model takes {tensor}; correct `dtype`")
    _check_feeds(card, info)
    if not all(t.static for t in info.outputs):
        return  # free shapes: the head checks what really comes out
    # The head checks its own requirements: decode outputs of these shapes that contain no detection.
    known = [(t, np.dtype(t.dtype)) for t in info.outputs if t.shape and t.dtype != "unknown"]
    quiet = {t.name: 0 if dtype.kind in "iub" else QUIET for t, dtype in known}
    raw = {t.name: np.full([1, *map(int, t.shape[1:])], quiet[t.name], dtype) for t, dtype in known}
    try:
        lookup("head", card.head.name)(raw, dataclasses.replace(card, score=1.0))
    except CardError as problem:
        raise CardError(f"{info.path}: {problem}") from None


def _check_feeds(card: Card, info: ModelInfo) -> None:
    """Raise a CardError unless the card says what each input other than the image gets."""
    others = [t.name for t in other_inputs(info)]
    for tensor in other_inputs(info):
        if tensor.name not in card.feeds:
            kinds = " or ".join(f'"{kind}"' for kind in get_args(Feed))
            advice = f"write in the card what it gets: [feeds] {tensor.name} = {kinds}"
            raise CardError(f"{info.path}: the card does not feed the input {tensor}; {advice}")
    for name in card.feeds:
        if name not in others:
            got = ", ".join(others) or "none"
            expected = f"expected the name of an input other than the image ({got})"
            raise CardError(f"{info.path}: feeds.{name}: {expected}; correct [feeds] in the card")


def shipped() -> list[str]:
    """The names of the models that come with the package, sorted."""
    folder = _shipped_folder()
    return sorted(p.stem for p in folder.glob("*.onnx")) if folder.is_dir() else []


def _shipped_folder() -> Path:
    return Path(str(resources.files("holdfast"))) / "models"


def load_model(name_or_path: str | Path, card: Path | None = None) -> Model:
    """A shipped model by name, or an ONNX file with its card: `card`, the one next to it, or a guess."""
    path = find_model(name_or_path)
    info = inspect(path)
    card_file = card or card_path(path)
    used, guessed = (read_card(card_file), ()) if card_file else guess(path)
    check_card(used, info)
    return Model(path.name.removesuffix(".gz").removesuffix(".onnx"), path, used, info.sha256, guessed)


def find_model(name_or_path: str | Path) -> Path:
    """The file of a shipped model or of the user's (or its .gz), or an error that names the nearest one."""
    path = Path(name_or_path)
    if file := existing_file(path):
        return onnx_of(file)
    if name_or_path in shipped():
        return _shipped_folder() / f"{name_or_path}.onnx"
    like_a_path = isinstance(name_or_path, Path) or path.suffix in (".onnx", ".gz") or len(path.parts) > 1
    if not like_a_path and not path.is_dir():
        raise UnknownName("model", str(name_or_path), shipped())
    what = "is a folder" if path.is_dir() else "no such model file"
    raise ModelError(f"{path}: {what}; give the path of an .onnx file or one of {', '.join(shipped())}")


@dataclass(frozen=True)
class ModelDescription:
    """The file's content and its card; without a card that fits, `problem` says why."""

    info: ModelInfo
    card: Card | None
    guessed: tuple[str, ...]
    problem: str

    def text(self) -> str:
        """The facts as plain lines of two columns."""
        lines = rows(self.info)
        if self.card is not None:
            image, names = self.card.input, self.card.classes
            listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
            reads = f"{image.size.width}×{image.size.height} {image.colour} {image.layout}, {image.policy}"
            lines += [("task", f"{self.card.task}, {len(names)} classes: {listed}"), ("reads", reads)]
            lines.append(("head", self.card.head.name))
        lines += [("guessed", line) for line in self.guessed]
        lines += [("problem", self.problem)] if self.problem else []
        return "\n".join(f"{name:14} {value}" for name, value in lines)

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain values, for JSON."""
        fields = dataclasses.asdict(self)
        fields["info"]["path"] = str(self.info.path)
        return fields


def describe(name_or_path: str | Path, card: Path | None = None) -> ModelDescription:
    """The description of a model; an ONNX file is described even if no card fits it."""
    info = inspect(find_model(name_or_path))
    try:
        model = load_model(name_or_path, card)
    except InputError as problem:
        return ModelDescription(info, None, (), str(problem))
    return ModelDescription(info, model.card, model.guessed, "")


NORMALISES = frozenset({"Sub", "Div", "Mul", "Add", "BatchNormalization"})
PLAIN: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
IMAGENET: dict[str, Any] = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def guess(path: Path) -> tuple[Card, tuple[str, ...]]:
    """The card that fits the graph best, and one line for each guess: "field: value, because ..."."""
    facts = gather_facts(path)
    proposal = next(filter(None, (rule(facts) for rule in RULES)), None)
    if proposal is None:
        advice = f"write a card {path.stem}.toml next to it (docs/how-to/your-model.md) that names its head"
        problem = f"no known head fits the outputs {facts.shapes()}"
        raise CardError(f"{path}: {problem}; {advice}, or register a head of your own")
    classes, why_classes = _guess_classes(facts, proposal)
    image, why_image = _guess_input(facts, proposal)
    task, head = proposal.task, Head(proposal.head, proposal.options)
    why_head = (f"task: {task}, because of the head", f"head: {head.name}, because {proposal.because}")
    reasons = (*why_head, why_classes, *why_image, *proposal.warnings)
    known = {t.name: KNOWN[t.name] for t in other_inputs(facts.info) if t.name in KNOWN}
    why_feeds = [
        f"feeds: {name} = {kind}, because inputs of this name take it" for name, kind in known.items()
    ]
    card = Card(task, image, head, classes, resize=proposal.resize, **proposal.thresholds, feeds=known)
    return card, (*reasons, *why_feeds)


def write_guess(path: Path, out: Path | None = None, *, force: bool = False) -> tuple[Path, tuple[str, ...]]:
    """Write the guessed card next to the model (or to `out`); return its path and the reasons."""
    stem = path.name.removesuffix(".gz").removesuffix(".onnx")
    target = out or path.with_name(f"{stem}.toml")
    if target.exists() and not force:
        raise CardError(f"{target}: the card already exists; use --force to overwrite it")
    card, reasons = guess(path)
    write_card(card, target, reasons)
    return target, reasons


def _guess_classes(facts: GraphFacts, proposal: Proposal) -> tuple[tuple[str, ...], str]:
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


def _guess_input(facts: GraphFacts, proposal: Proposal) -> tuple[Input, list[str]]:
    """Preprocessing: facts from the graph, completed by the training conventions of such networks."""
    size = proposal.size or facts.size
    fields: dict[str, Any] = {"size": size, "layout": facts.layout, **proposal.input}
    if facts.channels == 1:
        fields["colour"] = "grey"
    pixels = f"{size.width}×{size.height}"
    why_size = "assumed: the size in the graph is dynamic"
    why_size = why_size if facts.free_size else f"because the graph's input is {image_input(facts.info)}"
    why_layout = f"because the input is {image_input(facts.info)}"
    reasons = [f"size: {pixels}, {why_size}", f"layout: {facts.layout}, {why_layout}"]
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
        if facts.channels == 1:
            means = {k: (float(np.mean(fields[k])),) for k in ("mean", "std") if k in fields}
            fields |= {name: tuple(round(v, 3) for v in values) for name, values in means.items()}
        for name in ("mean", "std") if "mean" in fields else ():
            numbers = " ".join(f"{v:g}" for v in fields[name])
            reasons.append(f"{name}: {numbers}, assumed, as in {proposal.like}")
    image, assumed = Input(**fields), f"assumed, as in {proposal.like}: it cannot be read from the graph"
    why_colour = "because the input has one channel" if image.colour == "grey" else assumed
    return image, [*reasons, f"colour: {image.colour}, {why_colour}", f"policy: {image.policy}, {assumed}"]
