"""What this machine has: versions, extras, CPU features, and the line that installs what is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from holdfast.engine.executor import cores

# extra, module to look for, distribution, what it is good for
EXTRAS = (
    ("torch", "torch", "torch", "attacks by gradient, training"),
    ("language", "tokenizers", "tokenizers", "language models"),
    ("speech", "librosa", "librosa", "another STFT for speech"),
    ("speech", "scipy", "scipy", "another STFT for speech"),
    ("web", "starlette", "starlette", "the local web page"),
    ("web", "uvicorn", "uvicorn", "the local web page"),
    ("web", "django_htmx", "django-htmx", "the script of the local web page"),
    ("bench", "pycocotools", "pycocotools", "the reference AP in benchmarks"),
    ("bench", "hotcoco", "hotcoco", "the fastest peer in benchmarks"),
    ("bench", "faster_coco_eval", "faster-coco-eval", "a peer in benchmarks"),
)
REQUIRED = (
    "numpy", "onnx", "onnxruntime", "opencv-python-headless", "orjson", "pillow", "pyyaml", "rich", "jinja2",
)  # fmt: skip
FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd")


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis; `remedy` is empty when all is well."""

    topic: str
    name: str
    state: str
    remedy: str = ""


def diagnose() -> list[Finding]:
    """All findings about Python, libraries, extras and the processor."""
    return [*_system(), *_libraries(), *_extras()]


def _system() -> Iterable[Finding]:
    yield Finding(
        "system", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield Finding("system", "cores", f"{cores()} usable of {os.cpu_count()}")
    flags = _cpu_flags()
    found = [name for name in FEATURES if name in flags]
    yield Finding("system", "cpu features", ", ".join(found) if found else "unknown")


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {flag for key, value in rows if key.strip() in ("flags", "Features") for flag in value.split()}


def _libraries() -> Iterable[Finding]:
    for name in REQUIRED:
        version = _version(name)
        yield Finding("library", name, version or "missing", "" if version else f"pip install {name}")


def _extras() -> Iterable[Finding]:
    for extra, module, distribution, purpose in EXTRAS:
        if importlib.util.find_spec(module) is None:
            remedy = f"pip install 'holdfast[{extra}]'"
            yield Finding(f"extra {extra}", distribution, f"not installed ({purpose})", remedy)
        else:  # a module may have no distribution, or one of another name
            state = _version(distribution) or "installed, version unknown"
            yield Finding(f"extra {extra}", distribution, state)


def _version(distribution: str) -> str:
    """The version that is installed; empty without one."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
