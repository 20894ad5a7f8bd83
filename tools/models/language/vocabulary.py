"""The tokenizer: byte-level pair encoding learned from the text, laid out as OPT's."""

from collections.abc import Iterable
from typing import Any

START = "</s>"  # OPT begins every text with it
SPECIAL = ("<s>", "<pad>", START, "<unk>")  # at the places OPT has them
SIZE = 1280


def learned(texts: Iterable[str], size: int = SIZE) -> Any:
    """A `tokenizers.Tokenizer` of so many entries that puts `</s>` in front of each text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A",
        pair=f"{START} $A {START} $B",
        special_tokens=[(START, SPECIAL.index(START))],
    )
    return tokenizer
