"""The page of scored prediction files and of an explained AP: curves, numbers and the explanation."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape

from holdfast.engine.manifest import now
from holdfast.evaluate.class_pages import class_section
from holdfast.evaluate.detect_page import MatchedDetections, curve_section
from holdfast.evaluate.page import cards
from holdfast.evaluate.score import Settings
from holdfast.metrics.boxes import DetectionTable, TruthTable
from holdfast.metrics.detection import evaluate
from holdfast.report.html import document, write_page
from holdfast.report.parts import Document, Figure, Section


@dataclass(frozen=True, eq=False)
class ScoredTables:
    """Ground truth and detections as tables, the classes, and how many images they are of."""

    truth: TruthTable
    detections: DetectionTable
    classes: tuple[str, ...]
    images: int


def page(
    subject: tuple[str, str], scored: ScoredTables, settings: Settings, result: Mapping[str, Any],
    explanation: str = "", command: str = "",
) -> str:  # fmt: skip
    """One HTML file with the precision-recall curve, the numbers of `result` and the explanation, if any."""
    known: dict[str, Any] = {"images": scored.images, "classes": len(scored.classes)}
    known |= {"iou": settings.iou, "score": settings.score}
    matched = evaluate(scored.truth, scored.detections, settings.rule, **known)
    sections = [curve_section(MatchedDetections((), scored.classes, matched))]
    if "per_class" in result:
        sections.append(class_section(dict(result)))
    if explanation:
        body = f'<pre tabindex="0"><code>{escape(explanation)}</code></pre>'
        sections.append(Section("steps", "AP step by step", (Figure("", body, wide=True),)))
    large, small = cards(dict(result)) if "metrics" in result else ((), ())
    facts = ("images", str(scored.images)), ("classes", str(len(scored.classes))), ("date", now())
    return document(
        Document(
            title=f"{subject[0]} on {subject[1]}",
            subject=subject,
            facts=facts,
            cards=large,
            minor=small,
            rule=str(settings.rule),
            command=command,
            sections=tuple(sections),
        )
    )


def write(out: Path, text: str) -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(text, out)
