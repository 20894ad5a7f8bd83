"""Offers: the values the shell completes, each found only when the user presses the key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import partial

from holdfast.config.args import FILES


def models() -> Iterable[str]:
    """The shipped models, or a file."""
    from holdfast.graph.load import shipped

    return *shipped(), FILES


def data_sets() -> Iterable[str]:
    """The embedded data sets, or a path."""
    return "signs", "far", FILES


def rules() -> Iterable[str]:
    """The rules of AP."""
    from holdfast.metrics.rules import RULES

    return RULES


def noises() -> Iterable[str]:
    """The families of noise and their options, as in resize or resize=opencv-bilinear."""
    from holdfast.stages.families import families, options

    return [name for f in families() for name in (f.name, *(o.label for o in options(f)))]


def stages() -> Iterable[str]:
    """The stages of the pipeline, as in resize=opencv-bilinear."""
    from holdfast.core.pipeline import Pipeline
    from holdfast.core.registry import names

    return [f"{kind.name}={name}" for kind in fields(Pipeline) for name in names(kind.name)]


def _registered(kind: str) -> Iterable[str]:
    from holdfast.core.registry import names

    return names(kind)


formats = partial(_registered, "reader")
decoders = partial(_registered, "decode")
resizes = partial(_registered, "resize")
masks = partial(_registered, "mask")
transforms = partial(_registered, "transform")
