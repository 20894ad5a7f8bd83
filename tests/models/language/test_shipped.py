"""The shipped language model is small, knows more than chance and less than everything, and can be remade."""

from pathlib import Path

import onnx

import holdfast
from models.language.graph import ROAD
from models.language.make import LEARNED_FROM, accuracies
from models.language.recipe import SEED_OF_TEXT
from models.language.text import learned, paragraphs

FOLDER = Path(holdfast.__file__).parent / "models" / "language"
MODEL = FOLDER / "road-lm.onnx"


def test_all_files_together_are_at_most_two_megabytes():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 2_000_000


def test_it_has_optimums_ports_and_no_past():
    graph = onnx.load(str(MODEL)).graph
    assert [port.name for port in graph.input] == ["input_ids", "attention_mask"]
    assert [port.name for port in graph.output][:3] == ["logits", "present.0.key", "present.0.value"]
    assert len(graph.output) == 1 + 2 * ROAD.layers


def test_the_tokenizer_is_the_one_the_text_gives():
    made = learned(paragraphs(LEARNED_FROM, SEED_OF_TEXT), ROAD.vocabulary)
    assert made.to_str() == (FOLDER / "road-lm.tokenizer.json").read_text(encoding="utf-8")
    assert made.get_vocab_size() == ROAD.vocabulary


def test_it_answers_better_than_chance_and_not_everything():
    # Far from chance (0.5, 0, 0.25, 0.5) on each set, and with room for a change of precision to show.
    floors = {"road-piqa": 0.65, "road-lambada": 0.3, "road-hellaswag": 0.5, "road-winogrande": 0.65}
    found = {name: share for name, share, _ in accuracies(MODEL)}
    assert found.keys() == floors.keys()
    for name, floor in floors.items():
        assert floor < found[name] < 0.99, (name, found[name])
