"""The models a suite is about: files, folders of exporters, shipped ones; and which words are models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import ModelError
from holdfast.core.fingerprint import of, of_file
from holdfast.graph.inspect import load_proto
from holdfast.noise.language.model.shipped import shipped

# What Optimum calls the graph in a model's folder, the one that needs the least of its inputs first.
FILES = ("model.onnx", "decoder_model.onnx", "decoder_model_merged.onnx")
CONFIGS = ("config.json", "tokenizer_config.json")
LIMIT = (1 << 31) - 1  # bytes that protobuf, and so a rewritten ONNX file, can hold


@dataclass(frozen=True)
class Subject:
    """A language model under test; `sha256` is of its graph, its weights and its tokenizer with settings."""

    name: str
    path: Path
    tokenizer: Path
    sha256: str
    bytes: int


def file_of(word: str) -> Path | None:
    """The ONNX file a word of the command line stands for; None if it is no model."""
    path = Path(word)
    if path.name.removesuffix(".gz").endswith(".onnx"):
        return path
    if path.is_dir():
        return next((path / name for name in FILES if (path / name).is_file()), None)
    return None if path.is_file() else shipped().get(word)


def subject_of(file: Path) -> Subject:
    """The model of a file, hashed with all that decides what it says; ModelError if it cannot be one."""
    from holdfast.noise.language.model.tokens import find_tokenizer

    if not file.is_file():
        raise ModelError(f"{file}: no such model file; give the path of an .onnx file")
    proto = load_proto(file)
    locations = {e.value for w in proto.graph.initializer for e in w.external_data if e.key == "location"}
    weights = [file, *(file.parent / name for name in sorted(locations))]
    tokenizer = find_tokenizer(file)
    home = file.parent.resolve()  # the file itself may be a link: caches keep the content elsewhere
    folders = dict.fromkeys([home, home.parent, tokenizer.parent])
    configs = [folder / name for folder in folders for name in CONFIGS if (folder / name).is_file()]
    digest = of([of_file(path) for path in (*weights, tokenizer, *configs)])
    return Subject(_name(file), file, tokenizer, digest, sum(p.stat().st_size for p in weights))


def _name(file: Path) -> str:
    """The file's name, or its folder's where all files are called the same."""
    return (
        file.parent.resolve().name if file.name in FILES else file.name.removesuffix(".gz")[: -len(".onnx")]
    )
