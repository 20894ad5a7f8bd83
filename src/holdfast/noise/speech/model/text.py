"""Text as the ids of a card's symbols."""

from __future__ import annotations

import functools
import re

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError
from holdfast.noise.speech.system import SpeechCard


def ids_of(text: str, card: SpeechCard) -> NDArray[np.int64]:
    """The ids (1, t) of a text, longest symbols first; DataError for characters the card does not know."""
    told = text.lower() if card.lower else text
    places = {symbol: place for place, symbol in enumerate(card.symbols)}
    found: list[int] = []
    at = 0
    for hit in _pattern(card.symbols).finditer(told):
        if hit.start() != at:
            break
        found.append(places[hit.group()])
        at = hit.end()
    if at < len(told):
        raise DataError(
            f"the card does not know {told[at]!r} (character {at + 1} of {told[:40]!r}); "
            "add it to text.symbols or write the text without it"
        )
    if card.end:
        found.append(places[card.end])
    if not found:
        raise DataError("the text is empty")
    return np.array([found], np.int64)


@functools.lru_cache(maxsize=8)
def _pattern(symbols: tuple[str, ...]) -> re.Pattern[str]:
    longest = sorted(symbols, key=len, reverse=True)
    return re.compile("|".join(re.escape(symbol) for symbol in longest))
