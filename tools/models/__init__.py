"""Recipes of the models that the package ships; `make train` runs them."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from holdfast.core.errors import HoldfastError


def run(
    parser: argparse.ArgumentParser,
    train: Callable[[argparse.Namespace], None],
    arguments: Sequence[str] | None = None,
) -> int:
    """The exit code: 0, or 2 after a message about what could not be used."""
    options = parser.parse_args(arguments)
    try:
        train(options)
    except HoldfastError as problem:
        sys.stderr.write(f"{parser.prog.removeprefix('python -m ')}: {problem}\n")
        return problem.exit_code
    return 0


def say(line: str) -> None:
    """Print the line with the time."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()
