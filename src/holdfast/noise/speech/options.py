"""Which noises there are for speech, and the deployed system each makes of the clean one.

precision   rewrites of the graphs (kind `rewrite`, family `precision`)
stft        the vocoder's Fourier transform by another library (kind `stft`), or with a setting of the
            spectrum other than the card's (kind `spectrum`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.registry import Part, names, part
from holdfast.noise.speech.system import Spectrum
from holdfast.stages.families import is_installed

PRECISION, STFT = "precision", "stft"
REFERENCE = "numpy"  # the operator of the clean system
# Not part of the suite for pictures, but what speech and language models on CPUs are mostly run in
ALSO = ("int8-dynamic",)


@dataclass(frozen=True)
class System:
    """A text-to-speech system by what differs from the clean one."""

    precision: str = ""
    operator: str = REFERENCE
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What differs, in words: "clean", "precision=fp16 + stft=scipy-default"."""
        parts = [f"{PRECISION}={self.precision}"] if self.precision else []
        parts += [f"{STFT}={self.operator}"] if self.operator != REFERENCE else []
        return " + ".join([*parts, *(f"{STFT}={name}" for name in self.settings)]) or "clean"

    @property
    def other_spectrum(self) -> bool:
        """Whether the vocoder's spectrum is other than the card's."""
        return self.operator != REFERENCE or bool(self.settings)

    def spectrum(self, clean: Spectrum) -> Spectrum:
        """The spectrum the vocoder takes the model's for."""
        for name in self.settings:
            clean = part("spectrum", name).function(clean)
        return clean


CLEAN = System()


@dataclass(frozen=True)
class SpeechOption:
    """One way a deployed system differs, with what is told about it."""

    family: str
    kind: str  # of the registered part: rewrite, stft or spectrum
    name: str
    summary: str = ""
    systems: str = ""
    default: bool = True
    missing: str = ""
    calibrated: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """family=name, as the command line takes it."""
        return f"{self.family}={self.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        """family=name of the option and of its aliases."""
        return (self.label, *(f"{self.family}={name}" for name in self.aliases))

    def of(self, system: System) -> System:
        """The system with this option put in."""
        if self.kind == "rewrite":
            return replace(system, precision=self.name)
        if self.kind == "stft":
            return replace(system, operator=self.name)
        return replace(system, settings=(*system.settings, self.name))


def options() -> tuple[SpeechOption, ...]:
    """All options, installed or not: precisions, operators, settings."""
    rewrites = [part("rewrite", n) for n in names("rewrite")]
    found = [_option(p, PRECISION) for p in rewrites if p.facts.get("family") == PRECISION]
    found += [_option(part("stft", n), STFT) for n in names("stft") if n != REFERENCE]
    found += [_option(part("spectrum", n), STFT) for n in names("spectrum")]
    return tuple(found)


def _option(registered: Part, family: str) -> SpeechOption:
    facts = registered.facts
    needs = facts.get("needs", "")
    missing = ""
    if needs and not is_installed(needs):
        missing = f"{needs} is not installed: pip install 'holdfast[{facts.get('extra', '')}]'"
    default = bool(facts.get("default", True)) or registered.name in ALSO
    calibrated = bool(facts.get("calibrated", False))
    return SpeechOption(
        family, registered.kind, registered.name, registered.summary, str(facts.get("systems", "")),
        default, missing, calibrated, facts.get("aliases", ()),
    )  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """Which options: families or FAMILY=OPTION; empty `only` means all that run by default."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    every: bool = False

    def taken(self) -> list[SpeechOption]:
        """The options that are wanted; UnknownName for a word that means none, InputError if none is left."""
        offered = options()
        self._check(offered)
        found = [one for one in offered if self._takes(one)]
        if not found:
            raise InputError("no noise is left to run: --only and --skip leave none")
        for one in found:
            if one.missing and set(one.labels) & set(self.only):
                raise InputError(f"--only {one.label}: {one.missing}")
        return found

    def _check(self, offered: Sequence[SpeechOption]) -> None:
        for text in (*self.only, *self.skip):
            family, _, name = text.partition("=")
            if family not in (PRECISION, STFT):
                raise UnknownName("noise of speech", family, (PRECISION, STFT))
            known = [one.name for one in offered if one.family == family]
            if "=" in text and not any(text in one.labels for one in offered):
                raise UnknownName(family, name, known)

    def _takes(self, one: SpeechOption) -> bool:
        if one.family in self.skip or set(one.labels) & set(self.skip):
            return False
        if set(one.labels) & set(self.only):
            return True
        named = not self.only or one.family in self.only
        return named and (one.default or self.every)
