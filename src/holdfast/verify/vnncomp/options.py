"""The options of `holdfast vnncomp`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.config.options import Argument, Option, Options
from holdfast.evaluate.options import ExecutionOptions


@dataclass(frozen=True, kw_only=True)
class VnncompRunOptions(
    ExecutionOptions,
    command="vnncomp run",
    examples=(
        "holdfast patchbench make bench --images 1 && holdfast vnncomp run bench -o results.csv",
        "holdfast vnncomp run bench -o again.csv --limit 60",
    ),
):
    """The options of `holdfast vnncomp run`."""

    instances: Annotated[Path, Argument("The instances.csv of a benchmark, or its folder.")]
    out: Annotated[Path, Option("Results; the same command continues an interrupted run.", short="-o")]
    timeout_scale: Annotated[float, Option("Factor of every time limit.")] = 1.0
    limit: Annotated[float | None, Option("Longest time limit in seconds.", metavar="S")] = None
    jobs: Annotated[int, Option("Instances run in parallel, each on its share of the cores.", least=1)] = 1
    sample: Annotated[int | None, Option("Run only N instances, each network in proportion.", least=1)] = None
    seed: Annotated[int | None, Option("Random seed of the sample (0).", least=0)] = None


@dataclass(frozen=True, kw_only=True)
class VnncompScoreOptions(
    Options,
    command="vnncomp score",
    examples=(
        (
            "holdfast patchbench make bench --images 1 && "
            "holdfast vnncomp run bench -o results.csv && "
            "holdfast vnncomp score results.csv"
        ),
        "holdfast vnncomp score results.csv --rules 2026 --markdown",
    ),
):
    """The options of `holdfast vnncomp score`."""

    results: Annotated[
        tuple[str, ...], Argument("Result files, ours first; NAME=FILE sets the name of a tool.")
    ]
    rules: Annotated[Literal["2021", "2022", "2023", "2025", "2026"], Option("Year whose rules apply.")] = (
        "2025"
    )
    votes: Annotated[tuple[Path, ...], Option("Answers of earlier tools. May be repeated.")] = ()
    benchmarks: Annotated[
        tuple[Path, ...], Option("Folder of benchmarks. May be repeated.", metavar="FOLDER")
    ] = ()
    all: Annotated[bool, Option("Also count instances that only other tools ran.")] = False
    json: Annotated[Path | None, Option("Write everything to this JSON file.")] = None
    csv: Annotated[bool, Option("Print the table as CSV.")] = False
    markdown: Annotated[bool, Option("Print the tables as Markdown.")] = False
    report: Annotated[Path | None, Option("Write an HTML page with cactus plots.")] = None


@dataclass(frozen=True, kw_only=True)
class InstanceOptions(
    Options,
    command="vnncomp instance",
    examples=(
        (
            "holdfast patchbench make bench --images 1 && "
            "holdfast vnncomp instance bench/onnx/patch-3.onnx bench/vnnlib/*.vnnlib result.txt 60"
        ),
        "holdfast vnncomp instance bench/onnx/patch-3.onnx bench/vnnlib/*.vnnlib old.txt 60 --protocol 2021",
    ),
):
    """The options of `holdfast vnncomp instance`."""

    network: Annotated[Path, Argument("An ONNX file.")]
    spec: Annotated[Path, Argument("A VNN-LIB file.")]
    result: Annotated[Path, Argument("Result file to write.")]
    timeout: Annotated[float, Argument("Seconds.")]
    protocol: Annotated[
        Literal["document", "2021", "2022"], Option("Year whose result format is written.")
    ] = "2022"


@dataclass(frozen=True, kw_only=True)
class WarmOptions(
    Options,
    command="vnncomp warm",
    examples=(
        "holdfast vnncomp warm",
        "holdfast vnncomp warm && holdfast doctor",
    ),
):
    """The options of `holdfast vnncomp warm`."""
