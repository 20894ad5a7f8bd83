"""What was tried on a dump, in order: choices of equal result are one row, in the name of the plainest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.diagnose.lockstep import Apart


@dataclass(frozen=True)
class Tried:
    """Choices that were run: by stage their labels, how far from the dump their result is, and its hash."""

    chosen: Mapping[str, str]  # stage -> "decode=zune"; a stage that is not there is as in training
    apart: Apart
    result: str
    changes: int  # stages that are not as in training
    odd: int  # choices that are not in the paper's list of systems


@dataclass(frozen=True)
class Likeness:
    """Choices, how far what they give is from the dump, and the other choices that give the very same.

    One of `same` is what to write in place of, or in addition to, the choice of that stage.
    """

    choices: str
    apart: Apart
    same: tuple[str, ...] = ()
    tried: int = 1  # how many combinations of choices it stands for

    @property
    def exact(self) -> bool:
        """Whether it is the dump, value by value."""
        return self.apart.same


def ranked(tried: Iterable[Tried]) -> list[Likeness]:
    """One likeness for all choices of equal result, the nearest to the dump first.

    It is named by the choices with the fewest changes against training, and at equal distance that with
    fewer changes comes first: a dump does not tell equals apart, so the plainest explanation leads.
    """
    groups: dict[str, list[Tried]] = {}
    for one in tried:
        groups.setdefault("" if one.apart.same else one.result, []).append(one)
    rows = [sorted(group, key=_plainness) for group in groups.values()]
    rows.sort(key=lambda row: (row[0].apart.mean, row[0].apart.largest, _plainness(row[0])))
    return [Likeness(label_of(row[0].chosen), row[0].apart, _same(row), len(row)) for row in rows]


def label_of(chosen: Mapping[str, str]) -> str:
    """The choices in one line."""
    return ", ".join(chosen.values()) or "as in training"


def _plainness(one: Tried) -> tuple[int, int, str]:
    return one.changes, one.odd, label_of(one.chosen)


def _same(row: Sequence[Tried]) -> tuple[str, ...]:
    """What the others do differently from the first; not those that only put such differences together."""
    kept: list[list[str]] = []
    for parts in sorted((_other(one, row[0]) for one in row[1:]), key=len):
        smaller = [part for known in kept if set(known) < set(parts) for part in known]
        if set(smaller) != set(parts):
            kept.append(parts)
    return tuple(" + ".join(parts) for parts in kept)


def _other(one: Tried, shown: Tried) -> list[str]:
    other = [label for stage, label in one.chosen.items() if shown.chosen.get(stage) != label]
    return other + [f"no {label}" for stage, label in shown.chosen.items() if stage not in one.chosen]
