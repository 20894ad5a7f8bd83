"""The page of an evaluation: headline numbers, the sections of its task, worst images, and how it was run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.text import printable
from holdfast.data.open import open_dataset
from holdfast.evaluate.result import Evaluation, RunInfo
from holdfast.evaluate.score import RANKED_BY
from holdfast.report.gallery import Picture, WorstImages, gallery
from holdfast.report.html import SIZE_LIMIT, document, write_page
from holdfast.report.parts import (
    Alert,
    Card,
    Document,
    Figure,
    Section,
    duration,
    flat,
    fragment,
    scroll,
    table_figure,
)  # fmt: skip
from holdfast.report.tables import Table, grouped, many, to_html

# Name and description of each known metric; others appear under their own key.
_METRICS: dict[str, tuple[str, str]] = {
    "AP50": ("mAP@.5", "mean over classes of AP at IoU 0.5"),
    "AP": ("mAP@.5:.95", "mean of AP over ten IoU thresholds"),
    "mAP": ("mAP", "mean over classes of AP"),
    "AP75": ("mAP@.75", "mean over classes of AP at IoU 0.75"),
    "top1": ("top-1", "the top-1 class is the true class"),
    "top5": ("top-5", "the true class is among the top five"),
    "mIoU": ("mean IoU", "mean over classes of TP / (TP + FP + FN)"),
    "pixel_accuracy": ("pixel accuracy", "share of pixels with the correct class"),
    "iou_equal": ("IoU × class", "mean IoU with the true box, 0 if the class is wrong"),
    "above_half": ("above 0.5", "share of images with IoU × class above 0.5"),
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
    "precision": ("precision", "share of detections that are correct"),
    "recall": ("recall", "share of objects that are detected"),
    "f1": ("F1", "harmonic mean of precision and recall"),
}
_LARGE = 3  # metrics on large cards; precision, recall and F1 follow them
_LISTED = 200  # failures and notes that are listed


def page(evaluation: Evaluation, picture: Picture, more: Sequence[Section] = ()) -> str:
    """The evaluation as one HTML file; `picture` gives an image's encoded bytes by its record's name.

    `more` are sections of other engines on the same model and data; they come before the details.
    """
    parts, worst = task_sections(evaluation)
    before = [*more, *parts, *slice_sections(evaluation)]
    after = [s for s in (trouble_section(evaluation), run_section(evaluation)) if s is not None]
    size = len(document(_document(evaluation, [*before, *after])).encode())
    images = [gallery(worst, picture, SIZE_LIMIT - size - 200_000)] if worst.shots else []
    return document(_document(evaluation, [*before, *images, *after]))


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
        raise InputError(f"report: expected the task detect, classify, segment or single, got {task!r}")
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


def slice_sections(evaluation: Evaluation) -> list[Section]:
    """The metric on slices of the data, if the run has any."""
    from holdfast.evaluate.slices import slice_tables

    tables = slice_tables(evaluation.result.get("slices", ()))
    figures = tuple(table_figure("", table, name=table.caption, wide=True) for table in tables)
    return [Section("slices", "Slices of the data", figures)] if figures else []


def cards(result: dict[str, Any]) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """The large and the small cards of the metrics of a result."""
    metrics = {k: v for k, v in result.get("metrics", {}).items() if isinstance(v, int | float | None)}
    ordered = [k for k in _ORDER if k in metrics] + [k for k in metrics if k not in _ORDER]
    large = [_card(key, metrics[key], result) for key in ordered[:_LARGE]]
    counted = result.get("at_score", {})
    rates = [
        Card(
            name,
            counted[key],
            f"{note}, at score threshold {counted.get('score', 0):g}",
            n=result.get("images"),
        )
        for key, (name, note) in _RATES.items()
        if key in counted
    ]
    small = [_card(key, metrics[key], result) for key in ordered[_LARGE:]]
    return (*large, *rates), tuple(small)


def verdict(evaluation: Evaluation) -> str:
    """The result in one sentence, and what to look at next."""
    return _summary(evaluation) + _next_step(evaluation)


def _summary(evaluation: Evaluation) -> str:
    metrics, counted = evaluation.result.get("metrics", {}), evaluation.result.get("at_score", {})
    images, task = len(evaluation.records), evaluation.about.task
    if {"tp", "fp", "fn"} <= counted.keys():
        tp, fp, fn = (int(counted[k]) for k in ("tp", "fp", "fn"))
        objects = f"{_count_text(tp, tp + fn, 'objects')} are detected" if tp + fn else "there are no objects"
        right = f"{_percent(tp, tp + fp)} of the detections are correct" if tp + fp else "nothing is detected"
        return f"At score threshold {counted.get('score', 0):g}, {objects}, and {right}."
    if task == "classify" and metrics.get("top1") is not None:
        good = _count_text(round(metrics["top1"] * images), images, "images")
        return f"The top-1 class is correct for {good}."
    if task == "segment" and metrics.get("pixel_accuracy") is not None:
        return f"{metrics['pixel_accuracy']:.1%} of all pixels have the correct class."
    if task == "single" and metrics.get("above_half") is not None:
        good = _count_text(round(metrics["above_half"] * images), images, "images")
        return f"Class correct and IoU above 0.5 on {good}."
    return f"Evaluated on {grouped(images)} images."


def _next_step(evaluation: Evaluation) -> str:
    """The weakest class to look at, as a sentence with a leading space; empty if all are perfect."""
    rows = evaluation.result.get("per_class", [])
    key = next((k for k in RANKED_BY if any(k in row for row in rows)), "")
    weakest = min((r for r in rows if r.get(key) is not None), key=lambda r: r[key], default=None)
    if weakest is None or weakest[key] >= 1.0 or len(rows) < 2:
        return ""
    counts = f", {many(weakest['truth'], 'object')}" if "AP" in weakest and "truth" in weakest else ""
    return f" Next: look at the weakest class, {weakest['class']} ({key} {weakest[key]:.3f}{counts})."


def _card(key: str, value: float | None, result: dict[str, Any]) -> Card:
    name, note = _METRICS.get(key, (key, ""))
    iou = result.get("at_score", {}).get("iou")
    if key == "mAP" and iou is not None:
        name, note = f"mAP@{iou:g}".replace("@0.", "@."), f"{note} at IoU {iou:g}"
    rule = f"rule {str(result['rule']).split(':')[0]}" if iou is not None and "rule" in result else ""
    return Card(name, value, ", ".join(filter(None, (note, rule))), n=result.get("images"))


def _count_text(part: int, total: int, things: str) -> str:
    return f"{grouped(part)} of {grouped(total)} {things} ({_percent(part, total)})"


def _percent(part: int, total: int) -> str:
    """The share in percent; 100% only if it is all, 0% only if it is none."""
    if not total:
        return "n/a"
    share = 100 * part / total
    near = "> 99.9" if part < total and share > 99.9 else "< 0.1" if part and share < 0.1 else f"{share:.1f}"
    return f"{near.removesuffix('.0')}%"


def facts(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    """The facts in the head of the page, as (name, value)."""
    about = evaluation.about
    time, reused = duration(about.seconds), int(about.data.get("reused_images", 0))
    return (
        ("task", about.task),
        ("images", grouped(len(evaluation.records))),
        ("classes", str(len(about.classes))),
        ("time", f"{time} ({grouped(reused)} images cached)" if reused else time),
        ("date", about.created.replace("T", " ").replace("+00:00", " UTC")),
        ("holdfast", about.versions.get("holdfast", "n/a")),
    )


def alerts(evaluation: Evaluation) -> tuple[Alert, ...]:
    """Warnings above the numbers: doubtful decoding, failures, guesses, problems of the data."""
    alerts = [Alert(line, "trouble") for line in evaluation.result.get("warnings", ())]
    if failed := len(evaluation.failed):
        total, verb = many(failed + len(evaluation.records), "image"), "is" if failed == 1 else "are"
        alerts.append(Alert(f"{failed} of {total} failed and {verb} not included in the numbers", "trouble"))
    if guessed := len(evaluation.about.model.get("guessed", ())):
        what, verb = many(guessed, "property", "properties"), "is" if guessed == 1 else "are"
        alerts.append(Alert(f"{what} of the model {verb} guessed, because there is no card", "run"))
    if problems := problem_count(evaluation.about):
        alerts.append(Alert(f"{many(problems, 'problem')} found in the data", "trouble"))
    return tuple(alerts)


def run_section(evaluation: Evaluation) -> Section:
    """Model, data, pipeline, versions, settings and guesses."""
    about = evaluation.about
    card = about.model.get("card")
    body = fragment(
        "about.html",
        model=_to_text(about.model, ("name", "path", "sha256")),
        data=_to_text(about.data, ("name", "source", "format", "images")),
        pipeline=about.pipeline,
        settings={"rule (full)": about.rule, **about.settings},
        versions=about.versions,
        guessed=tuple(about.model.get("guessed", ())),
        card=flat(card) if isinstance(card, dict) else {},
    )
    return Section("run", "How it was run", (Figure("", body, wide=True),))


def trouble_section(evaluation: Evaluation) -> Section | None:
    """Failed images, notes and problems of the data; None if there are none."""
    failed, notes = evaluation.failed, evaluation.notes
    problems = [str(p) for p in evaluation.about.data.get("problems", ())]
    figures = []
    if failed:
        rows = [(f.name, f.reason) for f in failed[:_LISTED]]
        body = scroll(to_html(Table(["image", "reason"], rows), sortable=len(rows) > 1), "Failed images")
        note = "These images could not be read, decoded or run, and are not included in the numbers."
        note += f" The first {_LISTED} are listed." if len(failed) > _LISTED else ""
        figures.append(Figure(f"Failed images ({len(failed)})", body, note, wide=True))
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


def problem_count(about: RunInfo) -> int:
    """The number of problems of the data, including those that are not stored."""
    return int(about.data.get("problem_count", len(about.data.get("problems", ()))))


def _to_text(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    """The named values as text, nested values flattened."""
    texts: dict[str, str] = {}
    for key in keys:
        value = values.get(key)
        if isinstance(value, dict):
            texts |= {f"{key}: {k}": v for k, v in flat(value).items()}
        elif value not in (None, ""):
            texts[key] = str(value)
    return texts


def pictures(evaluation: Evaluation) -> Callable[[str], bytes | None]:
    """A function that returns an encoded image of the run; None if it is missing or has changed since."""
    source, dataset = evaluation.about.data["source"], evaluation.dataset
    if dataset is None and "data" not in source:
        return lambda name: None
    try:
        reading = {"format": source.get("format"), "split": source.get("split")}
        dataset = dataset or open_dataset(source["data"], task=evaluation.about.task, **reading)
    except HoldfastError:
        return lambda name: None
    entries = {printable(entry.name): entry for entry in dataset.entries}

    def picture(name: str) -> bytes | None:
        try:
            known = evaluation.content.get(name)
            if known is not None and known != entries[name].key():
                return None  # the image has changed: the boxes do not belong to it
            return entries[name].load().data
        except (KeyError, HoldfastError):
            return None

    return picture
