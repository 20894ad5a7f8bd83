"""The plan of an audit, the time of each part, and its progress on disk."""

import dataclasses
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from holdfast.audit.options import SHARES, AuditedOptions, AuditSettings
from holdfast.audit.result import PROGRESS, Part
from holdfast.config.options import carry
from holdfast.config.parser import command_line
from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.engine.executor import Progress
from holdfast.engine.manifest import now, slug
from holdfast.engine.store import to_json, write_atomic
from holdfast.evaluate.options import ClassOptions, DefenceOptions, EvaluationOptions, SubjectOptions
from holdfast.evaluate.run import EvaluationPlan
from holdfast.noise.options import NoiseOptions
from holdfast.noise.suite import Watch

RESERVE = 0.1  # of the budget, for what estimates leave out
PAGE = 15.0  # seconds to start and to write the page; at least this is kept in reserve
SCHEDULE = "plan.json"
EVERY = 0.5  # seconds between two writes of the progress
LATE = "time budget reached"  # why something was skipped
NO_CALIBRATION = "no time to calibrate"
CONTINUE = "continue"  # entry of the schedule of an audit that ended and skipped something for lack of time
UNDER = "patch under "  # begins the entries of the schedule for the deployments the patch is optimised for
FIXED = ("shard", "places", UNDER)  # entries that identify cells; an audit that is continued keeps them


@dataclass(frozen=True)
class AuditPlan:
    """A model on a dataset, and the options of the audit."""

    plan: EvaluationPlan
    options: AuditedOptions
    calibration: Dataset | None = None  # images integer precisions are calibrated on
    replicates: int = 1000

    @property
    def folder(self) -> Path:
        """The folder of the audit: its names, and a hash of everything that changes a number."""
        plan = self.plan
        name = f"audit-{plan.model.name}-on-{plan.dataset.name}"
        settings = dataclasses.asdict(carry(self.options, AuditSettings))
        identity = [
            name, plan.model.sha256, dataclasses.asdict(plan.model.card), dict(plan.source),
            len(plan.dataset), [plan.settings.rule.name, plan.settings.iou, plan.settings.score],
            {**settings, "spec": [str(path) for path in self.options.spec]}, self.options.seed,
            dict(plan.renames), plan.common_classes, plan.pipeline and plan.pipeline.describe(),
        ]  # fmt: skip
        return plan.runs / f"{slug(name)}-{fingerprint.of(identity)[:6]}"

    def evaluate_line(self, images: int) -> str:
        """The command line of the evaluation."""
        rule = self.options.rule if self.plan.model.card.task == "detect" else None
        subject = carry(self.options, SubjectClasses)
        return command_line(carry(subject, EvaluationOptions, rule=rule, images=images))

    def noise_line(self, images: int, **others: Any) -> str:
        """The command line of a noise suite on the same model and data."""
        options = self.options
        if self.plan.model.card.task == "detect":
            others["rule"] = options.rule
        others["models_data"] = (options.model, options.data)
        others["card"] = () if options.card is None else (options.card,)
        others |= {"calibration": options.calibration, "images": images}
        return command_line(carry(carry(options, SubjectClasses), NoiseOptions, **others))


@dataclass(frozen=True, kw_only=True)
class SubjectClasses(SubjectOptions, ClassOptions, DefenceOptions):
    """The audited model and dataset, without the options of the audit."""


