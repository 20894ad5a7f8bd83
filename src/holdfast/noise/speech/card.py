"""Cards of acoustic models, read from TOML, and the models they describe, by name or path."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.core import fingerprint
from holdfast.core.errors import CardError, ModelError, UnknownName
from holdfast.core.limits import parse_toml
from holdfast.graph.card import fit_fields
from holdfast.noise.speech.spectrum import Spectrum

ModelKind: TypeAlias = Literal["parallel", "autoregressive"]
MelLayout: TypeAlias = Literal["time-first", "mel-first"]


@dataclass(frozen=True, kw_only=True)
class TextSection:
    """Section [text] of a card."""

    symbols: tuple[str, ...]  # the id of a character is its place
    lower: bool = True
    end: str = ""  # a symbol put behind every text


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """Section [model] of a card."""

    kind: ModelKind
    input: str = "ids"
    mel: str = "mel"
    layout: MelLayout = "time-first"
    decoder: str = ""  # autoregressive: the file of the decoder, next to the encoder
    postnet: str = ""
    stop_threshold: float = 0.5  # of the sigmoid of the decoder's stop logit
    max_frames: int = 1000
    frames_per_step: int = 1  # autoregressive: its mel is (1, frames_per_step · mels), earliest first


@dataclass(frozen=True, kw_only=True)
class SpeechCard(ModelSection, TextSection):
    """What holdfast must know of an acoustic model beyond its ONNX file: text in, log mel out."""

    spectrum: Spectrum
    # The model gives (log mel − mean) / std: one number, or one per mel band.
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class SpeechModel:
    """The ONNX files of an acoustic model with their card; `sha256` is of all the files together."""

    name: str
    path: Path
    card: SpeechCard
    sha256: str
    files: tuple[Path, ...]  # the encoder (or whole model), decoder, postnet

    @property
    def roles(self) -> tuple[str, ...]:
        """What each of the files is."""
        first = ["model"] if self.card.kind == "parallel" else ["encoder", "decoder"]
        return (*first, *(["postnet"] if self.card.postnet else []))


@dataclass(frozen=True)
class _Top:  # the keys outside any section
    task: Literal["speech"]


@dataclass(frozen=True)
class _Normalise:
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0


_SECTIONS: dict[str, Any] = {
    "text": TextSection, "model": ModelSection, "spectrum": Spectrum, "normalise": _Normalise,
}  # fmt: skip


def read_speech_card(path: Path) -> SpeechCard:
    """The card in a TOML file, or a CardError that names the file and every problem in it."""
    try:
        return parse_speech_card(parse_toml(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CardError(f"{path}: no such card; see docs/how-to/speech.md") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise CardError(f"{path}: expected a readable TOML file, got: {problem}") from None
    except tomllib.TOMLDecodeError as problem:
        raise CardError(f"{path}: expected TOML, got: {problem}") from None
    except CardError as problem:
        raise CardError(f"{path}: {problem}") from None


def parse_speech_card(document: Mapping[str, Any]) -> SpeechCard:
    """The card in a parsed TOML document; CardError with every problem of it."""
    problems: list[str] = []
    fit_fields(_Top, {k: v for k, v in document.items() if k not in _SECTIONS}, "", problems)
    tables = {name: document.get(name, {}) for name in _SECTIONS}
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    problems += [f"{name}: expected a section [{name}]" for name in wrong]
    if problems:
        raise CardError("; ".join(problems))
    values = {name: fit_fields(cls, tables[name], f"{name}.", problems) for name, cls in _SECTIONS.items()}
    if not problems:
        scale: dict[str, Any] = {
            k: v if isinstance(v, tuple) else (v,) for k, v in values["normalise"].items()
        }
        spectrum = Spectrum(**values["spectrum"])
        card = SpeechCard(spectrum=spectrum, **values["text"], **values["model"], **scale)
        problems = _contradictions(card)
        if not problems:
            return card
    raise CardError("; ".join(problems))


def _contradictions(card: SpeechCard) -> list[str]:
    problems = []
    twice = sorted({s for s in card.symbols if card.symbols.count(s) > 1})
    if not card.symbols or "" in card.symbols or twice:
        got = f"{twice[0]!r} twice" if twice else "none, or an empty one"
        problems.append(f"text.symbols: expected different symbols, got {got}")
    if card.end and card.end not in card.symbols:
        problems.append(f"text.end: expected one of the symbols, got {card.end!r}")
    if card.kind == "autoregressive" and not card.decoder:
        problems.append("model.decoder: missing; expected the file name of the decoder, next to the encoder")
    if card.kind == "parallel" and card.decoder:
        problems.append('model.decoder: not used by a model of kind "parallel"')
    counts = {"max_frames": card.max_frames, "frames_per_step": card.frames_per_step}
    problems += [f"model.{name}: expected 1 or more, got {n}" for name, n in counts.items() if n < 1]
    if not 0.0 < card.stop_threshold < 1.0:
        problems.append(
            f"model.stop_threshold: expected a number between 0 and 1, got {card.stop_threshold:g}"
        )
    for name, values in (("mean", card.mean), ("std", card.std)):
        if len(values) not in (1, card.spectrum.mels):
            problems.append(
                f"normalise.{name}: expected one number or {card.spectrum.mels}, one per mel band, "
                f"got {len(values)}"
            )
    if any(not s > 0 for s in card.std):
        problems.append("normalise.std: expected numbers above 0")
    return problems


def shipped_speech() -> list[str]:
    """The names of the acoustic models that come with the package, sorted."""
    return sorted(p.stem for p in shipped_folder().glob("*.toml"))


def shipped_folder() -> Path:
    """The folder of the shipped acoustic models and clips."""
    return Path(str(resources.files("holdfast"))) / "models" / "speech"


def load_speech(name_or_path: str | Path, card: Path | None = None) -> SpeechModel:
    """A shipped acoustic model by name, or the user's ONNX file with the card given or next to it."""
    path, shipped = Path(name_or_path), shipped_speech()
    if not path.is_file() and str(name_or_path) in shipped:
        path = shipped_folder() / f"{name_or_path}.onnx"
    elif not path.is_file():
        if path.suffix != ".onnx" and len(path.parts) == 1 and not path.is_dir():
            raise UnknownName("acoustic model", str(name_or_path), shipped)
        what = "is a folder" if path.is_dir() else "no such model file"
        known = ", ".join(shipped) or "none is shipped"
        raise ModelError(f"{path}: {what}; give the path of an .onnx file or a shipped name ({known})")
    beside = card or path.with_suffix(".toml")
    if not beside.is_file():
        raise CardError(
            f"{path}: no card: expected {beside.name} next to it, or --card; see docs/how-to/speech.md"
        )
    read = read_speech_card(beside)
    files = [path, *(path.parent / name for name in (read.decoder, read.postnet) if name)]
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file}: no such file, but the card {beside} names it")
    return SpeechModel(path.stem, path, read, digest_of(files), tuple(files))


def digest_of(files: Sequence[Path]) -> str:
    """A hash of the files of a model together."""
    return fingerprint.of([fingerprint.of_file(f) for f in files])
