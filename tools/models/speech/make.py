"""From espeak-ng to the shipped files: speak, train, export, choose clips, score on held-out sentences."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import numpy as np

from holdfast.core.errors import UnknownName
from holdfast.noise.speech.model.wav import FULL, wav_bytes
from holdfast.train.loop import Job, Say, Stage, fit
from models.speech.corpus import SPECTRUM, Corpus, Recording, open_corpus, spoken
from models.speech.export import write_fast, write_taco
from models.speech.fast_net import FastNet
from models.speech.heard import RIVALS, Heard, score
from models.speech.recipes import fast_speech, taco
from models.speech.taco_net import TacoNet

SENTENCES_SEED: Final = 0
TRAINED, HELD_OUT = 1100, 40
CLIPS, CLIP_BYTES = 8, 400_000
RECIPES: Final[dict[str, Callable[[Corpus, int], Job]]] = {"fast-speech": fast_speech, "taco": taco}


@dataclass(frozen=True)
class Order:
    """What to make and where: seed of the weights and batches, folder of recordings and checkpoints."""

    out: Path
    work: Path
    seed: int = 0
    fraction: float = 1.0
    trained: int = TRAINED
    held_out: int = HELD_OUT


def make(name: str, order: Order, say: Say) -> Heard:
    """The model trained to its end (a killed run goes on), written with its card, and scored."""
    if name not in RECIPES:
        raise UnknownName("speech model", name, RECIPES)
    corpus = open_corpus(order.work, order.trained, order.held_out, SENTENCES_SEED, say)
    job = _shortened(RECIPES[name](corpus, order.seed), order.fraction)
    net = fit(job, order.work / f"{name}-{job.key()}.pt", say)
    if name == "taco":
        path = write_taco(cast(TacoNet, net), corpus.mean, corpus.std, order.out)
    else:
        path = write_fast(cast(FastNet, net), corpus.mean, corpus.std, order.out)
    write_clips(corpus.held_out, order.out / "clips")
    heard = score(path, corpus.held_out, lambda text: spoken(order.work, text))
    say(
        f"{name}: on {len(corpus.held_out)} held-out sentences mel MSE {heard.mse:.3f}, "
        f"along the warping path {heard.aligned:.3f}, {heard.length:.1f} frames off in length, "
        f"{heard.stopped:.0%} stop by themselves, {heard.told:.0%} told from {RIVALS} of one other word"
    )
    return heard


def write_clips(recordings: tuple[Recording, ...], folder: Path) -> None:
    """Write the first recordings that fit the room for clips, in the layout of LJ Speech."""
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    room = CLIP_BYTES
    for recording in recordings:
        data = wav_bytes(recording.wave.astype(np.float64) / FULL, SPECTRUM.rate)
        if len(lines) == CLIPS or len(data) > room // (CLIPS - len(lines)):
            continue
        room -= len(data)
        name = f"road-{len(lines) + 1:02}"
        (folder / "wavs" / f"{name}.wav").write_bytes(data)
        lines.append(f"{name}|{recording.text}|{recording.text}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _shortened(job: Job, fraction: float) -> Job:
    """The job with that fraction of its steps, at least one a stage."""

    def cut(stage: Stage) -> Stage:
        steps = max(1, round(stage.steps * fraction))
        return replace(stage, steps=steps, warmup=round(stage.warmup * fraction))

    return replace(job, stages=tuple(cut(stage) for stage in job.stages))
