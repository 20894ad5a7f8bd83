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


def none_of(task: str, **given: object) -> None:
    """Nothing, or InputError for an option that means nothing beyond pictures."""
    from holdfast.core.errors import InputError

    for name, value in given.items():
        if value:
            raise InputError(f"--{name}: means nothing with --task {task}; leave it out")


def run_task(task: str, how: Beyond) -> int:
    """The exit code of the suite of that task."""
    if task == "language":
        from holdfast.cli.noise_language import language

        return language(how)
    from holdfast.cli.noise_speech import speech

    return speech(how)
