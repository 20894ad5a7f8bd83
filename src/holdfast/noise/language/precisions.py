"""Which precisions a language model is tested at: every rewrite of that family is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.registry import names, part

CLEAN = "fp32"  # the file as it is
FAMILY = "precision"
DEFAULT = ("fp16", "int8-dynamic", "int8-mixed")  # the paper's Table 5, with both kinds of 8 bits


def known() -> tuple[str, ...]:
    """All precisions, those that run by default first."""
    found = [n for n in names("rewrite") if part("rewrite", n).facts.get("family") == FAMILY]
    return (*DEFAULT, *(n for n in found if n not in DEFAULT))


def chosen(only: Sequence[str] = (), skip: Sequence[str] = (), every: bool = False) -> tuple[str, ...]:
    """The precisions that are wanted: `fp16`, `precision=fp16` or `precision` for the whole family."""
    taken, left = set(_named(only)), set(_named(skip))
    whole = not only or FAMILY in only
    wanted = [
        name
        for name in (() if FAMILY in skip else known())
        if name not in left and (name in taken or (whole and (every or name in DEFAULT)))
    ]
    if not wanted:
        raise InputError("no precision is left to run: --only and --skip leave none")
    return tuple(wanted)


def is_calibrated(precision: str) -> bool:
    """Whether a precision looks at texts first."""
    return bool(part("rewrite", precision).facts.get("calibrated", False))


def _named(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word == FAMILY:
            continue
        name = word.removeprefix(f"{FAMILY}=")
        if name not in (*known(), *_aliases()):
            raise UnknownName("precision of a language model", name, known())
        yield part("rewrite", name).name


def _aliases() -> Iterator[str]:
    for name in known():
        yield from part("rewrite", name).facts.get("aliases", ())
