"""Inputs and results of a rewrite."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.core.model import Card
from holdfast.core.types import Tensor

ModelProto: TypeAlias = Any  # onnx is not typed
Feeds: TypeAlias = Mapping[str, NDArray[np.generic]]  # every input of a graph by its name


@dataclass(frozen=True)
class RewriteContext:
    """Additional inputs of a rewrite.

    `calibration` iterates over the inputs of held-out images or texts, from the start on every call: the
    tensor (1, …) of a graph with one input, or all inputs by name. `unit` is the name of one item.
    `observed` caches calibration statistics, so that several rewrites of one graph run the images once.
    `streamed` are the weights of a model that does not fit into one file.
    """

    card: Card | None = None  # None: the model does not take images
    calibration: Callable[[], Iterable[Tensor | Feeds]] | None = None
    unit: str = "image"
    observed: MutableMapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    streamed: Any = None  # StreamedWeights of a model over 2 GB

    @property
    def picture(self) -> Card:
        """The card; CannotRewrite if the model has none, because it does not take images."""
        if self.card is None:
            raise CannotRewrite("applies to image models only; this one has no card")
        return self.card


@dataclass(frozen=True)
class RewriteResult:
    """A graph after a rewrite; `changed` names the nodes that differ and is empty if there was nothing to do.

    `how` says in one line what was done ("3 pools, 38 reshapes follow", "128 images, entropy, per channel").
    """

    model: ModelProto
    changed: tuple[str, ...]
    how: str = ""


class CannotRewrite(ModelError):
    """A graph that cannot follow a rewrite, with the node and the reason."""
