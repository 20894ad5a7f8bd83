"""What `holdfast noise --task` hands on: the options that language and speech share with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Beyond(NamedTuple):
    """The words MODEL… DATA… and the options that mean something beyond pictures."""

    words: tuple[str, ...]
    card: tuple[Path, ...]
    only: tuple[str, ...]
    skip: tuple[str, ...]
    every: bool
    calibration: str | None
    calibration_images: int
    images: int | None  # questions or clips
    json: Path | None
    csv: bool
    markdown: bool
    latex: bool
    out: Path | None
    runs: Path
    jobs: int
    strict: bool
    dry_run: bool
