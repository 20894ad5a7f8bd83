"""AugMix (Hendrycks et al. 2020): chains of operations, mixed with one another and with the picture."""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.train.augment.operations import OPERATIONS, strengths
from holdfast.train.augment.pictures import Pictures, check

WIDTH, DEPTH = 3, 3  # chains a picture, operations a chain at most
MOST = 0.3  # of an operation's full strength: the paper's severity 3 of 10


@stage("augment")
def augmix(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Pictures (n, h, w, 3), each mixed with three chains of one to three operations on it.

    (1 − m) x + m Σ wᵢ chainᵢ(x) with w ~ Dirichlet(1, 1, 1) and m ~ Beta(1, 1), which `severity` scales.
    """
    check("augmix", images, severity)
    if severity == 0:
        return images.copy()
    n = len(images)
    weights = rng.dirichlet((1.0,) * WIDTH, n).astype(np.float32)
    shares = (rng.beta(1.0, 1.0, n) * severity).astype(np.float32)
    depths = rng.integers(1, DEPTH + 1, (n, WIDTH))
    chosen = rng.integers(len(OPERATIONS), size=(n, WIDTH, DEPTH))
    how = strengths(rng, (n, WIDTH, DEPTH), MOST * severity)
    made = np.empty_like(images)
    for place, image in enumerate(images):
        mixed = image * (1 - shares[place])
        for chain in range(WIDTH):
            changed = image
            for step in range(depths[place, chain]):
                changed = OPERATIONS[chosen[place, chain, step]](changed, how[place, chain, step])
            mixed += changed * (shares[place] * weights[place, chain])
        made[place] = np.rint(mixed)
    return made
