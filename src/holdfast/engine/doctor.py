"""What this machine has: versions, extras, CPU features, and the line that installs what is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.sources import installed
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


def diagnose() -> Iterator[Finding]:
    """All findings about Python, libraries, extras and the processor."""
    where = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Finding("system", "python", where)
    yield Finding("system", "cores", f"{cores()} usable of {os.cpu_count()}")
    flags = _cpu_flags()
    yield Finding("system", "cpu features", ", ".join(n for n in FEATURES if n in flags) or "unknown")
    there = installed((*REQUIRED, *(distribution for _, _, distribution, _ in EXTRAS)))
    for name in REQUIRED:
        remedy = "" if name in there else f"pip install {name}"
        yield Finding("library", name, there.get(name, "missing"), remedy)
    for extra, module, distribution, purpose in EXTRAS:
        if importlib.util.find_spec(module) is None:
            remedy = f"pip install 'holdfast[{extra}]'"
            yield Finding(f"extra {extra}", distribution, f"not installed ({purpose})", remedy)
        else:  # a module may have no distribution, or one of another name
            state = there.get(distribution, "installed, version unknown")
            yield Finding(f"extra {extra}", distribution, state)


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {flag for key, value in rows if key.strip() in ("flags", "Features") for flag in value.split()}
