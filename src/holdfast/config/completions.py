"""The names that options refer to, found in the registries only when they are needed."""

from collections.abc import Iterable
from functools import partial

from holdfast.config.options import FILES
from holdfast.core.errors import InputError


def models() -> Iterable[str]:
    """The shipped models, or a file."""
    from holdfast.graph.load import shipped

    return *shipped(), FILES


def datasets() -> Iterable[str]:
    """The embedded datasets, or a path."""
    return "signs", "far", FILES


def _registered(kind: str) -> Iterable[str]:
    from holdfast.core.registry import names

    return names(kind)


readers, masks = partial(_registered, "reader"), partial(_registered, "mask")
decoders, resizes = partial(_registered, "decode"), partial(_registered, "resize")


def transforms() -> Iterable[str]:
    """The transforms of an attack, or none of them."""
    return *_registered("transform"), "none"


def rules() -> Iterable[str]:
    """The rules of AP."""
    from holdfast.metrics.rules import RULES

    return RULES


def stages() -> Iterable[str]:
    """The stages of the pipeline, as in resize=opencv-bilinear."""
    from holdfast.core.pipeline import STAGES
    from holdfast.core.registry import names

    return [f"{kind}={name}" for kind in STAGES for name in names(kind)]


def noise_options() -> Iterable[str]:
    """The noise options with their aliases, as in precision=int8."""
    from holdfast.stages.families import families, options

    return [label for family in families() for option in options(family) for label in option.labels]


def noises() -> Iterable[str]:
    """The noise families and their options: precision, precision=int8."""
    from holdfast.stages.families import families

    return [*(family.name for family in families()), *noise_options()]


def noise_selection() -> Iterable[str]:
    """What `--only` takes: noise families, their options, and the paper's suite."""
    return [*noises(), "paper"]


def missing_library(label: str) -> str:
    """Why a noise option cannot run here; empty if it can."""
    from holdfast.stages.families import option

    return option(label).missing if "=" in label else ""


def deployment_problem(text: str) -> str:
    """What is wrong with noise options that are separated by commas; empty if nothing is."""
    from holdfast.stages.families import options_of

    try:
        return "" if options_of(text) else "expected FAMILY=OPTION such as 'resize=opencv-bilinear'"
    except InputError as problem:
        return str(problem)
