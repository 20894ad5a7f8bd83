"""The text of a darknet .cfg as sections, and the layers it may hold with darknet's defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import ModelError
from holdfast.core.types import Size

SYNONYMS = {"network": "net", "conv": "convolutional", "max": "maxpool", "avg": "avgpool", "silence": "empty"}


@dataclass(frozen=True)
class Option:
    """One `key=value` line."""

    key: str
    value: str
    line: int


@dataclass(frozen=True)
class Section:
    """One `[kind]` with its options; `index` is darknet's layer number, −1 for [net]."""

    path: Path
    kind: str
    index: int
    line: int
    options: tuple[Option, ...]

    def at(self, line: int | None = None) -> str:
        """Where this section (or one of its lines) stands, as the start of a message."""
        layer = "" if self.index < 0 else f"layer {self.index} "
        return f"{self.path}:{line or self.line}: {layer}[{self.kind}]"

    def word(self, key: str, default: str | None = None) -> str:
        """The value of a key; its default when it is absent, an error when there is none.

        Darknet takes the first of two equal keys in silence; two that differ are an error here, because a
        reader of the file cannot know which one counts.
        """
        found = [option for option in self.options if option.key == key]
        if not found:
            if default is None:
                raise ModelError(f"{self.at()}: expected {key}=..., got no such line")
            return default
        for other in found[1:]:
            if other.value != found[0].value:
                raise ModelError(
                    f"{self.at(other.line)}: {key}={other.value}, but line {found[0].line} says "
                    f"{key}={found[0].value}; keep one of them"
                )
        return found[0].value

    def has(self, key: str) -> bool:
        """Whether a key is given."""
        return any(option.key == key for option in self.options)

    def integer(self, key: str, default: int | None = None, least: int | None = None) -> int:
        """The value of a key as an integer, at least `least`."""
        text = self.word(key, None if default is None else str(default))
        values = self._numbers(key, text, int)
        if len(values) != 1 or (least is not None and values[0] < least):
            wanted = "one integer" + ("" if least is None else f" of at least {least}")
            raise ModelError(f"{self._where(key)}: expected {key}= {wanted}, got {text!r}")
        return int(values[0])

    def number(self, key: str, default: float) -> float:
        """The value of a key as a number."""
        text = self.word(key, str(default))
        values = self._numbers(key, text, float)
        if len(values) != 1:
            raise ModelError(f"{self._where(key)}: expected {key}= one number, got {text!r}")
        return float(values[0])

    def integers(self, key: str) -> tuple[int, ...]:
        """The value of a key as integers with commas between."""
        return tuple(int(v) for v in self._numbers(key, self.word(key), int))

    def numbers(self, key: str) -> tuple[float, ...]:
        """The value of a key as numbers with commas between."""
        return tuple(float(v) for v in self._numbers(key, self.word(key), float))

    def _numbers(self, key: str, text: str, kind: type[int] | type[float]) -> list[int | float]:
        pieces = [piece.strip() for piece in text.rstrip(", ").split(",")]
        try:
            return [kind(piece) for piece in pieces]
        except ValueError:
            noun = "integers" if kind is int else "numbers"
            raise ModelError(
                f"{self._where(key)}: expected {key}= {noun} with commas between, got {text!r}"
            ) from None

    def _where(self, key: str) -> str:
        line = next((option.line for option in self.options if option.key == key), None)
        return self.at(line)


def read_sections(path: Path) -> tuple[Section, ...]:
    """All sections of a .cfg in order, [net] first; every malformed line is named in one error."""
    problems: list[str] = []
    heads: list[tuple[str, int]] = []
    bodies: list[list[Option]] = []
    for number, raw in enumerate(_read_text(path).splitlines(), 1):
        line = raw.split("#", 1)[0].split(";", 1)[0].strip()
        if not line:
            continue
        if line.startswith("["):
            if not line.endswith("]") or len(line) < 3:
                problems.append(
                    f"line {number}: expected a section like [convolutional], got {raw.strip()!r}"
                )
            heads.append((line.strip("[] ").lower(), number))
            bodies.append([])
            continue
        key, equals, value = (piece.strip() for piece in line.partition("="))
        if not (key and equals and value):
            problems.append(f"line {number}: expected key=value, got {raw.strip()!r}")
        elif not bodies:
            problems.append(f"line {number}: expected [net] before the first option, got {raw.strip()!r}")
        else:
            bodies[-1].append(Option(key, value, number))
    if problems:
        raise ModelError(f"{path}: not a darknet .cfg: " + "; ".join(problems))
    return _numbered(path, heads, bodies)


