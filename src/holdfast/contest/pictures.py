"""Which images of an entry a page shows, and what it says of them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contest.run import Row
from holdfast.report.patched import Exhibit, exhibition

NAMES = {
    "truth": "true box",
    "missed": "true box the single model misses",
    "right": "single model, right",
    "wrong": "single model, wrong",
    "mimic": "mimic model",
}


def lost(row: Row) -> float | None:
    """The part of the targets found before, over all scenarios, that is not found after; None if none was."""
    before, after = sum(row.found_before.values()), sum(row.found_after.values())
    return (before - after) / before if before else None


def chosen(rows: Sequence[Row], images: int) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The best images for the attacker and the worst, `images` in all, none of them twice.

    Best: most targets lost, and of equal ones with the fewest changed pixels; worst: the other way round.
    """
    able = [(share, row) for row in rows if (share := lost(row)) is not None]
    ranked = [row for _, row in sorted(able, key=lambda x: (-x[0], x[1].changed_pixels, x[1].number))]
    best = ranked[: (images + 1) // 2]
    worst = ranked[len(best) :][::-1][: images - len(best)]
    return tuple(best), tuple(worst)


def gallery(exhibits: Sequence[Exhibit], classes: Sequence[str], least: float, prefix: str) -> str:
    """The markup of these images, four pictures each; `least` is the IoU from which a box is found."""
    return exhibition(exhibits, classes, least, prefix, NAMES)


def told(row: Row) -> str:
    """What became of an image, in words."""
    pixels = f"{row.changed_pixels} pixel{'' if row.changed_pixels == 1 else 's'} changed"
    ratio = f", {row.psnr:.1f} dB" if row.psnr is not None else ""
    targets = f"{row.targets} target{'' if row.targets == 1 else 's'}"
    found = [
        f"{name} model {row.found_before[name]} found before, {row.found_after[name]} after"
        for name in row.found_before
    ]
    return f"{pixels}{ratio}; {targets}: {'; '.join(found)}"
