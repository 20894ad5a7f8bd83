"""The page of an evaluation: headline, the sections of its task, its worst images, and what was run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, InputError
from holdfast.data.open import open_dataset
from holdfast.engine.store import printable
from holdfast.evaluate.result import About, Evaluation
from holdfast.report.gallery import Picture, WorstImages, gallery
from holdfast.report.html import SIZE_LIMIT, document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, duration, flat, fragment, scroll
from holdfast.report.tables import Table, grouped, many, to_html

# Name on the page and meaning of each metric that is known; others appear under their own key.
_METRICS: dict[str, tuple[str, str]] = {
    "AP50": ("mAP@.5", "mean over classes of AP at IoU 0.5"),
    "AP": ("mAP@.5:.95", "mean of AP over ten IoU thresholds"),
    "mAP": ("mAP", "mean over classes of AP"),
    "AP75": ("mAP@.75", "mean over classes of AP at IoU 0.75"),
    "top1": ("top-1", "the best answer is the true class"),
    "top5": ("top-5", "the true class is among the best five"),
    "mIoU": ("mean IoU", "mean over classes of TP / (TP + FP + FN)"),
    "pixel_accuracy": ("pixel accuracy", "share of pixels with the right class"),
    "iou_equal": ("IoU × equal", "mean of IoU with the true box, 0 if the class is wrong"),
    "above_half": ("above ½", "share of images with IoU × equal above 0.5"),
    "APs": ("AP small", "true area below 32² pixels"),
    "APm": ("AP medium", "true area 32² to 96² pixels"),
    "APl": ("AP large", "true area above 96² pixels"),
    "AR1": ("AR@1", "recall with one detection per image and class"),
    "AR10": ("AR@10", "recall with ten detections per image and class"),
    "AR100": ("AR@100", "recall with a hundred detections per image and class"),
    "ARs": ("AR small", "recall, true area below 32² pixels"),
    "ARm": ("AR medium", "recall, true area 32² to 96² pixels"),
    "ARl": ("AR large", "recall, true area above 96² pixels"),
}
_ORDER = ("AP50", "AP", "AP75")
_RATES = {
    "precision": ("Precision", "of what it reports is right"),
    "recall": ("Recall", "of what is there is found"),
    "f1": ("F1", "harmonic mean of the two"),
}
_LARGE = 3  # metrics on large cards; precision, recall and F1 follow them
_LISTED = 200  # failures and notes that are written out


def page(evaluation: Evaluation, picture: Picture, more: Sequence[Section] = ()) -> str:
    """The evaluation as one HTML file; `picture` gives an image's encoded bytes by its record's name.

    `more` are sections of other engines on the same model and data; they come before the details.
    """
    parts, worst = task_sections(evaluation)
    parts = [*more, *parts]
    trouble = trouble_section(evaluation)
    rest = [*([trouble] if trouble else []), run_section(evaluation)]
    size = len(document(_document(evaluation, [*parts, *rest])).encode())
    images = gallery(worst, picture, SIZE_LIMIT - size - 200_000) if worst.shots else None
    return document(_document(evaluation, [*parts, *([images] if images else []), *rest]))


def write(evaluation: Evaluation, out: Path, picture: Picture, more: Sequence[Section] = ()) -> Path:
    """Write the page, whole or not at all; OutputError if it cannot be written there. Return its path."""
    return write_page(page(evaluation, picture, more), out)


def task_sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of an evaluation by its task, and its worst images."""
    from holdfast.evaluate import class_pages, detect_page

    sections = {
        "detect": detect_page.sections,
        "classify": class_pages.classify_sections,
        "single": class_pages.single_sections,
        "segment": class_pages.segment_sections,
    }
    task = evaluation.about.task
    if task not in sections:
        raise InputError(f"report: expected task detect, classify, segment or single, got {task!r}")
    return sections[task](evaluation)


