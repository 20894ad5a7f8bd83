"""The sandwich: under each threat, images proven to hold ≤ those that do ≤ those no attack has broken."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.run.audit.result import Layer, Proof, Standing
from holdfast.run.audit.strike import Struck

SQUARE = "square"


def layers(proofs: Sequence[Proof], side: str, area: int, struck: Sequence[Struck]) -> tuple[Layer, ...]:
    """A layer for the square and one for each budget of pixels.

    `side` is the square in words, `area` its pixels in the smallest image: an image that a black square of
    that area breaks is broken within every budget that large.
    """
    squares = [p for p in proofs if p.threat == SQUARE]
    broken = {p.image for p in squares if p.answer == "violated"}
    made = []
    if squares:
        standings = tuple(Standing(p.image, p.answer == "holds", p.answer == "violated") for p in squares)
        made.append(Layer(SQUARE, side, squares[0].engine, squares[0].engine, standings))
    for one in struck:
        within = broken if area and area <= one.strike.pixels else set()
        aimed = [a for a in one.attempts if a.targets]
        standings = tuple(Standing(a.name, False, a.success or a.name in within) for a in aimed)
        helped = sum(s.broken for s in standings) - sum(a.success for a in aimed)
        engine = f"{one.strike.engine}; squares ({helped} more)" if helped else one.strike.engine
        words = f"{one.strike.pixels} pixels of any colour on the targets"
        made.append(Layer(one.strike.threat, words, "", engine, standings))
    return tuple(made)