def _numbered(path: Path, heads: list[tuple[str, int]], bodies: list[list[Option]]) -> tuple[Section, ...]:
    sections = tuple(
        Section(path, SYNONYMS.get(kind, kind), index - 1, line, tuple(body))
        for index, ((kind, line), body) in enumerate(zip(heads, bodies, strict=True))
    )
    if not sections:
        raise ModelError(f"{path}: expected a darknet .cfg that starts with [net], got no section at all")
    if sections[0].kind != "net":
        first = sections[0]
        raise ModelError(f"{path}:{first.line}: expected [net] as the first section, got [{first.kind}]")
    if len(sections) == 1:
        raise ModelError(f"{path}: expected layers after [net], got none")
    return sections


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; give the path of a darknet .cfg") from None
    except OSError as problem:
        raise ModelError(f"{path}: expected a readable darknet .cfg, got: {problem}") from problem
    if b"\0" in data:
        raise ModelError(
            f"{path}: expected the text of a darknet .cfg, got binary data; "
            "give the .cfg first and the .weights second"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # comments in an old code page; keys and values are ASCII


@dataclass(frozen=True)
class Layer:
    """A layer of a darknet .cfg."""


@dataclass(frozen=True)
class Convolutional(Layer):
    """A convolution; batch normalisation, where there is one, lies between it and the activation."""

    filters: int
    size: int
    stride_x: int
    stride_y: int
    padding: int  # pixels on every side, before dilation
    dilation: int
    groups: int
    batch_normalize: bool
    activation: str


@dataclass(frozen=True)
class BatchNorm(Layer):
    """A batch normalisation of its own."""


@dataclass(frozen=True)
class MaxPool(Layer):
    """A max pool; `padding` is the sum of both sides, the smaller half on the left and top."""

    size: int
    stride_x: int
    stride_y: int
    padding: int


@dataclass(frozen=True)
class AvgPool(Layer):
    """The mean of every channel over the whole map."""


@dataclass(frozen=True)
class Upsample(Layer):
    """Every pixel repeated `stride` × `stride` times, multiplied by `scale`."""

    stride: int
    scale: float


@dataclass(frozen=True)
class Route(Layer):
    """The maps of some earlier layers one after the other; of each only part `group_id` of `groups`."""

    sources: tuple[int, ...]
    groups: int
    group_id: int


@dataclass(frozen=True)
class Shortcut(Layer):
    """The map before plus those of some earlier layers."""

    sources: tuple[int, ...]
    activation: str


@dataclass(frozen=True)
class Scale(Layer):
    """An earlier map times the map before: one factor a channel, or one a value with `pointwise`."""

    source: int
    pointwise: bool
    activation: str


@dataclass(frozen=True)
class Activate(Layer):
    """An activation of its own."""

    activation: str


@dataclass(frozen=True)
class Same(Layer):
    """What does nothing when a trained network runs: [dropout], [empty]."""


@dataclass(frozen=True)
class Yolo(Layer):
    """A YOLOv3 head: its anchors (width, height) in input pixels, after the mask."""

    anchors: tuple[tuple[float, float], ...]
    classes: int
    scale_xy: float


@dataclass(frozen=True)
class Placed:
    """A layer and the section it was read from."""

    section: Section
    layer: Layer

    @property
    def index(self) -> int:
        """Darknet's number of the layer, from 0."""
        return self.section.index


@dataclass(frozen=True)
class Network:
    """A whole .cfg: the input and the layers in order."""

    path: Path
    size: Size
    letter_box: bool
    layers: tuple[Placed, ...]

    @property
    def heads(self) -> tuple[Yolo, ...]:
        """The [yolo] layers in order."""
        return tuple(placed.layer for placed in self.layers if isinstance(placed.layer, Yolo))
