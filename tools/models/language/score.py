"""Accuracy of the exported model on the four sets beside it, through the deployed pipeline."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.metrics.text import DEFAULT_RULES, accuracy, hits
from holdfast.noise.language.data.open import open_text
from holdfast.noise.language.model.open import open_language

SETS = ("road-piqa.jsonl", "road-lambada.jsonl", "road-hellaswag.txt", "road-winogrande.jsonl")


def accuracies(model: Path) -> Iterator[tuple[str, float, int]]:
    """The name of each set in the model's folder, the share of right answers, and how many there are."""
    opened = open_language(model)
    for file in SETS:
        asked = open_text(model.with_name(file))
        scored = list(opened.score_all(asked.questions))
        right = hits(scored, [question.answer for question in asked.questions], DEFAULT_RULES[asked.kind])
        yield asked.name, accuracy(right), len(asked.questions)
