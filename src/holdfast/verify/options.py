"""The options of `holdfast verify`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options


@dataclass(frozen=True, kw_only=True)
class TimeoutOptions(Options):
    """The time of a verification."""

    timeout: Annotated[float, Option("Time limit in seconds.", metavar="S", least=0)] = 300.0


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(
    TimeoutOptions,
    command="verify",
    examples=(
        (
            "holdfast patchbench make bench --images 1 && "
            "holdfast verify bench/onnx/patch-3.onnx bench/vnnlib/*.vnnlib"
        ),
        "holdfast verify bench/onnx/patch-3.onnx --check",
    ),
):
    """The options of `holdfast verify`."""

    net: Annotated[
        Path,
        Argument("An ONNX file (or .onnx.gz), or a shipped model.", completions=completions.models),
    ]
    prop: Annotated[Path | None, Argument("A VNN-LIB file, version 1.0 or 2.0 (or .gz).")] = None
    json: Annotated[
        Path | None, Option("Also write the verdict (or every node of --check) to this JSON file.")
    ] = None
    witness: Annotated[
        Path | None, Option("Write the counterexample and its output in the VNN-COMP format.")
    ] = None
    jobs: Annotated[int | None, Option("Threads (default: all cores).", least=1)] = None
    memory: Annotated[float | None, Option("Memory limit in gigabytes.", metavar="GB", least=0.1)] = None
    seed: Annotated[int, Option("Random seed.", least=0)] = 0
    check: Annotated[bool, Option("Only print which operators of the network are supported.")] = False
