"""Registration of a corruption at its five severities, and what all corruptions share.

D. Hendrycks and T. Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019: the parameters are those of ImageNet-C. C. Michaelis et al., "Benchmarking
Robustness in Object Detection: Autonomous Driving when Winter is Coming", 2019, apply them to detectors: to
the decoded image at its own size, as here. ImageNet-C itself corrupts the 224 × 224 crop.

A corruption is a function of the image, a random generator and the parameters of its severity. The generator
depends on the pixels and the corruption's name only: the same image gets the same noise in every run, at
every severity and in every process.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator, of_bytes
from holdfast.core.registry import stage
from holdfast.core.types import Image

FAMILY = "corruptions"
SEVERITIES = 5
FACTS: dict[str, Any] = {"family": FAMILY, "on_request": True, "default": False, "systems": "scene or camera"}
Corrupt = Callable[..., Image]


def corruption(*parameters: Any, **facts: Any) -> Callable[[Corrupt], Corrupt]:
    """A decorator that registers NAME-1 to NAME-5 as colour stages, with parameters per severity."""

    def register(function: Corrupt) -> Corrupt:
        for severity, values in enumerate(parameters, 1):
            name = f"{function.__name__.replace('_', '-')}-{severity}"
            stage("colour", name, **FACTS, **facts)(_at(function, severity, values))
        return function

    if len(parameters) != SEVERITIES:
        raise ValueError(f"expected parameters of {SEVERITIES} severities, got {len(parameters)}")
    return register


def _at(function: Corrupt, severity: int, values: Any) -> Callable[[Image], Image]:
    """The corruption at one severity, as a colour stage."""
    arguments: Sequence[Any] = values if isinstance(values, tuple) else (values,)

    def corrupted(image: Image) -> Image:
        content = f"{image.shape}{of_bytes(image.tobytes())}"
        return function(image, generator(0, function.__name__, content), *arguments)

    summary = (function.__doc__ or "").strip().split("\n")[0]
    corrupted.__doc__ = f"{summary.rstrip('.')}: severity {severity} of {SEVERITIES}."
    corrupted.__module__ = function.__module__
    corrupted.__qualname__ = f"{function.__qualname__}_{severity}"
    return corrupted


def to_levels(values: NDArray[Any]) -> Image:
    """Values of 0 to 255 clipped and cut to whole levels, as the published code does (`numpy.uint8`)."""
    return np.ascontiguousarray(np.clip(values, 0, 255).astype(np.uint8))
