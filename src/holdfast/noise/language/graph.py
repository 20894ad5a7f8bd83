"""The ONNX graph of a causal language model: the roles of its inputs and outputs, and how it is run.

The reference layout is that of Hugging Face Optimum: input_ids, attention_mask, position_ids (some),
past_key_values.N.key and .value of shape (batch, heads, past, size) with outputs present.N.key and .value
(some), use_cache_branch (where the graphs with and without past are merged); output logits (batch, length,
words).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError, ModelError
from holdfast.graph.inspect import TensorInfo, inputs_of, outputs_of
from holdfast.graph.nodes import subgraphs
from holdfast.graph.session import condense

_MASK, _POSITIONS, _BRANCH = "attention_mask", "position_ids", "use_cache_branch"
_PAST = re.compile(r"past(?:_key_values)?(?P<rest>\.\d+\..*(?:key|value))$")
_INTEGERS = ("int64", "int32")
# Operators that take their ranges from all values of a tensor, so that a row depends on its neighbours.
_WHOLE_TENSOR = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul")


@dataclass(frozen=True)
class PastInput:
    """A past key or value (batch, heads, past, size): its input, and the output that continues it."""

    name: str
    present: str | None
    dtype: str
    heads: int
    size: int


@dataclass(frozen=True)
class CausalGraph:
    """The roles of a causal language model's inputs and outputs; None where the graph has no such thing."""

    ids: TensorInfo
    mask: TensorInfo | None
    positions: TensorInfo | None
    branch: TensorInfo | None  # use_cache_branch: whether the past is to be used
    past: tuple[PastInput, ...]
    logits: str
    vocabulary: int | None  # None: the file does not say
    batch: int | None  # a number that the file fixes
    length: int | None  # a number of tokens that the file fixes
    alone: bool  # rows run together would change one another (8-bit ranges taken at run time)

    @property
    def continues(self) -> bool:
        """Whether a run's keys and values can be handed to the next."""
        return bool(self.past) and all(p.present is not None for p in self.past) and self.length is None


def causal_graph(proto: Any, where: str = "the graph") -> CausalGraph:
    """The roles of the inputs and outputs of an ONNX language model; ModelError of one line if it is none."""
    inputs, outputs = inputs_of(proto), outputs_of(proto)
    ids = _ids(inputs, where)
    named = {v.name: v for v in inputs}
    past = tuple(_past(v, outputs, where) for v in inputs if _PAST.match(v.name))
    known = {ids.name, _MASK, _POSITIONS, _BRANCH, *(p.name for p in past)}
    strange = [v.name for v in inputs if v.name not in known]
    if strange:
        raise ModelError(
            f"{where}: unknown inputs {', '.join(strange)}; a causal language model takes input_ids, "
            f"{_MASK}, {_POSITIONS}, past_key_values.N.key/value and {_BRANCH}"
        )
    for name in (_MASK, _POSITIONS):
        _rank(named.get(name), 2, "(batch, length)", where)
    logits, vocabulary = _logits(outputs, where)
    return CausalGraph(
        ids=ids,
        mask=named.get(_MASK),
        positions=named.get(_POSITIONS),
        branch=named.get(_BRANCH),
        past=past,
        logits=logits,
        vocabulary=vocabulary,
        batch=_fixed(ids, 0),
        length=_fixed(ids, 1),
        alone=any(op in _WHOLE_TENSOR for op in _operators(proto)),
    )


def _ids(inputs: Sequence[TensorInfo], where: str) -> TensorInfo:
    """The input of token numbers: `input_ids`, or the only one of integers that has no other known role."""
    pairs = [v for v in inputs if v.dtype in _INTEGERS and len(v.shape or (0, 0)) == 2]
    ids = [v for v in inputs if v.name == "input_ids"]
    ids = ids or [v for v in pairs if v.name not in (_MASK, _POSITIONS)]
    if len(ids) != 1:
        got = ", ".join(f"{v.name} {v.dtype}" for v in inputs) or "none"
        expected = "expected a causal language model with an input 'input_ids' of tokens"
        raise ModelError(f"{where}: {expected}, got inputs: {got}")
    _rank(ids[0], 2, "(batch, length)", where)
    if ids[0].dtype not in _INTEGERS:
        raise ModelError(f"{where}: input {ids[0].name!r}: expected int64 or int32, got {ids[0].dtype}")
    return ids[0]


def _past(value: TensorInfo, outputs: Sequence[TensorInfo], where: str) -> PastInput:
    _rank(value, 4, "(batch, heads, past, size)", where)
    heads, size = value.shape[1:4:2] or ("?", "?")
    if not isinstance(heads, int) or not isinstance(size, int):
        expected = "expected the shape (batch, heads, past, size) with heads and size as numbers"
        advice = "export it again with fixed heads"
        raise ModelError(f"{where}: input {value.name!r}: {expected}, got {value.shape}; {advice}")
    match = _PAST.match(value.name)
    rest = match["rest"] if match else ""
    names = {v.name for v in outputs}
    present = next((n for n in (f"present{rest}", f"present_key_values{rest}") if n in names), None)
    return PastInput(value.name, present, value.dtype, heads, size)


