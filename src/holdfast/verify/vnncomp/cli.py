"""`holdfast vnncomp`: benchmarks run and scored, and what the competition's scripts call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.config.args import Argument, Option
from holdfast.config.output import say

if TYPE_CHECKING:
    from holdfast.verify.vnncomp.results import Row
    from holdfast.verify.vnncomp.run import Step

Year = Literal["2021", "2022", "2023", "2025", "2026"]
Texts = Literal["document", "2021", "2022"]


def run(
    instances: Annotated[Path, Argument("The instances.csv of a benchmark, or its folder.")],
    out: Annotated[Path, Option("The results; the same command goes on where it was ended.", short="-o")],
    timeout_scale: Annotated[float, Option("Multiply every time limit by this.")] = 1.0,
    limit: Annotated[float | None, Option("No instance gets more than so many seconds.", shown="S")] = None,
    jobs: Annotated[int, Option("Instances side by side, each on its share of the cores.", least=1)] = 1,
    sample: Annotated[int | None, Option("Only so many, each network in proportion.", least=1)] = None,
    seed: Annotated[int | None, Option("Which sample; default 0.", least=0)] = None,
) -> int:
    """Run a benchmark, each instance in a fresh process, and write one row of results each.

    Exit code 4 means: done, but some instances ended in an error.
    """
    from holdfast.core.errors import InputError
    from holdfast.verify.vnncomp.instances import limited, read_instances, sampled
    from holdfast.verify.vnncomp.run import Plan
    from holdfast.verify.vnncomp.run import run as run_plan

    if seed is not None and sample is None:
        raise InputError("--seed says which sample is drawn; add --sample")
    chosen = limited(read_instances(instances), timeout_scale, limit)
    if sample is not None:
        chosen = sampled(chosen, sample, seed or 0)
    rows = run_plan(Plan(tuple(chosen), out, jobs), _tell)
    say(_summary(rows))
    sys.stderr.write(f"results  {out} (holdfast vnncomp score {out})\n")
    return 4 if any(row.result == "error" for row in rows) else 0


def score(
    results: Annotated[tuple[str, ...], Argument("Results, ours first; NAME=FILE names a tool.")],
    rules: Annotated[Year, Option("The year whose rules count.")] = "2025",
    votes: Annotated[tuple[Path, ...], Option("What earlier tools said; may be repeated.")] = (),
    benchmarks: Annotated[tuple[Path, ...], Option("Where the benchmarks lie.", shown="FOLDER")] = (),
    every: Annotated[bool, Option("Also the instances that only other tools ran.", name="--all")] = False,
    report: Annotated[Path | None, Option("Write a page with cactus plots.")] = None,
    json: Annotated[Path | None, Option("Write everything to this JSON file.")] = None,
    csv: Annotated[bool, Option("Print the table as CSV.")] = False,
    markdown: Annotated[bool, Option("Print the tables as Markdown.")] = False,
) -> int:
    """Score results by the competition's rules, replay counterexamples, name contradictions.

    Exit code 1 means: an answer of the first tool counts as wrong.
    """
    import shlex

    from holdfast.config.output import write_json
    from holdfast.core.errors import InputError
    from holdfast.report.tables import to_csv, to_markdown, to_text
    from holdfast.verify.vnncomp.page import as_json, benchmark_table, disagreement_table
    from holdfast.verify.vnncomp.rules import rules_named
    from holdfast.verify.vnncomp.score import overall
    from holdfast.verify.vnncomp.score import score as score_tables

    if csv and markdown:
        raise InputError("expected --csv or --markdown, not both")
    made = score_tables(results, rules_named(rules), votes, benchmarks, every=every)
    if json:
        write_json(json, as_json(made))
    found = disagreement_table(made)
    if csv:
        say(to_csv(benchmark_table(made)), end="")
    else:
        shown = to_markdown if markdown else to_text
        say(shown(benchmark_table(made)) + (f"\n\n{shown(found)}" if found.rows else ""))
    if report:
        from holdfast.verify.vnncomp.page import write

        write(made, report, shlex.join(["holdfast", *sys.argv[1:]]))
        sys.stderr.write(f"report   {report.resolve()}\n")
    return 1 if overall(made, made.tools[0]).wrong else 0


def instance(
    network: Annotated[Path, Argument("The ONNX file.")],
    spec: Annotated[Path, Argument("The VNN-LIB file.")],
    result: Annotated[Path, Argument("The result file to write.")],
    timeout: Annotated[float, Argument("Seconds.")],
    protocol: Annotated[Texts, Option("Whose words the result file has.")] = "2022",
) -> int:
    """Verify one instance and write the competition's result file: what its scripts call."""
    from holdfast.verify.vnncomp.instance import answer, die_with_parent
    from holdfast.verify.vnncomp.results import protocol_named

    die_with_parent()  # a script that is killed must not leave us behind, to write the result long after
    attempt = answer(network, spec, result, timeout, protocol_named(protocol))
    note = f" ({attempt.note})" if attempt.note else ""
    say(f"{attempt.status} {attempt.seconds:.3f} s{note}")
    return 0


def warm() -> int:
    """Verify small networks made on the spot, so that compiled kernels lie in their cache."""
    from holdfast.verify.vnncomp.instance import warm_up

    worst = 0
    for name, attempt in warm_up():
        say(f"{name}: {attempt.status} {attempt.seconds:.1f} s{f' ({attempt.note})' if attempt.note else ''}")
        sys.stdout.flush()
        worst = max(worst, attempt.status == "error")
    return worst


def _tell(step: Step) -> None:
    """Nothing; one line on standard error for each finished instance."""
    row = step.row
    names = " ".join(Path(name.removesuffix(".gz")).stem for name in (row.network, row.spec))
    facts = f"{row.result} {row.seconds:.2f} s" + (f", {row.engine}" if row.engine else "")
    before = f", {step.reused} were finished already" if step.reused and step.done == step.reused + 1 else ""
    left = f", about {_duration(step.left)} left" if step.done < step.total else ""
    sys.stderr.write(f"{step.done}/{step.total} {names}: {facts}{left}{before}\n")
    sys.stderr.flush()


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _summary(rows: list[Row]) -> str:
    """The rows counted by what came out, in a table."""
    from holdfast.report.tables import Column, Table, to_text

    kinds = ("holds", "violated", "timeout", "unknown", "error")
    counts = [sum(row.result == kind for row in rows) for kind in kinds]
    seconds = sum(row.seconds for row in rows)
    cpu = sum(row.cpu_seconds or 0.0 for row in rows)
    columns: list[Column | str] = ["benchmark", "of", "solved", *kinds, Column("s", 1), Column("CPU s", 1)]
    names = ", ".join(dict.fromkeys(row.category for row in rows))
    return to_text(Table(columns, [[names, len(rows), sum(counts[:2]), *counts, seconds, cpu]]))
