"""The noises of speech, and the deployed system each makes of the clean one.

precision   rewrites of the graphs (kind `rewrite`, family `precision`)
stft        the vocoder's Fourier transform by another library (kind `stft`), or with a setting of the
            spectrum other than the card's (kind `spectrum`)

A setting is a function that gives the spectrum with one value as named; a card that has that value anyway has
no such noise:

    @stage("spectrum", family="stft", systems="…")
    def symmetric_window(spectrum: Spectrum) -> Spectrum: ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.errors import InputError
from holdfast.core.registry import names, part, stage
from holdfast.noise.speech.spectrum import Spectrum
from holdfast.noise.suite import PRECISION, NoiseSelection
from holdfast.stages.families import Family, NoiseOption, family
from holdfast.stages.families import options as options_of

STFT = "stft"
STFT_FAMILY = Family(
    STFT,
    "Short-time Fourier transform",
    "pre- and post-processing",
    kinds=("stft", "spectrum"),
    tasks=(),
    depends=True,
)
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

    def apply(self, option: NoiseOption) -> System:
        """The system with this option put in."""
        kind = kind_of(option)
        if kind == "rewrite":
            return replace(self, precision=option.name)
        if kind == "stft":
            return replace(self, operator=option.name)
        return replace(self, settings=(*self.settings, option.name))


CLEAN = System()


def kind_of(option: NoiseOption) -> str:
    """The kind of the registered part: rewrite, stft or spectrum."""
    if option.family == PRECISION:
        return "rewrite"
    return "stft" if option.name in names("stft") else "spectrum"


def options() -> tuple[NoiseOption, ...]:
    """All options, installed or not: precisions, operators, settings."""
    precisions = [replace(o, default=o.default or o.name in ALSO) for o in options_of(family(PRECISION))]
    return (*precisions, *(o for o in options_of(STFT_FAMILY) if o.name != REFERENCE))


def select_options(selection: NoiseSelection) -> list[NoiseOption]:
    """The selected options; UnknownName for a word that means none, InputError if none is left."""
    offered = options()
    selection.check(offered, "noise family of speech")
    chosen = [one for one in offered if selection.takes(one)]
    if not chosen:
        raise InputError("no noise option is left to run: --only and --skip exclude all")
    for one in chosen:
        if one.missing and selection.singles_out(one):
            raise InputError(f"--only {one.label}: {one.missing}")
    return chosen


@stage(
    "spectrum", family=STFT, systems="numpy.hanning, scipy.signal.windows.hann, MATLAB's hann as they come"
)
def symmetric_window(spectrum: Spectrum) -> Spectrum:
    """A symmetric Hann window, w[n] = ½ − ½ cos(2πn / (L − 1)): both its ends are 0."""
    return replace(spectrum, periodic=False)


@stage("spectrum", family=STFT, systems="librosa, torch.hann_window, scipy.signal.get_window")
def periodic_window(spectrum: Spectrum) -> Spectrum:
    """A periodic Hann window, w[n] = ½ − ½ cos(2πn / L): copies of it add up to a constant."""
    return replace(spectrum, periodic=True)


@stage("spectrum", family=STFT, systems="TensorFlow's tf.signal.stft, Kaldi with snip-edges, CMSIS-DSP ports")
def not_centred(spectrum: Spectrum) -> Spectrum:
    """Frame i begins at sample i · hop; nothing is added at the ends."""
    return replace(spectrum, centre=False)


@stage("spectrum", family=STFT, systems="librosa, torch.stft, scipy.signal.stft as they come")
def centred(spectrum: Spectrum) -> Spectrum:
    """Frame i is centred at sample i · hop; half a frame is added at each end."""
    return replace(spectrum, centre=True)


@stage("spectrum", family=STFT, systems="librosa since 0.10, scipy.signal.stft as they come")
def constant_padding(spectrum: Spectrum) -> Spectrum:
    """Half a frame of zeros at each end."""
    return replace(spectrum, padding="constant")


@stage("spectrum", family=STFT, systems="torch.stft, torchaudio, Whisper, librosa before 0.10")
def reflect_padding(spectrum: Spectrum) -> Spectrum:
    """Half a frame at each end, mirrored."""
    return replace(spectrum, padding="reflect")


@stage("spectrum", family=STFT, systems="torchaudio's MelSpectrogram and librosa.feature.melspectrogram")
def power_2(spectrum: Spectrum) -> Spectrum:
    """Squared magnitudes under the mel filters."""
    return replace(spectrum, power=2.0)


@stage("spectrum", family=STFT, systems="Tacotron 2, FastSpeech 2, HiFi-GAN and their vocoders")
def power_1(spectrum: Spectrum) -> Spectrum:
    """Magnitudes under the mel filters."""
    return replace(spectrum, power=1.0)


@stage("spectrum", family=STFT, systems="torchaudio, TensorFlow and HTK as they come")
def htk_scale(spectrum: Spectrum) -> Spectrum:
    """HTK's mel scale, logarithmic from 0 Hz on."""
    return replace(spectrum, mel_scale="htk")


@stage("spectrum", family=STFT, systems="librosa as it comes; Tacotron 2")
def slaney_scale(spectrum: Spectrum) -> Spectrum:
    """Slaney's mel scale, linear below 1000 Hz."""
    return replace(spectrum, mel_scale="slaney")


@stage("spectrum", family=STFT, systems="torchaudio, TensorFlow, Kaldi and HTK as they come")
def no_mel_norm(spectrum: Spectrum) -> Spectrum:
    """Mel filters with peaks of 1: wide ones, which lie high, add up more."""
    return replace(spectrum, mel_norm="none")


@stage("spectrum", family=STFT, systems="librosa as it comes; Tacotron 2")
def slaney_norm(spectrum: Spectrum) -> Spectrum:
    """Mel filters of equal area."""
    return replace(spectrum, mel_norm="slaney")
