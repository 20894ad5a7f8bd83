"""What an audit is to do: parts, how long each may take, and on how many images that lets it run."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError, UnknownName
from holdfast.engine.store import to_json, write_atomic
from holdfast.evaluate.run import Plan

# In the order they are run, with the share of the time each gets; what one leaves over goes to the others.
SHARES: Mapping[str, float] = {
    "evaluate": 0.10, "noise": 0.27, "attack": 0.27, "squares": 0.11, "specs": 0.04, "matrix": 0.09,
    "recheck": 0.05, "combine": 0.07,
}  # fmt: skip
NEEDS: Mapping[str, tuple[str, ...]] = {
    "combine": ("noise",), "matrix": ("noise", "attack", "squares"), "recheck": ("noise", "squares", "specs"),
}  # fmt: skip
PIXELS = (100, 300, 1000, 3000)
RESERVE = 0.1  # of the budget, for what estimates leave out
PAGE = 15.0  # seconds that starting and writing the page take; at least this is kept in reserve
SCHEDULE = "plan.json"
LATE = "time budget reached"  # why something was skipped
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Wish:
    """What was asked for. Numbers of images that are not given are chosen so that the budget suffices."""

    budget: float = 600.0  # seconds; 0: no limit
    only: tuple[str, ...] = ()  # parts; empty: all
    noise_images: int | None = None
    attack_images: int | None = None
    square_images: int | None = None
    places: int = 400  # of the square, at most
    share: float = 0.05  # the square's side as a part of the image's shorter side
    pixels: tuple[int, ...] = PIXELS
    steps: int = 40
    specs: tuple[Path, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in SHARES:
                raise UnknownName("part of an audit", name, SHARES)
        if not self.pixels or min(self.pixels) < 1:
            raise InputError(f"--pixels: expected numbers of 1 or more, got {list(self.pixels)}")

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are asked for, with those they stand on, in order."""
        asked = set(self.only or SHARES) | {"evaluate"}
        for name in list(asked):
            asked |= set(NEEDS.get(name, ()))
        if not self.specs and "specs" not in self.only:
            asked.discard("specs")
        return tuple(name for name in SHARES if name in asked)


@dataclass(frozen=True)
class AuditPlan:
    """A model on a data set, what is asked of it, and the words of commands that give a number again."""

    plan: Plan
    wish: Wish = field(default_factory=Wish)
    spare: Dataset | None = None  # images integer precisions are calibrated on
    words: tuple[str, ...] = ()  # MODEL DATA and the options that say how both are read
    replicates: int = 1000
    calibrated: tuple[str, ...] = ()  # the words that name other images to calibrate on
    limit: int | None = None  # images, where the data set was cut to so many

    @property
    def folder(self) -> Path:
        """Where the audit is kept: by names, and by a hash of all that was asked for."""
        plan = self.plan
        name = f"audit-{plan.model.name}-on-{plan.dataset.name}"
        same = [
            name, plan.model.sha256, dataclasses.asdict(plan.model.card), dict(plan.source),
            len(plan.dataset), [plan.settings.rule.name, plan.settings.iou, plan.settings.score],
            {**dataclasses.asdict(self.wish), "specs": [str(p) for p in self.wish.specs]},
            dict(plan.renames), plan.common_classes, self.calibrated,
            None if plan.pipeline is None else plan.pipeline.describe(),
        ]  # fmt: skip
        return plan.runs / f"{plain_folder(name)}-{fingerprint.of(same)[:6]}"

    def command(self, verb: str, *options: str | float) -> str:
        """The line that gives a number again."""
        import shlex

        return shlex.join(["holdfast", verb, *self.words, *map(str, options)])


def plain_folder(name: str) -> str:
    """The name as that of a folder anywhere: letters, digits and -_. alone, at most 120 bytes."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    return plain.encode()[:120].decode(errors="ignore")


def budget_of(text: str) -> float:
    """The seconds of '10m', '90s', '1h30m' or '600'; 0 of 'none'."""
    plain = text.strip().lower()
    if plain == "none":
        return 0.0
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", plain)
    seconds = 0.0
    if found is not None:
        seconds = sum(float(n or 0) * UNITS[unit] for n, unit in zip(found.groups(), "hms", strict=True))
    if seconds <= 0 or seconds > 1e7:
        raise InputError(f"--budget: expected a time such as 10m, 90s or 1h30m, or none, got {text!r}")
    return seconds


@dataclass
class Clock:
    """The time of an audit, and the numbers it was planned with: chosen once, then kept."""

    wish: Wish
    path: Path
    began: float = field(default_factory=time.monotonic)
    kept: dict[str, Any] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    @property
    def elapsed(self) -> float:
        """Seconds since the audit began."""
        return time.monotonic() - self.began

    def seconds(self, part: str) -> float:
        """What a part may take: its share of the time left, less a reserve; infinite without a budget."""
        if not self.wish.budget:
            return float("inf")
        waiting = [SHARES[name] for name in self.wish.parts if name not in self.done]
        reserve = max(RESERVE * self.wish.budget, min(PAGE, self.wish.budget / 4))
        left = max(0.0, self.wish.budget - reserve - self.elapsed)
        return left * SHARES[part] / max(sum(waiting), SHARES[part])

    def until(self, part: str) -> float:
        """The moment (of time.monotonic) a part stops at; one that has ended is only read again."""
        return math.inf if self.finished(part) is not None else time.monotonic() + self.seconds(part)

    def finished(self, part: str) -> int | None:
        """How much a part had finished when it ended in an earlier run of this command; None: it did not."""
        return self.kept.get(f"{part} done")

    def ended(self, part: str, count: int) -> int:
        """Keep how much a part has finished, and give it back."""
        return self.number(f"{part} done", None, count, 0, count)

    def starts(self, part: str) -> bool:
        """Whether a part is begun at all: not when the time is used up; decided once, then kept."""
        left = self.seconds(part) > 0
        return bool(self.number(f"begin {part}", None, float(left or part == "evaluate"), 0, 1))

    def number(self, name: str, given: int | None, wanted: float, least: int, most: int) -> int:
        """A number of images: as given, else as planned before, else what the time allows."""
        if given is not None:
            return min(given, most)
        if name not in self.kept:
            allowed = most if wanted == float("inf") else int(wanted)
            self.kept[name] = min(most, max(least, allowed))
            write_atomic(self.path, to_json(self.kept, indent=True))
        return min(most, max(least, int(self.kept[name])))


def open_clock(plan: AuditPlan, began: float | None = None) -> Clock:
    """The clock of an audit, with the numbers of an earlier begin if there was one.

    `began` (of time.monotonic) is when the command was started: opening the model counts as well.
    """
    path = plan.folder / SCHEDULE
    try:
        kept = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        kept = {}
    sound = isinstance(kept, dict) and all(isinstance(v, int) and v >= 0 for v in kept.values())
    began = time.monotonic() if began is None else began
    return Clock(plan.wish, path, began, kept if sound else {})
