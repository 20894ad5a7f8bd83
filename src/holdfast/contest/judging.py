"""The images of a contest, before and after a change, through every member and the feature net."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from holdfast.contest.shots import Held, Shot, held
from holdfast.core.errors import InputError
from holdfast.core.patch import changed_pixels
from holdfast.core.types import Floats, Image
from holdfast.engine.cells import Cells, CellSet, Computed, Missing, Setup, Work
from holdfast.engine.infer import Inference
from holdfast.engine.pipelines import SHARD, PipelineWork, content_of
from holdfast.metrics.similarity import psnr


@dataclass
class JudgeState:
    """The members' networks, and the feature net once it is needed."""

    members: list[Inference]
    threads: int
    features: Callable[[Sequence[Image]], Floats] | None = None


@dataclass(frozen=True)
class JudgeWork(Work[Shot, JudgeState]):
    """The cells of an image: members and features before, members and features after, and the difference."""

    members: tuple[PipelineWork, ...]  # each with one pipeline
    features: str  # how the feature net is opened
    features_sha256: str
    ask_after: bool = True  # whether members are run on the changed images
    batch: int = SHARD

    @property
    def count(self) -> int:
        """How many members there are."""
        return len(self.members)

    def setups(self) -> list[Setup]:
        """The setups of the members, of the features and of the difference."""
        members = [setup for member in self.members for setup in member.setups()]
        one = [*members, Setup("contest", ["features", self.features_sha256])]
        return [*one, *one, Setup("contest", "difference")]

    def contents(self, item: Shot) -> list[Any]:
        """Pixels and truth before and after; None where the image is not changed or members are not asked."""
        before, after = pictures(item)
        rows: list[Any] = [*[content_of(before)] * self.count, before.key()]
        if after is None:
            return [*rows, *[None] * (self.count + 2)]
        asked = content_of(after) if self.ask_after else None
        return [*rows, *[asked] * self.count, after.key(), [before.key(), after.key()]]

    def open(self, threads: int) -> JudgeState:
        """The members; the feature net is opened when it is first needed."""
        return JudgeState([member.open(threads) for member in self.members], threads)

    def tally(self, item: Shot, cells: int, found: int) -> tuple[int, int]:
        """Progress counts images."""
        return 1, int(found == cells)

    def compute(self, state: JudgeState, batch: Sequence[Missing]) -> Iterator[Computed]:
        """The members' records, then features and differences."""
        block = self.count + 1
        for number, member in enumerate(self.members):
            asked = [
                (position, setup, Missing(picture, {0: wanted[setup]}))
                for position, (shot, wanted) in enumerate(batch)
                for setup, picture in zip((number, block + number), pictures(shot), strict=True)
                if setup in wanted and picture is not None
            ]
            for one in member.compute(state.members[number], [missing for *_, missing in asked]):
                position, setup, _ = asked[one.position]
                yield Computed(position, setup, one.value)
        for position, (shot, wanted) in enumerate(batch):
            before, after = pictures(shot)
            for n, picture in ((self.count, before), (block + self.count, after)):
                if n in wanted and picture is not None:
                    yield Computed(position, n, self._features(state, picture))
            if 2 * block in wanted and after is not None:
                ratio = psnr(before.image, after.image)
                changed = changed_pixels(before.image, after.image)
                yield Computed(position, 2 * block, [changed, ratio if math.isfinite(ratio) else None])

    def _features(self, state: JudgeState, picture: Held) -> str:
        if state.features is None:
            state.features = opened_features(self.features, self.features_sha256, state.threads)
        row = state.features([picture.image])[0]
        return base64.b64encode(np.ascontiguousarray(row, "<f8").tobytes()).decode("ascii")


@lru_cache(maxsize=SHARD)  # the pictures of one batch
def pictures(shot: Shot) -> tuple[Held, Held | None]:
    """The original, and what it became; None if it is not changed."""
    return held(shot, shot.before()), None if shot.change is None else held(shot, shot.after())


@dataclass(frozen=True)
class JudgeCells:
    """The cells of a contest's images, by what they hold."""

    cells: Cells
    members: int

    def records(self, *, after: bool) -> list[CellSet]:
        """The records of each member."""
        first = after * (self.members + 1)
        return [self.cells.of(first + n) for n in range(self.members)]

    def features(self, *, after: bool) -> Floats:
        """The features (n, d) of the images; of those that are not changed, the original's."""
        before = self.cells.read(self.members)
        rows = self.cells.read(2 * self.members + 1) if after else before
        packed = [old if new is None else new for old, new in zip(before, rows, strict=True)]
        return np.stack([np.frombuffer(base64.b64decode(one), "<f8") for one in packed]).astype(np.float64)

    def differences(self) -> list[tuple[int, float]]:
        """Changed pixels and PSNR of each image, which is infinite for equal images."""
        rows = [row or (0, None) for row in self.cells.read(2 * self.members + 2)]
        return [(int(changed), math.inf if ratio is None else float(ratio)) for changed, ratio in rows]


def opened_features(
    text: str, sha256: str, threads: int, name: str = ""
) -> Callable[[Sequence[Image]], Floats]:
    """The feature net; InputError if it is another than the rules name, or called otherwise."""
    from holdfast.stages.features import open_features

    net = open_features(text, threads)
    if net.sha256 != sha256:
        raise InputError(
            f"distance.sha256: the feature net {text!r} has the hash {net.sha256}, the rules say {sha256}"
        )
    if name and name != net.name:
        raise InputError(f"distance.name: expected {net.name!r} for the features {text!r}, got {name!r}")
    return net
