"""The kernels compiled to object code: the only part of the engine that imports numba."""

from __future__ import annotations

from typing import Any


def build(cpu: str, features: str) -> tuple[str, list[str], bytes]:
    """The entry's name, the symbols the code wants, and the code, for this processor."""
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
    wanted = [part.name for part in (*module.functions, *module.global_variables) if part.is_declaration]
    symbols = [name for name in wanted if not name.startswith("llvm.")]
    return str(function.native_name), symbols, machine.emit_object(module)


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
