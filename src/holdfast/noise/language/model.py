"""A language model that scores endings by likelihood, each independent of what is scored next to it."""

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError, InputError, ModelError, one_line
from holdfast.core.extras import require
from holdfast.core.language import Ending, Question, ScoredQuestion
from holdfast.core.limits import read_file
from holdfast.noise.language.graph import Feeds, Runner, feeds_of

_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class EndingTokens:
    """What a model reads for one ending: all token numbers, and the place of the ending's first one."""

    ids: tuple[int, ...]
    start: int

    @property
    def tokens(self) -> int:
        """How many tokens the ending is."""
        return len(self.ids) - self.start


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer with what it puts in front of every text."""

    path: Path
    first: tuple[int, ...]  # the token of the beginning, if the tokenizer or its config puts one there
    size: int  # one more than the highest token number
    encoder: Any  # tokenizers.Tokenizer

    def encode(self, text: str) -> tuple[int, ...]:
        """The token numbers of a text, without any at its beginning or end that are not of the text."""
        return tuple(self.encoder.encode(text, add_special_tokens=False).ids)

    def line(self, ending: Ending, name: str) -> EndingTokens:
        """Prompt and ending as one text in tokens, and where the ending begins.

        White space at the prompt's end belongs to the ending, as tokenizers join it to the next word. The
        ending begins where the tokens of the whole and those of the prompt alone part, so that a token made
        of the end of the one and the beginning of the other is scored.
        """
        whole = self.encode(ending.prompt + ending.text)
        same = _count_shared([whole, self.encode(ending.prompt.rstrip())])
        if same == len(whole):
            raise DataError(f"{name}: the ending {ending.text[:40]!r} has no token of its own")
        start = len(self.first) + same
        if start == 0:
            lack = f"the prompt is empty and {self.path.name} has no token for the beginning of a text"
            raise DataError(f"{name}: {lack}, so the first word of the ending cannot be scored")
        return EndingTokens((*self.first, *whole), start)


def find_tokenizer(model: Path) -> Path:
    """The tokenizer of a model file: next to it under its name, next to it, or in the folder above."""
    stem = model.name.removesuffix(".gz").removesuffix(".onnx")
    folder = model.absolute().parent  # not behind a link: caches keep the files elsewhere
    places = (folder / f"{stem}.tokenizer.json", folder / "tokenizer.json", folder.parent / "tokenizer.json")
    tokenizer = next((place for place in places if place.is_file()), None)
    if tokenizer is None:
        raise ModelError(
            f"{model}: no tokenizer: looked for {stem}.tokenizer.json and tokenizer.json next to it and for "
            "tokenizer.json in the folder above; put the model's tokenizer.json there"
        )
    return tokenizer


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json."""
    tokenizers = require("a language model", "tokenizers")
    data = read_file(path, "tokenizer-mb")
    try:
        encoder = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except BaseException as problem:  # tokenizers raises plain Exception, and panics are not even that
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        text = f"{path}: not a tokenizer.json of Hugging Face tokenizers: {one_line(problem)[:160]}"
        raise InputError(text) from None
    encoder.no_truncation()
    encoder.no_padding()
    vocabulary = encoder.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise InputError(f"{path}: the tokenizer has no tokens")
    return Tokenizer(path, _leading_tokens(path, encoder), max(vocabulary.values()) + 1, encoder)


def _leading_tokens(path: Path, encoder: Any) -> tuple[int, ...]:
    """What stands before every text: by the tokenizer's template, else by tokenizer_config.json."""
    for text in ("a", "A", "the", "0", "."):  # one that the tokenizer knows, to tell the front from the end
        encoding = encoder.encode(text, add_special_tokens=True)
        if 0 in encoding.special_tokens_mask:
            if before := tuple(encoding.ids[: encoding.special_tokens_mask.index(0)]):
                return before
            break
    file = path.parent / "tokenizer_config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as problem:
        raise InputError(f"{file}: expected a JSON object: {problem}") from None
    if not isinstance(config, dict) or not config.get("add_bos_token"):
        return ()
    token = config.get("bos_token")
    token = token.get("content") if isinstance(token, dict) else token
    number = encoder.token_to_id(token) if isinstance(token, str) else None
    if number is None:
        what = f"add_bos_token is true, but bos_token {token!r} is no token of {path.name}"
        raise InputError(f"{file}: {what}")
    return (number,)


