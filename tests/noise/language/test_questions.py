"""Question sets: each kind's form, each bad file one clear line."""

import bz2
import json

import pytest

from helpers.tiny_language import write_lines
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.core.language import Ending
from holdfast.noise.language.questions import open_text, shipped_texts

PIQA = {"goal": "Mend a tyre.", "sol1": "Patch the hole.", "sol2": "Eat it."}
WINO = {
    "qID": "x-1", "sentence": "The lorry passed the car because _ was fast.", "option1": "the lorry",
    "option2": "the car", "answer": "1",
}  # fmt: skip
SWAG = {
    "ctx": "A man sits on a roof. He",
    "endings": ["sings.", "rips tiles.", "sleeps.", "swims."],
    "label": 1,
}
SWAG_TEXT = "Roof: A man sits.\n2\nsings.\nrips.\nsleeps.\nswims.\n"


def test_piqa_with_its_labels_in_the_file(tmp_path):
    found = open_text(write_lines(tmp_path / "set.jsonl", [PIQA | {"label": 1}, PIQA | {"label": "0"}]))
    assert (found.kind, found.name) == ("piqa", "set")
    assert [q.answer for q in found.questions] == [1, 0]
    prompt = "Question: Mend a tyre.\nAnswer:"
    assert found.questions[0].endings == (Ending(prompt, " Patch the hole."), Ending(prompt, " Eat it."))
    assert found.questions[1].name == "set.jsonl:2"


@pytest.mark.parametrize("beside", ["valid-labels.lst", "valid_labels.lst", "labels.lst"])
def test_labels_beside_the_file(tmp_path, beside):
    path = write_lines(tmp_path / "valid.jsonl", [PIQA, PIQA])
    (tmp_path / beside).write_text("1\n0\n")
    first = open_text(path)
    assert [q.answer for q in first.questions] == [1, 0]
    assert beside in first.problems[0]
    (tmp_path / beside).write_text("0\n0\n")
    assert open_text(path).sha256 != first.sha256, "other labels are another set"


def test_labels_of_another_length(tmp_path):
    path = write_lines(tmp_path / "valid.jsonl", [PIQA, PIQA])
    (tmp_path / "valid-labels.lst").write_text("1\n0\n1\n")
    with pytest.raises(DataError, match=r"valid-labels.lst: expected 2 labels.* got 3"):
        open_text(path)


def test_a_wrong_label_beside_is_named_by_its_own_line(tmp_path):
    path = write_lines(tmp_path / "valid.jsonl", [PIQA, PIQA])
    (tmp_path / "valid-labels.lst").write_text("1\n2\n")
    with pytest.raises(DataError, match=r'valid-labels.lst:2: expected the label 0 or 1, got "2"'):
        open_text(path)


def test_lambada_asks_for_the_last_word(tmp_path):
    found = open_text(write_lines(tmp_path / "l.jsonl", [{"text": 'He said:\n\n"I can go, Shane'}]))
    assert found.kind == "lambada"
    assert found.questions[0].endings == (Ending('He said:\n\n"I can go,', " Shane"),)
    with pytest.raises(DataError, match=r"m.jsonl:1: 'text': expected a passage and its last word"):
        open_text(write_lines(tmp_path / "m.jsonl", [{"text": "Shane"}]))


@pytest.mark.parametrize("packed", [False, True])
def test_hellaswag_text(tmp_path, packed):
    path = tmp_path / "swag.txt"
    data = (SWAG_TEXT * 2).encode()
    path.write_bytes(bz2.compress(data) if packed else data)  # found by content, not by a suffix
    found = open_text(path)
    assert (found.kind, len(found.questions)) == ("hellaswag", 2)
    assert found.questions[1].name == "swag.txt:7"
    assert found.questions[1].answer == 2
    assert found.questions[1].endings[2] == Ending("Roof: A man sits.", " sleeps.")


def test_hellaswag_original_fields(tmp_path):
    whole = SWAG | {"activity_label": "Roof", "ctx_a": "A man sits [step] on a roof.", "ctx_b": "he"}
    found = open_text(write_lines(tmp_path / "h.jsonl", [SWAG, whole]))
    assert found.questions[0].endings[3] == Ending("A man sits on a roof. He", " swims.")
    assert found.questions[1].endings[1] == Ending("Roof: A man sits on a roof. He", " rips tiles.")
    assert [q.answer for q in found.questions] == [1, 1]


def test_winogrande_scores_what_follows_the_gap(tmp_path):
    found = open_text(write_lines(tmp_path / "w.jsonl", [WINO, WINO | {"answer": "2"}]))
    assert found.kind == "winogrande"
    assert found.questions[0].endings == (
        Ending("The lorry passed the car because the lorry", " was fast."),
        Ending("The lorry passed the car because the car", " was fast."),
    )
    assert [q.answer for q in found.questions] == [0, 1]


def test_only_a_line_feed_ends_a_line(tmp_path):
    odd = PIQA | {"sol1": "one\u2028two\x85three", "label": 0}
    path = tmp_path / "odd.jsonl"
    path.write_text(json.dumps(odd, ensure_ascii=False) + "\r\n\r\n" + json.dumps(PIQA | {"label": 1}))
    found = open_text(path)
    assert [q.name for q in found.questions] == ["odd.jsonl:1", "odd.jsonl:3"]
    assert found.questions[0].endings[0].text == " one\u2028two\x85three"


