"""The recipes that made the shipped speech models: network, batches, loss and stages of each."""

from typing import Final, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.train.loop import Batch, Job, Stage
from models.speech.corpus import SPECTRUM, SYMBOLS, Corpus, Recording, ids_of
from models.speech.nets import GROUP, FastNet, TacoNet, mask_of, regulated

# The size of a stage is the share, in per cent, of steps at which the decoder is shown its own frame.
FAST_STAGES: Final = (Stage("sentences", 1800, 16, 0, 2e-3, 2e-5, warmup=150),)
TACO_STAGES: Final = (
    Stage("taught", 900, 32, 0, 2e-3, 1.5e-3, warmup=100),
    Stage("own", 700, 32, 30, 1.5e-3, 3e-5),
)
BESIDE: Final = 1.5  # letters: how far beside the true one the attention may look without much loss


def fast_speech(corpus: Corpus, seed: int, stages: tuple[Stage, ...] = FAST_STAGES) -> Job:
    """The job of the parallel network."""
    torch.manual_seed(seed)
    net = FastNet(len(SYMBOLS), SPECTRUM.mels)
    return Job("fast-speech", net, _Draw(corpus), fast_loss, stages, seed, 1e-4, data=corpus.key)


def taco(corpus: Corpus, seed: int, stages: tuple[Stage, ...] = TACO_STAGES) -> Job:
    """The job of the autoregressive network."""
    torch.manual_seed(seed)
    net = TacoNet(len(SYMBOLS), SPECTRUM.mels)
    return Job("taco", net, _Draw(corpus), taco_loss, stages, seed, 1e-4, data=corpus.key)


class _Draw:
    """Batches of recordings that are about as long as one another."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.order = sorted(corpus.trained, key=lambda recording: len(recording.mel))

    def __call__(self, stage: Stage, rng: np.random.Generator) -> Batch:
        near = min(4 * stage.batch, len(self.order))
        first = int(rng.integers(len(self.order) - near + 1))
        picked = rng.choice(near, min(stage.batch, near), replace=False)
        chosen = [self.order[first + int(place)] for place in picked]
        batch = batch_of(chosen, self.corpus)
        own = torch.from_numpy(rng.random((len(chosen), batch[3].shape[1] // GROUP)) < stage.size / 100)
        # Dropout follows from the step too, so that a resumed run repeats.
        return (*batch, own, torch.tensor(int(rng.integers(2**31))))


def batch_of(chosen: list[Recording], corpus: Corpus) -> Batch:
    """Padded ids and frames of letters (n, t), the lengths (n,), and log mel, mean 0, (n, frames, mels).

    The end mark lasts until the frames are a multiple of those a step; they are silent there.
    """
    silence = float(np.log(SPECTRUM.floor))
    letters = [torch.tensor(ids_of(recording.text)) for recording in chosen]
    lasting, mels = [], []
    for recording in chosen:
        more = -len(recording.mel) % GROUP
        mel = np.pad(recording.mel, ((0, more), (0, 0)), constant_values=silence)
        mels.append(torch.from_numpy((mel - corpus.mean) / corpus.std).to(torch.float32))
        lasting.append(torch.from_numpy(np.append(recording.frames[:-1], recording.frames[-1] + more)))
    pad = nn.utils.rnn.pad_sequence
    lengths = torch.tensor([len(row) for row in letters])
    return pad(letters, True), lengths, pad(lasting, True), pad(mels, True)


def energy_of(mel: Tensor, durations: Tensor) -> Tensor:
    """The mean of the log mel over the frames of each letter (n, t), 0 for one that lasts none."""
    loud = mel.mean(2)
    ends = durations.cumsum(1)
    sums = functional.pad(loud.cumsum(1), (1, 0))
    within = sums.gather(1, ends) - sums.gather(1, ends - durations)
    return within / durations.clamp(min=1)


def fast_loss(net: nn.Module, batch: Batch) -> Tensor:
    """Distance of the frames, and of logarithms of durations and of loudness."""
    ids, lengths, durations, mel, _, seed = batch
    torch.manual_seed(int(seed))
    energy = energy_of(mel, durations)
    out = cast(FastNet, net).taught(ids, lengths, durations, energy)
    real = mask_of(lengths, ids.shape[1])
    length = ((out.durations - torch.log1p(durations.to(torch.float32))) ** 2)[real].mean()
    loud = ((out.energy - energy) ** 2)[real].mean()
    return distance(out.mel, mel, out.real) + 0.5 * length + 0.2 * loud


def taco_loss(net: nn.Module, batch: Batch) -> Tensor:
    """Distance of the frames before and behind the postnet, the end, and where the attention looks."""
    ids, lengths, durations, mel, own, seed = batch
    torch.manual_seed(int(seed))
    out = cast(TacoNet, net).taught(ids, lengths, mel, own)
    totals = durations.sum(1)
    real, steps = mask_of(totals, mel.shape[1]), mask_of(totals // GROUP, out.stop.shape[1])
    last = (~mask_of(totals // GROUP - 1, out.stop.shape[1])).to(torch.float32)
    stop = functional.binary_cross_entropy_with_logits(
        out.stop[steps], last[steps], pos_weight=torch.tensor(5.0)
    )
    astray = (out.attention * beside(durations)[:, GROUP // 2 :: GROUP]).sum(2)[steps].mean()
    return distance(out.mel, mel, real) + distance(out.refined, mel, real) + 0.3 * stop + astray


def beside(durations: Tensor) -> Tensor:
    """How wrong it is at each frame to look at each letter, (n, frames, t), from 0 to near 1."""
    places = torch.arange(durations.shape[1], dtype=torch.float32)
    true, _ = regulated(places[None, :, None].expand(len(durations), -1, 1), durations)
    return 1.0 - torch.exp(-((places - true) ** 2) / (2 * BESIDE**2))


def distance(mel: Tensor, truth: Tensor, real: Tensor) -> Tensor:
    """Half the mean squared and half the mean absolute difference of real frames."""
    gap = (mel - truth)[real]
    return 0.5 * (gap**2).mean() + 0.5 * gap.abs().mean()
