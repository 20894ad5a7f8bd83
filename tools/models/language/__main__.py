"""`python -m models.language --out src/holdfast/models/language`: remake the tiny language model."""

import argparse
import sys
import time
from pathlib import Path

from holdfast.core.extras import check
from models import run, say


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0, or 2 after a message about what could not be used."""
    return run(_parser(), _train, arguments)


def _train(options: argparse.Namespace) -> None:
    check("training a language model", "torch", extra="train")
    check("training a language model", "tokenizers")
    import torch

    from models.language.make import Order, accuracies, make

    torch.set_num_threads(1)  # so small a net gains nothing by more, and sums keep their order
    start = time.monotonic()
    path = make(Order(options.out, options.work, options.seed, options.fraction, options.past), say)
    say(f"{path}: {(time.monotonic() - start) / 60:.1f} min")
    for name, share, count in accuracies(path):
        say(f"{name}: accuracy {share:.4f} on {count} questions")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.language", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, batches and questions")
    parser.add_argument(
        "--out", type=Path, default=Path("src/holdfast/models/language"), help="folder of the files"
    )
    parser.add_argument("--work", type=Path, default=Path(".train"), help="folder of text and checkpoints")
    parser.add_argument(
        "--fraction", type=float, default=1.0, help="part of the training steps and text, to try it out"
    )
    parser.add_argument("--past", action="store_true", help="also write road-lm-with-past.onnx")
    return parser


if __name__ == "__main__":
    sys.exit(main())
