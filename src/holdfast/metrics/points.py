"""Differences of a metric in percentage points: the number, its interval and its significance in words."""

from collections.abc import Iterable

ENOUGH = 20  # fewest images for which a number is more than an indication


def is_indication(images: int | None) -> bool:
    """Whether a number from this many images is only an indication; None: it is no estimate."""
    return images is not None and images < ENOUGH


def basis_text(images: int | None) -> str:
    """The n next to a number: "n = 24", or "n = 13, indication" with few images; empty for None."""
    if images is None:
        return ""
    return f"n = {images}{', indication' if is_indication(images) else ''}"


def points(value: float) -> float:
    """A difference of a metric in percentage points; an exact zero has no sign."""
    return round(100.0 * value, 10) + 0.0


def interval_text(low: float | None, high: float | None) -> str:
    """The 95% interval of a difference in points; empty if there is none."""
    if low is None or high is None:
        return ""
    return "no difference" if low == high == 0.0 else f"[{low:z.2f}, {high:z.2f}]"


def is_gain(lost: float) -> bool:
    """Whether a loss is negative in the two digits that are printed."""
    return round(lost, 2) < 0


def lost_text(lost: float) -> str:
    """A loss in a sentence: "0.52 points lost", or "0.01 points gained" for a negative one."""
    return f"{abs(lost):.2f} points {'gained' if is_gain(lost) else 'lost'}"


def facing(lost: float, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """The interval of a loss as `lost_text` counts it: of the points gained, if the loss is negative."""
    if low is None or high is None or not is_gain(lost):
        return low, high
    return -high, -low


def significance(low: float | None, high: float | None, images: int = ENOUGH) -> str:
    """Whether a difference with this 95% interval is significant, in words; empty without an interval."""
    if low is None or high is None:
        return ""
    significant = low > 0 or high < 0
    text = "significant" if significant else "not significant (the 95% interval contains 0)"
    return text if images >= ENOUGH else f"{text}; an indication: n = {images}"


def chance_text(ends: Iterable[tuple[float | None, float | None]]) -> str:
    """How many of several 95% intervals would exclude 0 by chance, and how many do, in a sentence.

    Runs without any difference do not count. Empty for fewer than two intervals.
    """
    stated = [(low, high) for low, high in ends if low is not None and high is not None]
    drawn = [pair for pair in stated if pair != (0.0, 0.0)]
    if len(drawn) < 2:
        return ""
    clear = sum(low > 0 or high < 0 for low, high in drawn)
    return (
        f"Of {len(drawn)} intervals, about {0.05 * len(drawn):.1f} would exclude 0 by chance alone (5%); "
        f"{clear or 'none'} do{'es' if clear < 2 else ''}"
    )
