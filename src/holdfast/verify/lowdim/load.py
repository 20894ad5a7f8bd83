"""The kernels' compiled code: made once by numba, kept on disk, loaded without importing numba."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.core.errors import MissingExtra

_HERE = Path(__file__).parent


@cache
def kernel() -> Callable[..., int]:
    """The function `kernels.entry.run` as C sees it: pointers in, why it paused out."""
    try:
        import llvmlite.binding as llvm
    except ImportError as missing:
        raise MissingExtra("a proof", "numba", "verify") from missing
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    key = _fingerprint(cpu, features)
    code = _kept(key)
    if code is None:
        from holdfast.verify.lowdim.build import build

        code = build(cpu, features)
        _keep(key, code)
    return _loaded(llvm, *code)


def ready() -> bool:
    """Whether the kernels are compiled for this processor already: the first time takes half a minute."""
    try:
        import llvmlite.binding as llvm
    except ImportError as missing:
        raise MissingExtra("a proof", "numba", "verify") from missing
    llvm.initialize_native_target()
    return _kept(_fingerprint(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())) is not None


def _fingerprint(cpu: str, features: str) -> str:
    """What the code depends on: the kernels' sources, the compiler and the processor."""
    digest = hashlib.sha256(f"{version('numba')} {version('llvmlite')} {cpu} {features}".encode())
    for path in [*sorted((_HERE / "kernels").glob("*.py")), _HERE / "tables.py", _HERE / "build.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _folders() -> Iterator[Path]:
    """Where the code may be kept: beside the sources, or in the user's cache."""
    if "HOLDFAST_CACHE" in os.environ:
        yield Path(os.environ["HOLDFAST_CACHE"])
        return
    yield _HERE / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "holdfast"


def _kept(key: str) -> tuple[str, bytes] | None:
    """The entry's name and the object code, as kept; None if not there or damaged."""
    for folder in _folders():
        try:
            head, _, code = (folder / f"lowdim-{key}.o").read_bytes().partition(b"\n")
            told = json.loads(head)
            if told["sha256"] == hashlib.sha256(code).hexdigest():
                return told["name"], code
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _keep(key: str, made: tuple[str, bytes]) -> None:
    """Nothing; the code is on disk if a folder lets us write."""
    name, code = made
    head = json.dumps({"name": name, "sha256": hashlib.sha256(code).hexdigest()}).encode()
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=folder, prefix="lowdim-")
            with os.fdopen(handle, "wb") as file:
                file.write(head + b"\n" + code)
            Path(part).replace(folder / f"lowdim-{key}.o")
            return
        except OSError:
            continue


def _loaded(llvm: Any, name: str, code: bytes) -> Callable[..., int]:
    """The named function of the object code, ready to be called."""
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    blocks = 29
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * blocks)(engine.get_function_address(name))
    call.engine = engine  # type: ignore[attr-defined] # the code lives as long as the engine
    return call
