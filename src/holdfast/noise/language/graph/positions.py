"""How many tokens a language model's graph can read: the rows of its tables of positions.

A table of positions is a constant of two dimensions whose rows are looked up (Gather) by numbers that count
the tokens. Which lookups these are, and at which row they begin (OPT begins at 2), is found by running the
few nodes that make the numbers, on four tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.graph.session import open_session
from holdfast.noise.language.graph.causal import Causal
from holdfast.noise.language.graph.feeds import feeds_of

_TOKENS = 4
_MOST_NODES = 400  # what makes the numbers of positions is small; anything larger is no such thing


def positions_of(proto: Any, causal: Causal) -> int | None:
    """The most tokens the graph's tables of positions have rows for; None if it has no such table."""
    sizes = {w.name: tuple(w.dims) for w in proto.graph.initializer}
    makers = {name: place for place, node in enumerate(proto.graph.node) for name in node.output}
    bounds = []
    for table, numbers in _lookups(proto, sizes):
        last = _last_number(proto, causal, numbers, makers)
        if last is not None:
            bounds.append(sizes[table][0] - (last - (_TOKENS - 1)))
    return min((bound for bound in bounds if bound > 0), default=None)


def _lookups(proto: Any, sizes: Mapping[str, tuple[int, ...]]) -> set[tuple[str, str]]:
    """Lookups of rows in constants of two dimensions: the table and the numbers of the rows."""
    found = set()
    for node in proto.graph.node:
        if node.op_type != "Gather" or len(sizes.get(node.input[0], ())) != 2:
            continue
        if next((a.i for a in node.attribute if a.name == "axis"), 0) == 0:
            found.add((node.input[0], node.input[1]))
    return found


def _last_number(proto: Any, causal: Causal, numbers: str, makers: Mapping[str, int]) -> int | None:
    """The number of the last of four tokens, when they are counted up one by one; None if they are not."""
    if causal.positions is not None and numbers == causal.positions.name:
        return _TOKENS - 1
    places = _ancestors(proto, numbers, makers)
    found = _value(proto, causal, numbers, places) if places else None
    if found is None or found.size < _TOKENS:
        return None
    last = found.reshape(-1, found.shape[-1])[0]
    counted = len(last) == _TOKENS and np.array_equal(np.diff(last), [1] * (_TOKENS - 1))
    return int(last[-1]) if counted else None


def _ancestors(proto: Any, name: str, makers: Mapping[str, int]) -> list[int]:
    """The places of the nodes that make a value, in the graph's order; none if they are too many."""
    todo, kept = [name], set[int]()
    while todo and len(kept) <= _MOST_NODES:
        place = makers.get(todo.pop())
        if place is not None and place not in kept:
            kept.add(place)
            todo += list(proto.graph.node[place].input)
    return sorted(kept) if len(kept) <= _MOST_NODES else []


def _value(proto: Any, causal: Causal, wanted: str, places: list[int]) -> Any:
    """What these nodes make of four equal tokens; None if they cannot be run by themselves."""
    import onnx
    from onnx import helper

    nodes = [proto.graph.node[place] for place in places]
    used = {name for node in nodes for name in node.input}
    inputs = [v for v in proto.graph.input if v.name in used]
    weights = [w for w in proto.graph.initializer if w.name in used]
    graph = helper.make_graph(nodes, "positions", inputs, [onnx.ValueInfoProto(name=wanted)], weights)
    small = helper.make_model(graph, opset_imports=list(proto.opset_import), ir_version=proto.ir_version)
    small.functions.extend(proto.functions)
    feeds = feeds_of(causal, [[0] * min(_TOKENS, causal.length or _TOKENS)])
    try:
        session = open_session(small.SerializeToString(), threads=1)
        return np.asarray(
            session.run([wanted], {v.name: feeds[v.name] for v in inputs if v.name in feeds})[0]
        )
    except Exception:  # noqa: BLE001 - then it is not a table of positions that can be told
        return None