def _document(evaluation: Evaluation, sections: list[Section]) -> Document:
    what = evaluation.about
    subject = (str(what.model.get("name", "model")), str(what.data.get("name", "data")))
    large, small = cards(evaluation.result)
    return Document(
        title=f"{subject[0]} on {subject[1]}",
        subject=subject,
        facts=facts(evaluation),
        verdict=verdict(evaluation),
        cards=large,
        minor=small,
        rule=what.rule,
        command=what.command,
        alerts=alerts(evaluation),
        sections=tuple(sections),
    )


def cards(result: dict[str, Any]) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """The large cards and the small ones, from whatever metrics the result has."""
    metrics = {k: v for k, v in result.get("metrics", {}).items() if isinstance(v, int | float | None)}
    ordered = [k for k in _ORDER if k in metrics] + [k for k in metrics if k not in _ORDER]
    large = [_card(key, metrics[key], result) for key in ordered[:_LARGE]]
    counted = result.get("at_score", {})
    rates = [
        Card(name, counted[key], f"{note}, at score threshold {counted.get('score', 0):g}")
        for key, (name, note) in _RATES.items()
        if key in counted
    ]
    small = [_card(key, metrics[key], result) for key in ordered[_LARGE:]]
    return (*large, *rates), tuple(small)


def verdict(evaluation: Evaluation) -> str:
    """The result in one sentence."""
    metrics, counted = evaluation.result.get("metrics", {}), evaluation.result.get("at_score", {})
    images, task = len(evaluation.records), evaluation.about.task
    if {"tp", "fp", "fn"} <= counted.keys():
        tp, fp, fn = (int(counted[k]) for k in ("tp", "fp", "fn"))
        found = f"it finds {_of(tp, tp + fn, 'objects')}" if tp + fn else "there is no object to find"
        right = f"{_percent(tp, tp + fp)} of what it reports is right" if tp + fp else "it reports nothing"
        return f"At a score threshold of {counted.get('score', 0):g}, {found}, and {right}."
    if task == "classify" and metrics.get("top1") is not None:
        return f"It names the right class of {_of(round(metrics['top1'] * images), images, 'images')}."
    if task == "segment" and metrics.get("pixel_accuracy") is not None:
        return f"It gives {metrics['pixel_accuracy']:.1%} of all pixels the right class."
    if task == "single" and metrics.get("above_half") is not None:
        good = _of(round(metrics["above_half"] * images), images, "images")
        return f"It names the object and covers it by more than half on {good}."
    return f"Evaluated on {grouped(images)} images."


def _card(key: str, value: float | None, result: dict[str, Any]) -> Card:
    name, note = _METRICS.get(key, (key, ""))
    iou = result.get("at_score", {}).get("iou")
    if key == "mAP" and iou is not None:
        name, note = f"mAP@{iou:g}".replace("@0.", "@."), f"{note} at IoU {iou:g}"
    return Card(name, value, note)


def _of(part: int, whole: int, things: str) -> str:
    return f"{grouped(part)} of {grouped(whole)} {things} ({_percent(part, whole)})"


def _percent(part: int, whole: int) -> str:
    """The share in percent; never 100 % unless it is all, never 0 % unless it is none."""
    if not whole:
        return "n/a"
    share = 100 * part / whole
    near = "> 99.9" if part < whole and share > 99.9 else "< 0.1" if part and share < 0.1 else f"{share:.1f}"
    return f"{near.removesuffix('.0')} %"


