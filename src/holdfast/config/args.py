"""Args: what a command takes, declared once in the signature of a plain function.

    def make(
        folder: Annotated[Path, Argument("A new or empty folder.")],
        images: Annotated[int, Option("How many scenes.", least=1)] = 1000,
        stage: Annotated[tuple[str, ...], Option("Exchange a stage.")] = (),
        force: Annotated[bool, Option("Overwrite what is there.")] = False,
    ) -> int | None:

A parameter with a default is optional, a bool is a flag (taken back by --no-force), a tuple may be repeated,
a Literal is a choice. Nothing but the standard library, and little of that: this is on the way of every
command, however short.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

from holdfast.core.errors import InputError

FILES = "<files>"  # among the values the shell may offer: paths too
HELP = ("-h", "--help")
Values = Callable[[], Iterable[str]]


class Argument(NamedTuple):
    """A word that is known by its place; `values` are those the shell may offer."""

    about: str
    shown: str = ""
    values: Values | None = None


class Option(NamedTuple):
    """A named word: --images, from the parameter's name unless `name` says otherwise, and what follows it.

    `shown` stands for the value in the help, `group` is the heading it is listed under, `least` and `most`
    bound a number, `values` are those the shell may offer.
    """

    about: str
    name: str = ""
    short: str = ""
    shown: str = ""
    group: str = "Options"
    least: float | None = None
    most: float | None = None
    values: Values | None = None


class Slot(NamedTuple):
    """One parameter of a command: what may be given for it and what it is otherwise."""

    key: str
    about: Argument | Option
    kind: type
    choices: tuple[str, ...]
    many: bool
    required: bool
    default: Any

    @property
    def name(self) -> str:
        """What it is called on the command line: --images, MODEL."""
        if isinstance(self.about, Option):
            return self.about.name or "--" + self.key.replace("_", "-")
        return self.about.shown or self.key.upper()

    @property
    def shown(self) -> str:
        """What stands for its value: FILE, N, all|common; empty for a flag."""
        names = {Path: "FILE", int: "N", float: "X", bool: ""}
        return self.about.shown or "|".join(self.choices) or names.get(self.kind, "TEXT")

    def offered(self) -> tuple[str, ...]:
        """The values the shell may offer."""
        if self.about.values is not None:
            return tuple(self.about.values())
        return self.choices or ((FILES,) if self.kind is Path else ())


def slots_of(function: Callable[..., Any]) -> list[Slot]:
    """The slots of a command, in the order of its parameters."""
    hints = get_type_hints(function, include_extras=True)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    without = len(names) - len(defaults)
    slots = []
    for place, key in enumerate(names):
        hint: Any = hints[key]
        kind, choices, many = _kind(hint.__origin__)
        default = defaults[place - without] if place >= without else None
        slots.append(Slot(key, hint.__metadata__[0], kind, choices, many, place < without, default))
    return slots


def _kind(hint: Any) -> tuple[type, tuple[str, ...], bool]:
    """The plain type, the choices, and whether it may be given more than once."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        return str, get_args(hint), False
    if get_origin(hint) is tuple:
        kind, choices, _ = _kind(get_args(hint)[0])
        return kind, choices, True
    return hint, (), False


def parse(command: str, slots: Sequence[Slot], words: Sequence[str]) -> dict[str, Any] | None:
    """The value of every parameter that was given; None if help was asked for."""
    named, loose, found = names_of(slots), list[str](), dict[str, Any]()
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word in HELP:
            return None
        if word == "--":
            loose += reversed(rest)
            break
        if not word.startswith("-") or word == "-":
            loose.append(word)
            continue
        name, glued, text = _split(word, named)
        if name not in named:
            refuse(command, f"unknown option {name!r}.", name, [*named, *HELP])
        slot = named[name]
        if slot.kind is bool:
            if glued:
                refuse(command, f"{name} takes no value, got {text!r}")
            found[slot.key] = not _takes_back(name, slot)
            continue
        if not glued:
            if not rest or rest[-1] in named:
                got = f"the option {rest[-1]}" if rest else "nothing"
                refuse(command, f"{name}: expected {slot.shown} behind it, got {got}")
            text = rest.pop()
        _put(found, slot, _value(command, slot, name, text))
    _place(command, slots, loose, found)
    _check_required(command, slots, found)
    return found


def names_of(slots: Sequence[Slot]) -> dict[str, Slot]:
    """The slots by each name that may be written for them: --out, -o, --strict, --no-strict."""
    named: dict[str, Slot] = {}
    for slot in slots:
        if isinstance(slot.about, Option):
            named[slot.name] = slot
            if slot.about.short:
                named[slot.about.short] = slot
            if slot.kind is bool:
                named["--no-" + slot.name[2:]] = slot
    return named


def _takes_back(name: str, slot: Slot) -> bool:
    return name not in (slot.name, slot.about.short if isinstance(slot.about, Option) else "")


def _split(word: str, named: Mapping[str, Slot]) -> tuple[str, bool, str]:
    """The name, whether a value is glued to it (--out=x, -ox), and that value."""
    if word.startswith("--"):
        name, glue, text = word.partition("=")
        return name, bool(glue), text
    return (word[:2], len(word) > 2, word[2:]) if word[:2] in named else (word, False, "")


def _put(found: dict[str, Any], slot: Slot, value: Any) -> None:
    found[slot.key] = (*found.get(slot.key, ()), value) if slot.many else value


def _place(command: str, slots: Sequence[Slot], loose: list[str], found: dict[str, Any]) -> None:
    """Nothing; the words without a name are in their places."""
    places = [slot for slot in slots if isinstance(slot.about, Argument)]
    for number, text in enumerate(loose):
        slot = places[min(number, len(places) - 1)] if places else None
        if slot is None or (number >= len(places) and not slot.many):
            taken = " ".join(s.name for s in places) or "no arguments"
            refuse(command, f"unexpected argument {text!r}; expected {taken}")
        _put(found, slot, _value(command, slot, slot.name, text))


def _value(command: str, slot: Slot, name: str, text: str) -> Any:
    if slot.choices and text not in slot.choices:
        refuse(command, f"{name}: expected {' or '.join(slot.choices)}, got {text!r}.", text, slot.choices)
    if slot.kind not in (int, float):
        return slot.kind(text)
    about = slot.about
    least, most = (about.least, about.most) if isinstance(about, Option) else (None, None)
    try:
        value = slot.kind(text)
        good = (least is None or value >= least) and (most is None or value <= most)
    except ValueError:
        good = False
    if not good:
        bounds = {(False, False): "", (True, False): f" from {least}", (False, True): f" up to {most}"}
        span = bounds.get((least is not None, most is not None), f" from {least} to {most}")
        whole = "a whole number" if slot.kind is int else "a number"
        refuse(command, f"{name}: expected {whole}{span}, got {text!r}")
    return value


def _check_required(command: str, slots: Sequence[Slot], found: dict[str, Any]) -> None:
    missing = [slot.name for slot in slots if slot.required and slot.key not in found]
    if missing:
        refuse(command, f"expected {', '.join(missing)}; not given")


def refuse(command: str, problem: str, word: str = "", known: Iterable[str] = ()) -> NoReturn:
    """Nothing is returned: an InputError says the problem, the nearest known word, and where to look."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6) if word else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{problem}{hint} (see {command} --help)")
