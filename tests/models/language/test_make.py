"""The whole way in miniature: text, tokenizer, training that goes on after a kill, files, accuracies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from holdfast.train.loop import Stage, fit  # noqa: E402
from models.language import make as making  # noqa: E402
from models.language.__main__ import main  # noqa: E402
from models.language.graph import Shape  # noqa: E402
from models.language.recipe import Row, decoder, job_of, loss, row_of  # noqa: E402
from models.language.text import SIZE, SPECIAL, learned, paragraphs  # noqa: E402


@pytest.fixture(scope="module")
def tokenizer():
    return learned(paragraphs(400, 1), 600)


@pytest.fixture(scope="module")
def row(tokenizer, tmp_path_factory) -> Row:
    return row_of(tokenizer, 300, tmp_path_factory.mktemp("row"), lambda line: None)


def test_tokens_give_the_text_back_and_begin_with_the_start(tokenizer):
    text = next(paragraphs(1, 9))
    ids = tokenizer.encode(text).ids
    assert ids[0] == SPECIAL.index("</s>") == 2
    assert tokenizer.decode(ids) == text


def test_the_same_text_gives_the_same_tokenizer(tokenizer):
    assert learned(paragraphs(400, 1), 600).to_str() == tokenizer.to_str()
    assert tokenizer.get_vocab_size() <= 600 < SIZE


def test_the_row_holds_every_paragraph_behind_a_start(row, tokenizer):
    texts = list(paragraphs(300, 1))
    assert len(row.starts) == 300
    second = row.tokens[row.starts[1] : row.starts[2]]
    assert tokenizer.decode(second.tolist()) == texts[1]


def test_the_row_is_made_once(row, tokenizer, tmp_path):
    said: list[str] = []
    first = row_of(tokenizer, 300, tmp_path, said.append)
    again = row_of(tokenizer, 300, tmp_path, said.append)
    assert len(said) == 1
    assert first.name == again.name == row.name


def test_batches_begin_with_a_paragraph_and_depend_on_the_generator_alone(row):
    stage = Stage("s", 1, 5, 20, 1e-3, 1e-4)
    (one,) = row.draw(stage, np.random.default_rng(3))
    (two,) = row.draw(stage, np.random.default_rng(3))
    assert one.shape == (5, 21)
    assert (one[:, 0] == 2).all()
    assert torch.equal(one, two)


def test_an_untrained_network_knows_nothing(row):
    shape = Shape(1, 600, 12, 2, 16, 32)
    (batch,) = row.draw(Stage("s", 1, 4, 30, 1e-3, 1e-4), np.random.default_rng(0))
    assert float(loss(decoder(shape, 0), (batch,)).detach()) == pytest.approx(np.log(600), rel=0.02)


def test_training_lowers_the_loss_and_a_killed_run_ends_in_the_same_weights(row, tmp_path):
    stages = (Stage("a", 24, 2, 32, 3e-3, 1e-3, warmup=2),)
    job = job_of(row, 0, stages)
    (batch,) = row.draw(replace(stages[0], batch=8), np.random.default_rng(99))
    before = float(loss(job.net, (batch,)).detach())
    whole = fit(job, tmp_path / "whole.pt", lambda line: None)
    assert float(loss(whole, (batch,)).detach()) < before - 0.3

    class Killed(Exception):
        pass

    drawn = iter(range(14))

    def stop(stage, rng):
        if next(drawn, None) is None:
            raise Killed
        return row.draw(stage, rng)

    cut = replace(job_of(row, 0, stages), draw=stop)
    with pytest.raises(Killed):
        fit(cut, tmp_path / "cut.pt", lambda line: None, save_every=6)
    resumed = fit(job_of(row, 0, stages), tmp_path / "cut.pt", lambda line: None, save_every=6)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.slow
def test_everything_is_made_and_scored(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(making, "LEARNED_FROM", 2000)
    options = [
        "--out",
        str(tmp_path / "out"),
        "--work",
        str(tmp_path / "work"),
        "--fraction",
        "0.0005",
        "--past",
    ]
    assert main(options) == 0
    said = capsys.readouterr().out
    for name in ("road-piqa", "road-lambada", "road-hellaswag", "road-winogrande"):
        assert f"{name}: accuracy 0." in said
    made = sorted(file.name for file in Path(tmp_path / "out").iterdir())
    assert made == [
        "road-hellaswag.txt", "road-lambada.jsonl", "road-lm-with-past.onnx", "road-lm.onnx",
        "road-lm.tokenizer.json", "road-piqa-labels.lst", "road-piqa.jsonl", "road-winogrande.jsonl",
    ]  # fmt: skip
