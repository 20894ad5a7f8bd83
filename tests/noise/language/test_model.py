"""Likelihoods against a plain computation, one ending at a time; nothing depends on what is scored beside."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.tiny_language import POSITIONS, language_model, tokenizer
from holdfast.core.errors import DataError
from holdfast.core.language import Ending, Question
from holdfast.graph.session import runtime
from holdfast.noise.language import model as scoring
from holdfast.noise.language.graph import PastState, Runner
from holdfast.noise.language.model import likelihood, open_tokenizer
from holdfast.noise.language.open import open_language

LAYOUTS = {
    "plain": {},
    "past": {"past": True},
    "positions": {"past": True, "positions": True},
    "merged": {"past": True, "branch": True},
    "spoilt": {"past": True, "spoilt": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    tokenizer(place / "tokenizer.json")
    for name, options in LAYOUTS.items():
        language_model(place / f"{name}.onnx", **options)
    return place


@pytest.fixture(scope="module")
def models(folder):
    return {name: open_language(folder / f"{name}.onnx") for name in LAYOUTS}


def questions():
    places = [
        "the road",
        "a red car at the crossing",
        "the sky is wide and",
        "Question: mend a tyre?\nAnswer:",
    ]
    asked = [
        Question(
            f"p{i}",
            (Ending(p, " is long."), Ending(p, " waits and looks left and right."), Ending(p, " é")),
            0,
        )
        for i, p in enumerate(places)
    ]
    asked += [Question(f"w{i}", (Ending(p, " wheel"),), 0) for i, p in enumerate(places)]
    two = ("the car passed the lorry as the car", "the car passed the lorry as the lorry")
    return [*asked, Question("g", tuple(Ending(p, " was fast.") for p in two), 1)]


def by_hand(folder, name, question):
    """The sums and greediness of the endings: a session run for each, the softmax written out."""
    import tokenizers

    encoder = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = runtime().InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    sums, greedy, counts = [], [], []
    for ending in question.endings:
        whole = encoder.encode(ending.prompt + ending.text).ids
        start = len(encoder.encode(ending.prompt).ids)
        feeds = {"input_ids": np.array([whole]), "attention_mask": np.ones((1, len(whole)), np.int64)}
        logits = session.run(["logits"], feeds)[0][0].astype(np.float64)
        total, first = 0.0, True
        for place in range(start, len(whole)):
            row = logits[place - 1]
            share = np.exp(row) / np.exp(row).sum()
            total += np.log(share[whole[place]])
            first &= int(row.argmax()) == whole[place]
        sums.append(total)
        greedy.append(first)
        counts.append(len(whole) - start)
    return sums, greedy, counts


def test_scores_are_those_of_a_plain_computation(folder, models):
    for question, found in zip(questions(), models["plain"].score_all(questions()), strict=True):
        sums, greedy, counts = by_hand(folder, "plain", question)
        assert found.name == question.name
        np.testing.assert_allclose(found.sums, sums, atol=1e-4)
        assert list(found.greedy) == greedy
        assert list(found.tokens) == counts
    assert found.length == (9, 9)


@pytest.mark.parametrize("name", LAYOUTS)
def test_alone_or_together_with_or_without_past(models, name):
    whole = [s.sums for s in models["plain"].score_all(questions())]
    together = [s.sums for s in models[name].score_all(questions())]
    alone = [models[name].score(q).sums for q in reversed(questions())][::-1]
    for a, b, c in zip(whole, together, alone, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
        np.testing.assert_allclose(a, c, atol=1e-4)


def test_a_prompt_is_read_once_where_there_is_a_past(models, monkeypatch):
    read = []
    plain = Runner._run

    def counted(self, names, feeds, rows):
        read.append(sum(map(len, rows)))
        return plain(self, names, feeds, rows)

    monkeypatch.setattr(Runner, "_run", counted)
    prompt = "the road is long and the sky is wide . " * 2
    question = Question("q", tuple(Ending(prompt, f" {word}.") for word in ("car", "road", "sky", "tyre")), 0)
    tokens = {}
    for name in ("plain", "past"):
        read.clear()
        models[name].score(question)
        tokens[name] = sum(read)
    assert models["past"].shares
    assert tokens["past"] < tokens["plain"] / 2


def test_a_past_that_does_not_go_on_is_not_used(models):
    assert not models["spoilt"].shares
    assert any("cached past changes the logits" in note for note in models["spoilt"].notes)
    assert models["merged"].shares
    assert models["plain"].notes == ()


def test_batches_are_bounded_by_the_logits(models, monkeypatch):
    seen = []
    plain = Runner.logits

    def watched(self, rows, after=None):
        found = plain(self, rows, after)
        seen.append(found.size)
        return found

    whole = [s.sums for s in models["plain"].score_all(questions())]
    monkeypatch.setattr(Runner, "logits", watched)
    monkeypatch.setattr(scoring, "MOST_LOGITS", 60 * 320)
    few = [s.sums for s in models["plain"].score_all(questions())]
    assert max(seen) <= 60 * 320
    assert len(seen) > 3
    for a, b in zip(whole, few, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_rows_of_a_range_taken_at_run_time_are_run_alone(tmp_path):
    tokenizer(tmp_path / "tokenizer.json")
    model = open_language(language_model(tmp_path / "q.onnx", quantised=True))
    assert any("each ending runs alone" in note for note in model.notes)
    together = [s.sums for s in model.score_all(questions())]
    assert together == [model.score(q).sums for q in questions()], "bit for bit"


def test_the_order_is_that_of_the_questions(models, monkeypatch):
    monkeypatch.setattr(scoring, "WINDOW", 4)
    found = [s.name for s in models["plain"].score_all(iter(questions()))]
    assert found == [q.name for q in questions()]


def test_a_long_prompt_is_cut_from_the_left(models):
    long = Question("long", (Ending("the road is long and wide ." * 40, " red car"),), 0)
    model = models["plain"]
    assert model.positions == POSITIONS
    (line,) = model.lines(long)
    assert len(line.ids) - 1 == POSITIONS
    assert line.ids[0] == model.tokens.first[0], "the beginning stays"
    assert line.ids[-line.tokens :] == model.tokens.encode(" red car")
    assert np.isfinite(model.score(long).sums[0])
    said = f"1 question longer than {POSITIONS} tokens cut from the left"
    assert model.notes_on([long, *questions()]) == (said,)
    assert model.notes_on(questions()) == ()


def test_an_ending_too_long_for_the_model_has_no_likelihood_and_stops_nothing(models):
    model = models["plain"]
    first, *others = questions()
    endless = Question("endless", (Ending("the road", " is"), Ending("the road", " is long" * 90)), 1)
    with pytest.raises(
        DataError, match=rf"endless: an ending of \d+ tokens does not fit the {POSITIONS} pos"
    ):
        model.lines(endless)
    found = list(model.score_all([first, endless, *others]))
    assert np.isnan(found[1].sums).all()
    assert (found[1].name, found[1].greedy) == ("endless", (False, False))
    assert [found[0], *found[2:]] == list(model.score_all(questions()))
    (note,) = model.notes_on([first, endless, endless])
    assert note.startswith("2 questions not scored, counted as wrong; first endless: an ending of")
    assert len(list(model.feeds([endless, first]))) == 1


def test_feeds_run_the_graph(folder, models):
    session = runtime().InferenceSession(str(folder / "past.onnx"), providers=["CPUExecutionProvider"])
    feeds = list(models["past"].feeds(questions()[:3]))
    assert len(feeds) == 3
    for feed in feeds:
        assert session.run(["logits"], feed)[0].shape[:2] == feed["input_ids"].shape


def test_a_rewritten_graph_is_run_instead(folder, models):
    proto = onnx.load(str(folder / "plain.onnx"))
    for weight in proto.graph.initializer:
        if weight.name == "wo":
            weight.CopyFrom(onnx.numpy_helper.from_array(np.zeros((8, 8), np.float32), "wo"))
    (folder / "zeros.onnx").write_bytes(proto.SerializeToString())
    other = open_language(folder / "plain.onnx", graph=folder / "zeros.onnx")
    question = questions()[0]
    assert other.score(question).sums != models["plain"].score(question).sums
    again = open_language(folder / "plain.onnx", graph=folder / "past.onnx")
    assert again.runner.causal.past


def test_likelihood_in_pieces_and_with_odd_numbers():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(150, 40)).astype(np.float32)
    targets = rng.integers(0, 40, 150)
    exact = logits.astype(np.float64)
    expected = (exact[np.arange(150), targets] - np.log(np.exp(exact).sum(axis=1))).sum()
    for chunk in (1, 64, 1000):
        assert likelihood(logits, targets, chunk)[0] == pytest.approx(expected, abs=1e-9)
    assert likelihood(logits, logits.argmax(axis=1))[1]
    huge = np.array([[3e4, 6e4, 0.0]], np.float16)
    assert likelihood(huge, [1]) == (0.0, True)
    for odd in (np.nan, np.inf):
        total, greedy = likelihood(np.array([[odd, 1.0]], np.float32), [0])
        assert np.isnan(total)
        assert not greedy


def test_what_was_read_before_counts(models, monkeypatch):
    """That scores with and without past agree would mean little if the past changed nothing."""
    prompt = "the road is long and the sky is wide ."
    question = Question("q", (Ending(prompt, " red car"), Ending(prompt, " tyre")), 0)
    right = models["past"].score(question).sums
    plain = Runner.read

    def louder(self, ids):
        kept = plain(self, ids)
        return PastState(kept.length, {name: value * 1.1 for name, value in kept.values.items()})

    monkeypatch.setattr(Runner, "read", louder)
    assert np.abs(np.subtract(models["past"].score(question).sums, right)).max() > 1e-2


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return open_tokenizer(tokenizer(tmp_path_factory.mktemp("t") / "tokenizer.json"))


def test_the_whole_is_one_text_and_the_ending_its_end(tokens):
    line = tokens.line(Ending("the road", " is long"), "q")
    assert line.ids == (1, *tokens.encode("the road is long"))
    assert line.ids[line.start :] == tokens.encode(" is long")


def test_a_space_at_the_prompts_end_is_the_endings(tokens):
    joined = tokens.line(Ending("the road ", "is long"), "q")
    assert joined == tokens.line(Ending("the road", " is long"), "q")


def test_a_token_across_the_border_is_scored(tokens):
    line = tokens.line(Ending("a red t", "he"), "q")
    assert len(tokens.encode(" the")) == 1
    assert tokens.encoder.decode(list(line.ids[line.start :])) == " the"


def test_an_ending_of_nothing(tokens):
    with pytest.raises(DataError, match=r"q: the ending '' has no token of its own"):
        tokens.line(Ending("the road", ""), "q")


def test_an_empty_prompt_needs_a_beginning(tmp_path, tokens):
    assert tokens.line(Ending("", " road"), "q").start == 1
    bare = open_tokenizer(tokenizer(tmp_path / "tokenizer.json", first=None))
    with pytest.raises(DataError, match="no token for the beginning"):
        bare.line(Ending("", " road"), "q")


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_prompt_and_ending_together_are_the_whole(tokens, prompt, text):
    if not (prompt + text).strip():
        return
    try:
        line = tokens.line(Ending(prompt, text), "q")
    except DataError:
        assert not text.strip()
        return
    assert line.ids == (1, *tokens.encode(prompt + text))
    assert 1 <= line.start < len(line.ids)
    before = tokens.encoder.decode(list(line.ids[1 : line.start]))
    assert len(before) <= len(prompt) + 1, "no token of the ending alone is taken for the prompt's"
