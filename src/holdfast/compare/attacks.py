"""Two attacks: how many images broke, what the metric kept and how many pixels it took, on common images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from holdfast.attack.plan import CELLS
from holdfast.attack.result import Attempt, attempt_from_plain
from holdfast.attack.run import MANIFEST
from holdfast.compare.change import POINTS, Change, Rise, Subject, from_draws, from_stated, in_points
from holdfast.compare.evaluations import SEED, ap_draws, ap_matches, settings_of
from holdfast.compare.result import Body, Listed, differences
from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.seeds import generator
from holdfast.core.types import Floats
from holdfast.engine.cells import CellSet
from holdfast.engine.store import Store
from holdfast.evaluate.classes import Alignment, realign
from holdfast.evaluate.difference import same_truth
from holdfast.metrics.intervals import mean_values

STRUCK = "attack"
# What, its key in the manifest, what its rise means, and the largest difference in points.
EFFECTS: tuple[tuple[str, str, Rise, float], ...] = (
    ("mAP before", "before", "is better", 100.0),
    ("mAP under attack", "after", "is better", 100.0),
    ("S_e", "S_e", "is worse", math.inf),  # 1 − after / before: no lower limit
)


@dataclass(frozen=True)
class Attacked:
    """An attack as its manifest has it, and its attempts if their cells are still there."""

    about: dict[str, Any]
    effects: tuple[dict[str, Any], ...]
    images: dict[str, dict[str, Any]]  # by name
    folder: Path
    cells: dict[str, Any]

    @property
    def aimed(self) -> dict[str, dict[str, Any]]:
        """The images that had something to lose."""
        return {name: row for name, row in self.images.items() if row["targets"] or row["steps"]}


def open_attack(path: Path) -> Attacked:
    """The attack in a folder; InputError if there is none."""
    file = path / MANIFEST if path.is_dir() else path
    try:
        plain = orjson.loads(file.read_bytes())
        rows = {row["name"]: row for row in plain["images"]}
        for row in rows.values():
            _ = row["targets"], row["steps"], row["success"], row["pixels"], row["image_sha256"]
        about, effects = plain["about"], tuple(plain["effects"])
        _ = about["model"]["name"], about["data"]["name"], about["method"]["goal"], about["rule"]
        _ = effects[0]["before"], effects[0]["after"], effects[0]["S_e"]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise InputError(f"{file}: expected the {MANIFEST} of an attack, got: {problem!r}") from problem
    return Attacked(about, effects, rows, file.parent, plain.get("cells") or {})


def compare_attacks(a: Attacked, b: Attacked) -> Body:
    """Every number of the two on the images both aimed at; InputError if that means nothing."""
    goals = [run.about["method"]["goal"] for run in (a, b)]
    if goals[0] != goals[1]:
        raise InputError(f"A attacks to {goals[0]}, B to {goals[1]}: success is not the same thing")
    names = [name for name in a.images if name in b.images]
    if not names:
        raise InputError("the two attacks have no image in common")
    notes, rows = [], list(_shares(a, b))
    try:
        rows += _effects(a, b, names)
    except Apart as reason:
        data = [run.about["data"]["name"] for run in (a, b)]
        if data[0] != data[1]:
            raise InputError(f"A is on {data[0]}, B on {data[1]}: not known to be the same images") from None
        rows += _stated_effects(a, b)
        notes.append(f"mAP and S_e have no paired interval: {reason}")
    if not len(names) == len(a.images) == len(b.images):
        notes.append(
            f"compared on the {len(names)} images both have; A has {len(a.images)}, B {len(b.images)}"
        )
    lists = _lists(a, b)
    return Body(tuple(rows), differences(_description(a), _description(b)), lists, tuple(notes))


def _shares(a: Attacked, b: Attacked) -> Iterator[Change]:
    """The share of broken images, and the pixels it took where both broke."""
    both = [name for name in a.aimed if name in b.aimed]
    if both:
        about = Subject(STRUCK, "images broken", "is worse")
        yield mean_change(about, *([100.0 * run.images[n]["success"] for n in both] for run in (a, b)))
    fell = [name for name in both if a.images[name]["success"] and b.images[name]["success"]]
    if fell:
        about = Subject(STRUCK, "pixels it takes (broken in both)", "is better", "pixels")
        yield mean_change(about, *([float(run.images[n]["pixels"]) for n in fell] for run in (a, b)))


def mean_change(about: Subject, before: Sequence[float], after: Sequence[float]) -> Change:
    """The row of one value an image and run: their means, with the paired interval of the difference."""
    bound = 100.0 if about.unit == POINTS else math.inf
    drawn = [mean_values(np.asarray(v, np.float64), generator(SEED, "difference")) for v in (before, after)]
    return from_draws(about, drawn[0], drawn[1], len(before), bound)


class Apart(Exception):
    """Why two attacks have no metric on the same images."""


def _effects(a: Attacked, b: Attacked, names: Sequence[str]) -> list[Change]:
    """The mAP before and after, and S_e, on the common images with paired intervals; Apart says why not."""
    found = [attempts_of(run, which) for run, which in ((a, "A"), (b, "B"))]
    return effect_changes(a.about, b.about, [[one[n] for n in names] for one in found])


def effect_changes(
    a: dict[str, Any],
    b: dict[str, Any],
    both: Sequence[Sequence[Attempt]],
    begin: str = "",
) -> list[Change]:
    """The mAP before and after, and S_e, of attempts on the same images in A and B, with paired intervals."""
    if a.get("settings") != b.get("settings"):
        raise Apart("the rule of the metric differs, or one does not state it")
    clean = [[one.record(one.model, after=False) for one in side] for side in both]
    if not all(map(same_truth, *clean)):
        raise InputError("images of one name are not the same, or have another truth; attack the same data")
    drawn = [effect_draws(about, side) for about, side in zip((a, b), both, strict=True)]
    return [
        from_draws(Subject(STRUCK, begin + what, rise), drawn[0][k], drawn[1][k], len(both[0]), bound)
        for k, (what, _, rise, bound) in enumerate(EFFECTS)
    ]


def effect_draws(
    about: dict[str, Any], attempts: Sequence[Attempt], *, replicates: int = 1000
) -> tuple[Floats, Floats, Floats]:
    """The mAP before and after and S_e in points, each followed by its values on the draws."""
    alignment, settings = Alignment.from_plain(about["alignment"]), settings_of(about["settings"])
    level = [0.5 if settings.rule.name == "coco" else settings.iou]
    found = []
    for after in (False, True):
        records = realign([one.record(one.model, after) for one in attempts], alignment)
        matches = ap_matches(records, len(alignment.names), settings, level)
        found.append(ap_draws(matches, settings, len(records), replicates))
    before, left = found
    effect = np.full(len(before), np.nan)
    np.divide(before - left, before, out=effect, where=before > 0)
    return before, left, 100 * effect


def attempts_of(run: Attacked, which: str) -> dict[str, Attempt]:
    """The attempts of the manifest's images from the cells of its folder; Apart if one is not there."""
    if "alignment" not in run.about:
        raise Apart(f"{which} was made by a version that did not keep which classes are meant")
    found = {}
    try:
        cells = CellSet.from_plain(Store(run.folder / CELLS), run.cells)
        attempts = [attempt_from_plain(plain) for plain in cells.read()]
    except (ValueError, KeyError, TypeError, HoldfastError):
        attempts = []
    for attempt in attempts:
        row = run.images.get(attempt.name)
        if isinstance(attempt, Attempt) and row is not None and row["image_sha256"] == attempt.image_sha256:
            found[attempt.name] = attempt
    missing = [name for name in run.images if name not in found]
    if missing:
        raise Apart(f"{which} has no record of {missing[0]} any more")
    return found


