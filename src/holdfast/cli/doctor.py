"""`holdfast doctor`: what this machine has, and the line that installs what is missing.

It must work where a library is missing: nothing here imports one.
"""

import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from holdfast.cli.options import DoctorOptions
from holdfast.config.output import say
from holdfast.engine.executor import cores
from holdfast.report.tables import Table, to_text

# extra, module to look for, distribution, what it is good for
EXTRAS = (
    ("torch", "torch", "torch", "gradient attacks, training"),
    ("language", "tokenizers", "tokenizers", "language models"),
    ("speech", "librosa", "librosa", "alternative STFT for speech"),
    ("speech", "scipy", "scipy", "alternative STFT for speech"),
    ("web", "starlette", "starlette", "local web page"),
    ("web", "uvicorn", "uvicorn", "local web page"),
    ("web", "django_htmx", "django-htmx", "script of the local web page"),
    ("bench", "pycocotools", "pycocotools", "reference AP in benchmarks"),
    ("bench", "hotcoco", "hotcoco", "fastest peer in benchmarks"),
    ("bench", "faster_coco_eval", "faster-coco-eval", "peer in benchmarks"),
)
REQUIRED = (
    "numpy", "onnx", "onnxruntime", "opencv-python-headless", "orjson", "pillow", "pyyaml", "rich", "jinja2",
)  # fmt: skip
FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd")


def doctor(_options: DoctorOptions) -> int:
    """Print versions, extras and CPU features, and the pip command for what is missing."""
    rows = list(_findings())
    say(to_text(Table(["", "what", "state", "remedy"], rows)))
    return 2 if any(topic == "library" and remedy for topic, _, _, remedy in rows) else 0


def _findings() -> Iterator[tuple[str, str, str, str]]:
    """Topic, name, state and remedy, which is empty when all is well."""
    where = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "system", "python", where, ""
    yield "system", "cores", f"{cores()} usable of {os.cpu_count()}", ""
    flags = _cpu_flags()
    yield "system", "cpu features", ", ".join(n for n in FEATURES if n in flags) or "unknown", ""
    for name in REQUIRED:
        version = _version(name)
        yield "library", name, version or "missing", "" if version else f"pip install {name}"
    for extra, module, distribution, purpose in EXTRAS:
        if importlib.util.find_spec(module) is None:
            remedy = f"pip install 'holdfast[{extra}]'"
            yield f"extra {extra}", distribution, f"not installed ({purpose})", remedy
        else:  # a module may have no distribution, or one of another name
            yield f"extra {extra}", distribution, _version(distribution) or "installed, version unknown", ""


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {flag for key, value in rows if key.strip() in ("flags", "Features") for flag in value.split()}


def _version(distribution: str) -> str:
    """The version that is installed; empty without one."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
