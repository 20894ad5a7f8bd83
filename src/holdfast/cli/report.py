"""`holdfast report` and `holdfast doctor`."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.options import DoctorOptions, ReportOptions
from holdfast.config.output import say


def report(options: ReportOptions) -> None:
    """Write a run as one self-contained HTML page."""
    from holdfast.audit.result import MANIFEST as AUDIT
    from holdfast.noise.vision.result import MANIFEST

    run, out = options.run, options.out
    if run.name == AUDIT or (run / AUDIT).exists():
        return _audit(run if run.is_dir() else run.parent, out)
    if run.name == MANIFEST or (run / MANIFEST).exists():
        from holdfast.noise.vision.page import write as write_noise
        from holdfast.noise.vision.result import open_suite

        return say(f"report: {write_noise(open_suite(run), out).resolve()}")
    from holdfast.noise.language.result import MANIFEST as LANGUAGE

    if run.name == LANGUAGE or (run / LANGUAGE).exists():
        from holdfast.noise.language.page import write as write_language
        from holdfast.noise.language.result import open_suite as open_language_suite

        return say(f"report: {write_language(open_language_suite(run), out).resolve()}")
    from holdfast.noise.speech.result import MANIFEST as SPEECH

    if run.name == SPEECH or (run / SPEECH).exists():
        from holdfast.noise.speech.cli import report as report_speech

        return report_speech(run, out)
    from holdfast.evaluate.page import write
    from holdfast.evaluate.pictures import pictures
    from holdfast.evaluate.result import open_run

    evaluation = open_run(run)
    return say(f"report: {write(evaluation, out, pictures(evaluation)).resolve()}")


def _audit(run: Path, out: Path) -> None:
    """Write the page of an audit: with all pictures as it was made, otherwise from its numbers."""
    from holdfast.audit.page import write
    from holdfast.audit.result import PAGE, open_audit
    from holdfast.engine.store import write_atomic

    found = open_audit(run)
    if (run / PAGE).is_file():
        write_atomic(out, (run / PAGE).read_bytes())
    else:
        write(found, out)
    say(f"report: {out.resolve()}")


def doctor(_options: DoctorOptions) -> int:
    """Print versions, extras and CPU features, what is missing and the pip line for it."""
    from holdfast.engine.doctor import diagnose
    from holdfast.report.tables import Table, to_text

    findings = diagnose()
    rows = [[f.topic, f.name, f.state, f.remedy] for f in findings]
    say(to_text(Table(["", "what", "state", "remedy"], rows)))
    broken = [f for f in findings if f.topic == "library" and f.remedy]
    return 2 if broken else 0