@dataclass
class Clock:
    """The time of an audit and its planned numbers, which are chosen once and then kept.

    An audit that ended with something skipped for lack of time is continued by the same command: with a new
    budget and new numbers, larger by what is `before`, that is, finished already.
    """

    options: AuditSettings
    path: Path
    began: float = field(default_factory=time.monotonic)
    planned: dict[str, int] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        """Seconds since the audit began."""
        return time.monotonic() - self.began

    def seconds(self, part: str) -> float:
        """The seconds a part may take: its share of the time left, minus a reserve; inf without a budget."""
        budget = self.options.budget_seconds
        if not budget:
            return math.inf
        waiting = [SHARES[name] for name in self.options.parts if name not in self.done]
        left = max(0.0, budget - max(RESERVE * budget, min(PAGE, budget / 4)) - self.elapsed)
        return left * SHARES[part] / max(sum(waiting), SHARES[part])

    def until(self, part: str) -> float:
        """The moment (of time.monotonic) at which a part stops; a part that has ended is only read again."""
        return math.inf if self.finished(part) is not None else time.monotonic() + self.seconds(part)

    def finished(self, part: str) -> int | None:
        """How much a part had finished in an earlier run of this command; None if it did not end."""
        return self.planned.get(f"{part} done")

    def ended(self, part: str, count: int) -> int:
        """Save how much a part has finished, and return it."""
        return self.number(f"{part} done", None, count, 0, count)

    def end(self, parts: Iterable[Part]) -> None:
        """Mark the audit as one that the same command continues, if a part was skipped for lack of time."""
        if any(LATE in part.skipped or NO_CALIBRATION in part.skipped for part in parts):
            self.number(CONTINUE, None, 1, 1, 1)

    def starts(self, part: str) -> bool:
        """Whether a part starts at all: not when the time is used up. Decided once, then kept."""
        left = self.seconds(part) > 0
        return bool(self.number(f"begin {part}", None, float(left or part == "evaluate"), 0, 1))

    def number(self, name: str, given: int | None, affordable: float, least: int, most: int) -> int:
        """A number of images: as given, else as planned before, else as many as the time allows."""
        if given is not None:
            return min(given, most)
        if name not in self.planned:
            self.planned[name] = int(min(most, max(least, affordable + self.before.get(name, 0))))
            write_atomic(self.path, to_json(self.planned, indent=True))
        return min(most, max(least, int(self.planned[name])))


def open_clock(plan: AuditPlan, began: float | None = None) -> Clock:
    """The clock of an audit since `began` (of time.monotonic), with the numbers of an earlier run, if any."""
    path = plan.folder / SCHEDULE
    try:
        planned = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        planned = {}
    sound = isinstance(planned, dict) and all(isinstance(v, int) and v >= 0 for v in planned.values())
    clock = Clock(plan.options, path, time.monotonic() if began is None else began, planned if sound else {})
    if CONTINUE in clock.planned:
        finished = {name.removesuffix(" done"): n for name, n in planned.items() if name.endswith(" done")}
        clock.before = {"matrix images": finished.pop("matrix", 0), **finished}
        clock.planned = {name: count for name, count in planned.items() if name.startswith(FIXED)}
    return clock


@dataclass
class ProgressFile:
    """The progress of an audit on disk: written at most twice a second, and passed on to another watch."""

    folder: Path
    parts: tuple[str, ...]
    watch: Watch
    started: str = field(default_factory=now)
    part: str = ""
    step: str = ""
    last: float = 0.0

    def enter(self, part: str) -> None:
        """Begin a part."""
        self.part, self.step = part, ""
        self.write("running", 0, 0)

    @contextmanager
    def watching(self, what: str, total: int) -> Iterator[Progress]:
        """A `Watch` that also writes the progress to disk."""
        done, self.step = 0, what
        with self.watch(what, total) as step:

            def both(more: int, reused: int) -> None:
                nonlocal done
                done += more
                step(more, reused)
                if done >= total or time.monotonic() - self.last >= EVERY:
                    self.write("running", done, total)

            yield both

    def write(self, state: str, done: int = 0, total: int = 0, why: str = "") -> None:
        """Write the state to disk."""
        self.last = time.monotonic()
        plain = {
            "state": state, "part": self.part, "step": self.step, "done": done, "total": total,
            "started": self.started, "pid": os.getpid(), "parts": list(self.parts), "why": why,
        }  # fmt: skip
        write_atomic(self.folder / PROGRESS, to_json(plain), durable=False)


def skipped_images(count: int, whole: int, given: int | None = None) -> str:
    """How many images a part skipped and why; empty if none."""
    why = LATE if given is None or count < min(given, whole) else f"{given} requested"
    return f"{whole - count} of {whole} images ({why})" if count < whole else ""
