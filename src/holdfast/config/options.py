"""The declaration of options: a frozen dataclass whose fields are annotated.

    @dataclass(frozen=True, kw_only=True)
    class MakeOptions(Options, command="data make", examples=("holdfast data make signs scenes",)):
        folder: Annotated[Path, Argument("A new or empty folder.")]
        images: Annotated[int, Option("Number of scenes.", least=1)] = 1000
        stage: Annotated[tuple[str, ...], Option("Replace a pipeline stage.")] = ()
        force: Annotated[bool, Option("Overwrite existing files.")] = False

The command line (`parser`), TOML tables (`toml`), JSON schemas (`schema`) and web forms (`form`) are derived
from it. A field with a default is optional, a tuple may be repeated, a Literal is a choice, and a Mapping is
written NAME=VALUE on the command line. The flag is the name of the field with `-` for `_`. The examples are
printed below the help text; each is a line for the shell that works in any folder.
"""

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.core.errors import InputError

FILES = "<files>"  # among completions: the shell offers paths too
LARGEST = 2**31 - 1  # of a whole number without a bound of its own
FEW = 12  # names that an error message lists in full
METAVARS = {Path: "FILE", int: "N", float: "X", bool: "", dict: "NAME=VALUE"}
Names = Callable[[], Iterable[str]]
T = TypeVar("T", bound="Options")


@dataclass(frozen=True)
class Option:
    """The annotation of a field.

    `least` and `most` bound a number. `names` lists the names that exist; the shell completes them and TOML
    files are checked against them. `completions` are for the shell only. `refers_to` says what a path must
    point to. `problem` returns what is wrong with a text of a TOML file, or empty text. With `commas`, one
    word of the command line may hold several values.
    """

    help: str
    short: str = ""
    metavar: str = ""
    group: str = ""
    least: float | None = None
    most: float | None = None
    names: Names | None = None
    completions: Names | None = None
    refers_to: Literal["", "model", "data", "file"] = ""
    problem: Callable[[str], str] | None = None
    example: str = ""
    commas: bool = False


class Argument(Option):
    """The annotation of a positional field."""


