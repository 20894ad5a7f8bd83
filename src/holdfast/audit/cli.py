"""`holdfast audit` and `holdfast demo`: every engine on one model, one page, one set of gates."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import time
from typing import TYPE_CHECKING

from holdfast.audit.options import AuditOptions, DemoOptions
from holdfast.config.options import carry
from holdfast.config.output import check_outputs, say
from holdfast.config.parser import command_line
from holdfast.evaluate.options import EvaluationOptions, RunOptions
from holdfast.noise.options import NoiseOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.audit.gates import GateVerdict
    from holdfast.audit.plan import AuditPlan
    from holdfast.audit.state import AuditState
    from holdfast.report.parts import Figure, Section
    from holdfast.report.tables import Table

MODEL = "signs-yolo"  # of the demo
LANGUAGE = ("road-lm", "road-piqa", "road-lambada", "road-hellaswag", "road-winogrande")
SPEECH = ("fast-speech", "taco", "clips")


def audit(options: AuditOptions) -> int:
    """Audit a model: accuracy, system noise, attacks, proofs, and every attack under every deployment.

    Plans what fits into the time budget and reports what it skipped. Run the same command again to resume.
    Exit code 1: a gate failed. 2: bad input. 4: some images could not be read.
    """
    began = time.monotonic()
    from holdfast.audit.gates import check, gate_of, judge, read_gates
    from holdfast.audit.state import gate_metric
    from holdfast.evaluate.per_image import check_task

    outputs = {f"--{name}": getattr(options, name) for name in ("out", "json", "junit", "sarif")}
    check_outputs(outputs, {})
    options.check_records()
    gates = [*map(gate_of, options.fail_if), *(read_gates(options.gates) if options.gates else ())]
    check(gates)  # before anything is opened: report a wrong name at once
    plan = audit_plan(options)
    check_task(options, plan.plan.model.card.task)
    check(gates, metrics=(gate_metric(plan.plan),))
    state = _run(plan, began)
    judged = judge(gates, state.result, options.min_images) if gates else ()
    _write(state, judged, options, until=began + (options.budget_seconds or math.inf))
    return print_verdict(state, judged)


def _run(plan: AuditPlan, began: float | None = None) -> AuditState:
    """Run the audit of a plan, with progress on standard error; its time runs from `began`."""
    from holdfast.audit.run import audit as run
    from holdfast.engine.executor import progress
    from holdfast.evaluate.cli import print_data_notes

    print_data_notes(plan.plan)
    return run(plan, progress, began)


def audit_plan(options: AuditOptions) -> AuditPlan:
    """The plan of an audit, with the model, the dataset and the calibration images opened."""
    from holdfast.audit.plan import AuditPlan
    from holdfast.data.open import open_dataset
    from holdfast.evaluate.run import evaluation_plan
    from holdfast.noise.vision.choose import calibration_pool

    plan = evaluation_plan(carry(options, EvaluationOptions), command=command_line(options))
    task = plan.model.card.task
    if options.calibration:
        return AuditPlan(plan, options, open_dataset(options.calibration, task=task))
    return AuditPlan(plan, options, calibration_pool(options.data, task, options.format, options.split))


def _write(
    state: AuditState,
    judged: Sequence[GateVerdict],
    options: AuditOptions,
    more: Sequence[Section] = (),
    until: float = math.inf,
) -> None:
    """Write the page, without further pictures after `until` (of time.monotonic), and the other files."""
    from holdfast.engine.store import write_atomic

    write_atomic(options.out, write_page(state, judged, more, until).read_bytes())
    write_outputs(state, judged, options)
    say(f"report: {options.out.resolve()}", sys.stderr)


def write_outputs(state: AuditState, judged: Sequence[GateVerdict], options: AuditOptions) -> None:
    """Write the files that the options name, except the page."""
    from holdfast.audit.result import as_plain
    from holdfast.config.output import write_json
    from holdfast.engine.store import write_atomic
    from holdfast.evaluate.per_image import records_of, write_records
    from holdfast.noise.vision.run import record_sets

    if options.json:
        gates = [dataclasses.asdict(verdict) for verdict in judged]
        write_json(options.json, {**as_plain(state.result), "gates": gates})
    if options.junit or options.sarif:
        from holdfast.audit.ci import junit, sarif

        for path, to_text in ((options.junit, junit), (options.sarif, sarif)):
            if path:
                write_atomic(path, to_text(state.result, judged).encode())
    clean = [records_of(state.evaluation, option="clean")] if state.evaluation else []
    noisy = record_sets(state.suite, options.runs, clean=False) if state.suite else ()
    write_records(options, itertools.chain(clean, noisy), state.plan.plan.dataset)


def write_page(
    state: AuditState, judged: Sequence[GateVerdict], more: Sequence[Section] = (), until: float = math.inf
) -> Path:
    """Write the page to the audit's folder."""
    from holdfast.audit.page import write
    from holdfast.audit.pages.details import sections
    from holdfast.audit.result import PAGE

    return write(state.result, state.plan.folder / PAGE, [*sections(state, until), *more], judged)


