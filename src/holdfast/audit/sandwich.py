"""The sandwich: under each threat, images proven to hold ≤ those that do ≤ those no attack has broken."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.audit.result import Layer, Proof, Standing
from holdfast.audit.strike import Struck

SQUARE = "square"


def layers(proofs: Sequence[Proof], square: str, struck: Sequence[Struck]) -> tuple[Layer, ...]:
    """A layer for the square, described in words, and one for each budget of pixels.

    Each breaks an image by its own measure, and the words say which: a square as soon as one object that was
    found is lost, the attack when all are. So neither says anything of the other's images.
    """
    squares = [p for p in proofs if p.threat == SQUARE]
    made = []
    if squares:
        standings = tuple(Standing(p.image, p.answer == "holds", p.answer == "violated") for p in squares)
        words = f"{square}; broken: an object is lost"
        made.append(Layer(SQUARE, words, squares[0].engine, squares[0].engine, standings))
    for one in struck:
        standings = tuple(Standing(a.name, False, a.success) for a in one.attempts if a.targets)
        words = f"{one.strike.pixels} pixels of any colour on the objects; broken: every object is lost"
        made.append(Layer(one.strike.threat, words, "", one.strike.engine, standings))
    return tuple(made)