def facts(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    """The few facts of the page's head, as (name, value)."""
    about = evaluation.about
    time, reused = duration(about.seconds), int(about.data.get("reused_images", 0))
    return (
        ("task", about.task),
        ("images", grouped(len(evaluation.records))),
        ("classes", str(len(about.classes))),
        ("time", f"{time} ({grouped(reused)} images from earlier)" if reused else time),
        ("run", about.created.replace("T", " ").replace("+00:00", " UTC")),
        ("holdfast", about.versions.get("holdfast", "n/a")),
    )


def alerts(evaluation: Evaluation) -> tuple[Alert, ...]:
    """What the reader must know before the numbers: doubts, failures, guesses, problems of the data."""
    found = [Alert(line, "trouble") for line in evaluation.result.get("warnings", ())]
    if failed := len(evaluation.failed):
        whole, is_are = many(failed + len(evaluation.records), "image"), "is" if failed == 1 else "are"
        found.append(Alert(f"{failed} of {whole} failed and {is_are} in no number", "trouble"))
    if guessed := len(evaluation.about.model.get("guessed", ())):
        what = many(guessed, "property", "properties")
        found.append(Alert(f"{what} of the model guessed: no card states them", "run"))
    if problems := problem_count(evaluation.about):
        found.append(Alert(f"{many(problems, 'problem')} found in the data", "trouble"))
    return tuple(found)


def run_section(evaluation: Evaluation) -> Section:
    """Model, data, pipeline, versions, settings, guesses: enough to run it again."""
    about = evaluation.about
    card = about.model.get("card")
    body = fragment(
        "about.html",
        model=_shown(about.model, ("name", "path", "sha256")),
        data=_shown(about.data, ("name", "source", "format", "images")),
        pipeline=about.pipeline,
        settings={"rule in words": about.rule, **about.settings},
        versions=about.versions,
        guessed=tuple(about.model.get("guessed", ())),
        card=flat(card) if isinstance(card, dict) else {},
    )
    return Section("run", "What was run", (Figure("", body, wide=True),))


def trouble_section(evaluation: Evaluation) -> Section | None:
    """The images that failed, the notes and the data's problems; None if there is nothing to say."""
    failed, notes = evaluation.failed, evaluation.notes
    problems = [str(p) for p in evaluation.about.data.get("problems", ())]
    figures = []
    if failed:
        rows = [(f.name, f.reason) for f in failed[:_LISTED]]
        body = to_html(Table(["image", "why"], rows), sortable=len(rows) > 1)
        note = "These images could not be read, decoded or predicted; no number on this page includes them."
        note += f" The first {_LISTED} are shown." if len(failed) > _LISTED else ""
        figures.append(
            Figure(f"Failed images ({len(failed)})", scroll(body, "Failed images"), note, wide=True)
        )
    for title, lines, count in (
        ("Notes", list(notes), len(notes)),
        ("Problems of the data", problems, problem_count(evaluation.about)),
    ):
        if lines:
            body = fragment("lines.html", lines=lines[:_LISTED])
            shown = min(len(lines), _LISTED)
            note = f"The first {shown} of {count}." if count > shown else ""
            figures.append(Figure(f"{title} ({count})", body, note, wide=True))
    return Section("trouble", "Failures and notes", tuple(figures)) if figures else None


def problem_count(about: About) -> int:
    """How many problems the data has, also where not all of them are kept."""
    return int(about.data.get("problem_count", len(about.data.get("problems", ()))))


def _shown(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    """The named values as text; nested ones flat."""
    found: dict[str, str] = {}
    for key in keys:
        value = values.get(key)
        if isinstance(value, dict):
            found |= {f"{key}: {k}": v for k, v in flat(value).items()}
        elif value not in (None, ""):
            found[key] = str(value)
    return found


def pictures(evaluation: Evaluation) -> Callable[[str], bytes | None]:
    """A function that gives an image of the run, encoded; None if it cannot be had or was changed since."""
    source = evaluation.about.data["source"]
    if "data" not in source:
        return lambda name: None
    try:
        dataset = open_dataset(
            source["data"], task=evaluation.about.task, format=source.get("format"), split=source.get("split")
        )
    except HoldfastError:
        return lambda name: None
    entries = {printable(entry.name): entry for entry in dataset.entries}

    def picture(name: str) -> bytes | None:
        try:
            known = evaluation.content.get(name)
            if known is not None and known != entries[name].key():
                return None  # another image by now: the boxes do not belong to it
            return entries[name].load().data
        except (KeyError, HoldfastError):
            return None

    return picture
