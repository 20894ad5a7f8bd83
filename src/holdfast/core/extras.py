"""Optional packages: the extra that installs each one, and the message that reports a missing one.

An extra is named after a job: `pip install 'holdfast[noise]'`. `EXTRAS` repeats what pyproject.toml declares,
because an installed package cannot read that file; a test compares the two.
"""

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from holdfast.core.errors import MissingExtra, install_line

# simplejpeg checks a JPEG before any decoder except Pillow.
_NOISE = ("cv2", "av", "jpeglib", "kornia_rs", "openvino", "simplejpeg")
_MODULES = {
    "noise": _NOISE,
    "attack": ("cv2", "torch"),
    "verify": ("highspy", "numba", "torch", "vnnlib"),
    "train": (*_NOISE, "torch"),
    "language": ("tokenizers",),
    "speech": ("librosa", "scipy", "torch"),
    "web": ("django_htmx", "python_multipart", "starlette", "uvicorn"),
    "store": ("obstore",),
    "ray": ("obstore", "ray"),
    # Too large or platform-specific: in no other extra, except that `all` has ncnn.
    "ncnn": ("ncnn", "pnnx"),
    "dali": ("nvidia.dali", "simplejpeg"),
    "tensorflow": ("simplejpeg", "tensorflow"),
}
_DISTRIBUTIONS = {"cv2": "opencv-python-headless", "nvidia.dali": "nvidia-dali-cuda120"}
# extra -> module -> distribution. The first extra with a module is reported unless the caller names another.
EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    extra: {module: _DISTRIBUTIONS.get(module, module.replace("_", "-")) for module in modules}
    for extra, modules in _MODULES.items()
}


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around a submodule is missing
        return False


def install_hint(module: str, extra: str = "") -> str:
    """Why a module cannot be imported, with the install command; empty if it is installed."""
    if is_installed(module):
        return ""
    extra = extra or extra_of(module)
    return f"{_distribution(module)} is not installed: {install_line(extra, module)}"


def check(purpose: str, *modules: str, extra: str = "") -> None:
    """Raise MissingExtra for the first of the modules that is not installed."""
    for module in modules:
        if not is_installed(module):
            raise MissingExtra(purpose, _distribution(module), extra or extra_of(module))


def require(purpose: str, module: str, extra: str = "") -> Any:
    """Import a module; raise MissingExtra if it is not installed."""
    check(purpose, module, extra=extra)
    return importlib.import_module(module)


def extra_of(module: str) -> str:
    """The first extra that installs a module; empty if none does."""
    return next((extra for extra, modules in EXTRAS.items() if module in modules), "")


def _distribution(module: str) -> str:
    return next((modules[module] for modules in EXTRAS.values() if module in modules), module)
