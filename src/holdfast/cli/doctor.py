"""`holdfast doctor`: what this machine has, and the line that installs what is missing.

It must work where a library is missing: nothing here imports one.
"""

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from holdfast.cli.options import DoctorOptions
from holdfast.config.output import say
from holdfast.core.errors import install_line
from holdfast.core.extras import EXTRAS, is_installed
from holdfast.engine.executor import cores
from holdfast.report.tables import Table, to_text

# What each extra is for; cli/doctor lists them in the order of core/extras.
PURPOSES = {
    "noise": "system noise: other decoders, resizes and runtimes; the embedded scenes",
    "attack": "attacks by gradient and by queries, contests",
    "verify": "proofs, VNN-LIB 2.0, certification benchmarks",
    "train": "training and mitigation",
    "language": "language models",
    "speech": "other spectrograms for speech models",
    "web": "the local web page",
    "store": "object stores for --store",
    "ray": "clusters for --on ray",
    "ncnn": "runtime ncnn",
    "dali": "decode dali",
    "tensorflow": "decode tensorflow",
}
REQUIRED = ("numpy", "onnx", "onnxruntime", "orjson", "pillow", "pyyaml", "rich", "jinja2", "markupsafe")
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
    for extra, modules in EXTRAS.items():
        absent = [name for module, name in modules.items() if not is_installed(module)]
        if absent:
            state = f"not installed: {', '.join(absent)} ({PURPOSES[extra]})"
            yield "extra", extra, state, install_line(extra, "")
        else:
            versions = (f"{name} {_version(name) or '(version unknown)'}" for name in modules.values())
            yield "extra", extra, ", ".join(versions), ""


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {flag for key, value in rows if key.strip() in ("flags", "Features") for flag in value.split()}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
