"""What is asked is not in the text: whole questions never, and the combinations they turn on neither."""

import json
import random
import re
from pathlib import Path

import pytest

from models.language import activities, carried, reasons, uses
from models.language.recipe import SEED_OF_TEXT
from models.language.text import paragraphs, write_sets
from models.language.words import HELD, NAMES, PLACES, PORTABLE, THINGS, TOOLS, held_out

NOUNS = tuple(noun for nouns in THINGS.values() for noun in nouns)


@pytest.fixture(scope="module")
def written() -> list[str]:
    return list(paragraphs(12_000, SEED_OF_TEXT))


def one_of(words):
    return r"\b(" + "|".join(map(re.escape, words)) + r")\b"


def found(pattern: str, texts: list[str]) -> set[tuple[str, ...]]:
    return set(re.findall(pattern, "\n".join(texts)))


def test_the_same_seed_writes_the_same_text_and_another_another():
    first = list(paragraphs(200, 5))
    assert first == list(paragraphs(200, 5))
    assert first != list(paragraphs(200, 6))


def test_the_text_is_varied(written):
    assert len(set(written)) > 0.9 * len(written)
    words = set(re.findall(r"[A-Za-z]+", " ".join(written)))
    assert {*NAMES, *NOUNS, *PORTABLE, *PLACES} <= words


def test_no_braces_or_blanks_are_left_over(written):
    assert not [text for text in written if re.search(r"[{}_]|  ", text)]


def test_tools_are_never_told_for_what_is_held_out(written):
    pairs = found(rf"{one_of(TOOLS)} (?:the |an? )?(?:\w+ )?{one_of(NOUNS)}", written)
    assert len(pairs) > 200
    assert not [pair for pair in pairs if held_out(*pair)]


def test_signs_are_never_told_for_vehicles_that_are_held_out(written):
    pairs = found(rf"{one_of(THINGS['vehicle'])} (?:at|comes to) an? {one_of(uses.SIGNS)}", written)
    assert len(pairs) > 30
    assert not [pair for pair in pairs if held_out(pair[1], pair[0])]


def test_nobody_takes_a_thing_to_a_place_if_that_is_held_out(written):
    took = "(?:took|carried|brought|moved)"
    trips = found(rf"{one_of(NAMES)} {took} the {one_of(PORTABLE)} to the {one_of(PLACES)}", written)
    assert len(trips) > 1000
    assert not [trip for trip in trips if held_out(*trip)]


def test_no_activity_is_told_of_a_thing_that_is_held_out_for_it(written):
    kinds = {thing: kind for kind, things in THINGS.items() for thing in things}
    told = found(rf"(?m)^([A-Z][a-z]+ing) (?:a )?{one_of(NOUNS)}: ", written)
    titles = {a.title.split()[0]: a.title for a in activities.ACTIVITIES}
    assert len(told) > 60
    assert not [pair for pair in told if held_out(titles[pair[0]], kinds[pair[1]], pair[1])]


def test_no_reason_is_told_of_a_pair_that_is_held_out_for_it(written):
    told = found(rf"{one_of(NAMES)} lent the \w+ \w+ to {one_of(NAMES)} because", written)
    assert len(told) > 50
    assert not [pair for pair in told if held_out("{one} lent the {thing} to {two}", *sorted(pair))]
    told = found(rf"(?i)the \w+ {one_of(NOUNS)} broke under the \w+ {one_of(NOUNS)} because", written)
    assert len(told) > 20
    assert not [pair for pair in told if held_out("the {one} broke under the {two}", *sorted(pair))]


@pytest.mark.parametrize("draw", [uses.choice, uses.errand, carried.carried, reasons.blank])
def test_questions_turn_on_what_is_held_out_and_text_does_not(draw):
    rng = random.Random(0)
    assert all(held_out(*draw(rng, held=True).key) for _ in range(300))
    assert not any(held_out(*draw(rng, held=False).key) for _ in range(300))


def test_steps_are_asked_of_what_is_held_out():
    rng = random.Random(0)
    assert all(held_out(*activities.step(rng).key) for _ in range(300))


def test_about_one_combination_in_four_is_held_out():
    pairs = [(name, thing) for name in NAMES for thing in PORTABLE]
    assert len([p for p in pairs if held_out(*p)]) / len(pairs) == pytest.approx(1 / HELD, abs=0.05)


def test_no_question_with_its_answer_is_in_the_text(written, tmp_path: Path):
    write_sets(tmp_path, 0)
    text = "\n".join(written)
    answers = list(answered(tmp_path))
    assert len(answers) == 1900  # PIQA's two ways of asking
    assert not [answer for answer in answers if answer in text]


def answered(folder: Path):
    """Each question with its right answer put in, as training text would have it."""
    labels = (folder / "road-piqa-labels.lst").read_text().split()
    for line, label in zip((folder / "road-piqa.jsonl").read_text().splitlines(), labels, strict=True):
        row = json.loads(line)
        solution = row["sol2" if label == "1" else "sol1"]
        yield f"{row['goal']} {solution}"
        yield f"{row['goal']}\nAnswer: {solution}"
    for line in (folder / "road-lambada.jsonl").read_text().splitlines():
        yield json.loads(line)["text"]
    rows = (folder / "road-hellaswag.txt").read_text().splitlines()
    for at in range(0, len(rows), 6):
        yield f"{rows[at]} {rows[at + 2 + int(rows[at + 1])]}"
    for line in (folder / "road-winogrande.jsonl").read_text().splitlines():
        row = json.loads(line)
        yield row["sentence"].replace("_", row[f"option{row['answer']}"])
