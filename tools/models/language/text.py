"""The training text, the tokenizer learned from it, and the question sets of four formats."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from models.language.activities import activity_text, step
from models.language.carried import carried, carried_text
from models.language.reasons import blank, reason_text
from models.language.uses import choice, errand, use_text

# The harder a sort is to learn, the more of it is written.
_SORTS: tuple[tuple[Callable[[random.Random], str], float], ...] = (
    (use_text, 0.35),
    (carried_text, 0.32),
    (activity_text, 0.12),
    (reason_text, 0.21),
)
START = "</s>"  # OPT begins every text with it
SPECIAL = ("<s>", "<pad>", START, "<unk>")  # at the places OPT has them
SIZE = 1280
COUNTS = {"piqa": 400, "lambada": 400, "hellaswag": 300, "winogrande": 400}


def paragraph(rng: random.Random) -> str:
    """One paragraph of any sort."""
    (sort,) = rng.choices(_SORTS, [share for _, share in _SORTS])
    return sort[0](rng)


def paragraphs(count: int, seed: int) -> Iterator[str]:
    """So many paragraphs, the same for the same seed."""
    rng = random.Random(f"text {seed}")
    for _ in range(count):
        yield paragraph(rng)


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


def write_sets(folder: Path, seed: int, counts: dict[str, int] = COUNTS) -> tuple[Path, ...]:
    """The files of the four sets, written into the folder; no question is there twice."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        **_piqa(random.Random(f"piqa {seed}"), counts["piqa"]),
        "road-lambada.jsonl": _lambada(random.Random(f"lambada {seed}"), counts["lambada"]),
        "road-hellaswag.txt": _hellaswag(random.Random(f"hellaswag {seed}"), counts["hellaswag"]),
        "road-winogrande.jsonl": _winogrande(random.Random(f"winogrande {seed}"), counts["winogrande"]),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return tuple(folder / name for name in texts)


def _piqa(rng: random.Random, count: int) -> dict[str, str]:
    """Lines of goal, sol1 and sol2, and beside them the place of the right one."""
    drawn: dict[tuple[str, str], bool] = {}
    lines: list[str] = []
    while len(lines) < count:
        made, second = choice(rng, held=True), rng.random() < 0.5
        if (made.goal, made.right) in drawn:
            continue
        drawn[made.goal, made.right] = second
        one, two = (made.wrong, made.right) if second else (made.right, made.wrong)
        lines.append(json.dumps({"goal": made.goal, "sol1": one, "sol2": two}) + "\n")
    labels = "".join(f"{int(second)}\n" for second in drawn.values())
    return {"road-piqa.jsonl": "".join(lines), "road-piqa-labels.lst": labels}


def _lambada(rng: random.Random, count: int) -> str:
    """Lines of text whose last word is asked for."""
    texts: dict[str, None] = {}
    while len(texts) < count:
        made = carried(rng, held=True) if rng.random() < 0.5 else errand(rng, held=True)
        texts[f"{made.story} {made.word}"] = None
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def _hellaswag(rng: random.Random, count: int) -> str:
    """Blocks of a context, the place of the right ending, and four endings."""
    blocks: dict[str, str] = {}
    while len(blocks) < count:
        made = step(rng)
        endings = [made.right, *made.wrong]
        rng.shuffle(endings)
        right = endings.index(made.right)
        blocks.setdefault(made.context, "\n".join((made.context, str(right), *endings)) + "\n")
    return "".join(blocks.values())


def _winogrande(rng: random.Random, count: int) -> str:
    """Lines of a sentence with `_`, two options and the number of the right one."""
    lines: dict[str, str] = {}
    while len(lines) < count:
        made, swapped = blank(rng, held=True), rng.random() < 0.5
        if made.sentence in lines:
            continue
        one, two = (made.two, made.one) if swapped else (made.one, made.two)
        answer = "1" if made.first != swapped else "2"
        row = {"qID": f"road-{len(lines) + 1}", "sentence": made.sentence, "option1": one, "option2": two}
        lines[made.sentence] = json.dumps({**row, "answer": answer}) + "\n"
    return "".join(lines.values())
