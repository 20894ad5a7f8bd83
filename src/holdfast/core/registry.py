"""Named parts: one decorated plain function is a plug-in.

    @stage("resize")
    def vendor_x_bilinear(image: Image, size: Size) -> Image: ...

The decorator returns the function unchanged. Names serve files and the command line; Python code passes
the function itself.
"""

import importlib
import pkgutil
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.extras import check

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Part:
    """A registered function and its declared facts."""

    kind: str
    name: str
    function: Callable[..., Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


# Packages or modules that are searched for the parts of a kind on first use. They are named by strings, so
# that a lower layer never imports a higher one and heavy modules load only when needed.
_HOMES: dict[str, tuple[str, ...]] = {
    "decode": ("holdfast.stages.decode",),
    "colour": ("holdfast.stages.colour", "holdfast.stages.mistakes", "holdfast.stages.corruptions"),
    "fit": ("holdfast.stages.normalise", "holdfast.stages.mistakes"),
    "resize": ("holdfast.stages.resize", "holdfast.stages.mistakes"),
    "normalise": ("holdfast.stages.normalise", "holdfast.stages.mistakes"),
    "infer": ("holdfast.stages.infer",),
    "post": ("holdfast.stages.post",),
    "rewrite": ("holdfast.graph.rewrite",),
    "runtime": ("holdfast.stages.infer", "holdfast.stages.runtime"),
    "boxes": ("holdfast.stages.post",),
    "head": ("holdfast.graph.heads",),
    "reader": ("holdfast.data.readers",),
    "mask": ("holdfast.attack.masks",),
    "candidates": ("holdfast.attack.gradient.candidates",),
    "transform": ("holdfast.attack.gradient.transforms",),
    "features": ("holdfast.stages.features",),
    "augment": ("holdfast.train.augment",),
    "stft": ("holdfast.noise.speech.stft",),
    "spectrum": ("holdfast.noise.speech.options",),
}
_PARTS: dict[tuple[str, str], Part] = {}
_LOADED: set[str] = set()
_FILES: dict[str, Path] = {}  # module name -> the user's file it was loaded from


def stage(kind: str, name: str | None = None, **facts: Any) -> Callable[[F], F]:
    """A decorator that registers a function under `kind` by its own name (`_` becomes `-`)."""

    def register(function: F) -> F:
        part = Part(kind, name or function.__name__.replace("_", "-"), function, facts)
        old = _PARTS.get((kind, part.name))
        if old is not None and _home(old.function) != _home(function):
            # Holdfast's own is named first, even if it is loaded second.
            first, again = (part, old) if _is_own(part) and not _is_own(old) else (old, part)
            place = _place(first.function)
            place = f"holdfast itself ({first.function.__module__})" if _is_own(first) else place
            raise InputError(
                f"{_place(again.function)}: {kind} {part.name!r} is already defined by {place}; "
                "choose another name"
            )
        _PARTS[kind, part.name] = part
        return function

    return register


def _home(function: Callable[..., Any]) -> tuple[str, str]:
    # A worker process imports the user's script again under another name.
    name = getattr(function, "__qualname__", type(function).__qualname__)  # for an object, that of its class
    return function.__module__.replace("__mp_main__", "__main__"), name


def _is_own(part: Part) -> bool:
    return part.function.__module__.startswith("holdfast.")


def _place(function: Callable[..., Any]) -> str:
    """file:line of a function; its module if it has none."""
    import inspect  # here, because only a mistake needs it

    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else function.__module__


def part(kind: str, name: str) -> Part:
    """The part of that kind and name (or fact `aliases`); raise UnknownName with the nearest name."""
    if (kind, name) not in _PARTS:
        _load(kind)
    if (kind, name) in _PARTS:
        return _PARTS[kind, name]
    for candidate in _PARTS.values():
        if candidate.kind == kind and name in candidate.facts.get("aliases", ()):
            return candidate
    raise UnknownName(kind, name, names(kind))


def lookup(kind: str, choice: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function of a name, or MissingExtra; a function is returned unchanged."""
    if callable(choice):
        return choice
    chosen = part(kind, choice)
    if "needs" in chosen.facts:
        check(f"{kind} {choice!r}", chosen.facts["needs"], extra=chosen.facts.get("extra", ""))
    return chosen.function


def names(kind: str) -> list[str]:
    """All names of that kind, sorted."""
    _load(kind)
    return sorted(name for k, name in _PARTS if k == kind)


def _load(kind: str) -> None:
    for home in _HOMES.get(kind, ()):
        if home in _LOADED:
            continue
        module = importlib.import_module(home)
        for submodule in pkgutil.iter_modules(getattr(module, "__path__", ())):
            importlib.import_module(f"{home}.{submodule.name}")
        _LOADED.add(home)


def load_parts(path: Path) -> tuple[Part, ...]:
    """Load a Python file, as for `--use my_noise.py`, and return its parts; raise InputError on failure."""
    path = path.resolve()
    # The module's name comes from the file's, so that it is the same in every process and run.
    name = "holdfast_use_" + "".join(c if c.isalnum() else "_" for c in path.stem)
    if _FILES.get(name, path) != path:
        raise InputError(f"{path}: a file with this name is already loaded: {_FILES[name]}; rename one")
    try:
        source = path.read_bytes()
    except OSError as problem:
        raise InputError(f"{path}: expected a Python file, got: {problem.strerror}") from None
    module = types.ModuleType(name)
    module.__file__ = str(path)
    _forget(name)
    sys.modules[name] = module  # before it runs: its own classes look it up
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102 - the user's own file
        parts = _parts_of(name)
        if not parts:
            raise InputError("the file registers no part; decorate a function with @stage(KIND)")
        for kind in (part.kind for part in parts):
            if kind not in (*_HOMES, "noise"):
                raise UnknownName("kind of part", kind, (*_HOMES, "noise"))
            _load(kind)  # detects conflicts with our names here, not at first use
    except BaseException as problem:  # including SystemExit: a file that exits is broken
        _forget(name)
        if isinstance(problem, KeyboardInterrupt | MemoryError):
            raise
        raise InputError(_describe_error(path, problem)) from problem
    _FILES[name] = path
    return parts


def _parts_of(module: str) -> tuple[Part, ...]:
    return tuple(p for p in _PARTS.values() if getattr(p.function, "__module__", "") == module)


def _forget(module: str) -> None:
    for old in _parts_of(module):
        del _PARTS[old.kind, old.name]
    sys.modules.pop(module, None)


def loaded_files() -> dict[str, Path]:
    """Name -> file of the modules loaded by `load_parts`, in order."""
    return dict(_FILES)


def script_has_parts() -> bool:
    """Whether the user's script registered parts, which other processes get only by running it."""
    return bool(_parts_of("__main__"))


def foreign_modules() -> tuple[str, ...]:
    """Modules outside holdfast that registered parts, except files loaded by `load_parts` and the script."""
    homes = {str(getattr(part.function, "__module__", "")) for part in _PARTS.values()}
    return tuple(sorted(h for h in homes if not h.startswith(("holdfast.", "__")) and h not in _FILES))


def _describe_error(path: Path, problem: BaseException) -> str:
    import traceback  # here, because only a mistake needs it

    line, text = 0, f"{type(problem).__name__}: {problem}"
    for frame, number in traceback.walk_tb(problem.__traceback__):
        if frame.f_code.co_filename == str(path):
            line = number
    if isinstance(problem, SyntaxError) and problem.filename == str(path):
        line, text = problem.lineno or 0, f"{type(problem).__name__}: {problem.msg}"
    elif isinstance(problem, InputError):
        text = str(problem)
        if text.startswith(f"{path}:"):  # the message already has the location
            return text
    return f"{path}:{line}: {text}" if line else f"{path}: {text}"
