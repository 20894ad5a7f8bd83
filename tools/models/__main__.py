"""`python -m models [signs-yolo ...] --out src/holdfast/models`: remake the shipped models."""

import argparse
import sys
import time
from pathlib import Path

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.extras import check
from models import run, say

OUT = Path("src/holdfast/models")
NAMES = (
    "signs-yolo",
    "signs-free",
    "signs-plain",
    "signs-single",
    "signs-certified",
    "signs-class",
    "signs-seg",
)


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0, or 2 after a message about what could not be used."""
    return run(_parser(), _train, arguments)


def _train(options: argparse.Namespace) -> None:
    for name in options.models:
        if name not in NAMES:
            raise UnknownName("model", name, NAMES)
    check("training", "torch", extra="train")
    if options.cctsdb is not None:
        _train_on_cctsdb(options)
        return
    from models.signs.make import Order, make

    for name in options.models or NAMES:
        start = time.monotonic()
        order = Order(name, options.out, options.work, options.seed, options.fraction, options.held_out)
        make(order, say)
        say(f"{name}: {(time.monotonic() - start) / 60:.1f} min")


def _train_on_cctsdb(options: argparse.Namespace) -> None:
    if options.models != ["signs-single"]:
        raise InputError("--cctsdb: expected the model signs-single, the one-sign detector")
    if options.out == OUT:
        raise InputError("--cctsdb: expected --out FOLDER, because the shipped model is not to be replaced")
    from models.signs.cctsdb import CctsdbOrder, make_single

    where = options.cctsdb, options.out, options.work
    make_single(CctsdbOrder(*where, options.seed, options.fraction, options.test_instances), say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(NAMES)}; without: all")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of .onnx and .toml")
    parser.add_argument("--work", type=Path, default=Path(".train"), help="folder of pools and checkpoints")
    parser.add_argument(
        "--fraction", type=float, default=1.0, help="part of the training steps, to try it out"
    )
    parser.add_argument("--cctsdb", type=Path, help="train signs-single on this CCTSDB folder instead")
    parser.add_argument(
        "--test-instances",
        type=int,
        help="with --cctsdb: test instances (default: 9:1)",
    )
    parser.add_argument("--held-out", type=int, default=1000, help="held-out pictures to score on")
    return parser


if __name__ == "__main__":
    sys.exit(main())
