"""The training text: paragraphs of four sorts, drawn by a seed."""

import random
from collections.abc import Callable, Iterator

from models.language.activities import activity_text
from models.language.carried import carried_text
from models.language.reasons import reason_text
from models.language.uses import use_text

# The harder a sort is to learn, the more of it is written.
_SORTS: tuple[tuple[Callable[[random.Random], str], float], ...] = (
    (use_text, 0.35),
    (carried_text, 0.32),
    (activity_text, 0.12),
    (reason_text, 0.21),
)


def paragraph(rng: random.Random) -> str:
    """One paragraph of any sort."""
    (sort,) = rng.choices(_SORTS, [share for _, share in _SORTS])
    return sort[0](rng)


def paragraphs(count: int, seed: int) -> Iterator[str]:
    """So many paragraphs, the same for the same seed."""
    rng = random.Random(f"text {seed}")
    for _ in range(count):
        yield paragraph(rng)