def print_verdict(state: AuditState, judged: Sequence[GateVerdict]) -> int:
    """Print the verdict and return the exit code: 1 if a gate failed, 4 if images could not be read."""
    from holdfast.audit.gates import gates_table
    from holdfast.audit.pages.verdict import next_step, verdict
    from holdfast.report.tables import to_text

    result = state.result
    for line in verdict(result):
        say(f"{line.name}{f' ({line.basis})' if line.basis else ''}: {line.text}")
    skipped = [part for part in result.parts if part.skipped]
    for part in skipped:
        say(f"Skipped: {part.name}{' on ' if part.skipped[:1].isdigit() else ': '}{part.skipped}.")
    if skipped and state.plan.options.budget_seconds:
        say("Raise --budget (or pass none) to run more; the page lists the command of each part.")
    if judged:
        say("\n" + to_text(gates_table(judged)))
    failed_gates = [gate_verdict.gate.text for gate_verdict in judged if gate_verdict.failed]
    say(f"Next: {next_step(result, failed_gates)}")
    if not all(gate_verdict.decided for gate_verdict in judged):
        say("Gates on too few images are not decided: test more images or lower --min-images.")
    for warning in state.evaluation.result.get("warnings", ()) if state.evaluation else ():
        sys.stderr.write(f"warning  {warning}\n")
    sys.stderr.write(f"run      {state.plan.folder}\n")
    for failure in result.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    return 1 if failed_gates else 4 if result.failed else 0


def demo(options: DemoOptions) -> int:
    """Audit the embedded detector: accuracy, system noise, attacks, proofs, and every combination of them."""
    check_outputs({"--out": options.out}, {})
    counts = {"images": None, "attack_images": 8, "square_images": 8, "pixels": (100, 1000)}
    audited = carry(options, AuditOptions, model=MODEL, data=f"signs:0:{options.images}", **counts)
    state = _run(audit_plan(audited))
    more = [_contest(options), other_models_section(options)] if options.more else []
    _write(state, (), audited, more)
    return print_verdict(state, ())


def _contest(options: DemoOptions) -> Section:
    from holdfast.contest.baselines import enter_baselines
    from holdfast.contest.board import board
    from holdfast.contest.contest import open_contest
    from holdfast.contest.make import MAKING, finish, make, open_setup
    from holdfast.contest.options import InitOptions
    from holdfast.contest.page import board_section
    from holdfast.contest.rules import RULES_FILE
    from holdfast.engine.executor import progress

    images, jobs = options.contest_images, options.jobs
    folder = options.runs / f"contest-{images}"
    if (folder / RULES_FILE).is_file() and not (folder / MAKING).exists():
        contest = open_contest(folder)
    else:
        setup = InitOptions(folder=folder, model=MODEL, images=images, name=f"demo of {images} images")
        contest = make(open_setup(setup), progress, jobs)
        finish(folder)
    enter_baselines(contest, progress, jobs)
    say("")
    return board_section(board(folder))


def other_models_section(options: DemoOptions) -> Section:
    """The shipped language and speech models under noise, each on a few examples."""
    from holdfast.engine.executor import progress
    from holdfast.noise.speech.cli import plans_of, suite_of
    from holdfast.noise.speech.result import paper_table
    from holdfast.report.parts import Section

    figures = _language(options)
    shared = carry(options, RunOptions)
    noise = carry(shared, NoiseOptions, models_data=SPEECH, task="speech", images=options.clips)
    suite, _ = suite_of(plans_of(noise), command_line(noise), progress)
    figures.append(_figure("Speech: spectrogram error", paper_table(suite)))
    lead = "System noise of the shipped language and speech models."
    return Section("beyond", "Language and speech", tuple(figures), lead)


def _language(options: DemoOptions) -> list[Figure]:
    from holdfast.core.extras import install_hint
    from holdfast.engine.executor import progress
    from holdfast.noise.language.cli import plan_of
    from holdfast.noise.language.result import models_table
    from holdfast.noise.language.run import measure, prepare

    if hint := install_hint("tokenizers"):
        sys.stderr.write(f"note     skipped the language models: {hint}\n")
        return []
    shared = carry(options, RunOptions)
    noise = carry(shared, NoiseOptions, models_data=LANGUAGE, task="language", images=options.questions)
    table = models_table(measure(prepare(plan_of(noise), progress), progress))
    return [_figure("Language: accuracy by answer likelihood", table)]


def _figure(title: str, table: Table) -> Figure:
    from holdfast.report.parts import table_figure
    from holdfast.report.tables import to_text

    say(to_text(table) + "\n")
    return table_figure(title, table, f"{table.caption}.", wide=True)
