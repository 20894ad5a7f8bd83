"""What `holdfast noise --task` hands on: the options that language and speech share with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Beyond(NamedTuple):
    """The words MODEL… DATA… and the options that mean something beyond pictures."""

    words: tuple[str, ...]
    card: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    every: bool = False
    calibration: str | None = None
    calibration_images: int = 100
    images: int | None = None  # questions or clips
    json: Path | None = None
    csv: bool = False
    markdown: bool = False
    latex: bool = False
    out: Path | None = None
    runs: Path = Path("holdfast-runs")
    jobs: int = 0
    strict: bool = False
    dry_run: bool = False


def none_of(task: str, **given: object) -> None:
    """Nothing, or InputError for an option that means nothing beyond pictures."""
    from holdfast.core.errors import InputError

    for name, value in given.items():
        if value:
            raise InputError(f"--{name}: means nothing with --task {task}; leave it out")


def run_task(task: str, how: Beyond) -> int:
    """The exit code of the suite of that task."""
    if task == "language":
        from holdfast.noise.language.cli import language

        return language(how)
    from holdfast.noise.speech.cli import speech

    return speech(how)
