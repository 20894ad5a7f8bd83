"""Differences of a metric in percentage points: the number, its interval and its significance in words."""

ENOUGH = 20  # fewest images for which a number is more than an indication


def points(value: float) -> float:
    """A difference of a metric in percentage points; an exact zero has no sign."""
    return round(100.0 * value, 10) + 0.0


def interval_text(low: float | None, high: float | None) -> str:
    """The 95% interval of a difference in points; empty if there is none."""
    if low is None or high is None:
        return ""
    return "no difference" if low == high == 0.0 else f"[{low:z.2f}, {high:z.2f}]"


def significance(low: float | None, high: float | None, images: int = ENOUGH) -> str:
    """Whether a difference with this 95% interval is significant, in words; empty without an interval."""
    if low is None or high is None:
        return ""
    significant = low > 0 or high < 0
    text = "significant" if significant else "not significant (the 95% interval contains 0)"
    return text if images >= ENOUGH else f"{text}; an indication: n = {images}"
