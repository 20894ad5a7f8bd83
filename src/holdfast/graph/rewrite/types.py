"""What a rewrite is given and gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.core.errors import ModelError
from holdfast.core.model import Card
from holdfast.core.types import Tensor

ModelProto: TypeAlias = Any  # onnx is not typed


@dataclass(frozen=True)
class Context:
    """What a rewrite may need beyond the graph.

    `calibration` gives input tensors (1, …) of images that are not tested on, each time from the start.
    """

    card: Card
    calibration: Callable[[], Iterable[Tensor]] | None = None


@dataclass(frozen=True)
class Rewritten:
    """A graph after a rewrite; `changed` names the nodes that differ and is empty if there was nothing to do.

    `how` says in one line what was done ("3 pools, 38 reshapes follow", "128 images, entropy, per channel").
    """

    model: ModelProto
    changed: tuple[str, ...]
    how: str = ""


class CannotRewrite(ModelError):
    """A graph that cannot follow a rewrite, with the node and the reason."""


Rewrite: TypeAlias = Callable[[ModelProto, Context], Rewritten]
