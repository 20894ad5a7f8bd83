"""The text of a darknet .cfg as sections of `key=value` lines that remember where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import ModelError

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


def word(section: Section, key: str, default: str | None = None) -> str:
    """The value of a key; its default when it is absent, an error when there is none.

    Darknet takes the first of two equal keys in silence; two that differ are an error here, because a
    reader of the file cannot know which one counts.
    """
    found = [option for option in section.options if option.key == key]
    if not found:
        if default is None:
            raise ModelError(f"{section.at()}: expected {key}=..., got no such line")
        return default
    for other in found[1:]:
        if other.value != found[0].value:
            raise ModelError(
                f"{section.at(other.line)}: {key}={other.value}, but line {found[0].line} says "
                f"{key}={found[0].value}; keep one of them"
            )
    return found[0].value


def has(section: Section, key: str) -> bool:
    """Whether a key is given."""
    return any(option.key == key for option in section.options)


def integer(section: Section, key: str, default: int | None = None, least: int | None = None) -> int:
    """The value of a key as an integer, at least `least`."""
    text = word(section, key, None if default is None else str(default))
    values = _numbers(section, key, text, int)
    if len(values) != 1 or (least is not None and values[0] < least):
        wanted = "one integer" + ("" if least is None else f" of at least {least}")
        raise ModelError(f"{_where(section, key)}: expected {key}= {wanted}, got {text!r}")
    return int(values[0])


def number(section: Section, key: str, default: float) -> float:
    """The value of a key as a number."""
    text = word(section, key, str(default))
    values = _numbers(section, key, text, float)
    if len(values) != 1:
        raise ModelError(f"{_where(section, key)}: expected {key}= one number, got {text!r}")
    return float(values[0])


def integers(section: Section, key: str) -> tuple[int, ...]:
    """The value of a key as integers with commas between."""
    return tuple(int(v) for v in _numbers(section, key, word(section, key), int))


def numbers(section: Section, key: str) -> tuple[float, ...]:
    """The value of a key as numbers with commas between."""
    return tuple(float(v) for v in _numbers(section, key, word(section, key), float))


def _numbers(section: Section, key: str, text: str, kind: type[int] | type[float]) -> list[int | float]:
    pieces = [piece.strip() for piece in text.rstrip(", ").split(",")]
    try:
        return [kind(piece) for piece in pieces]
    except ValueError:
        noun = "integers" if kind is int else "numbers"
        raise ModelError(
            f"{_where(section, key)}: expected {key}= {noun} with commas between, got {text!r}"
        ) from None


def _where(section: Section, key: str) -> str:
    line = next((option.line for option in section.options if option.key == key), None)
    return section.at(line)
