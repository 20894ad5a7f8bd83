"""`holdfast vnncomp`: run and score benchmarks; entry points of the competition's scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.core.errors import InputError
from holdfast.verify.vnncomp.options import (
    InstanceOptions,
    VnncompRunOptions,
    VnncompScoreOptions,
    WarmOptions,
)

if TYPE_CHECKING:
    from holdfast.verify.vnncomp.run import InstanceProgress


def run(options: VnncompRunOptions) -> int:
    """Run a benchmark, each instance in a new process, and write one row of results per instance.

    Exit code 4 means: done, but some instances ended in an error.
    """
    from holdfast.report.tables import Column, Table, to_text
    from holdfast.verify.vnncomp.instances import limited, read_instances, sampled
    from holdfast.verify.vnncomp.run import BenchmarkPlan
    from holdfast.verify.vnncomp.run import run as run_plan

    if options.seed is not None and options.sample is None:
        raise InputError("--seed selects the sample; add --sample")
    chosen = limited(read_instances(options.instances), options.timeout_scale, options.limit)
    if options.sample is not None:
        chosen = sampled(chosen, options.sample, options.seed or 0)
    rows = run_plan(BenchmarkPlan(tuple(chosen), options.out, options.jobs), _tell)
    kinds = ("holds", "violated", "timeout", "unknown", "error")
    counts = [sum(row.result == kind for row in rows) for kind in kinds]
    seconds = sum(row.seconds for row in rows)
    cpu = sum(row.cpu_seconds or 0.0 for row in rows)
    columns: list[Column | str] = ["benchmark", "of", "solved", *kinds, Column("s", 1), Column("CPU s", 1)]
    names = ", ".join(dict.fromkeys(row.category for row in rows))
    say(to_text(Table(columns, [[names, len(rows), sum(counts[:2]), *counts, seconds, cpu]])))
    score_line = command_line(VnncompScoreOptions(results=(str(options.out),)))
    sys.stderr.write(f"results  {options.out} ({score_line})\n")
    return 4 if any(row.result == "error" for row in rows) else 0


def score(options: VnncompScoreOptions) -> int:
    """Score results by the rules of the competition, replay counterexamples, and list contradictions.

    Exit code 1 means: an answer of the first tool counts as wrong.
    """
    from holdfast.config.output import write_json
    from holdfast.report.tables import to_csv, to_markdown, to_text
    from holdfast.verify.vnncomp.page import as_json, benchmark_table, disagreement_table, write
    from holdfast.verify.vnncomp.rules import RULES
    from holdfast.verify.vnncomp.score import overall
    from holdfast.verify.vnncomp.score import score as score_tables

    if options.csv and options.markdown:
        raise InputError("expected --csv or --markdown, not both")
    rules, votes, folders = RULES[options.rules], options.votes, options.benchmarks
    result = score_tables(options.results, rules, votes, folders, every=options.all)
    if options.json:
        write_json(options.json, as_json(result))
    disagreements = disagreement_table(result)
    if options.csv:
        say(to_csv(benchmark_table(result)), end="")
    else:
        render = to_markdown if options.markdown else to_text
        say(render(benchmark_table(result)) + (f"\n\n{render(disagreements)}" if disagreements.rows else ""))
    if options.report:
        write(result, options.report, command_line(options))
        sys.stderr.write(f"report   {options.report.resolve()}\n")
    return 1 if overall(result, result.tools[0]).wrong else 0


def instance(options: InstanceOptions) -> int:
    """Verify one instance and write the result file of the competition (called by its scripts)."""
    from holdfast.verify.vnncomp.instance import answer, die_with_parent

    die_with_parent()  # if the script is killed, this process must not write a result later
    attempt = answer(options.network, options.spec, options.result, options.timeout, options.protocol)
    say(f"{attempt.status} {attempt.seconds:.3f} s{f' ({attempt.note})' if attempt.note else ''}")
    return 0


def warm(_options: WarmOptions) -> int:
    """Compile the kernels and cache them by verifying small generated networks."""
    from holdfast.verify.vnncomp.instance import warm_up

    worst = 0
    for name, attempt in warm_up():
        say(f"{name}: {attempt.status} {attempt.seconds:.1f} s{f' ({attempt.note})' if attempt.note else ''}")
        sys.stdout.flush()
        worst = max(worst, attempt.status == "error")
    return worst


def _tell(step: InstanceProgress) -> None:
    from holdfast.verify.vnncomp.instances import stem_of

    row = step.row
    names = f"{stem_of(row.network)} {stem_of(row.spec)}"
    facts = f"{row.result} {row.seconds:.2f} s" + (f", {row.engine}" if row.engine else "")
    before = f", {step.reused} cached" if step.reused and step.done == step.reused + 1 else ""
    minutes = step.left / 60
    hours = f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    about = f"{step.left:.0f} s" if minutes < 1 else hours
    remaining = f", about {about} left" if step.done < step.total else ""
    sys.stderr.write(f"{step.done}/{step.total} {names}: {facts}{remaining}{before}\n")
    sys.stderr.flush()
