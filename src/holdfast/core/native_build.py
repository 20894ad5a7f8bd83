"""Kernels compiled to object code: the only part that imports numba.

Kernels raise nothing, allocate nothing and call nothing but each other and mathematics, so that what is
compiled can be loaded without numba: arrays are indexed and sliced, never assigned to as a whole or reshaped.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from holdfast.core.native_call import KINDS, Argument, Signature

Function = TypeVar("Function", bound=Callable[..., Any])
# What numba calls when something is raised, or memory of its own is given back: kernels never get there.
_NEVER = ("raise", "excinfo", "unpickle", "gil_", "Free", "dtor", "fatal")


def kernel(function: Function) -> Function:
    """The function compiled as a part of the entries that call it; Python cannot call it.

    Sums keep their order, nothing is fused, and what numpy would not raise is not raised.
    """
    from numba import njit

    made: Function = njit(_nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")(
        function
    )
    return made


def build(
    package: str, entries: Mapping[str, Signature], cpu: str, features: str
) -> tuple[dict[str, str], bytes]:
    """The symbol of each entry and the code of all, which wants nothing of numba when it is loaded."""
    import llvmlite.binding as llvm

    with _not_optimised():  # that is done once, for all of it together
        functions = {name: _compiled(package, told) for name, told in entries.items()}
    module, *others = [llvm.parse_assembly(function.inspect_llvm()) for function in functions.values()]
    for other in others:
        module.link_in(other)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, codemodel="jitdefault"
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    wanted = [part.name for part in module.functions if part.is_declaration]
    module.link_in(llvm.parse_assembly(_dead_ends(name for name in wanted if not name.startswith("llvm."))))
    symbols = {name: str(function.native_name) for name, function in functions.items()}
    return symbols, machine.emit_object(module)


def _dead_ends(wanted: Iterable[str]) -> str:
    """A module in which each wanted function that Python itself has not ends the process.

    Numba writes calls for errors that the kernels never raise; whoever gets there must not go on. They are
    part of the code and not put into LLVM's table of symbols, where numba itself would run into them.
    """
    missing = [name for name in wanted if not hasattr(ctypes.pythonapi, name)]
    needed = [name for name in missing if not any(part in name for part in _NEVER)]
    if needed:
        raise RuntimeError(
            f"expected kernels that allocate nothing and call only each other, got {', '.join(needed)}"
        )
    ends = [f'define void @"{name}"() {{ call void @abort() unreachable }}' for name in missing]
    return "\n".join(["declare void @abort()", *ends])


@contextmanager
def _not_optimised() -> Iterator[None]:
    """A while in which numba compiles without optimising, whatever the environment asks of it."""
    from numba.core import config

    wanted = {"OPT": type(config.OPT)(0), "BOUNDSCHECK": 0, "DISABLE_JIT": 0}
    before = {name: getattr(config, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def _compiled(package: str, told: Signature) -> Any:
    """The entry as numba compiles it: a C function that unpacks the words and calls the kernel."""
    from numba import carray, cfunc, types
    from numba.core.dispatcher import Dispatcher

    function = getattr(import_module(f"{package}.{told.module}"), told.function)
    scope: dict[str, Any] = {f"at_{kind}": _pointer(getattr(types, _numba(kind))) for kind in KINDS}
    scope |= {"carray": carray, "call": function if isinstance(function, Dispatcher) else kernel(function)}
    exec(_unpacking(told), scope)  # noqa: S102 - our own text
    return cfunc(types.int64(types.int64))(scope["entry"])


def _numba(kind: str) -> str:
    return "boolean" if kind == "bool" else kind


def _pointer(kind: Any) -> Any:
    """A function of kernels: the address in a word as a pointer to such numbers."""
    from numba import types
    from numba.extending import intrinsic

    def at(_: Any, address: Any) -> Any:
        pointer = types.CPointer(kind)

        def code(context: Any, builder: Any, _: Any, given: Any) -> Any:
            return builder.inttoptr(given[0], context.get_value_type(pointer))

        return pointer(address), code

    return intrinsic(at)


def _unpacking(told: Signature) -> str:
    """The text of a function that calls the kernel with what the words say."""
    given, at = [], 0
    for argument in told.arguments:
        given.append(_unpacked(argument, at))
        at += argument.words
    call = f"call({', '.join(given)})"
    lines = [
        f"whole = carray(at_int64(words), {at})",
        f"real = carray(at_float64(words), {at})",
        f"short = carray(at_float32(words), {2 * at})",
        *([f"return {call}"] if told.returns else [call, "return 0"]),
    ]
    return "\n    ".join(["def entry(words):", *lines])


def _unpacked(argument: Argument, at: int) -> str:
    """The text of one argument, whose words begin there."""
    if argument.address:
        return f"at_{argument.kind}(whole[{at}])"
    if argument.dimensions:
        shape = "".join(f"whole[{at + 1 + i}], " for i in range(argument.dimensions))
        return f"carray(at_{argument.kind}(whole[{at}]), ({shape}))"
    return {"int64": f"whole[{at}]", "float64": f"real[{at}]", "float32": f"short[{2 * at}]"}[argument.kind]
