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
    from holdfast.run.noise.result import MANIFEST

    if run.name == MANIFEST or (run / MANIFEST).exists():
        from holdfast.report.noise import write as write_noise
        from holdfast.run.noise.result import open_suite

        return say(f"report: {write_noise(open_suite(run), out).resolve()}")
    from holdfast.report.html import write
    from holdfast.run.evaluation import open_run
    from holdfast.run.pictures import pictures

    evaluation = open_run(run)
    return say(f"report: {write(evaluation, out, pictures(evaluation)).resolve()}")


def demo(
    out: Annotated[Path, Option("The page to write.", short="-o")] = Path("report.html"),
    images: Annotated[int, Option("How many embedded scenes are evaluated.", least=1)] = 400,
    noise_images: Annotated[int, Option("How many of them meet every noise.", least=2)] = 60,
    runs: Annotated[Path, Option("Where the run is kept.", shown="FOLDER")] = Path("holdfast-runs"),
    jobs: Annotated[int, Option("Processes; 0: one a core.", least=0)] = 0,
) -> int:
    """Evaluate the embedded detector on the embedded road scenes, put every noise to it, write the page."""
    from holdfast.core.errors import OutputError

    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'report.html'}")
    from holdfast.cli.evaluate import Choices, Shape, plan_of, run_plan
    from holdfast.cli.noise import demo_sections
    from holdfast.metrics.rules import RULES
    from holdfast.report.html import write
    from holdfast.run.evaluate import run_folder
    from holdfast.run.evaluation import open_run
    from holdfast.run.pictures import pictures
    from holdfast.run.score import Settings

    how = Choices(runs=runs, jobs=jobs)
    plan = plan_of("signs-yolo", f"signs:0:{images}", Settings(RULES["coco"]), how)
    code = run_plan(plan, Shape())
    more = demo_sections("signs-yolo", f"signs:0:{noise_images}", how)
    evaluation = open_run(run_folder(plan))
    say(f"report: {write(evaluation, out, pictures(evaluation), more).resolve()}")
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
