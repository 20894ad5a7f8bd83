"""`holdfast audit`: every engine on one model, one page, one gate."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.audit.options import ENOUGH, AuditOptions
from holdfast.config.options import carry
from holdfast.config.output import check_outputs, say
from holdfast.config.parser import command_line
from holdfast.evaluate.options import EvaluationOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.audit.gates import Gate, Judged
    from holdfast.audit.made import Made
    from holdfast.audit.plan import AuditPlan
    from holdfast.core.dataset import Dataset
    from holdfast.evaluate.run import Plan
    from holdfast.report.parts import Section

PAGE = "report.html"  # in the folder of the audit


def audit(options: AuditOptions) -> int:
    """Does this detector hold fast? Evaluation, noise, patches and proofs of one model, across each other.

    Plans what fits into the budget and reports what it skipped. Run the same command again to resume.
    Exit code 1: a gate failed. 2: bad input. 4: some images could not be read.
    """
    began = time.monotonic()
    outputs = {f"--{name}": getattr(options, name) for name in ("out", "json", "junit", "sarif")}
    check_outputs(outputs, {})
    gates = gates_from(options.fail_if, options.gates)  # before anything runs: a wrong name ends it here
    plan = audit_plan(options)
    check_gates(gates, plan)
    made = run_plan(plan, began)
    judged = judged_by(made, gates, options.min_images)
    write_all(made, judged, options, until=began + (options.budget_seconds or math.inf))
    return print_verdict(made, judged)


def gates_from(texts: Sequence[str], file: Path | None) -> tuple[Gate, ...]:
    """The gates of the command line and of a TOML file."""
    from holdfast.audit.gates import check, gate_of, read_gates

    found = (*(gate_of(text) for text in texts), *(read_gates(file) if file else ()))
    check(found)
    return found


def check_gates(gates: Sequence[Gate], plan: AuditPlan) -> None:
    """Raise InputError if a gate names a metric that this model is not measured by."""
    from holdfast.audit.gates import check
    from holdfast.audit.summary import gate_metric

    check(gates, metrics=(gate_metric(plan.plan),))


def run_plan(plan: AuditPlan, began: float | None = None) -> Made:
    """The audit of a plan, with progress on standard error; its time runs from `began` (time.monotonic)."""
    from holdfast.audit.run import audit as run
    from holdfast.engine.progress import progress
    from holdfast.evaluate.cli import tell_about

    tell_about(plan.plan)
    return run(plan, progress, began)


def audit_plan(options: AuditOptions) -> AuditPlan:
    """The plan of an audit; the model and the data are opened."""
    from holdfast.audit.plan import AuditPlan
    from holdfast.evaluate.cli import plan_of

    plan = plan_of(carry(options, EvaluationOptions), command=command_line(options))
    return AuditPlan(plan, options, _spare(options, plan))


def _spare(options: AuditOptions, plan: Plan) -> Dataset | None:
    """Images to calibrate on: those named, other embedded scenes, or those beyond what is tested."""
    from holdfast.data.open import open_dataset
    from holdfast.noise.vision.choose import spare_of

    if options.calibration:
        return open_dataset(options.calibration, task=plan.model.card.task)
    return spare_of(options.data, plan.model.card.task, options.format, options.split)


def judged_by(made: Made, gates: Sequence[Gate], min_images: int = ENOUGH) -> tuple[Judged, ...]:
    """The gates, judged by what the audit found."""
    from holdfast.audit.gates import judge

    return judge(gates, made.found, min_images) if gates else ()


def write_all(
    made: Made,
    judged: Sequence[Judged],
    options: AuditOptions,
    more: Sequence[Section] = (),
    until: float = math.inf,
) -> None:
    """Write the page to the audit's folder and to --out, and the other files of the options.

    After `until` (of time.monotonic) the page gets no more pictures.
    """
    from holdfast.audit.result import as_plain
    from holdfast.config.output import write_json
    from holdfast.engine.store import write_atomic

    found = made.found
    write_atomic(options.out, write_page(made, judged, more, until).read_bytes())
    if options.json:
        gates = [dataclasses.asdict(one) for one in judged]
        write_json(options.json, {**as_plain(found), "gates": gates})
    if options.junit:
        from holdfast.audit.pages.junit import junit as to_junit

        write_atomic(options.junit, to_junit(found, judged).encode())
    if options.sarif:
        from holdfast.audit.pages.sarif import sarif as to_sarif

        write_atomic(options.sarif, to_sarif(found, judged).encode())
    say(f"report: {options.out.resolve()}", sys.stderr)


def write_page(
    made: Made, judged: Sequence[Judged], more: Sequence[Section] = (), until: float = math.inf
) -> Path:
    """Write the page to the audit's folder."""
    from holdfast.audit.page import write
    from holdfast.audit.pages.details import sections

    return write(made.found, made.plan.folder / PAGE, [*sections(made, until), *more], judged)


def print_verdict(made: Made, judged: Sequence[Judged]) -> int:
    """Print the verdict and return the exit code: 1 if a gate failed, 4 if images could not be read."""
    from holdfast.audit.gates import outcome
    from holdfast.audit.pages.gates import table
    from holdfast.audit.pages.words import verdict
    from holdfast.report.tables import to_text

    for line in verdict(made.found):
        say(f"{line.name}{f' ({line.basis})' if line.basis else ''}: {line.text}")
    for part in made.found.parts:
        if part.left_out:
            say(f"left out: {part.name}: {part.left_out}")
    if made.plan.options.budget_seconds and any(part.left_out for part in made.found.parts):
        say("A larger --budget (or none) takes more; the page has the command of each part.")
    if judged:
        say("\n" + to_text(table(judged)))
    if any(not one.decided for one in judged):
        say("Gates on too few images are not decided: test more images, or lower --min-images.")
    for warning in made.evaluation.result.get("warnings", ()) if made.evaluation else ():
        sys.stderr.write(f"warning  {warning}\n")
    sys.stderr.write(f"run      {made.plan.folder}\n")
    for failure in made.found.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    return outcome(judged) or (4 if made.found.failed else 0)
