"""Short sentences of a grammar of our own: what the speech models learn to say."""

from typing import Final

import numpy as np

SYMBOLS: Final = (" ", *"abcdefghijklmnopqrstuvwxyz", "~")  # the place is the id
END: Final = "~"

WHOSE: Final = ("the", "my", "our", "this", "one")
KINDS: Final = ("red", "old", "small", "black", "slow", "new", "long", "green")
THINGS: Final = ("truck", "car", "bus", "train", "bike", "horse", "driver", "dog", "girl", "van")
DOES: Final = ("stops", "waits", "turns", "goes", "sleeps", "stands", "runs", "moves")
SEES: Final = ("sees", "follows", "meets", "likes", "passes", "hears")
WHERE: Final = ("here", "now", "again", "today", "outside", "alone", "there", "soon")
PLACES: Final = ("road", "bridge", "river", "house", "field", "light", "corner", "tree")
NEAR: Final = ("at", "near", "behind", "under")
ORDERS: Final = ("stop", "turn", "wait", "look", "drive", "go", "stay")
HOW: Final = ("left", "right", "back", "slowly", "now", "here", "again")
COUNTS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "ten")
MANY: Final = ("cars", "dogs", "bikes", "trees", "roads", "houses", "people", "signs")
CHOICES: Final = (WHOSE, KINDS, THINGS, DOES, SEES, WHERE, PLACES, NEAR, ORDERS, HOW, COUNTS, MANY)


def sentence(rng: np.random.Generator) -> str:
    """One sentence of 2 to 6 words in lower-case letters."""

    def one(words: tuple[str, ...]) -> str:
        return words[int(rng.integers(len(words)))]

    def noun(described: float) -> list[str]:
        return [one(WHOSE), *([one(KINDS)] if rng.random() < described else []), one(THINGS)]

    form = int(rng.integers(6))
    if form == 0:
        words = [*noun(0.6), one(DOES), *([one(WHERE)] if rng.random() < 0.6 else [])]
    elif form == 1:
        words = [*noun(0.3), one(SEES), "the", one(THINGS)]
    elif form == 2:
        words = [*noun(0.0), one(DOES), one(NEAR), "the", one(PLACES)]
    elif form == 3:
        words = [one(ORDERS), one(HOW), *([one(NEAR), "the", one(PLACES)] if rng.random() < 0.5 else [])]
    elif form == 4:
        words = [one(COUNTS), *([one(KINDS)] if rng.random() < 0.5 else []), one(MANY)]
        words += ["wait", one(WHERE)] if rng.random() < 0.6 else [one(NEAR), "the", one(PLACES)]
    else:
        words = ["the", one(PLACES), "is", one(KINDS), *([one(WHERE)] if rng.random() < 0.5 else [])]
    return " ".join(words)


def sentences(count: int, seed: int) -> tuple[str, ...]:
    """That many different sentences, the same for the same seed, more being the same and then others."""
    rng = np.random.default_rng(seed)
    said: dict[str, None] = {}
    while len(said) < count:
        said[sentence(rng)] = None
    return tuple(said)


def ids_of(text: str) -> tuple[int, ...]:
    """The ids of the text's symbols with the end mark behind them."""
    return tuple(SYMBOLS.index(letter) for letter in text + END)
