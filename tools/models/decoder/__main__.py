"""`python -m models.decoder --out src/holdfast/models/decoder`: remake the learned decoder."""

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
    check("training", "torch", extra="train")
    import torch

    from models.decoder.make import Order, make

    torch.set_num_threads(options.threads)
    start = time.monotonic()
    make(Order(options.out, options.work, options.seed, options.fraction, held_out=options.held_out), say)
    say(f"restore: {(time.monotonic() - start) / 60:.1f} min")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.decoder", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches")
    parser.add_argument(
        "--out", type=Path, default=Path("src/holdfast/models/decoder"), help="folder of restore.onnx"
    )
    parser.add_argument("--work", type=Path, default=Path(".train"), help="folder of pool and checkpoint")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument(
        "--fraction", type=float, default=1.0, help="part of the training steps, to try it out"
    )
    parser.add_argument("--held-out", type=int, default=16, help="held-out scenes to score on")
    return parser


if __name__ == "__main__":
    sys.exit(main())
