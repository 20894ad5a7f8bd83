"""From the grammar to the shipped files: tokenizer, question sets, the trained model, and its accuracy."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

from holdfast.metrics.text import DEFAULT_RULES, accuracy, hits
from holdfast.noise.language.open import open_language
from holdfast.noise.language.questions import open_text
from holdfast.train.loop import Say, fit
from models.language.graph import ROAD, decoder_graph
from models.language.recipe import PARAGRAPHS, SEED_OF_TEXT, STAGES, job_of, row_of
from models.language.text import learned, paragraphs, write_sets

LEARNED_FROM = 20_000  # paragraphs for the tokenizer
NAME = "road-lm"
SETS = ("road-piqa.jsonl", "road-lambada.jsonl", "road-hellaswag.txt", "road-winogrande.jsonl")


@dataclass(frozen=True)
class Order:
    """What to make and where: folder of the files, folder of text and checkpoints, seed, how long."""

    out: Path
    work: Path
    seed: int = 0
    fraction: float = 1.0  # of the training steps and of the text
    past: bool = False  # also a file that takes the keys and values of what was said before


def make(order: Order, say: Say) -> Path:
    """The path of the model, trained to its end (a killed run goes on), beside tokenizer and questions."""
    order.out.mkdir(parents=True, exist_ok=True)
    tokenizer = learned(paragraphs(LEARNED_FROM, SEED_OF_TEXT), ROAD.vocabulary)
    tokenizer.save(str(order.out / f"{NAME}.tokenizer.json"), pretty=False)
    files = write_sets(order.out, order.seed)
    say(f"{', '.join(file.name for file in files)}: written")
    row = row_of(tokenizer, max(1000, round(PARAGRAPHS * order.fraction)), order.work, say)
    stages = tuple(replace(stage, steps=max(1, round(stage.steps * order.fraction))) for stage in STAGES)
    job = job_of(row, order.seed, stages)
    net = fit(job, order.work / f"{NAME}-{job.key()}.pt", say)
    if order.past:
        write(net, order.out / f"{NAME}-with-past.onnx", past=True)
    return write(net, order.out / f"{NAME}.onnx")


def write(net: nn.Module, path: Path, past: bool = False) -> Path:
    """The path, with the network written there as ONNX."""
    import onnx

    weights = {name: value.numpy().astype(np.float32) for name, value in net.state_dict().items()}
    part = path.with_suffix(".part")
    onnx.save(decoder_graph(weights, ROAD, past), str(part))
    part.replace(path)
    return path


def accuracies(model: Path) -> Iterator[tuple[str, float, int]]:
    """The name of each set in the model's folder, the share of right answers, and how many there are."""
    opened = open_language(model)
    for file in SETS:
        asked = open_text(model.with_name(file))
        scored = list(opened.score_all(asked.questions))
        right = hits(scored, [question.answer for question in asked.questions], DEFAULT_RULES[asked.kind])
        yield asked.name, accuracy(right), len(asked.questions)