class InvalidValue(ValueError):
    """A value that a field does not accept; `place` is its index in a list."""

    def __init__(self, message: str, place: int | None = None) -> None:
        super().__init__(message)
        self.place = place


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of all options; values are checked when an instance is created."""

    command: ClassVar[str] = ""  # the words after `holdfast`
    examples: ClassVar[tuple[str, ...]] = ()
    _group: ClassVar[str] = ""

    def __init_subclass__(
        cls, command: str = "", group: str = "Options", examples: tuple[str, ...] = ()
    ) -> None:
        """Set the words of the command, its examples, and the heading of the fields the class declares."""
        cls.command = command or cls.command
        cls.examples = examples or (() if command else cls.examples)
        cls._group = group

    def __post_init__(self) -> None:
        for spec in fields_of(type(self)):
            try:
                object.__setattr__(self, spec.name, spec.check(getattr(self, spec.name)))
            except InvalidValue as problem:
                raise InputError(f"{spec.key}: {problem}") from None

    def context(self) -> AbstractContextManager[None]:
        """What a command with these options runs within."""
        return nullcontext()


@dataclass(frozen=True)
class FieldSpec:
    """One field of an options class."""

    name: str
    option: Option
    group: str
    kind: type  # str, Path, int, float, bool or dict
    choices: tuple[str, ...]
    many: bool
    optional: bool  # whether None is a value
    required: bool
    default: Any

    @property
    def key(self) -> str:
        """The name in TOML files and forms: calibration-images."""
        return self.name.rstrip("_").replace("_", "-")

    @property
    def positional(self) -> bool:
        """Whether the command line has it without a flag."""
        return isinstance(self.option, Argument)

    @property
    def label(self) -> str:
        """The name on the command line: --images, MODEL."""
        return self.option.metavar or self.key.upper() if self.positional else f"--{self.key}"

    @property
    def metavar(self) -> str:
        """The placeholder of its value: FILE, N, all|common."""
        text = "NAME" if self.option.names else "TEXT"
        return self.option.metavar or "|".join(self.choices) or METAVARS.get(self.kind, text)

    @property
    def repeats(self) -> bool:
        """Whether a command line may have it more than once."""
        return self.many or self.kind is dict

    @property
    def most(self) -> float | None:
        """The largest number it accepts."""
        return LARGEST if self.option.most is None and self.kind is int else self.option.most

    def names(self) -> tuple[str, ...]:
        """The texts it may be; empty if any is accepted."""
        return self.choices or (tuple(self.option.names()) if self.option.names else ())

    def completions(self) -> tuple[str, ...]:
        """The words that the shell offers."""
        if self.option.completions is not None:
            return tuple(self.option.completions())
        return self.names() or ((FILES,) if self.kind is Path else ())

    def expected(self) -> str:
        """What it accepts, in words."""
        if self.kind in (int, float):
            least, most = self.option.least, self.option.most
            top = "" if most is None else f" to {most}" if least is not None else f" up to {most}"
            number = "a whole number" if self.kind is int else "a number"
            return number + ("" if least is None else f" from {least}") + top
        if 0 < len(self.names()) <= FEW:
            return join_names(self.names())
        table = 'a table of names such as { stop = "stop sign" }'
        example = f" such as {self.option.example!r}" if self.option.example else ""
        return {bool: "true or false", dict: table, Path: "a path"}.get(self.kind, f"text{example}")

    def check(self, value: Any) -> Any:
        """The value in the type of the field; raise InvalidValue if the field does not accept it."""
        if value is None and self.optional:
            return None
        if not self.many:
            return self._check_one(value)
        several = value if isinstance(value, list | tuple) else (value,)
        if not several and (self.required or self.default):
            raise InvalidValue(f"expected {self.expected()}, got nothing")
        return tuple(map(self._check_one, several))

    def _check_one(self, value: Any) -> Any:
        if self.kind is Path and isinstance(value, str | Path):
            return Path(value)
        if self.kind is dict and isinstance(value, Mapping):
            return dict(value)
        number = type(value) is int and self.kind is float
        if not number and type(value) is not self.kind:
            raise InvalidValue(f"expected {self.expected()}, got {format_value(value)}")
        if self.choices and value not in self.choices:
            raise InvalidValue(unknown_name(value, self.choices))
        if self.kind in (int, float):
            least, most = self.option.least, self.most
            if not ((least is None or value >= least) and (most is None or value <= most)) or value != value:
                raise InvalidValue(f"expected {self.expected()}, got {format_value(value)}")
            return self.kind(value)
        return value

    def parse(self, texts: Sequence[str]) -> Any:
        """The value of all texts that a command line or a form gives."""
        if self.kind is dict:
            return dict(map(self._parse_pair, texts))
        if self.option.commas:
            texts = [word.strip() for text in texts for word in text.split(",") if word.strip()]
        values = tuple(map(self._parse_one, texts))
        return values if self.many else values[-1]

    def _parse_pair(self, text: str) -> tuple[str, str]:
        name, sign, value = text.partition("=")
        if not sign:
            example = self.option.example or "NAME=VALUE"
            raise InvalidValue(f"expected NAME=VALUE such as {example!r}, got {text!r}")
        return name, value

    def _parse_one(self, text: str) -> Any:
        if self.kind not in (int, float):
            return self._check_one(text)
        try:
            value = self.kind(text)
        except ValueError:
            raise InvalidValue(f"expected {self.expected()}, got {text!r}") from None
        return self._check_one(value)


_FIELDS: dict[type[Options], tuple[FieldSpec, ...]] = {}


def fields_of(shape: type[Options]) -> tuple[FieldSpec, ...]:
    """The fields of an options class: those of its bases from left to right, then its own."""
    if shape in _FIELDS:
        return _FIELDS[shape]
    hints = get_type_hints(shape, include_extras=True)
    known = {field.name: field for field in dataclasses.fields(shape)}
    specs = []
    for name, group in _groups(shape).items():
        hint = hints[name]
        if name not in known or get_origin(hint) is not Annotated:
            continue
        field, option = known[name], hint.__metadata__[0]
        kind, choices, many, optional = _kind(hint.__origin__)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        required = default is MISSING
        specs.append(
            FieldSpec(
                name, option, option.group or group, kind=kind, choices=choices, many=many, optional=optional,
                required=required, default=None if required else default,
            )
        )  # fmt: skip
    _FIELDS[shape] = tuple(specs)
    return _FIELDS[shape]


def _groups(shape: type) -> dict[str, str]:
    """The annotated names in order, each with the group of the last class that declares it."""
    groups: dict[str, str] = {}
    for base in shape.__bases__:
        groups |= _groups(base)
    return groups | dict.fromkeys(vars(shape).get("__annotations__", {}), getattr(shape, "_group", ""))


def _kind(hint: Any) -> tuple[type, tuple[str, ...], bool, bool]:
    """The plain type, the choices, whether it may be repeated, and whether it may be None."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kind, choices, many, _ = _kind(next(part for part in inside if part is not type(None)))
        return kind, choices, many, True
    if origin is Literal:
        return str, inside, False, False
    if origin is tuple:
        kind, choices, _, _ = _kind(inside[0])
        return kind, choices, True, False
    if origin is not None and issubclass(origin, Mapping):
        return dict, (), False, False
    return hint, (), False, False


