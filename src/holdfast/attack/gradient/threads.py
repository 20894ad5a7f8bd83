"""How many threads gradients may use in this process."""

from __future__ import annotations

import torch


def use_threads(count: int) -> None:
    """Nothing; torch computes with so many threads from now on."""
    torch.set_num_threads(max(1, count))
