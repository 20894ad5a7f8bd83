"""`python -m models.speech [fast-speech taco] --out FOLDER`: remake the shipped speech models."""

import argparse
import sys
import time
from pathlib import Path

from holdfast.core.errors import UnknownName
from holdfast.core.extras import check
from models import run, say

NAMES = ("fast-speech", "taco")


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0, or 2 after a message about what could not be used."""
    return run(_parser(), _train, arguments)


def _train(options: argparse.Namespace) -> None:
    for name in options.models:
        if name not in NAMES:
            raise UnknownName("speech model", name, NAMES)
    check("training speech", "torch", "scipy", extra="speech")
    from models.speech.make import Order, make

    order = Order(options.out, options.work, options.seed, options.fraction, options.sentences)
    for name in options.models or NAMES:
        start = time.monotonic()
        make(name, order, say)
        say(f"{name}: {(time.monotonic() - start) / 60:.1f} min")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.speech", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(NAMES)}; without: both")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("src/holdfast/models/speech"),
        help="folder of models, cards and clips",
    )
    parser.add_argument(
        "--work", type=Path, default=Path(".train"), help="folder of recordings and checkpoints"
    )
    parser.add_argument(
        "--fraction", type=float, default=1.0, help="part of the training steps, to try it out"
    )
    parser.add_argument("--sentences", type=int, default=1100, help="how many sentences to train on")
    return parser


if __name__ == "__main__":
    sys.exit(main())