WINDOW = 256  # questions that are sorted by length together
MOST_ROWS = 32
MOST_TOKENS = 4096
MOST_LOGITS = 32 << 20  # 128 MB in float32
LEAST_SHARED = 8  # tokens in common below which reading them once does not pay


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model with its tokenizer, opened in ONNX Runtime; for this process only."""

    path: Path
    tokens: Tokenizer
    runner: Runner
    words: int  # of the logits
    positions: int | None  # the most tokens it reads; None: no bound is known
    rows: int  # the most rows it is run with at once
    shares: bool  # whether a prompt is read once for all endings
    notes: tuple[str, ...]  # on what opening it has shown or decided

    def score(self, question: Question) -> ScoredQuestion:
        """What the model says of one question."""
        return next(self.score_all([question]))

    def score_all(self, questions: Iterable[Question]) -> Iterator[ScoredQuestion]:
        """What the model says of each question, in their order; NaN for one that it cannot read."""
        remaining = iter(questions)
        while window := list(itertools.islice(remaining, WINDOW)):
            lines = [self._lines_if_any(question) for question in window]
            for question, own, scores in zip(window, lines, self._score_window(lines), strict=True):
                name, count = question.name, len(question.endings)
                if not own:
                    ones = (1,) * count
                    yield ScoredQuestion(name, (math.nan,) * count, ones, ones, (False,) * count)
                    continue
                totals, greedy = zip(*scores, strict=True)
                tokens = tuple(line.tokens for line in own)
                sizes = tuple(max(1, len(ending.text.lstrip().encode())) for ending in question.endings)
                yield ScoredQuestion(name, totals, tokens, sizes, greedy)

    def lines(self, question: Question) -> tuple[EndingTokens, ...]:
        """The endings as the model reads them; prompts too long for it are cut from the left."""
        return tuple(self._cut(self.tokens.line(e, question.name), question.name) for e in question.endings)

    def notes_on(self, questions: Iterable[Question]) -> tuple[str, ...]:
        """What to say of these questions: how many are cut, how many cannot be scored, and why the first."""
        cut, problems = 0, list[str]()
        for question in questions:
            try:
                lines = [self.tokens.line(e, question.name) for e in question.endings]
                cut += any(self._cut(line, question.name) is not line for line in lines)
            except DataError as problem:
                problems.append(str(problem))
        longer = f"{_question_count(cut)} longer than {self.positions} tokens cut from the left"
        lost = f"{_question_count(len(problems))} not scored, counted as wrong; first {''.join(problems[:1])}"
        return (*([longer] if cut else []), *([lost] if problems else []))

    def feeds(self, questions: Iterable[Question]) -> Iterator[Feeds]:
        """The model's inputs for the right ending of each question that it can read, one row a time."""
        for question in questions:
            if lines := self._lines_if_any(question):
                yield feeds_of(self.runner.causal, [lines[question.answer].ids[:-1]])

    def _lines_if_any(self, question: Question) -> tuple[EndingTokens, ...]:
        try:
            return self.lines(question)
        except DataError:
            return ()

    def _cut(self, line: EndingTokens, name: str) -> EndingTokens:
        if self.positions is None or len(line.ids) - 1 <= self.positions:
            return line
        first = self.tokens.first
        surplus = len(line.ids) - 1 - self.positions
        if line.start - surplus < max(1, len(first)):
            fit = f"does not fit the {self.positions} positions of {self.path.name}"
            raise DataError(f"{name}: an ending of {line.tokens} tokens {fit}")
        return EndingTokens((*first, *line.ids[len(first) + surplus :]), line.start - surplus)

    def _score_window(self, lines: Sequence[tuple[EndingTokens, ...]]) -> list[list[tuple[float, bool]]]:
        scores: list[list[Any]] = [[None] * len(own) for own in lines]
        single: list[tuple[int, int]] = []  # the places of question and ending
        for place, own in enumerate(lines):
            # Before the token that foretells the first ending's first.
            most = min((line.start for line in own), default=1) - 1
            common = _count_shared([line.ids[:most] for line in own]) if self.shares and len(own) > 1 else 0
            if common >= LEAST_SHARED:
                scores[place] = list(self._likelihoods(own, common))
            else:
                single += [(place, ending) for ending in range(len(own))]
        single.sort(key=lambda item: len(lines[item[0]][item[1]].ids))
        results = self._likelihoods([lines[place][ending] for place, ending in single])
        for (place, ending), score in zip(single, results, strict=True):
            scores[place][ending] = score
        return scores

    def _likelihoods(self, lines: Sequence[EndingTokens], common: int = 0) -> Iterator[tuple[float, bool]]:
        """Those of the lines' endings; the `common` tokens that all begin with are read once."""
        after = self.runner.read(lines[0].ids[:common]) if common else None
        for batch in _batches(lines, self.rows, self.words):
            logits = self.runner.logits([line.ids[common:-1] for line in lines[batch]], after)
            for row, line in zip(logits, lines[batch], strict=True):
                rows = row[line.start - 1 - common : len(line.ids) - 1 - common]
                yield likelihood(rows, line.ids[line.start :])


def _question_count(questions: int) -> str:
    return "1 question" if questions == 1 else f"{questions} questions"


def _count_shared(rows: Sequence[Sequence[int]]) -> int:
    columns = zip(*rows, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _batches(lines: Sequence[EndingTokens], most_rows: int, words: int) -> Iterator[slice]:
    """Neighbours that are run together: few enough for the memory, by the longest of them."""
    start, longest = 0, 0
    budget = min(MOST_TOKENS, max(1, MOST_LOGITS // words))
    for place, line in enumerate(lines):
        longest = max(longest, len(line.ids))
        count = place - start + 1
        if count > 1 and (count > most_rows or count * longest > budget):
            yield slice(start, place)
            start, longest = place, len(line.ids)
    if start < len(lines):
        yield slice(start, len(lines))


def likelihood(logits: NDArray[Any], targets: Sequence[int], chunk: int = 64) -> tuple[float, bool]:
    """The log-likelihood of tokens (n,) under logits (n, words), and whether each is the first choice.

    In float64, a few rows at a time: a row of 50 000 words is 400 KB. Of equal ones the first is the choice.
    """
    total, greedy = 0.0, True
    for start in range(0, len(targets), chunk):
        rows = np.asarray(logits[start : start + chunk], dtype=np.float64)
        expected = np.asarray(targets[start : start + chunk])
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            rows = rows - rows.max(axis=1, keepdims=True)  # an infinite logit gives NaN: reported as such
            own = rows[np.arange(len(expected)), expected] - np.log(np.exp(rows).sum(axis=1))
        total += float(own.sum())
        usable = ~np.isnan(rows).any(axis=1)
        greedy = greedy and bool((usable & (rows.argmax(axis=1) == expected)).all())
    return total, greedy
