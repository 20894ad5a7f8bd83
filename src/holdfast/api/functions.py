"""The public functions: evaluate, noise, diagnose, attack, verify, audit and compare.

Each takes objects, paths or names, and as keywords the fields of its command's options. Nothing is printed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

import numpy as np

from holdfast.api import subjects
from holdfast.api.data import DataLike, dataset
from holdfast.api.keywords import build_options, keywords
from holdfast.api.model import DEFEND, as_model
from holdfast.api.other_noise import OTHER_TASKS, other_noise
from holdfast.api.progress import watch
from holdfast.api.subjects import (
    ModelLike,
    check_files,
    options_for_call,
    plan_for_call,
    subject_names,
    with_reading,
    write_files,
)
from holdfast.attack.options import AttackOptions
from holdfast.audit.options import AuditOptions
from holdfast.compare.cli import CompareOptions
from holdfast.config.options import carry
from holdfast.config.parser import command_line
from holdfast.core import fingerprint
from holdfast.core.errors import InputError
from holdfast.core.property import Property, Verdict
from holdfast.core.result import Result, in_folder
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.engine.execution import each
from holdfast.evaluate.options import EvaluateOptions, EvaluationOptions
from holdfast.evaluate.result import Evaluation
from holdfast.noise.options import CombineOptions, NoiseOptions
from holdfast.verify.options import VerifyOptions

if TYPE_CHECKING:
    from holdfast.api import option_types as types
    from holdfast.attack.result import AttackResult
    from holdfast.audit.result import Audit
    from holdfast.compare.result import Comparison
    from holdfast.diagnose.run import Diagnosis
    from holdfast.noise.language.result import LanguageSuite
    from holdfast.noise.speech.result import SpeechSuite
    from holdfast.noise.vision.result import NoiseSuite

PathLike: TypeAlias = str | Path
RUNS = Path("holdfast-runs")


@keywords(EvaluateOptions, "model", "data")
def evaluate(
    model: ModelLike | None = None,
    data: DataLike | None = None,
    *,
    progress: bool | None = None,
    **options: Unpack[types.EvaluateKeywords],
) -> Evaluation:
    """Evaluate a model on a dataset.

    Images that fail are counted in `failed`, unless `strict` is true. Without a model and data, pass `truth`
    and `predictions`, two COCO files.
    """
    from holdfast.evaluate.per_image import check_task, records_of, write_records
    from holdfast.evaluate.run import evaluate as run
    from holdfast.evaluate.run import with_file

    if model is None or data is None:
        return _evaluate_files(build_options(EvaluateOptions, options, "evaluate", model="", data=""))
    loaded = as_model(model, options.pop("card", None))
    given = options_for_call(EvaluateOptions, options, "evaluate", loaded, data)
    if given.truth or given.predictions:
        raise InputError("evaluate(): truth and predictions are two files instead of a model and data")
    check_task(given, loaded.card.task)
    plan = with_file(plan_for_call(carry(given, EvaluationOptions), loaded, data), given.deploy_model)
    with watch(progress)("evaluate", len(plan.dataset)) as step:
        result = run(plan, step)
    write_records(given, [records_of(result)], plan.dataset)
    return write_files(result, given)


def _evaluate_files(options: EvaluateOptions) -> Evaluation:
    """The evaluation of a COCO results file against a truth file; it has no records of images."""
    from holdfast.core.sources import versions
    from holdfast.engine.manifest import now
    from holdfast.evaluate.result import RunInfo
    from holdfast.evaluate.run import settings_plain
    from holdfast.evaluate.score import score_files

    if not options.truth or not options.predictions:
        raise InputError("evaluate(): expected a model and data, or the files truth= and predictions=")
    began, settings = time.perf_counter(), options.settings()
    result = score_files(options.truth, options.predictions, settings)
    about = RunInfo(
        command=command_line(options),
        created=now(),
        seconds=round(time.perf_counter() - began, 3),
        task="detect",
        model={"name": options.predictions.name},
        data={"name": options.truth.name, "images": result["images"], "source": {}},
        classes=tuple(row["class"] for row in result["per_class"]),
        pipeline={},
        rule=result["rule"],
        settings=settings_plain(settings),
        versions=versions(),
    )
    return write_files(Evaluation(about, (), (), (), result), options)


@overload
def noise(
    model: ModelLike | Sequence[ModelLike],
    data: DataLike,
    *,
    task: Literal["pictures"] = "pictures",
    progress: bool | None = None,
    **options: Unpack[types.NoiseKeywords],
) -> NoiseSuite: ...


@overload
def noise(
    model: PathLike | Sequence[PathLike],
    data: PathLike | Sequence[PathLike],
    *,
    task: Literal["language"],
    progress: bool | None = None,
    **options: Unpack[types.NoiseKeywords],
) -> LanguageSuite: ...


@overload
def noise(
    model: PathLike | Sequence[PathLike],
    data: PathLike,
    *,
    task: Literal["speech"],
    progress: bool | None = None,
    **options: Unpack[types.NoiseKeywords],
) -> SpeechSuite: ...


@keywords(NoiseOptions, "models_data")
def noise(
    model: ModelLike | Sequence[ModelLike], data: DataLike, *, progress: bool | None = None, **options: Any
) -> NoiseSuite | LanguageSuite | SpeechSuite:
    """Measure what the deployed system does to a model, or to several: one row per noise option.

    With task="language", `model` and `data` are language models and question sets; with task="speech",
    acoustic models and a folder of clips. Both are given as paths or shipped names, one or several.
    """
    from holdfast.core.sources import versions
    from holdfast.evaluate.per_image import check_task, write_records
    from holdfast.noise.cli import plan_for, stamp
    from holdfast.noise.vision.result import SUITES, NoiseSuite, suite_folder
    from holdfast.noise.vision.run import measure, prepare, record_sets, with_file

    began, show = time.perf_counter(), watch(progress)
    if options.get("task") in OTHER_TASKS:
        return other_noise(model, data, options, show)
    models = [model] if isinstance(model, str) or not isinstance(model, Sequence) else list(model)
    cards = options.pop("card", None)
    cards = list(cards) if isinstance(cards, list | tuple) else [cards] * len(models)
    if len(cards) != len(models):
        raise InputError(f"noise(): card: expected one for each of {len(models)} models, got {len(cards)}")
    loaded = [as_model(one, card) for one, card in zip(models, cards, strict=True)]
    calibration = subjects.take_dataset(options, "calibration")
    names = [subject_names(one, data) for one in loaded]
    words = (*(name["model"] for name in names), names[0]["data"])
    given = with_reading(build_options(NoiseOptions, options, "noise", models_data=words), data)
    check_files(given)
    plans = []
    for one, name in zip(loaded, names, strict=True):
        check_task(given, one.card.task)
        single = carry(given, CombineOptions, card=None, **name)
        plan = plan_for(single, plan_for_call(carry(single, EvaluationOptions), one, data))
        plan = with_file(plan, given.deploy_model, len(loaded))
        plans.append(
            plan if calibration is None else replace(plan, calibration_data=calibration(one.card.task))
        )
    opened = plans[0].plan.dataset
    results = tuple(each(plans, lambda plan: measure(prepare(plan), show)))
    suite = NoiseSuite(opened.name, results, versions=versions(), **stamp(command_line(given), began))
    folder = suite_folder(suite, given.runs)
    SUITES.save(suite, folder)
    write_records(given, record_sets(suite, given.runs), opened)
    return write_files(in_folder(suite, folder), given)


@keywords(DiagnoseOptions, "model", "data", "input", "output")
def diagnose(
    model: ModelLike,
    data: DataLike,
    *,
    input: str | Path | np.ndarray[Any, Any] | None = None,  # noqa: A002 (the name of the option)
    output: str | Path | np.ndarray[Any, Any] | None = None,
    progress: bool | None = None,
    **options: Unpack[types.DiagnoseKeywords],
) -> Diagnosis:
    """Find the stage of the deployment that loses the metric.

    `deploy` names the deployed stages; a deployed model brings them along. `input` and `output` are tensors
    of the target, as arrays or .npy files; they need one image as data: its path, or `dataset[3]`.
    """
    from holdfast.diagnose.run import diagnose as run
    from holdfast.diagnose.unlabelled import open_unlabelled
    from holdfast.noise.cli import load_user_noise

    loaded = as_model(model, options.pop("card", None))
    if loaded.deployment and not options.get("deploy"):
        stages = [label for label in loaded.deployment if not label.startswith(DEFEND)]
        options["deploy"] = ",".join(stages)
    loaded = replace(loaded, stages=None, deployment=())
    image = subjects.one_image(data)
    with tempfile.TemporaryDirectory(prefix="holdfast-dump-") as name:
        folder = Path(name)
        dumps = {
            "input": subjects.array_file(input, folder / "input.npy"),
            "output": subjects.array_file(output, folder / "output.npy"),
        }
        given = options_for_call(DiagnoseOptions, options, "diagnose", loaded, data, **dumps)
        load_user_noise(given.use)
        evaluated = carry(given, EvaluationOptions)
        opened = open_unlabelled(Path(data), loaded, given.images) if isinstance(data, str | Path) else None
        subject = (loaded, image) if image else plan_for_call(evaluated, loaded, opened or data)
        return write_files(run(given, watch(progress), subject), given)


@keywords(AttackOptions, "model", "data", "out")
def attack(
    model: ModelLike,
    data: DataLike,
    *,
    out: str | Path | None = None,
    progress: bool | None = None,
    **options: Unpack[types.AttackKeywords],
) -> AttackResult:
    """Attack a detector with few pixels on every image of a dataset, or on one image: `dataset[3]`.

    `out` is the folder of attacked images and patches (default: a folder of its own in holdfast-runs).
    """
    from holdfast.attack.cli import attack_plan, run_attack
    from holdfast.attack.page import write
    from holdfast.attack.plan import check_attack, task_of
    from holdfast.attack.run import decoded
    from holdfast.engine.manifest import slug
    from holdfast.evaluate.run import alignment_of

    loaded = as_model(model, options.pop("card", None))
    if loaded.card.task not in ("detect", "single"):
        raise InputError(
            f"attack(): {loaded.name}: expected a detector, got a model of task {loaded.card.task!r}"
        )
    given = options_for_call(AttackOptions, options, "attack", loaded, data, out=Path(out or RUNS))
    evaluated = plan_for_call(carry(given, EvaluationOptions), loaded, data, command_line(given))
    plan = attack_plan(evaluated, given, given.out, given.seed)
    check_attack(plan)
    if out is None:
        setup = task_of(plan, alignment_of(evaluated)).setup.name
        images = [setup, plan.universal, [entry.name for entry in evaluated.dataset.entries]]
        title = slug(f"attack-{loaded.name}-on-{evaluated.dataset.name}")
        plan = replace(plan, out=RUNS / f"{title}-{fingerprint.of(images)[:8]}")
    outcome = run_attack(plan, given.contiguous, watch(progress))
    if given.page:
        write(outcome, decoded(evaluated), plan.out / "report.html")
    return write_files(outcome, given, page=False)


@keywords(VerifyOptions, "net", "prop")
def verify(
    net: ModelLike,
    prop: str | Path | Property,
    *,
    progress: bool | None = None,
    **options: Unpack[types.VerifyKeywords],
) -> Verdict:
    """Prove that no input of a property's set violates it, or find one that does.

    `net` is an ONNX file, a model or the name of a shipped one; `prop` is a VNN-LIB file or a Property. A
    model deployed with a rewritten graph (`precision`, `upsample`, `ceil`) is verified as the rewritten file.
    The status of the verdict is holds, violated, unknown, timeout or error.
    """
    from holdfast.core.model import Network
    from holdfast.core.property import Budget
    from holdfast.engine.executor import cores
    from holdfast.verify.cli import memory_bytes, progress_line, write_verdict
    from holdfast.verify.run import verify as decide
    from holdfast.verify.vnnlib import property_of, read_vnnlib

    began = time.monotonic()
    path = subjects.network_file(net, RUNS)
    file = None if isinstance(prop, Property) else Path(prop)
    given = build_options(VerifyOptions, options, "verify", net=path, prop=file)
    network = Network(path.stem, path)
    if isinstance(prop, Property):
        question = replace(prop, model=network)
    else:
        question = property_of(read_vnnlib(Path(prop)), network)
    limit = int(given.memory * 1e9) if given.memory is not None else memory_bytes()
    left = began + given.timeout - time.monotonic()
    budget = Budget(left, limit, given.jobs or cores(), given.seed)
    verdict = decide(question, budget, progress_line()) if progress else decide(question, budget)
    write_verdict(verdict, given)
    return verdict


@keywords(AuditOptions, "model", "data", "out")
def audit(
    model: ModelLike,
    data: DataLike,
    *,
    out: str | Path | None = None,
    progress: bool | None = None,
    **options: Unpack[types.AuditKeywords],
) -> Audit:
    """Audit a model: evaluation, noise, attacks and proofs within a time budget, across each other.

    `audit.save("report.html")` writes the page. `gates` of the result are the decided `fail_if`.
    """
    from holdfast.audit.cli import write_outputs, write_page
    from holdfast.audit.gates import check, gate_of, judge, read_gates
    from holdfast.audit.plan import AuditPlan
    from holdfast.audit.run import audit as run
    from holdfast.audit.state import gate_metric

    began = time.monotonic()
    loaded = as_model(model, options.pop("card", None))
    keys: dict[str, Any] = {**options}
    calibration = subjects.take_dataset(keys, "calibration")
    page = Path(out or "report.html")
    given = options_for_call(AuditOptions, keys, "audit", loaded, data, out=page)
    gates = [*map(gate_of, given.fail_if), *(read_gates(given.gates) if given.gates else ())]
    check(gates)
    evaluated = plan_for_call(carry(given, EvaluationOptions), loaded, data, command_line(given))
    check(gates, metrics=(gate_metric(evaluated),))
    pool = calibration(loaded.card.task) if calibration else None
    if pool is None and given.calibration:
        pool = dataset(given.calibration, task=loaded.card.task)
    plan = AuditPlan(evaluated, given, pool or subjects.other_images(evaluated.dataset))
    state = run(plan, watch(progress), began)
    judged = judge(gates, state.result, given.min_images) if gates else ()
    write_page(state, judged)
    if out is not None:
        state.result.save(out)
    write_outputs(state, judged, given)
    object.__setattr__(state.result, "_gates", tuple(judged))
    return in_folder(state.result, plan.folder)


@keywords(CompareOptions, "run_a", "run_b")
def compare(
    before: Result | str | Path, after: Result | str | Path, **options: Unpack[types.CompareKeywords]
) -> Comparison:
    """Compare two results of one kind, or two run folders: what became better or worse, with intervals."""
    from holdfast.compare.run import compare_results

    given = build_options(CompareOptions, options, "compare", run_a=Path(), run_b=Path())
    check_files(given)
    return write_files(compare_results(before, after), given)


def open_run(path: str | Path) -> Result:
    """The result in a run folder: an evaluation, a noise suite or an audit."""
    from holdfast.compare.run import open_result

    return open_result(Path(path))
