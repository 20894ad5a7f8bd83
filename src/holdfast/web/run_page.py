"""The page of a finished run, generated from its files."""

from collections.abc import Callable
from pathlib import Path

from holdfast.audit import page as audit
from holdfast.audit.result import open_audit
from holdfast.certify import classify_result as classes
from holdfast.certify import page as certify
from holdfast.certify.classify_result import CLASSIFIED
from holdfast.certify.result import CERTIFICATIONS
from holdfast.evaluate import page as evaluation
from holdfast.evaluate.result import open_run
from holdfast.noise.language import page as language
from holdfast.noise.language.result import open_suite as open_language
from holdfast.noise.speech import page as speech
from holdfast.noise.speech.result import open_suite as open_speech
from holdfast.noise.vision import page as vision
from holdfast.noise.vision.result import open_suite


def _speech(run: Path) -> str:
    suite, folder = open_speech(run), run if run.is_dir() else run.parent
    examples = (speech.open_example(folder, model.model) for model in suite.models)
    return speech.page(suite, [example for example in examples if example is not None])


def _evaluation(run: Path) -> str:
    result = open_run(run)
    return evaluation.page(result, evaluation.pictures(result))


# Kind -> manifest, the page of a folder or manifest, and the usual name of the page. The audit is first: its
# folder may contain the runs of its parts.
PAGES: dict[str, tuple[str, Callable[[Path], str], str]] = {
    "audit": ("audit.json", lambda run: audit.page(open_audit(run)), "report.html"),
    "noise": ("noise.json", lambda run: vision.page(open_suite(run)), "noise.html"),
    "language": ("language.json", lambda run: language.page(open_language(run)), "noise.html"),
    "speech": ("speech.json", _speech, "speech.html"),
    "certify": ("certify.json", lambda run: certify.page(CERTIFICATIONS.open(run)), "certify.html"),
    "certify-classes": (
        "certify-classes.json",
        lambda run: classes.page(CLASSIFIED.open(run)),
        "certify.html",
    ),
    "evaluation": ("run.json", _evaluation, "report.html"),
}
