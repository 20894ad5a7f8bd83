"""Compiled kernels: made once by numba, kept on disk, loaded without importing numba.

    LIBRARY = Library(
        "quick",
        "holdfast.stages.quick.kernels",
        {"down": "resample.down(uint8[:,:], int64[:], int32[:,:], out int32[:], out uint8[:,:])"},
        purpose="kernels",
        extra="quick",
    )
    LIBRARY.entry("down")(lines, first, weights, total, out)

The lines are explained in `native_call`, what kernels may do in `native_build`. To import numba and to load
what it keeps itself takes most of a second in every process; llvmlite is there at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from holdfast.core import native_call
from holdfast.core.errors import MissingExtra, UnknownName
from holdfast.core.native_call import Entry, Native, signature

Code = tuple[dict[str, str], bytes]  # the symbol of each entry, and the object code of all


class Library:
    """Kernels of one package, compiled together; nothing is loaded before one of them is called.

    `sources` are files beside the package that the kernels take numbers or functions from.
    """

    def __init__(
        self,
        name: str,
        package: str,
        entries: Mapping[str, str],
        *,
        purpose: str,
        extra: str,
        sources: Sequence[Path] = (),
    ) -> None:
        self.name, self.package, self.sources = name, package, tuple(sources)
        self._purpose, self._extra = purpose, extra
        self._told = {key: signature(line) for key, line in entries.items()}
        self._entries = {key: Entry(key, told, self._loader(key)) for key, told in self._told.items()}
        self._symbols: dict[str, str] = {}
        self._engine: Any = None
        self._lock = Lock()

    def entry(self, name: str) -> Entry:
        """The kernel of that name, to be called with arrays and scalars as declared."""
        if name not in self._entries:
            raise UnknownName("kernel", name, self._entries)
        return self._entries[name]

    def ready(self) -> bool:
        """Whether the kernels are compiled for this processor already, and kept."""
        return self._engine is not None or self._kept(self._key(self._llvm())) is not None

    def _loader(self, name: str) -> Callable[[], tuple[Any, Native]]:
        """A function that gives LLVM's engine and in it the native function of that name."""

        def load() -> tuple[Any, Native]:
            with self._lock:
                if self._engine is None:
                    self._symbols, self._engine = self._made()
            back = ctypes.c_int64 if self._told[name].returns else None
            address = self._engine.get_function_address(self._symbols[name])
            return self._engine, ctypes.CFUNCTYPE(back, ctypes.c_char_p)(address)

        return load

    def _made(self) -> tuple[dict[str, str], Any]:
        """The symbols of the entries and an engine with their code, which was kept or is compiled now."""
        llvm = self._llvm()
        key = self._key(llvm)
        code = self._kept(key)
        if code is None:
            code = self._built(llvm)
            self._keep(key, code)
        return code[0], _loaded(llvm, code[1])

    def _llvm(self) -> Any:
        """The library that loads code; a MissingExtra without it or numba."""
        try:
            import llvmlite.binding as llvm
        except ImportError as missing:
            raise MissingExtra(self._purpose, "numba", self._extra) from missing
        if find_spec("numba") is None:
            raise MissingExtra(self._purpose, "numba", self._extra)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        return llvm

    def _built(self, llvm: Any) -> Code:
        """All entries, compiled for this processor."""
        from holdfast.core.native_build import build

        try:
            import numba  # noqa: F401
        except ImportError as missing:
            raise MissingExtra(self._purpose, "numba", self._extra) from missing
        return build(self.package, self._told, *_processor(llvm))

    def _key(self, llvm: Any) -> str:
        """A name for what the code depends on: sources, entries, compilers, processor."""
        import llvmlite

        told = [(name, str(line)) for name, line in self._told.items()]
        system = (sys.implementation.cache_tag, llvm.get_default_triple(), *_processor(llvm))
        digest = hashlib.sha256(repr((system, llvmlite.__version__, told)).encode())
        digest.update(_numba_version())
        builder = (Path(native_call.__file__), Path(native_call.__file__).with_name("native_build.py"))
        for path in (*builder, *sorted(self._home().rglob("*.py")), *self.sources):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)} ".encode() + content)
        return digest.hexdigest()[:32]

    def _home(self) -> Path:
        """The package's folder; the package itself is not imported."""
        found = find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError(f"expected a package of kernels, got none named {self.package!r}")
        return Path(found.submodule_search_locations[0])

    def _folders(self) -> Iterator[Path]:
        """Where the code may be kept: beside the sources, or in the user's cache."""
        own, users = (os.environ.get(name) for name in ("HOLDFAST_CACHE", "XDG_CACHE_HOME"))
        if own:
            yield Path(own)
            return
        yield self._home() / "__pycache__"
        if users:
            yield Path(users) / "holdfast"
            return
        with suppress(RuntimeError):  # a user without a home
            yield Path.home() / ".cache" / "holdfast"

    def _kept(self, key: str) -> Code | None:
        """The code as kept; None if not there or damaged."""
        for folder in self._folders():
            try:
                told, _, rest = (folder / f"{self.name}-{key}.o").read_bytes().partition(b"\n")
                if told.decode() == hashlib.sha256(rest).hexdigest():
                    symbols, _, code = rest.partition(b"\n")
                    return {name: json.loads(symbols)[name] for name in self._told}, code
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return None

    def _keep(self, key: str, made: Code) -> None:
        """Nothing; the code is on disk if a folder lets us write."""
        symbols, code = made
        rest = json.dumps(symbols).encode() + b"\n" + code
        whole = hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
        for folder in self._folders():
            part = folder / f"{self.name}-{os.urandom(8).hex()}.part"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                part.write_bytes(whole)
                part.replace(folder / f"{self.name}-{key}.o")
                return
            except OSError:
                with suppress(OSError):
                    part.unlink()


def _processor(llvm: Any) -> tuple[str, str]:
    """The processor's name and its features, as LLVM spells them."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _numba_version() -> bytes:
    """The file that says which numba is installed: to ask `importlib.metadata` takes longer than to load."""
    found = find_spec("numba")
    told = Path(found.origin).with_name("_version.py") if found and found.origin else Path()
    if told.is_file():
        return told.read_bytes()
    from importlib.metadata import version

    return version("numba").encode()


def _loaded(llvm: Any, code: bytes) -> Any:
    """An engine with the object code, ready to be called."""
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
