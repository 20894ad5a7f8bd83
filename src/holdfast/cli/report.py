"""`holdfast report`, `holdfast demo` and `holdfast doctor`."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    run: Path = typer.Argument(help="The folder of a run (or its run.json)."),
    out: Path = typer.Option(Path("report.html"), "-o", "--out", help="The page to write."),
) -> None:
    """Write a run as one self-contained HTML page."""
    from holdfast.report.html import write
    from holdfast.run.evaluation import open_run
    from holdfast.run.pictures import pictures

    evaluation = open_run(run)
    typer.echo(f"report: {write(evaluation, out, pictures(evaluation)).resolve()}")


def demo(
    out: Path = typer.Option(Path("report.html"), "-o", "--out", help="The page to write."),
    images: int = typer.Option(400, min=1, help="How many embedded scenes."),
    runs: Path = typer.Option(Path("holdfast-runs"), help="Where the run is kept."),
    jobs: int = typer.Option(0, min=0, help="Processes; 0: one a core."),
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
    typer.echo(to_text(Table(["", "what", "state", "remedy"], rows)))
    broken = [f for f in findings if f.topic == "library" and f.remedy]
    return 2 if broken else 0
