"""Settings in which a deployed system may read a spectrum otherwise than the model was trained with.

    @stage("spectrum", group="window", systems="…")
    def symmetric_window(spectrum: Spectrum) -> Spectrum: ...

Each gives the spectrum with one setting as named; where the card has it so anyway, there is no noise.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.registry import stage
from holdfast.noise.speech.system import Spectrum


@stage(
    "spectrum", group="window", systems="numpy.hanning, scipy.signal.windows.hann, MATLAB's hann as they come"
)
def symmetric_window(spectrum: Spectrum) -> Spectrum:
    """A symmetric Hann window, w[n] = ½ − ½ cos(2πn / (L − 1)): both its ends are 0."""
    return replace(spectrum, periodic=False)


@stage("spectrum", group="window", systems="librosa, torch.hann_window, scipy.signal.get_window")
def periodic_window(spectrum: Spectrum) -> Spectrum:
    """A periodic Hann window, w[n] = ½ − ½ cos(2πn / L): copies of it add up to a constant."""
    return replace(spectrum, periodic=True)


@stage(
    "spectrum", group="frames", systems="TensorFlow's tf.signal.stft, Kaldi with snip-edges, CMSIS-DSP ports"
)
def not_centred(spectrum: Spectrum) -> Spectrum:
    """Frame i begins at sample i · hop; nothing is added at the ends."""
    return replace(spectrum, centre=False)


@stage("spectrum", group="frames", systems="librosa, torch.stft, scipy.signal.stft as they come")
def centred(spectrum: Spectrum) -> Spectrum:
    """Frame i is centred at sample i · hop; half a frame is added at each end."""
    return replace(spectrum, centre=True)


@stage("spectrum", group="frames", systems="librosa since 0.10, scipy.signal.stft as they come")
def constant_padding(spectrum: Spectrum) -> Spectrum:
    """Half a frame of zeros at each end."""
    return replace(spectrum, padding="constant")


@stage("spectrum", group="frames", systems="torch.stft, torchaudio, Whisper, librosa before 0.10")
def reflect_padding(spectrum: Spectrum) -> Spectrum:
    """Half a frame at each end, mirrored."""
    return replace(spectrum, padding="reflect")


@stage(
    "spectrum",
    "power-2",
    group="mel",
    systems="torchaudio's MelSpectrogram and librosa.feature.melspectrogram",
)
def power_2(spectrum: Spectrum) -> Spectrum:
    """Squared magnitudes under the mel filters."""
    return replace(spectrum, power=2.0)


@stage("spectrum", "power-1", group="mel", systems="Tacotron 2, FastSpeech 2, HiFi-GAN and their vocoders")
def power_1(spectrum: Spectrum) -> Spectrum:
    """Magnitudes under the mel filters."""
    return replace(spectrum, power=1.0)


@stage("spectrum", "htk-scale", group="mel", systems="torchaudio, TensorFlow and HTK as they come")
def htk_scale(spectrum: Spectrum) -> Spectrum:
    """HTK's mel scale, logarithmic from 0 Hz on."""
    return replace(spectrum, mel_scale="htk")


@stage("spectrum", "slaney-scale", group="mel", systems="librosa as it comes; Tacotron 2")
def slaney_scale(spectrum: Spectrum) -> Spectrum:
    """Slaney's mel scale, linear below 1000 Hz."""
    return replace(spectrum, mel_scale="slaney")


@stage("spectrum", "no-mel-norm", group="mel", systems="torchaudio, TensorFlow, Kaldi and HTK as they come")
def no_mel_norm(spectrum: Spectrum) -> Spectrum:
    """Mel filters with peaks of 1: wide ones, which lie high, add up more."""
    return replace(spectrum, mel_norm="none")


@stage("spectrum", "slaney-norm", group="mel", systems="librosa as it comes; Tacotron 2")
def slaney_norm(spectrum: Spectrum) -> Spectrum:
    """Mel filters of equal area."""
    return replace(spectrum, mel_norm="slaney")
