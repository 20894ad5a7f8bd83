"""The exception hierarchy. Every message gives the expected and the actual value, the place, and a fix."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

EXIT_CODES = {  # of the command line; the reference in the docs is generated from it
    0: "Success. For verify: the property holds.",
    1: "A gate failed, verify found a counterexample, or check and score found a mistake.",
    2: "Bad input: an option, a file, a model or a dataset cannot be used. One line says what to do.",
    3: "verify: unknown, or the time limit was reached.",
    4: "Done, but some images or other items failed and are not in the numbers.",
    5: "audit and run: no gate failed, but a gate on too few images (--min-images) is not decided.",
    6: "Machine trouble: a worker, memory, the disk or a store failed. Completed work is saved; try again.",
    70: "Internal error. Please report it; HOLDFAST_TRACEBACK=1 prints the traceback.",
    130: "Interrupted by Ctrl-C. Completed work is saved; run the same command again to resume.",
}


class HoldfastError(Exception):
    """A problem the user can act on; the command line prints it as one line and exits with `exit_code`."""

    exit_code = 2

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by class and message, independent of the constructor's arguments."""
        return _rebuilt, (type(self), str(self))


def _rebuilt(kind: type[HoldfastError], message: str) -> HoldfastError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    return error


def one_line(problem: BaseException) -> str:
    """The message of an error as one line; the name of its class if it has no message."""
    return " ".join(str(problem).split()) or type(problem).__name__


def describe_error(problem: Exception) -> str:
    """A problem in one line; of an unexpected error, its type and where it was raised."""
    if isinstance(problem, HoldfastError):
        return str(problem)
    from traceback import walk_tb  # here, because only a mistake needs it

    at = ""
    for frame, line in walk_tb(problem.__traceback__):
        at = f" ({Path(frame.f_code.co_filename).name}:{line})"
    return f"{type(problem).__name__}: {problem}{at}"


class InputError(HoldfastError):
    """A value or an option that cannot be used."""


class ModelError(InputError):
    """An ONNX file that cannot be read, run or understood."""


class NoGradients(ModelError):
    """A model that cannot be differentiated; it can be attacked as a black box."""


class CardError(InputError):
    """A model card with a missing, unknown or contradictory field."""


class DataError(InputError):
    """A dataset that cannot be read or does not fit the model."""


class ImageError(DataError):
    """One image that cannot be decoded or predicted; a long run counts it and continues."""


class OutputError(HoldfastError):
    """A result that cannot be written at that path."""


class MachineError(HoldfastError):
    """Trouble of the machine, not of the input: the same command may succeed later or elsewhere."""

    exit_code = 6


class DiskError(OutputError, MachineError):
    """A disk that is full or fails while a result is written."""


def install_line(extra: str, package: str) -> str:
    """The pip command that installs an extra, or the package if it is in none."""
    return f"pip install 'holdfast[{extra}]'" if extra else f"pip install {package}"


class MissingExtra(HoldfastError):
    """An optional package that is not installed, with the install command."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        line = install_line(extra, package)
        super().__init__(f"{purpose} needs {package}, which is not installed: {line}")


class UnknownName(InputError):
    """A name that is not registered, with similar names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        from holdfast.core.synonyms import did_you_mean  # lazy: needed only for errors

        names = sorted(known)
        hint = did_you_mean(name, names) or f"Known: {', '.join(names) or 'none'}."
        super().__init__(f"unknown {kind} {name!r}. {hint}")


class UnsoundCertificate(HoldfastError):
    """A certificate that an attack contradicts: a bug, so the run stops without a result."""

    exit_code = 70


class BudgetSpent(HoldfastError):
    """The time budget ended before any of the work was finished; completed cells stay cached."""