def field_of(shape: type[Options], name: str) -> FieldSpec:
    """One field of an options class by its name."""
    return next(spec for spec in fields_of(shape) if spec.name == name)


def changed(options: Options) -> dict[str, Any]:
    """The values that are not the default, by the names of their fields."""
    pairs = [(spec, getattr(options, spec.name)) for spec in fields_of(type(options))]
    return {spec.name: value for spec, value in pairs if spec.required or value != spec.default}


def carry(options: Options, target: type[T], **others: Any) -> T:
    """Options of another class with the values of the fields that both classes have, and `others`."""
    names = {spec.name for spec in fields_of(target)} & {spec.name for spec in fields_of(type(options))}
    return target(**{**{name: getattr(options, name) for name in names}, **others})


def unknown_name(value: str, known: Sequence[str]) -> str:
    """The message for a name that is not known: the known names, or the nearest of many.

    For names such as family=option, the message is about families first, then about options of one.
    """
    before, sign, _ = value.partition("=")
    within = [name for name in known if name.startswith(f"{before}=")] if sign else []
    families = tuple(dict.fromkeys(name.partition("=")[0] for name in known))
    if within:
        known = within
    elif sign and len(families) < len(known):
        near = nearest(before, families)
        return f"expected one of {join_names(families)} before '=', got {value!r}{near}"
    near = nearest(value, known)
    if len(known) > FEW and near:
        return f"expected one of {len(known)} names, got {value!r}{near}"
    if len(known) > FEW and not sign and len(families) < len(known):
        return f"expected NAME=OPTION, where NAME is {join_names(families)}, got {value!r}"
    return f"expected {join_names(known)}, got {value!r}{near}"


def nearest(value: str, names: Iterable[str], cutoff: float = 0.5) -> str:
    """A hint with the names that may be meant; empty if none is near."""
    from holdfast.core.synonyms import did_you_mean  # here, because only a mistake needs it

    hint = did_you_mean(value, list(names), cutoff)
    return f"; {hint[0].lower()}{hint[1:]}" if hint else ""


def join_names(names: Sequence[str]) -> str:
    """The names as a phrase: a, b or c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def format_value(value: Any) -> str:
    """The value as text for a message, shortened if it is long."""
    if isinstance(value, str) and not value.strip():
        return "empty text"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value.isoformat() if hasattr(value, "isoformat") else repr(value)  # a date or a time
    return text if len(text) <= 60 else text[:57] + "..."
