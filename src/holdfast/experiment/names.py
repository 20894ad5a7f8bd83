"""The names a field of an experiment may hold: found in the registries when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable


def options() -> Iterable[str]:
    """The options of noise, as in precision=int8."""
    from holdfast.stages.families import families
    from holdfast.stages.families import options as options_of

    return [label for family in families() for option in options_of(family) for label in option.labels]


def noises() -> Iterable[str]:
    """The families of noise and their options: precision, precision=int8."""
    from holdfast.stages.families import families

    return [*(family.name for family in families()), *options()]


def missing(label: str) -> str:
    """Why an option that exists cannot run here, or nothing."""
    from holdfast.stages.families import option

    return option(label).missing if "=" in label else ""


def deployment(text: str) -> str:
    """What is wrong with several options of noise with commas between them, or nothing."""
    from holdfast.core.errors import InputError
    from holdfast.stages.families import options_of

    try:
        return "" if options_of(text) else "expected FAMILY=OPTION such as 'resize=opencv-bilinear'"
    except InputError as problem:
        return str(problem)


def parts() -> Iterable[str]:
    """The parts of an audit."""
    from holdfast.audit.plan import SHARES

    return SHARES


def budget(text: str) -> str:
    """What is wrong with the time of an audit, or nothing."""
    from holdfast.audit.plan import budget_of
    from holdfast.core.errors import InputError

    try:
        budget_of(text)
    except InputError as problem:
        return str(problem).removeprefix("--budget: ")
    return ""
