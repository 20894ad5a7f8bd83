"""The four files have the fields of their formats, no answer is favoured, and the shipped ones are these."""

import json
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast.noise.language.questions import open_text
from models.language.text import COUNTS, write_sets

SHIPPED = Path(holdfast.__file__).parent / "models" / "language"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sets")
    write_sets(path, 0)
    return path


def test_the_shipped_sets_are_those_of_seed_0(folder):
    for file in folder.iterdir():
        assert (SHIPPED / file.name).read_bytes() == file.read_bytes(), file.name


def test_another_seed_asks_other_questions(folder, tmp_path):
    write_sets(tmp_path, 1)
    for file in tmp_path.iterdir():
        assert file.read_bytes() != (folder / file.name).read_bytes()


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("road-piqa.jsonl", {"goal", "sol1", "sol2"}),
        ("road-lambada.jsonl", {"text"}),
        ("road-winogrande.jsonl", {"qID", "sentence", "option1", "option2", "answer"}),
    ],
)
def test_fields_are_those_of_the_format(folder, file, fields):
    rows = [json.loads(line) for line in (folder / file).read_text().splitlines()]
    assert all(row.keys() == fields for row in rows)
    assert len({json.dumps(row) for row in rows}) == len(rows) == 400


@pytest.mark.parametrize("kind", list(COUNTS))
def test_the_reader_finds_the_kind_and_every_question(folder, kind):
    (file,) = [f for f in folder.iterdir() if f.stem == f"road-{kind}" and f.suffix != ".lst"]
    opened = open_text(file)
    assert opened.kind == kind
    assert len(opened.questions) == COUNTS[kind]
    for question in opened.questions:
        assert len({(e.prompt, e.text) for e in question.endings}) == len(question.endings)


@pytest.mark.parametrize(("kind", "choices"), [("piqa", 2), ("hellaswag", 4), ("winogrande", 2)])
def test_every_place_is_right_about_as_often(folder, kind, choices):
    (file,) = [f for f in folder.iterdir() if f.stem == f"road-{kind}" and f.suffix != ".lst"]
    asked = open_text(file).questions
    places = Counter(question.answer for question in asked)
    assert len(places) == choices
    assert max(places.values()) / len(asked) < 1 / choices + 0.08


def test_the_longest_ending_is_not_the_answer(folder):
    # A model that only counts letters must not look good.
    for kind, chance in (("piqa", 0.5), ("winogrande", 0.5)):
        asked = open_text(folder / f"road-{kind}.jsonl").questions
        lengths = [[len(e.prompt + e.text) for e in q.endings] for q in asked]
        shortest = sum(row.index(min(row)) == q.answer for row, q in zip(lengths, asked, strict=True))
        assert abs(shortest / len(asked) - chance) < 0.1
