"""`holdfast audit`: every engine on one model, one page, one gate."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import check_writable, say
from holdfast.evaluate.cli import Choices, Classes, Format, Images, Jobs, Renames, Runs, Split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.audit.gates import Gate, Judged
    from holdfast.audit.made import Made
    from holdfast.audit.plan import AuditPlan
    from holdfast.core.dataset import Dataset
    from holdfast.evaluate.run import Plan
    from holdfast.report.parts import Section

PAGE = "report.html"  # in the folder of the audit
MOST = 2**31 - 1
ENOUGH = 20  # as run.audit.result.ENOUGH, which is not imported for the help
WHAT, HOW, GATES, SHOWN = "What is audited", "How thoroughly", "Gates", "How it is shown"
Model = Annotated[str, Argument("An ONNX file, or a shipped model.", values=offers.models)]
Data = Annotated[
    str, Argument("A data set: folder or file, or 'signs' (signs:SEED:COUNT).", values=offers.data_sets)
]
Out = Annotated[Path, Option("The page to write.", short="-o", shown="PAGE", group=SHOWN)]
Json = Annotated[Path | None, Option("Write everything to this JSON file.", group=SHOWN)]
Junit = Annotated[Path | None, Option("Write the gates as JUnit XML.", group=GATES)]
Sarif = Annotated[Path | None, Option("Write failed gates and findings as SARIF 2.1.0.", group=GATES)]
FailIf = Annotated[
    tuple[str, ...],
    Option("Exit with 1 if so, e.g. 'noise.map50.drop > 0.02'. May be repeated.", shown="GATE", group=GATES),
]
GateFile = Annotated[Path | None, Option("A TOML file with more of them under [gates].", group=GATES)]
MinImages = Annotated[
    int, Option("Fewest images that decide a gate; below it is reported, not failed.", group=GATES, least=1)
]
Budget = Annotated[
    str, Option("Time for all of it: 10m, 90s, 1h30m, none; what fits is planned.", shown="TIME", group=HOW)
]
Only = Annotated[
    tuple[str, ...],
    Option("Only these parts: evaluate, noise, combine, attack, squares, specs, matrix, recheck.",
           shown="PART", group=HOW),
]  # fmt: skip
NoiseImages = Annotated[
    int | None, Option("Images that meet every noise (else planned).", group=HOW, least=2, most=MOST)
]
AttackImages = Annotated[
    int | None, Option("Images that are attacked (else planned).", group=HOW, least=1, most=MOST)
]
SquareImages = Annotated[
    int | None, Option("Images with a square at every place.", group=HOW, least=1, most=MOST)
]
Places = Annotated[int, Option("Places of the square, at most.", group=HOW, least=4, most=MOST)]
Share = Annotated[
    float,
    Option("The square's side as a part of the shorter side.", "--square", group=HOW, least=0.01, most=0.9),
]
RuleName = Annotated[
    str | None,
    Option("AP rule: voc (default, mAP@.5), coco, voc2007 or lecture.", shown="NAME", group=WHAT,
           values=offers.rules),
]  # fmt: skip
Pixels = Annotated[
    tuple[int, ...],
    Option(
        "Budget of an attack in pixels (100, 300, 1000, 3000). May be repeated.",
        group=HOW,
        least=1,
        most=MOST,
    ),
]
Steps = Annotated[int, Option("Gradient steps of an attack.", group=HOW, least=1, most=MOST)]
Specs = Annotated[tuple[Path, ...], Option("A VNN-LIB file to verify. May be repeated.", "--spec", group=HOW)]
Seed = Annotated[int, Option("Another seed, another search.", group=HOW, least=0, most=MOST)]
Card = Annotated[Path | None, Option("The model's card, if it does not lie beside it.", group=WHAT)]
CalibrationData = Annotated[
    str | None,
    Option("Images to calibrate integer precisions on (else others of DATA).", shown="DATA", group=WHAT),
]


@dataclass(frozen=True)
class AuditChoices:
    """What an audit is asked for, in the words of the command line."""

    budget: str = "10m"
    images: int | None = None
    only: tuple[str, ...] = ()
    noise_images: int | None = None
    attack_images: int | None = None
    square_images: int | None = None
    places: int = 400
    square: float = 0.05
    pixels: tuple[int, ...] = ()
    steps: int = 40
    specs: tuple[Path, ...] = ()
    seed: int = 0
    rule: str | None = None
    card: Path | None = None
    data_format: str | None = None
    split: str | None = None
    common: bool = False
    renames: tuple[str, ...] = ()
    calibration: str | None = None
    runs: Path = Path("holdfast-runs")
    jobs: int = 0


def audit(
    model: Model,
    data: Data,
    out: Out = Path("report.html"),
    budget: Budget = "10m",
    only: Only = (),
    noise_images: NoiseImages = None,
    attack_images: AttackImages = None,
    square_images: SquareImages = None,
    places: Places = 400,
    square: Share = 0.05,
    pixels: Pixels = (),
    steps: Steps = 40,
    spec: Specs = (),
    seed: Seed = 0,
    fail_if: FailIf = (),
    gates: GateFile = None,
    min_images: MinImages = ENOUGH,
    junit: Junit = None,
    sarif: Sarif = None,
    json: Json = None,
    card: Card = None,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    classes: Classes = "all",
    rename: Renames = (),
    rule: RuleName = None,
    calibration: CalibrationData = None,
    runs: Runs = Path("holdfast-runs"),
    jobs: Jobs = 0,
) -> int:
    """Does this detector hold fast? Evaluation, noise, patches and proofs of one model, across each other.

    Plans what fits into the budget and says what it left out. Killed at any point, the same command goes on.
    Exit code 1: a gate failed. 2: bad input. 4: some images could not be read.
    """
    from holdfast.core.errors import OutputError

    began = time.monotonic()
    for path in (out, json, junit, sarif):
        if path is not None and path.is_dir():
            raise OutputError(f"{path}: is a folder; give the name of a file in it")
        if path is not None:
            check_writable(path)
    asked = gates_from(fail_if, gates)  # before anything is run: a wrong name ends it here
    how = AuditChoices(
        budget, images, only, noise_images, attack_images, square_images, places, square, pixels, steps, spec,
        seed, rule, card, data_format, split, classes == "common", rename, calibration, runs, jobs,
    )  # fmt: skip
    plan = audit_plan(model, data, how)
    check_gates(asked, plan)
    made = run_plan(plan, began)
    judged = judged_by(made, asked, min_images)
    write_all(made, judged, out, json, junit, sarif, until=began + (plan.wish.budget or math.inf))
    return told(made, judged)


def gates_from(texts: Sequence[str], file: Path | None) -> tuple[Gate, ...]:
    """The gates of the command line and of a TOML file."""
    from holdfast.audit.gates import check, gate_of, read_gates

    found = (*(gate_of(text) for text in texts), *(read_gates(file) if file else ()))
    check(found)
    return found


def check_gates(gates: Sequence[Gate], plan: AuditPlan) -> None:
    """Nothing; InputError if a gate names a metric this model is not measured by."""
    from holdfast.audit.gates import check
    from holdfast.audit.summary import gate_metric

    check(gates, metrics=(gate_metric(plan.plan),))


def run_audit(model: str, data: str, how: AuditChoices) -> Made:
    """The audit of a model on data, with progress on standard error."""
    return run_plan(audit_plan(model, data, how))


def run_plan(wanted: AuditPlan, began: float | None = None) -> Made:
    """The audit of a plan, with progress on standard error; its time runs from `began` (time.monotonic)."""
    from holdfast.audit.run import audit as run
    from holdfast.noise.cli import watch

    for reason in wanted.plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    for problem in wanted.plan.dataset.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")
    return run(wanted, watch, began)


def audit_plan(model: str, data: str, how: AuditChoices) -> AuditPlan:
    """The model and the data opened, and all that was asked for."""
    from holdfast.audit.plan import PIXELS, AuditPlan, Wish, budget_of
    from holdfast.evaluate.cli import plan_of
    from holdfast.evaluate.score import Settings
    from holdfast.metrics.rules import rule_named
    from holdfast.noise.cli import words_of

    wish = Wish(
        budget_of(how.budget), words_of(how.only), how.noise_images, how.attack_images, how.square_images,
        how.places, how.square, tuple(sorted(set(how.pixels))) or PIXELS, how.steps, how.specs, how.seed,
    )  # fmt: skip
    choices = Choices(
        how.card, how.data_format, how.split, how.images, (), how.renames, False, how.common, None, how.runs,
        how.jobs,
    )  # fmt: skip
    plan = plan_of(model, data, Settings(rule_named(how.rule or "voc")), choices)
    calibrated = ("--calibration", how.calibration) if how.calibration else ()
    words = _words(model, data, how)
    return AuditPlan(plan, wish, _spare(data, how, plan), words, calibrated=calibrated, limit=how.images)


def _spare(data: str, how: AuditChoices, plan: Plan) -> Dataset | None:
    """Images to calibrate on: those named, other embedded scenes, or those beyond what is tested."""
    from holdfast.data.open import open_dataset
    from holdfast.noise.vision.calibration import spare_of

    if how.calibration:
        return open_dataset(how.calibration, task=plan.model.card.task)
    return spare_of(data, plan.model.card.task, how.data_format, how.split)


def _words(model: str, data: str, how: AuditChoices) -> tuple[str, ...]:
    """MODEL DATA and the options that say how both are read, for commands that give a number again."""
    given = {"--card": how.card, "--format": how.data_format, "--split": how.split}
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    common = ["--classes", "common"] if how.common else []
    return (model, data, *options, *common, *(word for pair in how.renames for word in ("--map", pair)))


def judged_by(made: Made, gates: Sequence[Gate], min_images: int = ENOUGH) -> tuple[Judged, ...]:
    """The gates, judged by what the audit found."""
    from holdfast.audit.gates import judge

    return judge(gates, made.found, min_images) if gates else ()


def write_all(
    made: Made,
    judged: Sequence[Judged],
    out: Path,
    json: Path | None = None,
    junit: Path | None = None,
    sarif: Path | None = None,
    more: Sequence[Section] = (),
    until: float = math.inf,
) -> None:
    """Write the page to the audit's folder and where it was asked for, and the other files.

    After `until` (of time.monotonic) the page gets no more pictures.
    """
    from holdfast.audit.page import write
    from holdfast.audit.pages.details import sections
    from holdfast.audit.result import as_plain
    from holdfast.config.output import write_json
    from holdfast.engine.store import write_atomic

    found = made.found
    plain = {**as_plain(found), "gates": [dataclasses.asdict(one) for one in judged]}
    page = write(found, made.plan.folder / PAGE, [*sections(made, until), *more], judged)
    write_atomic(out, page.read_bytes())
    if json:
        write_json(json, plain)
    if junit:
        from holdfast.audit.pages.junit import junit as to_junit

        write_atomic(junit, to_junit(found, judged).encode())
    if sarif:
        from holdfast.audit.pages.sarif import sarif as to_sarif

        write_atomic(sarif, to_sarif(found, judged).encode())
    say(f"report: {out.resolve()}", sys.stderr)


def told(made: Made, judged: Sequence[Judged]) -> int:
    """The exit code, after the verdict was printed: 1 if a gate failed, 4 if images could not be read."""
    from holdfast.audit.gates import outcome
    from holdfast.audit.pages.gates import table
    from holdfast.audit.pages.words import verdict
    from holdfast.report.tables import to_text

    for line in verdict(made.found):
        say(f"{line.name}{f' ({line.basis})' if line.basis else ''}: {line.text}")
    for part in made.found.parts:
        if part.left_out:
            say(f"left out: {part.name}: {part.left_out}")
    if made.plan.wish.budget and any(part.left_out for part in made.found.parts):
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
