"""Tensors through networks and post-processing: each distinct run and each distinct record once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.errors import CardError, ImageError, InputError, ModelError, UnknownName
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, Run, checked
from holdfast.core.registry import lookup
from holdfast.core.types import Tensor
from holdfast.engine.preprocess import InputTensor, grouped
from holdfast.engine.records import Failed, Record, record_of

FATAL = (CardError, ModelError, UnknownName)  # wrong for every image alike


@dataclass(frozen=True)
class ImageState:
    """Results of one image so far: records and input hashes by pipeline, records by what they depend on."""

    records: dict[int, Record] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)
    known: dict[Hashable, Record | Exception] = field(default_factory=dict)


@dataclass(frozen=True)
class Inference:
    """The networks of some pipelines, and why some pipelines cannot be run at all."""

    model: Model
    pipelines: tuple[Pipeline, ...]
    stages: tuple[Mapping[str, str], ...]  # by pipeline: a text per stage, equal for equal stages
    classes: int
    ignore_index: int | None
    threads: int
    strict: bool
    runs: dict[str, Run | Exception] = field(default_factory=dict)
    problems: dict[int, Exception] = field(default_factory=dict)

    def infer(self, state: ImageState, item: InputTensor) -> None:
        """Run each network on the tensor and note the records of its pipelines."""
        users = [n for n in item.frames if n not in self.problems]
        state.inputs.update(dict.fromkeys(users, item.digest))
        networks = grouped(users, lambda n: self.stages[n]["infer"])
        for network, group in networks.items():
            # All that the record of an image depends on, besides the image.
            ways = grouped(
                group,
                lambda n: (item.digest, network, self.stages[n]["post"], item.frames[n]),  # noqa: B023
            )
            new = [way for way in ways if way not in state.known]
            if new:
                run = self._network(group)
                if run is None:
                    continue
                raw = _attempt(_outputs, run, item.tensor, len(networks) > 1)
                for way in new:
                    state.known[way] = self._record(ways[way][0], item, raw, shared=len(new) > 1)
            for way, members in ways.items():
                for n in members:
                    self.settle(state, n, item.sample.name, state.known[way])

    def settle(self, state: ImageState, n: int, name: str, outcome: Record | Exception) -> None:
        """Note the record or the failure of one image, or why the pipeline cannot be run at all."""
        if not isinstance(outcome, Exception):
            state.records[n] = outcome
        elif isinstance(outcome, InputError) and not isinstance(outcome, FATAL):
            failed = Failed(name, str(outcome).removeprefix(f"{name}: "))
            if self.strict:
                raise ImageError(str(failed))
            state.records[n] = failed
        else:
            self.problems.setdefault(n, outcome)

    def _network(self, group: list[int]) -> Run | None:
        """The network of these pipelines; None if it cannot be opened, which is a problem of all of them."""
        infer = self.stages[group[0]]["infer"]
        if infer not in self.runs:
            function = lookup("infer", self.pipelines[group[0]].infer)
            self.runs[infer] = _attempt(function, self.model, self.threads)
        run = self.runs[infer]
        if isinstance(run, Exception):
            self.problems.update(dict.fromkeys(group, run))
            return None
        return run

    def _record(
        self, n: int, item: InputTensor, raw: Mapping[str, Tensor] | Exception, *, shared: bool
    ) -> Record | Exception:
        if isinstance(raw, Exception):
            return raw
        frame, post = item.frames[n], lookup("post", self.pipelines[n].post)
        mine = {name: value.copy() for name, value in raw.items()} if shared else raw
        prediction = _attempt(lambda: post(checked(mine), frame, self.model.card))
        if isinstance(prediction, Exception):
            return prediction
        record: Record | Exception = _attempt(
            record_of, item.sample, frame.original, prediction, self.classes, self.ignore_index
        )
        return record


def _outputs(run: Run, tensor: Tensor, shared: bool) -> Mapping[str, Tensor]:
    """The outputs of a network, in arrays that stay as they are. Others may share the tensor.

    A run that is not `pure` may write into its tensor or use its outputs' memory again: both are copied.
    """
    # What wraps a run by functools.wraps takes over its attributes, but may do anything.
    pure = getattr(run, "pure", False) and not hasattr(run, "__wrapped__")
    raw: Any = run(tensor.copy() if shared and not pure else tensor)
    if not isinstance(raw, Mapping):
        raise ModelError(f"expected the outputs of a network by their names, got {type(raw).__name__}")
    return raw if pure else {name: np.array(value) for name, value in raw.items()}


def _attempt(function: Any, *given: Any) -> Any:
    """The result of the function, or the exception it raises."""
    try:
        return function(*given)
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a stage may be the user's; its error is reported
        return problem