def _logits(outputs: Sequence[TensorInfo], where: str) -> tuple[str, int | None]:
    """The name of the logits and their number of words: `logits`, or the only output of three dimensions."""
    logits = [v for v in outputs if v.name == "logits"]
    logits = logits or [v for v in outputs if len(v.shape) == 3 and v.dtype.startswith("float")]
    if len(logits) != 1:
        got = ", ".join(f"{v.name} {v.shape}" for v in outputs[:4]) + (", …" if len(outputs) > 4 else "")
        raise ModelError(
            f"{where}: expected an output 'logits' of shape (batch, length, words), got {got}; "
            "export the model with its language-model head"
        )
    _rank(logits[0], 3, "(batch, length, words)", where)
    if not logits[0].dtype.startswith(("float", "bfloat")):
        raise ModelError(f"{where}: output {logits[0].name!r}: expected numbers, got {logits[0].dtype}")
    return logits[0].name, _fixed(logits[0], 2)


def _rank(value: TensorInfo | None, rank: int, layout: str, where: str) -> None:
    if value is not None and len(value.shape or range(rank)) != rank:  # a shape may be unknown
        raise ModelError(f"{where}: {value.name!r}: expected {rank} dimensions {layout}, got {value.shape}")


def _fixed(value: TensorInfo, axis: int) -> int | None:
    size = value.shape[axis] if value.shape else None
    return size if isinstance(size, int) and size > 0 else None


def _operators(proto: Any) -> Iterator[str]:
    todo = [proto.graph, *proto.functions]
    while todo:
        for node in todo.pop().node:
            yield node.op_type
            todo += subgraphs(node)


Feeds: TypeAlias = dict[str, NDArray[Any]]
Rows: TypeAlias = Sequence[Sequence[int]]


@dataclass(frozen=True, eq=False)
class PastState:
    """What a model has read: its keys and values for one row of tokens, and how many tokens they are."""

    length: int
    values: Mapping[str, NDArray[Any]]  # by the name of the input they go to


def feeds_of(causal: CausalGraph, rows: Rows, after: PastState | None = None) -> Feeds:
    """The inputs for rows of tokens, behind what was read if it is given.

    Rows are padded at their end, where a causal model cannot see it, and masked there; a batch that the file
    fixes is filled with copies of the first row.
    """
    count, longest = max(len(rows), causal.batch or 1), causal.length or max(map(len, rows))
    before = after.length if after is not None else 0
    ids = np.zeros((count, longest), np.dtype(causal.ids.dtype))
    mask = np.zeros((count, before + longest), np.int64)
    positions = np.zeros((count, longest), np.int64)
    for place, row in enumerate([*rows, *([rows[0]] * (count - len(rows)))]):
        ids[place, : len(row)] = row
        mask[place, : before + len(row)] = 1
        positions[place] = before + np.minimum(np.arange(longest), len(row) - 1)
    feeds: Feeds = {causal.ids.name: ids}
    if causal.mask is not None:
        feeds[causal.mask.name] = mask.astype(causal.mask.dtype)
    if causal.positions is not None:
        feeds[causal.positions.name] = positions.astype(causal.positions.dtype)
    if causal.branch is not None:
        feeds[causal.branch.name] = np.array([after is not None])
    # A merged graph does not look at the past when it is told so, but may want one that is not empty.
    empty = 0 if causal.branch is None else 1
    for past in causal.past:
        if after is not None:
            feeds[past.name] = np.repeat(after.values[past.name], count, axis=0)
        else:
            feeds[past.name] = np.zeros((count, past.heads, empty, past.size), np.dtype(past.dtype))
    return feeds


@dataclass(frozen=True, eq=False)
class Runner:
    """An ONNX language model opened in ONNX Runtime."""

    causal: CausalGraph
    session: Any
    where: str

    def logits(self, rows: Rows, after: PastState | None = None) -> NDArray[Any]:
        """The logits (rows, longest, words) of rows of tokens, all read behind `after` if it is given."""
        name, longest = self.causal.logits, max(map(len, rows))
        logits = self._run([name], feeds_of(self.causal, rows, after), rows)[0]
        if logits.ndim != 3 or logits.shape[1] < longest or logits.shape[0] < len(rows):
            shape = f"the shape (batch, length, words) for {len(rows)} rows of {longest} tokens"
            raise ModelError(f"{self.where}: output {name!r}: expected {shape}, got {logits.shape}")
        return logits[: len(rows), :longest]

    def read(self, ids: Sequence[int]) -> PastState:
        """What the model keeps of one row of tokens, for rows that go on from there."""
        past = self.causal.past
        names = [p.present or "" for p in past]
        values = self._run(names, feeds_of(self.causal, [ids]), [ids])
        return PastState(len(ids), {p.name: value[:1] for p, value in zip(past, values, strict=True)})

    def _run(self, names: list[str], feeds: Feeds, rows: Rows) -> list[NDArray[Any]]:
        try:
            return [np.asarray(v) for v in self.session.run(names, feeds)]
        except Exception as problem:
            failure = f"ONNX Runtime cannot run {len(rows)} rows of {max(map(len, rows))} tokens"
            raise DataError(f"{self.where}: {failure}: {condense(problem, 300)}") from problem