def _stated_effects(a: Attacked, b: Attacked) -> Iterator[Change]:
    """What the manifests state, without an interval, if it is the same rule on the same images."""
    if a.about["rule"] != b.about["rule"] or a.images.keys() != b.images.keys():
        return
    for what, key, rise, _ in EFFECTS:
        about = Subject(STRUCK, what, rise)
        yield from_stated(about, *(in_points(run.effects[0][key], images=len(run.images)) for run in (a, b)))


def _lists(a: Attacked, b: Attacked) -> tuple[Listed, ...]:
    both = [name for name in a.aimed if name in b.aimed]
    lost = [n for n in both if b.images[n]["success"] and not a.images[n]["success"]]
    kept = [n for n in both if a.images[n]["success"] and not b.images[n]["success"]]
    return (
        Listed("withstood in A, broken in B", tuple(lost), "worse"),
        Listed("broken in A, withstood in B", tuple(kept), "better"),
    )


def _description(run: Attacked) -> dict[str, Any]:
    about = run.about
    told: dict[str, Any] = {"model": about["model"]["name"], "data": about["data"]["name"]}
    told |= {"model file": str(about["model"].get("sha256", ""))[:12], "images": len(run.images)}
    for part in ("method", "limits", "pipeline"):
        told |= {f"{part} {key}": value for key, value in about.get(part, {}).items()}
    told |= {key: about.get(key) for key in ("seed", "universal", "rule")}
    return told | {f"version of {n}": v for n, v in about.get("versions", {}).items()}
