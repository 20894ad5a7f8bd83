"""The text of a darknet .cfg: its sections, and their values with the place of every mistake."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast.core.errors import ModelError
from holdfast.core.limits import open_regular

SYNONYMS = {"network": "net", "conv": "convolutional", "max": "maxpool", "avg": "avgpool", "silence": "empty"}
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class CfgOption:
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
    options: tuple[CfgOption, ...]

    def at(self, line: int | None = None) -> str:
        """Location of this section (or of one of its lines), as the start of a message."""
        layer = "" if self.index < 0 else f"layer {self.index} "
        return f"{self.path}:{line or self.line}: {layer}[{self.kind}]"

    def fail(self, what: str, key: str = "") -> ModelError:
        """The error at this section, or at its line with that key."""
        line = next((option.line for option in self.options if option.key == key), None)
        return ModelError(f"{self.at(line)}: {what}")

    def word(self, key: str, default: str | None = None) -> str:
        """The value of a key; its default when it is absent, an error when there is none.

        Darknet takes the first of two equal keys in silence; here it is an error if they differ.
        """
        matches = [option for option in self.options if option.key == key]
        if not matches and default is None:
            raise self.fail(f"expected {key}=..., got no such line")
        for other in matches[1:]:
            if other.value != matches[0].value:
                first = f"line {matches[0].line} says {key}={matches[0].value}"
                raise ModelError(f"{self.at(other.line)}: {key}={other.value}, but {first}; keep one of them")
        return matches[0].value if matches else str(default)

    def numbers(self, key: str, kind: type[Number], default: Number | None = None) -> tuple[Number, ...]:
        """The value of a key as integers or floats with commas between."""
        text = self.word(key, None if default is None else str(default))
        try:
            return tuple(kind(piece.strip()) for piece in text.rstrip(", ").split(","))
        except ValueError:
            noun = "integers" if kind is int else "numbers"
            raise self.fail(f"expected {key}= {noun} with commas between, got {text!r}", key) from None

    def integer(self, key: str, default: int | None = None, least: int | None = None) -> int:
        """The value of a key as one integer, at least `least`."""
        values = self.numbers(key, int, default)
        if len(values) != 1 or (least is not None and values[0] < least):
            expected = "one integer" + ("" if least is None else f" of at least {least}")
            raise self.fail(f"expected {key}= {expected}, got {self.word(key)!r}", key)
        return values[0]

    def number(self, key: str, default: float) -> float:
        """The value of a key as one number."""
        values = self.numbers(key, float, default)
        if len(values) != 1:
            raise self.fail(f"expected {key}= one number, got {self.word(key)!r}", key)
        return values[0]


def read_sections(path: Path) -> tuple[Section, ...]:
    """All sections of a .cfg in order, [net] first; every malformed line is named in one error."""
    problems: list[str] = []
    heads: list[tuple[str, int]] = []
    bodies: list[list[CfgOption]] = []
    for number, raw in enumerate(_read_text(path).splitlines(), 1):
        line, text = raw.split("#", 1)[0].split(";", 1)[0].strip(), raw.strip()
        if line.startswith("["):
            if not line.endswith("]") or len(line) < 3:
                problems.append(f"line {number}: expected a section like [convolutional], got {text!r}")
            kind = line.strip("[] ").lower()
            heads.append((SYNONYMS.get(kind, kind), number))
            bodies.append([])
        elif line:
            key, equals, value = (piece.strip() for piece in line.partition("="))
            if not (key and equals and value):
                problems.append(f"line {number}: expected key=value, got {text!r}")
            elif not bodies:
                problems.append(f"line {number}: expected [net] before the first option, got {text!r}")
            else:
                bodies[-1].append(CfgOption(key, value, number))
    if problems:
        raise ModelError(f"{path}: not a darknet .cfg: " + "; ".join(problems))
    numbered = enumerate(zip(heads, bodies, strict=True), -1)
    sections = tuple(Section(path, kind, i, line, tuple(body)) for i, ((kind, line), body) in numbered)
    if not sections:
        raise ModelError(f"{path}: expected a darknet .cfg that starts with [net], got no section at all")
    first = sections[0]
    if first.kind != "net":
        raise ModelError(f"{path}:{first.line}: expected [net] as the first section, got [{first.kind}]")
    if len(sections) == 1:
        raise ModelError(f"{path}: expected layers after [net], got none")
    return sections


def read_bytes(path: Path, what: str) -> bytes:
    """The content of a darknet file; ModelError if it cannot be read."""
    try:
        with open_regular(path) as stream:
            return stream.readall()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; give the path of a darknet {what}") from None
    except OSError as problem:
        reason = problem.strerror or problem
        raise ModelError(f"{path}: expected a readable darknet {what}, got: {reason}") from problem


def _read_text(path: Path) -> str:
    data = read_bytes(path, ".cfg")
    if b"\0" in data:
        advice = "give the .cfg first and the .weights second"
        raise ModelError(f"{path}: expected the text of a darknet .cfg, got binary data; {advice}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # comments in an old code page; keys and values are ASCII
