"""`holdfast report` and `holdfast doctor`."""

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
    from holdfast.run.audit.result import MANIFEST as AUDIT
    from holdfast.run.noise.result import MANIFEST

    if run.name == AUDIT or (run / AUDIT).exists():
        return _audit(run if run.is_dir() else run.parent, out)
    if run.name == MANIFEST or (run / MANIFEST).exists():
        from holdfast.report.noise import write as write_noise
        from holdfast.run.noise.result import open_suite

        return say(f"report: {write_noise(open_suite(run), out).resolve()}")
    from holdfast.run.language.result import MANIFEST as LANGUAGE

    if run.name == LANGUAGE or (run / LANGUAGE).exists():
        from holdfast.report.language import write as write_language
        from holdfast.run.language.result import open_suite as open_language_suite

        return say(f"report: {write_language(open_language_suite(run), out).resolve()}")
    from holdfast.run.speech.result import MANIFEST as SPEECH

    if run.name == SPEECH or (run / SPEECH).exists():
        from holdfast.cli.noise_speech import report as report_speech

        return report_speech(run, out)
    from holdfast.report.html import write
    from holdfast.run.evaluation import open_run
    from holdfast.run.pictures import pictures

    evaluation = open_run(run)
    return say(f"report: {write(evaluation, out, pictures(evaluation)).resolve()}")


def _audit(run: Path, out: Path) -> None:
    """Nothing; the page of an audit is written: with all pictures as it was made, else from its numbers."""
    from holdfast.cli.audit import PAGE
    from holdfast.report.audit import write
    from holdfast.run.audit.result import open_audit
    from holdfast.run.store import write_atomic

    found = open_audit(run)
    if (run / PAGE).is_file():
        write_atomic(out, (run / PAGE).read_bytes())
    else:
        write(found, out)
    say(f"report: {out.resolve()}")


def doctor() -> int:
    """Print versions, extras and CPU features, what is missing and the pip line for it."""
    from holdfast.report.tables import Table, to_text
    from holdfast.run.doctor import diagnose

    findings = diagnose()
    rows = [[f.topic, f.name, f.state, f.remedy] for f in findings]
    say(to_text(Table(["", "what", "state", "remedy"], rows)))
    broken = [f for f in findings if f.topic == "library" and f.remedy]
    return 2 if broken else 0
