"""The attempts behind the strikes of an audit, read again from the attacks in its folder.

A strike is made of several attacks: the largest budget on all images, smaller ones on those that are left.
What is read must give the strike's own numbers again, or it is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import InputError
from holdfast.run.attack.attempt import Attempt
from holdfast.run.attack.measure import MANIFEST
from holdfast.run.audit.result import Audit
from holdfast.run.comparing.attacks import (
    STRUCK,
    Apart,
    Attacked,
    attempts_of,
    effect_changes,
    effect_draws,
    open_attack,
)
from holdfast.run.comparing.change import Change


@dataclass(frozen=True)
class _Strikes:
    """What the attacks of one audit have in common, and the attempts of each budget by image."""

    about: dict[str, Any]
    attempts: dict[str, dict[str, Attempt]]  # threat -> image -> what became of it


def records_of(
    audits: tuple[Audit, Audit], folders: tuple[Path, Path]
) -> tuple[Callable[[str], list[Change]] | None, str]:
    """A function that gives the rows of a threat, or None and why there is none."""
    try:
        a, b = (
            _strikes(audit, folder, which)
            for audit, folder, which in zip(audits, folders, ("A", "B"), strict=True)
        )
    except Apart as reason:
        return None, str(reason)

    def rows(threat: str) -> list[Change]:
        old, new = a.attempts.get(threat, {}), b.attempts.get(threat, {})
        names = [name for name in old if name in new]
        both = [[side[name] for name in names] for side in (old, new)]
        return effect_changes(a.about, b.about, both, STRUCK, f"{threat}: ") if names else []

    if a.about.get("settings") != b.about.get("settings"):
        return None, "the rule of the metric differs"
    return rows, ""


def _strikes(audit: Audit, folder: Path, which: str) -> _Strikes:
    """The attempts of every strike; Apart if they are gone or do not give the audit's numbers."""
    runs = _attacks(folder, which)
    budgets = sorted(audit.strikes, key=lambda strike: -strike.pixels)
    if not budgets or budgets[0].pixels not in runs:
        raise Apart(f"{which} has no attack in its folder any more")
    first = runs[budgets[0].pixels]
    held = attempts_of(first, which)
    found = [held]
    for strike in budgets[1:]:
        again = {n for n, a in held.items() if a.targets and not (a.success and a.pixels <= strike.pixels)}
        if again and strike.pixels not in runs:
            raise Apart(f"{which} has no attack of {strike.pixels} pixels in its folder any more")
        anew = attempts_of(runs[strike.pixels], which) if again else {}
        held = held | {name: attempt for name, attempt in anew.items() if name in again}
        found.append(held)
    grown = [_grown(found[place:]) for place in range(len(found))]
    for strike, attempts in zip(budgets, grown, strict=True):
        before, after, _ = effect_draws(first.about, list(attempts.values()), replicates=1)
        if abs(before[0] - 100 * strike.before) > 1e-6 or abs(after[0] - 100 * strike.after) > 1e-6:
            raise Apart(f"the attacks in the folder of {which} are not those of its numbers")
    return _Strikes(first.about, {s.threat: a for s, a in zip(budgets, grown, strict=True)})


def _grown(found: list[dict[str, Attempt]]) -> dict[str, Attempt]:
    """The attempts of a budget, with what a smaller one broke that the larger search did not."""
    best = dict(found[0])
    for smaller in found[1:]:
        best |= {n: a for n, a in smaller.items() if a.success and not best[n].success}
    return best


def _attacks(folder: Path, which: str) -> dict[int, Attacked]:
    """Budget in pixels -> the attack in the audit's folder; Apart if one is there twice."""
    found: dict[int, Attacked] = {}
    for manifest in sorted(folder.glob(f"attack-*/{MANIFEST}")):
        try:
            one = open_attack(manifest)
            pixels = int(one.about["limits"]["pixels"])
        except (InputError, KeyError, TypeError, ValueError):
            continue
        if pixels in found:
            raise Apart(f"{which} has several attacks of {pixels} pixels in its folder")
        found[pixels] = one
    return found