def test_limit(tmp_path):
    path = write_lines(tmp_path / "set.jsonl", [PIQA | {"label": 1}] * 5)
    assert len(open_text(path, limit=3).questions) == 3
    assert len(open_text(path, limit=9).questions) == 5
    with pytest.raises(InputError, match="1 or more, got 0"):
        open_text(path, limit=0)


BAD = {
    "missing": (
        [PIQA | {"label": 0}, {"goal": "x", "sol1": "y"}],
        r":2: the field 'sol2' is missing; .*goal, sol1",
    ),
    "no label": ([PIQA], r":1: the field 'label' is missing.*-labels.lst"),
    "empty text": ([PIQA | {"sol1": " ", "label": 0}], r":1: 'sol1': expected a text, got \" \""),
    "number": ([PIQA | {"sol1": 3, "label": 0}], r":1: 'sol1': expected a text, got 3"),
    "label": ([PIQA | {"label": 2}], r":1: 'label': expected the label 0 or 1, got 2"),
    "bool": ([PIQA | {"label": True}], r":1: 'label': expected the label 0 or 1, got true"),
    "no gap": ([WINO | {"sentence": "no gap here"}], r":1: 'sentence': expected one `_`, got 0"),
    "two gaps": ([WINO | {"sentence": "_ and _ too"}], r":1: 'sentence': expected one `_`, got 2"),
    "nothing follows": ([WINO | {"sentence": "It was _ "}], r":1: 'sentence': nothing behind `_`"),
    "no answer": ([WINO | {"answer": ""}], r":1: 'answer': expected the label 1 or 2, got \"\""),
    "endings": ([SWAG | {"endings": "sings"}], r":1: 'endings': expected a list of texts"),
    "only marks": ([SWAG | {"endings": ["sings", "[step]"]}], r":1: nothing is left of a text"),
    "one ending": ([SWAG | {"endings": ["sings"]}], r":1: 'endings': expected at least two, got 1"),
    "no such ending": ([SWAG | {"label": 4}], r":1: 'label': expected the label 0 or 1 or 2 or 3, got 4"),
    "strange": ([{"question": "x"}], r":1: no set of questions has these fields: question; expected piqa"),
    "a list": ([[1, 2]], r":1: expected a JSON object with fields"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_record_is_one_line_with_its_place(tmp_path, case):
    records, said = BAD[case]
    with pytest.raises(DataError, match=r"bad\.jsonl" + said) as raised:
        open_text(write_lines(tmp_path / "bad.jsonl", records))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b'{"text": "the road"}\n{"text": \n', r":2: not valid JSON: .*; expected one object per line"),
        (b'{"text": "the road"}\n\xff\xfe\n', r":2: expected text in UTF-8, got byte 0xff"),
        (b"hello\nworld\n", r":1: expected questions, one JSON object per line"),
        (SWAG_TEXT.encode() + b"Roof: more\n1\nsings.\n", r":7: expected 6 lines per question, got 3"),
        (
            SWAG_TEXT.encode() + b"Roof: more\n4\na\nb\nc\nd\n",
            r":8: expected the right ending, 0 to 3, got \"4\"",
        ),
        (SWAG_TEXT.encode() + b"Roof: more\n1\na\n\nc\nd\n", r":10: expected a text, got an empty line"),
        (bz2.compress(b"x" * 500)[:40], "not a whole bzip2 file"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, content, said):
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(DataError, match=said) as raised:
        open_text(tmp_path / "bad")
    assert "\n" not in str(raised.value)


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_LIMITS", "label-mb=1")
    (tmp_path / "bomb.txt.bz2").write_bytes(bz2.compress(b"a" * (4 << 20)))
    with pytest.raises(DataError, match="unpacks to more; the limit label-mb is 1 "):
        open_text(tmp_path / "bomb.txt.bz2")


def test_paths_that_are_no_sets(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        open_text(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        open_text(tmp_path / "none.jsonl")
    with pytest.raises(UnknownName, match="unknown question set 'rode-piqa'"):
        open_text(type(tmp_path)("rode-piqa"))


def test_shipped_sets_open_by_name(tmp_path):
    for name, path in shipped_texts().items():
        found = open_text(type(tmp_path)(name))
        assert found.name == name
        assert found.kind == name.removeprefix("road-")
        assert found.sha256 == open_text(path).sha256
    assert set(shipped_texts()) == {f"road-{k}" for k in ("piqa", "lambada", "hellaswag", "winogrande")}


@pytest.mark.parametrize(
    ("file", "kind", "count"),
    [
        ("piqa_valid.jsonl", "piqa", 1838),
        ("lambada_test.jsonl", "lambada", 5153),
        ("hellaswag_val_full.txt.bz2", "hellaswag", 10042),
    ],
)
def test_the_published_files(shared_data, file, kind, count):
    found = open_text(shared_data / "nlp" / file)
    assert (found.kind, len(found.questions)) == (kind, count)
    assert len({q.name for q in found.questions}) == count
    endings = {"piqa": 2, "lambada": 1, "hellaswag": 4}[kind]
    assert {len(q.endings) for q in found.questions} == {endings}
    assert {q.answer for q in found.questions} == set(range(endings))
