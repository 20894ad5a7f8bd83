"""A language model at another precision: its graph rewritten, kept by content, made once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.registry import part
from holdfast.core.sources import code_of
from holdfast.graph.inspect import load_proto
from holdfast.graph.kept import Made, kept
from holdfast.graph.rewrite.types import CannotRewrite, Context, Rewritten
from holdfast.graph.session import runtime
from holdfast.noise.language.calibration import Reserved
from holdfast.noise.language.precisions import is_calibrated
from holdfast.noise.language.subject import LIMIT, Subject

BRANCH = "use_cache_branch"  # of a merged graph: whether a past is given


@dataclass(frozen=True)
class Built:
    """A rewritten graph on disk; without changes there is nothing to measure."""

    path: Path
    key: str
    changed: int
    how: str


def built(subject: Subject, precision: str, reserved: Reserved, folder: Path) -> Built:
    """The graph, made now if it is not there; CannotRewrite if it cannot be."""
    calibrated = is_calibrated(precision)
    key = _key(subject, precision, reserved.key() if calibrated else "")
    paths, facts = kept(
        folder / key[:32], key, lambda: _made(subject, precision, reserved if calibrated else None)
    )
    return Built(paths[".onnx"], key, facts["changed"], facts["how"])


def _made(subject: Subject, precision: str, reserved: Reserved | None) -> Made:
    if subject.bytes > LIMIT:
        raise CannotRewrite(
            f"the model has {subject.bytes / 1e9:.1f} GB; a rewritten graph is one file and cannot hold "
            "more than 2.1 GB"
        )
    made = _rewritten(subject, precision, reserved)
    return Made({".onnx": _packed(made.model)}, {"changed": len(made.changed), "how": made.how})


def _packed(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as problem:  # protobuf's EncodeError, or ValueError, by its version
        raise CannotRewrite(f"the rewritten graph cannot be written as one file: {problem}") from problem


def _rewritten(subject: Subject, precision: str, reserved: Reserved | None) -> Rewritten:
    import onnx

    proto = load_proto(subject.path)
    onnx.load_external_data_for_model(proto, str(subject.path.parent.resolve()))
    context = Context(unit="text")
    if reserved is not None:
        from holdfast.noise.language.model import open_language

        model = open_language(subject.path, subject.tokenizer)
        fed = [
            {name: value for name, value in feeds.items() if name != BRANCH}
            for feeds in model.feeds(reserved.questions)
        ]
        context = Context(None, lambda: iter(fed), "text")
    with np.errstate(invalid="ignore"):  # of a weight that is NaN comes NaN, and that is told
        made: Rewritten = part("rewrite", precision).function(settled(proto), context)
    return made


def settled(proto: Any) -> Any:
    """The graph without the choice between past and no past: no past.

    ONNX Runtime then puts the chosen branch in the place of the If, where its layers can be rewritten.
    """
    from onnx import numpy_helper

    others = [entry for entry in proto.graph.input if entry.name != BRANCH]
    if len(others) < len(proto.graph.input):
        del proto.graph.input[:]
        proto.graph.input.extend(others)
        proto.graph.initializer.append(numpy_helper.from_array(np.array([False]), BRANCH))
    return proto


def _key(subject: Subject, precision: str, calibration: str) -> str:
    import onnx

    made_by = [precision, part("rewrite", precision).function, code_of("language")]
    return fingerprint.of([subject.sha256, made_by, calibration, onnx.__version__, runtime().__version__])
