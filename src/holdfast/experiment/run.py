"""Run an experiment trial by trial; a trial that fails is reported, the others continue."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.audit.gates import GateVerdict
from holdfast.config.parser import command_line
from holdfast.core.errors import HoldfastError, OutputError, UnknownName, one_line
from holdfast.core.sources import versions
from holdfast.engine.execution import PartFinished
from holdfast.engine.manifest import now
from holdfast.experiment.cli import ExperimentOptions
from holdfast.experiment.context import ExperimentContext, Trial
from holdfast.experiment.plan import Experiment, Verify
from holdfast.experiment.result import ExperimentResult, TrialResult, experiment_folder, save
from holdfast.experiment.trials import Keep, check_trial, run_trial


def trials_of(experiment: Experiment, only: Sequence[str] = ()) -> tuple[Trial, ...]:
    """The trials in the order of the file: models, datasets, conditions; a specification once per model.

    `only` names conditions. Evaluations include the first one, which they are compared with.
    """
    known = [condition.name for condition in experiment.conditions]
    for name in only:
        if name not in known:
            raise UnknownName("condition", name, known)
    selected = set(only or known)
    evaluations = [c.name for c in experiment.conditions if c.do == "evaluate"]
    if selected & set(evaluations):
        selected.add(evaluations[0])
    trials = []
    conditions = [condition for condition in experiment.conditions if condition.name in selected]
    for model in experiment.models:
        for data in experiment.data:
            trials += [Trial(model, data, c) for c in conditions if not isinstance(c.work, Verify)]
        verify = [(c, c.work) for c in conditions if isinstance(c.work, Verify)]
        trials += [Trial(model, None, condition, spec) for condition, work in verify for spec in work.spec]
    return tuple(trials)


def execute(
    context: ExperimentContext,
    only: Sequence[str] = (),
    begin: Callable[[Trial, int, int], None] = lambda trial, number, of: None,
    keep: Keep = lambda trial, result, line: None,
    command: str = "",
) -> ExperimentResult:
    """Run all trials and save the result after each; `keep` writes a page, `begin` announces a trial."""
    began = time.perf_counter()
    trials = trials_of(context.experiment, only)
    folder = experiment_folder(context.experiment, context.runs)
    command = command or command_line(ExperimentOptions(file=context.experiment.file))
    created, count = now(), len(trials)
    result = ExperimentResult(context.experiment, (), count, created, command=command, versions=versions())
    save(result, folder)
    finished: PartFinished | None = None  # with --part: cells of other parts are missing
    for number, trial in enumerate(trials, 1):
        begin(trial, number, len(trials))
        try:
            line = _run_one(context, trial, keep)
        except PartFinished as problem:
            finished = problem
            continue
        seconds = round(time.perf_counter() - began, 3)
        result = replace(result, results=(*result.results, line), seconds=seconds)
        save(result, folder)
    if finished:
        raise finished
    return result


def _run_one(context: ExperimentContext, trial: Trial, keep: Keep) -> TrialResult:
    began = time.perf_counter()
    try:
        line, full_result = run_trial(context, trial)
        page = keep(trial, full_result, line)
        line = replace(line, page="" if page is None else str(page))
    except (OutputError, PartFinished):
        raise  # the following trials would fail too, or this one is not complete
    except Exception as problem:  # noqa: BLE001 - one failed trial must not stop the others
        reason = f"internal error, please report it ({type(problem).__name__}: {problem})"
        note = " ".join((str(problem) if isinstance(problem, HoldfastError) else reason).split())
        gates = context.experiment.gates if trial.condition.do == "audit" else ()  # they fail with it
        verdicts = tuple(GateVerdict(gate, None, True, "not measured: the audit failed") for gate in gates)
        line = context.result(trial, note, state="failed", gates=verdicts)
    return replace(line, seconds=round(time.perf_counter() - began, 3))


def plan_trials(context: ExperimentContext, only: Sequence[str] = ()) -> tuple[TrialResult, ...]:
    """One result per trial with its number of images, or the reason why it would fail; nothing is run."""
    results = []
    for trial in trials_of(context.experiment, only):
        try:
            results.append(context.result(trial, images=check_trial(context, trial)))
        except HoldfastError as problem:
            results.append(context.result(trial, one_line(problem), state="failed"))
    return tuple(results)
