"""The kernels compiled to object code: the only part of the engine that imports numba."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any


def build(cpu: str, features: str) -> tuple[str, bytes]:
    """The entry's name and its code for this processor, which wants nothing of numba when it is loaded."""
    import llvmlite.binding as llvm

    function = _compiled()
    module = llvm.parse_assembly(function.inspect_llvm())
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, codemodel="jitdefault"
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    wanted = [part.name for part in module.functions if part.is_declaration]
    module.link_in(llvm.parse_assembly(_dead_ends(name for name in wanted if not name.startswith("llvm."))))
    return str(function.native_name), machine.emit_object(module)


def _dead_ends(wanted: Iterable[str]) -> str:
    """A module in which each wanted function that Python itself has not ends the process.

    Numba writes calls for errors that the kernels never raise; whoever gets there must not go on. They are
    part of the code and not put into LLVM's table of symbols, where numba itself would run into them.
    """
    missing = [name for name in wanted if not hasattr(ctypes.pythonapi, name)]
    ends = [f'define void @"{name}"() {{ call void @abort() unreachable }}' for name in missing]
    return "\n".join(["declare void @abort()", *ends])


def _compiled() -> Any:
    """The entry as numba compiles it, not optimised: that is done once, for all of it together."""
    from numba.core import config

    before = config.OPT
    config.OPT = type(before)(0)
    try:
        from holdfast.verify.lowdim.kernels.entry import compiled

        return compiled()
    finally:
        config.OPT = before
