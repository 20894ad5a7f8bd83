"""The attempts behind the strikes of an audit, read again from the attacks beside it.

A strike is made of several attacks: the smallest budget on all images, larger ones on those that withstood.
What is read must give the strike's own numbers again, or it is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.attack.result import Attempt
from holdfast.attack.run import MANIFEST
from holdfast.audit.result import Audit
from holdfast.audit.strike import carried
from holdfast.compare.attacks import (
    Apart,
    Attacked,
    attempts_of,
    effect_changes,
    effect_draws,
    open_attack,
)
from holdfast.compare.change import Change
from holdfast.core.errors import InputError


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
        return effect_changes(a.about, b.about, both, f"{threat}: ") if names else []

    if a.about.get("settings") != b.about.get("settings"):
        return None, "the rule of the metric differs"
    return rows, ""


def _strikes(audit: Audit, folder: Path, which: str) -> _Strikes:
    """The attempts of every strike; Apart if they are gone or do not give the audit's numbers."""
    runs = _attacks(audit, folder)
    budgets = sorted(audit.strikes, key=lambda strike: strike.pixels)
    if not budgets or budgets[0].threat not in runs:
        raise Apart(f"the attacks of {which} are not beside it any more")
    asked = {
        s.image for layer in audit.sandwich if layer.threat == budgets[0].threat for s in layer.standings
    }
    about, held, found = runs[budgets[0].threat].about, dict[str, Attempt](), dict[str, dict[str, Attempt]]()
    for strike in budgets:
        if strike.threat in runs:
            made = attempts_of(runs[strike.threat], which)
            held = carried(held, (a for a in made.values() if not a.targets or a.name in asked))
        found[strike.threat] = held
        before, after, _ = effect_draws(about, list(held.values()), replicates=1)
        if abs(before[0] - 100 * strike.before) > 1e-6 or abs(after[0] - 100 * strike.after) > 1e-6:
            raise Apart(f"the attacks beside {which} are not those of its numbers")
    return _Strikes(about, found)


def _attacks(audit: Audit, folder: Path) -> dict[str, Attacked]:
    """Threat -> the attack within its budget, from the folder the audit names, if it is there."""
    found: dict[str, Attacked] = {}
    for name, run in audit.runs.items():
        if not name.startswith("attack "):
            continue
        try:
            found[name.removeprefix("attack ")] = open_attack(folder.resolve().parent / run / MANIFEST)
        except InputError:
            continue
    return found
