"""One training loop for all networks: stages, warm-up and cosine, weight averaging, checkpoints."""

import copy
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.core.errors import InputError, OutputError, one_line
from holdfast.core.sources import code_of

Batch: TypeAlias = tuple[Tensor, ...]  # the input (images) first
Draw: TypeAlias = Callable[["Stage", np.random.Generator], Batch]
Loss: TypeAlias = Callable[[nn.Module, Batch], Tensor]
Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """`steps` batches of `batch` images of `size` pixels, the learning rate falling from `high` to `low`."""

    name: str
    steps: int
    batch: int
    size: int
    high: float
    low: float
    warmup: int = 0


@dataclass(frozen=True)
class Job:
    """The training of one network: batches, loss, stages and seed."""

    name: str
    net: nn.Module
    draw: Draw
    loss: Loss
    stages: tuple[Stage, ...]
    seed: int
    weight_decay: float = 0.02
    averaging: float = 0.997  # decay of the moving average of the weights
    data: str = ""  # identity of the data that `draw` draws from

    def key(self) -> str:
        """A short hash of everything that determines the weights, for the name of the checkpoint."""
        settings = (code_of("train"), self.stages, self.seed, self.weight_decay, self.averaging, self.data)
        shapes = [tuple(value.shape) for value in self.net.state_dict().values()]
        return hashlib.sha256(repr((settings, shapes)).encode()).hexdigest()[:8]


def rate(stage: Stage, step: int) -> float:
    """The learning rate of a step: linear warm-up, then half a cosine from `high` to `low`."""
    if step < stage.warmup:
        return stage.high * (step + 1) / stage.warmup
    part = (step - stage.warmup) / max(stage.steps - stage.warmup, 1)
    return stage.low + (stage.high - stage.low) * (1 + math.cos(math.pi * part)) / 2


def fit(job: Job, checkpoint: Path, say: Say, save_every: int = 500) -> nn.Module:
    """Train all stages and return the averaged network; an interrupted run resumes from `checkpoint`."""
    net = job.net.to(memory_format=torch.channels_last).train()
    average = copy.deepcopy(net).eval()
    # No weight decay of biases and normalisation.
    matrices = {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": job.weight_decay}
    vectors = {"params": [p for p in net.parameters() if p.ndim <= 1], "weight_decay": 0.0}
    optimiser = torch.optim.AdamW([matrices, vectors], lr=1e-3, fused=True)
    states: dict[str, Any] = {"net": net, "average": average, "optimiser": optimiser}
    done = 0
    if state := checkpoint_of(checkpoint, key := job.key()):
        done = int(state["done"])
        for name, item in states.items():
            item.load_state_dict(state[name])
    start, first = time.monotonic(), done
    losses: list[float] = []
    with ThreadPoolExecutor(1) as executor:
        plan = [(i, s) for i, stage in enumerate(job.stages) for s in range(stage.steps)]
        next_batch = _draw_ahead(executor, job, plan, done)
        for position in range(done, len(plan)):
            index, step = plan[position]
            batch = next_batch.result()
            next_batch = _draw_ahead(executor, job, plan, position + 1)
            losses.append(_step(job, net, optimiser, batch, rate(job.stages[index], step)))
            _average(average, net, job.averaging, position)
            if (position + 1) % 50 == 0 or position + 1 == len(plan):
                pace = (time.monotonic() - start) / (position + 1 - first)
                minutes_left = pace * (len(plan) - position - 1) / 60
                say(
                    f"{job.name} {job.stages[index].name} {position + 1}/{len(plan)} "
                    f"loss {np.mean(losses[-50:]):.4f} {pace * 1000:.0f} ms/step {minutes_left:.1f} min left"
                )
            if (position + 1) % save_every == 0 or position + 1 == len(plan):
                content = {name: item.state_dict() for name, item in states.items()}
                _save(checkpoint, {**content, "done": position + 1, "key": key})
    return average


def _draw_ahead(executor: ThreadPoolExecutor, job: Job, plan: list[tuple[int, int]], position: int) -> Any:
    """The future of batch `position`; its generator depends only on seed, stage and step."""
    if position >= len(plan):
        return None
    index, step = plan[position]
    generator = np.random.default_rng((job.seed, index, step))
    return executor.submit(job.draw, job.stages[index], generator)


def _step(job: Job, net: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch, lr: float) -> float:
    for group in optimiser.param_groups:
        group["lr"] = lr
    first = batch[0]
    if first.ndim == 4:  # images; texts have no channels
        first = first.to(memory_format=torch.channels_last)
    loss = job.loss(net, (first, *batch[1:]))
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    value = float(loss.detach())
    if not (math.isfinite(value) and math.isfinite(float(norm))):  # before the weights are updated
        raise InputError(f"{job.name}: the loss became {value} (gradient {float(norm):.3g}); lower the rate")
    optimiser.step()
    return value


def _average(average: nn.Module, net: nn.Module, decay: float, step: int) -> None:
    """Move the averaged weights towards the network's; faster at first, to forget the initial weights."""
    keep = min(decay, (1 + step) / (10 + step))
    with torch.no_grad():
        for mean, value in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
            if mean.dtype.is_floating_point:
                mean.lerp_(value, 1 - keep)
            else:
                mean.copy_(value)


def _save(path: Path, content: dict[str, Any]) -> None:
    """Write the checkpoint to a new file and rename it, so that an interrupted write leaves a valid file."""
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(content, part)
        part.replace(path)
    except (OSError, RuntimeError) as problem:  # torch has no class of its own for a full disk
        message = one_line(problem)[:120]
        raise OutputError(f"{path}: cannot write the checkpoint: {message}") from problem


def checkpoint_of(path: Path, key: str) -> dict[str, Any] | None:
    """The checkpoint of the job with this key; None if there is none."""
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state if state.get("key") == key else None


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use this many threads (0: one per core), and restore the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or os.cpu_count() or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
