"""One seed, one generator per piece of work, independent of order and of the number of processes."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *names: object) -> np.random.Generator:
    """A random generator that depends on the seed and on the names of the work, and on nothing else."""
    text = "/".join(str(name) for name in names)
    words = np.frombuffer(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest(), np.uint32)
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))
