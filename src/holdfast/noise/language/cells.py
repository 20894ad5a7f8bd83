"""The cells of a language suite: one per piece of a question set, and the rewritten graphs they run."""

import dataclasses
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.errors import DataError, HoldfastError, InputError, UnknownName
from holdfast.core.language import Question, ScoredQuestion, TextSet
from holdfast.core.registry import part
from holdfast.engine.cells import CellResult, MissingCells, Setup, Work
from holdfast.graph.artifacts import Artifact
from holdfast.graph.inspect import load_proto
from holdfast.graph.rewrite.streamed import StreamedWeights
from holdfast.graph.rewrite.types import CannotRewrite, RewriteContext, RewriteResult
from holdfast.noise.language.open import LIMIT, LanguageSubject, open_language
from holdfast.noise.suite import (
    PRECISION,
    ConvertedGraphs,
    NoiseSelection,
    Reserved,
    calibration_subset,
    conversion_key,
    conversion_stem,
    convert_graphs,
    is_calibrated,
    spread,
)
from holdfast.stages.families import NoiseOption, family, options

DEFAULT = ("fp16", "int8-dynamic", "int8-mixed")  # the paper's Table 5, with both kinds of 8 bits
DATA = ".onnx.data"  # the ending of the file of weights of a converted model over 2 GB
BRANCH = "use_cache_branch"  # of a merged graph: whether a past is given


def precisions() -> list[NoiseOption]:
    """All precisions, those that run by default first."""
    by_name = {option.name: option for option in options(family(PRECISION))}
    names = (*DEFAULT, *(name for name in by_name if name not in DEFAULT))
    return [dataclasses.replace(by_name[name], default=name in DEFAULT) for name in names]


def select_precisions(
    only: Sequence[str] = (), skip: Sequence[str] = (), every: bool = False
) -> tuple[str, ...]:
    """The selected precisions: `fp16`, `precision=fp16` or `precision` for the whole family."""
    offered = precisions()
    labels = {label for option in offered for label in option.labels}

    def labelled(words: Sequence[str]) -> Iterator[str]:
        for word in words:
            name = word.removeprefix(f"{PRECISION}=")
            label = PRECISION if word == PRECISION else f"{PRECISION}={name}"
            if label not in (PRECISION, *labels):
                raise UnknownName("precision of a language model", name, [o.name for o in offered])
            yield label

    selection = NoiseSelection(tuple(labelled(only)), tuple(labelled(skip)), every)
    chosen = tuple(option.name for option in offered if selection.takes(option))
    if not chosen:
        raise InputError("no precision is left to run: --only and --skip exclude all")
    return chosen


def content(question: Question) -> list[list[str]]:
    """What a question says, whatever file it is in."""
    return [[str(question.answer)], *([e.prompt, e.text] for e in question.endings)]


def reserve(tested: TextSet, others: TextSet | None, count: int, given: bool = False) -> Reserved[Question]:
    """Questions of `others` that are not tested on; else some of the tested, which are then skipped.

    `others` may contain the tested ones; if the user named it (`given`), it must have more.
    """
    if others is not None:
        known = {str(content(q)) for q in tested.questions}
        free = [q for q in others.questions if str(content(q)) not in known]
        if free:
            chosen = spread(free, min(count, len(free)))
            words = f"{len(chosen)} questions of {others.name} that are not tested on"
            return Reserved(chosen, f"{words}, each with its right ending")
        if given:
            why = "all its questions are tested on; expected a set with other questions"
            raise InputError(f"--calibration {others.name}: {why}")
    if len(tested.questions) < 2:  # nothing would be left to test on
        return Reserved((), "no question that is not tested on")
    chosen = calibration_subset(tested.questions, count)
    words = (
        f"{len(chosen)} of the {len(tested.questions)} questions, each with its right ending; calibrated "
        "precisions skip these questions, and their points lost are relative to fp32 on the others"
    )
    return Reserved(chosen, words, frozenset(q.name for q in chosen))


def convert_graph(
    subject: LanguageSubject, precision: str, reserved: Reserved[Question], folder: Path
) -> ConvertedGraphs:
    """The graph, rewritten now if it is not there; CannotRewrite if it cannot be."""
    texts = reserved.items if is_calibrated(precision) else None
    calibration = "" if texts is None else fingerprint.of([content(q) for q in texts])
    about = [subject.sha256, calibration]
    rewrite = partial(_rewrite, subject, precision, texts)
    if subject.bytes > LIMIT:
        stem = conversion_stem(folder, conversion_key("language", precision, about))
        rewrite = partial(_rewrite_streamed, subject, precision, stem)
    return convert_graphs("language", precision, about, folder, rewrite)


def _rewrite(subject: LanguageSubject, precision: str, texts: Sequence[Question] | None) -> Artifact:
    """The rewritten graph; `texts` are what it is calibrated on, None: not calibrated."""
    import onnx

    proto = load_proto(subject.path)
    onnx.load_external_data_for_model(proto, str(subject.path.parent.resolve()))
    context = RewriteContext(unit="text")
    if texts is not None:
        model = open_language(subject.path, subject.tokenizer)
        feeds = [{n: v for n, v in inputs.items() if n != BRANCH} for inputs in model.feeds(texts)]
        context = RewriteContext(None, lambda: iter(feeds), "text")
    with np.errstate(invalid="ignore"):  # of a weight that is NaN comes NaN, and that is reported
        rewrite: RewriteResult = part("rewrite", precision).function(without_cache_branch(proto), context)
    try:
        data = bytes(rewrite.model.SerializeToString())
    except Exception as problem:  # protobuf's EncodeError, or ValueError, by its version
        raise CannotRewrite(f"the converted graph cannot be written as one file: {problem}") from problem
    return Artifact({".onnx": data}, {"changed": len(rewrite.changed), "how": rewrite.how})


