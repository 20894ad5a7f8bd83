"""An experiment as data. The fields are the keys of its TOML file; most are those of the commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from holdfast.attack.options import AttackSettings
from holdfast.audit.gates import Gate
from holdfast.audit.options import AuditSettings
from holdfast.config import completions
from holdfast.config.options import Option, Options
from holdfast.evaluate.options import CardOptions, ClassOptions, ReadingOptions, ScoreOptions, StageOptions
from holdfast.noise.options import AllOptions, CalibrationOptions, RuleOptions
from holdfast.verify.options import TimeoutOptions


@dataclass(frozen=True, kw_only=True)
class GivenModel(CardOptions, ClassOptions):
    """A [[model]]."""

    path: Annotated[str, Option("An ONNX file, or the name of a shipped model.", refers_to="model")]
    name: Annotated[str, Option("Name in the results (default: that of the file).")] = ""


@dataclass(frozen=True, kw_only=True)
class GivenData(ReadingOptions):
    """A [[data]]."""

    path: Annotated[str, Option("A folder or file, or signs:SEED:COUNT, the embedded one.", refers_to="data")]
    name: Annotated[str, Option("Name in the results (default: that of the path).")] = ""


@dataclass(frozen=True, kw_only=True)
class Evaluate(ScoreOptions, StageOptions, CalibrationOptions):
    """do = "evaluate"."""

    noise: Annotated[
        tuple[str, ...],
        Option(
            "Noise options, all at once.",
            names=completions.noise_options,
            problem=completions.missing_library,
            example="precision=int8-minmax",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Noise(AllOptions, RuleOptions, StageOptions, CalibrationOptions):
    """do = "noise": every option alone, then the worst of each family together."""


@dataclass(frozen=True, kw_only=True)
class Attack(AttackSettings):
    """do = "attack": few pixels on every image."""


@dataclass(frozen=True, kw_only=True)
class Audit(AuditSettings):
    """do = "audit": all of it within a budget of time."""


@dataclass(frozen=True, kw_only=True)
class Verify(TimeoutOptions):
    """do = "verify": prove that no input of a set violates a property. It needs no data."""

    spec: Annotated[tuple[Path, ...], Option("VNN-LIB files.", refers_to="file")]
    seconds: Annotated[float | None, Option("Earlier name of timeout.", least=0)] = None


Work: TypeAlias = Evaluate | Noise | Attack | Audit | Verify
DOES: dict[str, type[Work]] = {
    "evaluate": Evaluate, "noise": Noise, "attack": Attack, "audit": Audit, "verify": Verify,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Condition(Options):
    """A [[condition]]: run for each model on each dataset."""

    do: Annotated[Literal["evaluate", "noise", "attack", "audit", "verify"], Option("What is done.")]
    name: Annotated[str, Option("Name in the results (default: what is done).")] = ""
    work: Work = field(default_factory=Evaluate)


@dataclass(frozen=True, kw_only=True)
class Experiment(Options):
    """A whole file. Paths in it are relative to its folder, and absolute here."""

    file: Path
    models: tuple[GivenModel, ...] = ()
    data: tuple[GivenData, ...] = ()
    conditions: tuple[Condition, ...] = ()
    title: Annotated[str, Option("A line above the results.")] = ""
    seed: Annotated[int, Option("Random seed of attacks.", least=0)] = 0
    gates: tuple[Gate, ...] = ()
