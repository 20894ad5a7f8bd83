"""`holdfast report`, `holdfast demo` and `holdfast doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.cli.args import Argument, Option
from holdfast.cli.output import say


def report(
    run: Annotated[Path, Argument("The folder of a run (or its run.json).")],
    out: Annotated[Path, Option("The page to write.", short="-o")] = Path("report.html"),
) -> None:
    """Write a run as one self-contained HTML page."""
    from holdfast.report.html import write
    from holdfast.run.evaluation import open_run
    from holdfast.run.pictures import pictures

    evaluation = open_run(run)
    say(f"report: {write(evaluation, out, pictures(evaluation)).resolve()}")


def demo(
    out: Annotated[Path, Option("The page to write.", short="-o")] = Path("report.html"),
    images: Annotated[int, Option("How many embedded scenes.", least=1)] = 400,
    runs: Annotated[Path, Option("Where the run is kept.", shown="FOLDER")] = Path("holdfast-runs"),
    jobs: Annotated[int, Option("Processes; 0: one a core.", least=0)] = 0,
) -> int:
    """Evaluate the embedded detector on the embedded road scenes and write the page."""
    from holdfast.core.errors import OutputError

    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'report.html'}")
    from holdfast.cli.evaluate import Choices, Shape, plan_of, run_plan
    from holdfast.metrics.rules import RULES
    from holdfast.run.evaluate import run_folder
    from holdfast.run.score import Settings

    plan = plan_of("signs-yolo", f"signs:0:{images}", Settings(RULES["coco"]), Choices(runs=runs, jobs=jobs))
    code = run_plan(plan, Shape())
    report(run_folder(plan), out)
    return code


def doctor() -> int:
    """Print versions, extras and CPU features, what is missing and the pip line for it."""
    from holdfast.report.tables import Table, to_text
    from holdfast.run.doctor import diagnose

    findings = diagnose()
    rows = [[f.topic, f.name, f.state, f.remedy] for f in findings]
    say(to_text(Table(["", "what", "state", "remedy"], rows)))
    broken = [f for f in findings if f.topic == "library" and f.remedy]
    return 2 if broken else 0