def _rewrite_streamed(subject: LanguageSubject, precision: str, stem: Path) -> Artifact:
    """The rewritten graph of a model over 2 GB: weights go from file to file, one at a time."""
    if is_calibrated(precision):
        size = f"the model has {subject.bytes / 1e9:.1f} GB"
        raise CannotRewrite(f"{size}; calibrated 8 bits need it in one file of 2.1 GB: use int8-dynamic")
    proto, folder = without_cache_branch(load_proto(subject.path)), subject.path.parent.resolve()
    stem.parent.mkdir(parents=True, exist_ok=True)
    name = f"{stem.name}{DATA}"
    with tempfile.NamedTemporaryFile(dir=stem.parent, prefix=".writing-", delete=False) as out:
        try:
            weights = StreamedWeights.of(proto, folder, name, cast(BinaryIO, out))
            with np.errstate(invalid="ignore"):
                context = RewriteContext(unit="text", streamed=weights)
                result: RewriteResult = part("rewrite", precision).function(proto, context)
            data = bytes(result.model.SerializeToString())
        except BaseException:
            Path(out.name).unlink(missing_ok=True)
            raise
    files: dict[str, bytes | Path] = {DATA: Path(out.name), ".onnx": data}
    return Artifact(files, {"changed": len(result.changed), "how": result.how})


def without_cache_branch(proto: Any) -> Any:
    """The graph always without a past: ONNX Runtime then replaces the If by layers that can be rewritten."""
    from onnx import numpy_helper

    for entry in [entry for entry in proto.graph.input if entry.name == BRANCH]:
        proto.graph.input.remove(entry)
        proto.graph.initializer.append(numpy_helper.from_array(np.array([False]), BRANCH))
    return proto


@dataclass(frozen=True)
class QuestionBatch:
    """Some questions for one model at one precision; `graph` is its rewritten graph, None the file itself."""

    subject: LanguageSubject
    precision: str
    graph: Path | None
    key: str  # of the rewritten graph
    questions: tuple[Question, ...]


@dataclass
class OpenModel:
    """The model that is open in a process, one at a time, and why some cannot be run."""

    source: tuple[Path, Path | None] | None = None
    model: Any = None
    problems: dict[tuple[Path, Path | None], str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoringWork(Work[QuestionBatch, OpenModel]):
    """The scores of batches. A problem of a rewritten graph is a result, one of the file itself is raised."""

    threads: int  # part of the work: a resumed run must add up in the same order
    strict: bool = False

    def setups(self) -> list[Setup]:
        """Everything is the content of a batch."""
        return [Setup("language", "scores")]

    def contents(self, item: QuestionBatch) -> list[Any]:
        """The model and the questions."""
        model = (item.subject.sha256, item.key)
        return [[model, [content(question) for question in item.questions]]]

    def open(self, threads: int) -> OpenModel:
        """No model is open at first."""
        return OpenModel()

    def tally(self, item: QuestionBatch, cells: int, found: int) -> tuple[int, int]:
        """Progress counts questions."""
        return len(item.questions) * cells, len(item.questions) * found

    def compute(self, state: OpenModel, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """The scores of each batch, or {"problem": ...} of a rewritten graph that cannot be run."""
        for position, (questions, _) in enumerate(batch):
            source = (questions.subject.path, questions.graph)
            if source not in state.problems:
                try:
                    yield CellResult(position, 0, self._scores(state, questions))
                    continue
                except HoldfastError as problem:
                    if questions.graph is None or self.strict:
                        raise
                    state.problems[source] = str(problem)
            yield CellResult(position, 0, {"problem": state.problems[source]}, stored=False)

    def _scores(self, state: OpenModel, batch: QuestionBatch) -> list[Any]:
        subject, source = batch.subject, (batch.subject.path, batch.graph)
        if state.source != source:
            state.source, state.model = None, None  # the one before makes room first
            state.model = open_language(subject.path, subject.tokenizer, self.threads, batch.graph)
            state.source = source
        if not self.strict:
            return pack_scores(list(state.model.score_all(batch.questions)))
        for question in batch.questions:
            state.model.lines(question)  # raises why a question cannot be read
        scores = list(state.model.score_all(batch.questions))
        if failed := next(filter(has_failed, scores), None):
            why = "the model gives no numbers (NaN)"
            raise DataError(f"{failed.name}: no likelihood at {batch.precision}: {why}")
        return pack_scores(scores)


def has_failed(scored: ScoredQuestion) -> bool:
    """Whether a model has no opinion of a question, for its numbers are none."""
    return any(math.isnan(total) for total in scored.sums)


def pack_scores(scored: Sequence[ScoredQuestion]) -> list[Any]:
    """Scores as a cell keeps them, to the last digit, without the names of the questions."""
    return [  # JSON has no NaN
        [[n if math.isfinite(n) else repr(n) for n in s.sums], s.tokens, s.length, s.greedy] for s in scored
    ]


def unpack_scores(plain: Sequence[Any], questions: Sequence[Question]) -> list[ScoredQuestion]:
    """The scores of a cell, under the names of these questions."""
    return [
        ScoredQuestion(question.name, tuple(map(float, sums)), tuple(tokens), tuple(length), tuple(greedy))
        for question, (sums, tokens, length, greedy) in zip(questions, plain, strict=True)
    ]
