"""Text to token numbers: the tokenizer of a model, and where an ending begins in what the model reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import DataError, InputError, MissingExtra, ModelError, one_line
from holdfast.core.language import Ending

_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Line:
    """What a model reads for one ending: all token numbers, and the place of the ending's first one."""

    ids: tuple[int, ...]
    start: int

    @property
    def tokens(self) -> int:
        """How many tokens the ending is."""
        return len(self.ids) - self.start


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer with what it puts in front of every text."""

    path: Path
    first: tuple[int, ...]  # the token of the beginning, if the tokenizer or its config puts one there
    size: int  # one more than the highest token number
    encoder: Any  # tokenizers.Tokenizer

    def encode(self, text: str) -> tuple[int, ...]:
        """The token numbers of a text, without any at its beginning or end that are not of the text."""
        return tuple(self.encoder.encode(text, add_special_tokens=False).ids)

    def line(self, ending: Ending, name: str) -> Line:
        """Prompt and ending as one text in tokens, and where the ending begins.

        White space at the prompt's end belongs to the ending, as tokenizers join it to the next word. The
        ending begins where the tokens of the whole and those of the prompt alone part, so that a token made
        of the end of the one and the beginning of the other is scored.
        """
        prompt = ending.prompt.rstrip()
        whole = self.encode(ending.prompt + ending.text)
        before = self.encode(prompt)
        same = 0
        for a, b in zip(whole, before, strict=False):
            if a != b:
                break
            same += 1
        if same == len(whole):
            raise DataError(f"{name}: the ending {ending.text[:40]!r} has no token of its own")
        start = len(self.first) + same
        if start == 0:
            raise DataError(
                f"{name}: the prompt is empty and {self.path.name} has no token for the beginning of a text, "
                "so the first word of the ending cannot be scored"
            )
        return Line((*self.first, *whole), start)


def find_tokenizer(model: Path) -> Path:
    """The tokenizer of a model file: beside it under its name, beside it, or in the folder above."""
    stem = model.name.removesuffix(".gz").removesuffix(".onnx")
    folder = model.absolute().parent  # not behind a link: caches keep the files elsewhere
    places = (folder / f"{stem}.tokenizer.json", folder / "tokenizer.json", folder.parent / "tokenizer.json")
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ModelError(
            f"{model}: no tokenizer: looked for {stem}.tokenizer.json and tokenizer.json beside it and for "
            "tokenizer.json in the folder above; put the model's tokenizer.json there"
        )
    return found


def open_tokens(path: Path) -> Tokens:
    """The tokenizer of a tokenizer.json."""
    try:
        import tokenizers
    except ImportError:
        raise MissingExtra("a language model", "tokenizers", "language") from None
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path}: {path.stat().st_size >> 20} MB; tokenizers up to 256 MB are read")
        data = path.read_bytes()
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror or problem}") from problem
    try:
        encoder = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except Exception as problem:  # noqa: BLE001 - tokenizers raises plain Exception
        said = one_line(problem)[:160]
        raise InputError(f"{path}: not a tokenizer.json of Hugging Face tokenizers: {said}") from None
    encoder.no_truncation()
    encoder.no_padding()
    vocabulary = encoder.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise InputError(f"{path}: the tokenizer has no tokens")
    return Tokens(path, _first(path, encoder), max(vocabulary.values()) + 1, encoder)


def _first(path: Path, encoder: Any) -> tuple[int, ...]:
    """What stands before every text: by the tokenizer's template, else by tokenizer_config.json."""
    put = _put_before(encoder)
    if put:
        return put
    config = _config(path.parent / "tokenizer_config.json")
    if not config.get("add_bos_token"):
        return ()
    token = config.get("bos_token")
    text = token.get("content") if isinstance(token, dict) else token
    number = encoder.token_to_id(text) if isinstance(text, str) else None
    if number is None:
        raise InputError(
            f"{path.parent / 'tokenizer_config.json'}: add_bos_token is true, but bos_token {text!r} "
            f"is no token of {path.name}"
        )
    return (number,)


def _put_before(encoder: Any) -> tuple[int, ...]:
    """The special tokens that the tokenizer's template puts before a text."""
    for text in ("a", "A", "the", "0", "."):  # one that the tokenizer knows, to tell the front from the end
        encoding = encoder.encode(text, add_special_tokens=True)
        if 0 in encoding.special_tokens_mask:
            return tuple(encoding.ids[: encoding.special_tokens_mask.index(0)])
    return ()


def _config(path: Path) -> dict[str, Any]:
    """The JSON object of a small file; empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise InputError(f"{path}: expected a JSON object: {problem}") from None
    return content if isinstance(content, dict) else {}
