"""The random models of OPT-125M's layout, with which other tests try what real files would need."""

import numpy as np
import pytest

from helpers.opt import opt_graph, opt_tokenizer, written_opt
from holdfast.graph.session import runtime
from models.language.graph import Shape, weights_of


def run(proto, feeds):
    ort = runtime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    opened = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return opened.run(["logits"], feeds)[0]


def given(length=7):
    ids = np.random.default_rng(0).integers(0, 600, (2, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def test_with_and_without_past_it_says_the_same():
    past = {
        f"past_key_values.{layer}.{part}": np.zeros((2, 12, 0, 64), np.float32)
        for layer in range(2)
        for part in ("key", "value")
    }
    plain = run(opt_graph(2, 600, False, positions=64, seed=1), given())
    assert plain.shape == (2, 7, 600)
    assert plain.std() > 0.1  # it does not say the same of everything
    cached = run(opt_graph(2, 600, True, positions=64, seed=1), given() | past)
    np.testing.assert_allclose(plain, cached, atol=1e-4)


def test_at_full_size_it_has_the_parameters_of_opt_125m():
    sizes = weights_of(Shape(12, 50_272, 768, 12, 3072, 2048)).values()
    assert sum(np.prod(size) for size in sizes) == 125_239_296


def test_the_tokenizer_fits_and_begins_as_opts():
    tokenizer = opt_tokenizer(600)
    assert tokenizer.get_vocab_size() <= 600
    assert tokenizer.encode("The road.").ids[0] == tokenizer.token_to_id("</s>") == 2
    assert tokenizer.decode(tokenizer.encode("Größe: 3 €?").ids) == "Größe: 3 €?"


def test_a_written_model_has_its_tokenizer_beside_it(tmp_path):
    path = written_opt(tmp_path, vocabulary=600, layers=1, positions=32)
    assert path.is_file()
    assert (tmp_path / "tokenizer.json").is_file()


@pytest.mark.slow
def test_the_whole_vocabulary():
    assert run(opt_graph(2, 50_272, False), given()).shape == (2, 7, 50_272)
