"""Benchmarks of a patch at any position, from Python: make one, check one, run a patch at every position."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.api.keywords import build_options, keywords
from holdfast.api.progress import watch
from holdfast.config.output import write_json
from holdfast.patchbench.options import CheckOptions, MakeOptions, PositionOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.api import option_types as types
    from holdfast.patchbench.check import CheckResult
    from holdfast.patchbench.run import PositionResult

__all__ = ["check", "evaluate", "make"]


@keywords(MakeOptions, "folder")
def make(
    folder: str | Path, *, progress: bool | None = None, **options: Unpack[types.PatchbenchMakeKeywords]
) -> Mapping[str, Any]:
    """Make a benchmark in a new folder: networks with the patch inside, and VNN-LIB files; its manifest."""
    from holdfast.patchbench.cli import make_benchmark

    given = build_options(MakeOptions, options, "patchbench.make", folder=folder)
    return make_benchmark(given, watch(progress))


@keywords(CheckOptions, "folder")
def check(
    folder: str | Path, *, progress: bool | None = None, **options: Unpack[types.PatchbenchCheckKeywords]
) -> CheckResult:
    """Check that networks, specifications and images agree; `findings` of the result is empty if they do."""
    from holdfast.patchbench.check import as_dict, check_bench
    from holdfast.patchbench.folder import listed

    given = build_options(CheckOptions, options, "patchbench.check", folder=folder)
    bench = listed(given.folder)
    with watch(progress)("check", len(bench.rows)) as step:
        result = check_bench(bench, step)
    if given.json:
        write_json(given.json, as_dict(result))
    return result


@keywords(PositionOptions, "subject", "data")
def evaluate(
    subject: str | Path,
    data: str | None = None,
    *,
    progress: bool | None = None,
    **options: Unpack[types.PatchbenchEvaluateKeywords],
) -> PositionResult:
    """Run a patch at every position: on a benchmark folder, or on a single-object detector and a dataset."""
    from holdfast.patchbench.cli import evaluate_positions
    from holdfast.patchbench.page import page
    from holdfast.patchbench.run import as_dict
    from holdfast.report.html import document, write_page

    given = build_options(PositionOptions, options, "patchbench.evaluate", subject=str(subject), data=data)
    result = evaluate_positions(given, watch(progress))
    if given.json:
        write_json(given.json, as_dict(result))
    if given.out:
        write_page(document(page(result)), given.out, "positions.html")
    return result
