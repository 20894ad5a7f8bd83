"""Find the pipeline options that reproduce a dump of the target's raw output; read dumps."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, load_pipeline
from holdfast.core.types import Tensor
from holdfast.diagnose.stages import ValueDifference, compare_values
from holdfast.graph.rewrite.types import CannotRewrite
from holdfast.report.tables import Cell, Table
from holdfast.stages.deployed import DeployedInference
from holdfast.stages.families import NoiseOption, families, options


@dataclass(frozen=True)
class OptionTrial:
    """Choices that were run: by stage their labels, how far from the dump their result is, and its hash."""

    chosen: Mapping[str, str]  # stage -> "decode=zune"; a stage that is not there is as in training
    apart: ValueDifference
    result: str
    changes: int  # stages that are not as in training
    odd: int  # choices that are not in the paper's list of systems


@dataclass(frozen=True)
class DumpMatch:
    """Choices, how far what they give is from the dump, and the other choices that give the very same."""

    choices: str
    apart: ValueDifference
    same: tuple[str, ...] = ()  # what to write in place of, or in addition to, the choice of that stage
    tried: int = 1  # how many combinations of choices it stands for

    @property
    def exact(self) -> bool:
        """Whether it is the dump, value by value."""
        return self.apart.same


def rank_trials(tried: Iterable[OptionTrial]) -> list[DumpMatch]:
    """One match per distinct result, the closest to the dump first.

    A match is named by the choices with the fewest changes from training; at equal distance the match with
    fewer changes comes first.
    """
    groups: dict[str, list[OptionTrial]] = {}
    for one in tried:
        groups.setdefault("" if one.apart.same else one.result, []).append(one)
    rows = [sorted(group, key=_simplicity) for group in groups.values()]
    rows.sort(key=lambda row: (row[0].apart.mean, row[0].apart.largest, _simplicity(row[0])))
    return [DumpMatch(label_of(row[0].chosen), row[0].apart, _equivalents(row), len(row)) for row in rows]


def label_of(chosen: Mapping[str, str]) -> str:
    """The choices in one line."""
    return ", ".join(chosen.values()) or "training pipeline"


def _simplicity(one: OptionTrial) -> tuple[int, int, str]:
    return one.changes, one.odd, label_of(one.chosen)


def _equivalents(row: Sequence[OptionTrial]) -> tuple[str, ...]:
    """How the others differ from the first, without combinations of smaller such differences."""
    kept: list[list[str]] = []
    for parts in sorted((_changed_labels(one, row[0]) for one in row[1:]), key=len):
        smaller = [part for known in kept if set(known) < set(parts) for part in known]
        if set(smaller) != set(parts):
            kept.append(parts)
    return tuple(" + ".join(parts) for parts in kept)


def _changed_labels(one: OptionTrial, shown: OptionTrial) -> list[str]:
    other = [label for stage, label in one.chosen.items() if shown.chosen.get(stage) != label]
    return other + [f"no {label}" for stage, label in shown.chosen.items() if stage not in one.chosen]


def read_dump(path: Path) -> Tensor:
    """The array of a .npy file; InputError for anything else. Pickles are not loaded."""
    try:  # mapped first: a header that promises more than the file holds is then refused, not allocated
        found: Tensor = np.array(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError, EOFError) as problem:
        raise InputError(f"{path}: expected an array saved by numpy.save, got: {problem}") from problem
    if found.dtype.kind not in "fiu":
        raise InputError(f"{path}: expected one array of numbers, got {found.dtype}")
    if not np.isfinite(found).all():
        raise InputError(f"{path}: expected finite numbers, got NaN or infinite values")
    return found


def match_output(
    model: Model, train: Pipeline, data: bytes, dump: Tensor, prepare: Callable[[Pipeline], Pipeline]
) -> list[DumpMatch]:
    """Single options and greedy combinations of them, the closest to the dumped output first.

    An option is added if it comes closer (coordinate descent); all combinations would be thousands of runs.
    """
    found: list[tuple[Pipeline, OptionTrial]] = []

    def near(chosen: Sequence[NoiseOption]) -> float:
        pipeline, changes = _changed(train, chosen)
        known = next((trial for seen, trial in found if seen == pipeline), None)
        if known is None:
            ready = prepare(pipeline)
            _check_effective(ready, model)
            far, digest = _output_difference(model, ready, data, dump)
            odd = sum(not o.paper for o in changes)
            known = OptionTrial({o.family: o.label for o in changes}, far, digest, len(changes), odd)
            found.append((pipeline, known))
        return known.apart.mean

    def with_one(one: NoiseOption) -> list[NoiseOption]:
        return [*(o for o in best if o.family != one.family), one]

    task, before = model.card.task, [f for f in families() if f.where != "post-processing"]
    every = [o for f in before for o in options(f) if not o.missing and task in o.tasks]
    best: list[NoiseOption] = []
    nearest = near(best)
    while True:
        tried: dict[NoiseOption, float] = {}
        for one in [o for o in every if o not in best]:
            with suppress(HoldfastError):
                tried[one] = near(with_one(one))
        nearer = min(tried, key=lambda o: (tried[o], not o.paper), default=None)
        if nearer is None or tried[nearer] >= nearest:
            break
        nearest, best = tried[nearer], with_one(nearer)
    return rank_trials(trial for _, trial in found)


def _changed(train: Pipeline, chosen: Sequence[NoiseOption]) -> tuple[Pipeline, list[NoiseOption]]:
    """The pipeline with the options, and those of them that differ from the training pipeline."""
    pipeline = train
    changes: list[NoiseOption] = []
    for one in chosen:
        after = one.noise(pipeline)
        if after.infer == DeployedInference():
            after = after.replace(infer="onnxruntime")
        if after != pipeline:
            pipeline = after
            changes.append(one)
    return pipeline, changes


def _check_effective(ready: Pipeline, model: Model) -> None:
    """Raise CannotRewrite if one of the rewrites does not change the graph."""
    infer = ready.infer
    if isinstance(infer, DeployedInference) and infer.folder:
        for name in infer.rewrites:
            if not replace(infer, rewrites=(name,)).built(model).changed:
                raise CannotRewrite(f"{model.name} has nothing that {name} changes")


def _output_difference(
    model: Model, pipeline: Pipeline, data: bytes, dump: Tensor
) -> tuple[ValueDifference, str]:
    """The difference of the closest output of the dump's size, and that output's hash."""
    machine = load_pipeline(pipeline, model)
    raw = machine.run(machine.prepare(data).tensor)
    fitting = [value for value in raw.values() if value.size == dump.size]
    if not fitting:
        shapes = ", ".join("×".join(map(str, v.shape)) for v in raw.values())
        raise InputError(
            f"the dump is {'×'.join(map(str, dump.shape))}; expected one of the model's outputs: {shapes}"
        )
    tried = [(compare_values(value.reshape(dump.shape), dump), value) for value in fitting]
    far, value = min(tried, key=lambda one: one[0].mean)
    return far, fingerprint.of_bytes(value.tobytes())


def match_table(found: Sequence[DumpMatch], what: str, most: int = 8) -> Table:
    """The options whose result is closest to a dump; the last column lists equivalent options."""
    rows: list[list[Cell]] = [
        [
            place,
            one.choices,
            "yes" if one.exact else "",
            size_text(one.apart.largest),
            size_text(one.apart.mean),
            ", ".join(one.same),
        ]
        for place, one in enumerate(found[:most], 1)
    ]
    columns = ["", "options", "exact", "largest difference", "mean difference", "equivalent"]
    end = "" if found[0].exact else "; no exact match"
    tried = sum(one.tried for one in found)
    return Table(columns, rows, f"Options closest to the dumped {what}, of {tried} combinations{end}")


def size_text(value: float) -> str:
    """A difference as it is printed; infinite if the shapes differ."""
    return "different shape" if math.isinf(value) else f"{value:.4g}"
