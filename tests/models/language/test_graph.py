"""The ONNX graph says what the torch network says, with and without past, and in Optimum's names."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.graph.session import runtime  # noqa: E402
from models.language.graph import ROAD, Shape, decoder_graph, weights_of  # noqa: E402
from models.language.recipe import Decoder, decoder  # noqa: E402

SMALL = Shape(layers=2, vocabulary=50, hidden=24, heads=3, ffn=40, positions=20)


def session(proto):
    ort = runtime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def net() -> Decoder:
    made = decoder(SMALL, 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in made.parameters():
            value.normal_(0, 0.3, generator=generator)  # so that every weight, biases too, matters
    return made


@pytest.fixture(scope="module")
def weights(net):
    return {name: value.numpy() for name, value in net.state_dict().items()}


IDS = np.random.default_rng(0).integers(0, SMALL.vocabulary, (2, 9))


def said(net):
    with torch.no_grad():
        logits, caches = net.cached(torch.from_numpy(IDS))
    return logits.numpy(), [part.numpy() for pair in caches for part in pair]


def feeds(graph, start, stop, pasts):
    mask = np.ones((2, stop), np.int64)
    given = {"input_ids": IDS[:, start:stop], "attention_mask": mask}
    names = [port.name for port in graph.get_inputs()]
    if "position_ids" in names:
        given["position_ids"] = np.tile(np.arange(start, stop), (2, 1))
    return given | dict(zip([n for n in names if n.startswith("past")], pasts, strict=True))


def nothing_said(past):
    return [np.zeros((2, SMALL.heads, 0, 8), np.float32)] * (4 if past else 0)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("position_ids", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_and_cache_are_those_of_the_network(net, weights, past, position_ids, tied):
    graph = session(decoder_graph(weights, SMALL, past, position_ids, tied))
    logits, *caches = graph.run(None, feeds(graph, 0, 9, nothing_said(past)))
    expected, expected_caches = said(net)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    for cache, right in zip(caches, expected_caches, strict=True):
        np.testing.assert_allclose(cache, right, atol=1e-5)


@pytest.mark.parametrize("position_ids", [False, True])
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_going_on_from_the_past_says_the_same(net, weights, position_ids, cut):
    graph = session(decoder_graph(weights, SMALL, past=True, position_ids=position_ids))
    before, *caches = graph.run(None, feeds(graph, 0, cut, nothing_said(past=True)))
    after = graph.run(["logits"], feeds(graph, cut, 9, caches))[0]
    np.testing.assert_allclose(np.concatenate((before, after), 1), said(net)[0], atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(net, weights, side):
    wide = ((0, 0), (3, 0) if side == "left" else (0, 3))
    mask = np.pad(np.ones_like(IDS), wide)
    graph = session(decoder_graph(weights, SMALL))
    logits = graph.run(["logits"], {"input_ids": np.pad(IDS, wide), "attention_mask": mask})[0]
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[mask == 1].reshape(2, 9, -1), said(net)[0], atol=1e-5)


def test_later_words_do_not_change_earlier_ones(weights):
    graph = session(decoder_graph(weights, SMALL))
    other = IDS.copy()
    other[:, 6] = (other[:, 6] + 1) % SMALL.vocabulary
    mask = np.ones_like(IDS)
    one, two = (graph.run(["logits"], {"input_ids": i, "attention_mask": mask})[0] for i in (IDS, other))
    np.testing.assert_array_equal(one[:, :6], two[:, :6])
    assert abs(one[:, 6:] - two[:, 6:]).max() > 0.01


def test_names_and_axes_are_optimums(weights):
    proto = decoder_graph(weights, SMALL, past=True, position_ids=True)
    axes = {
        port.name: [d.dim_param or d.dim_value for d in port.type.tensor_type.shape.dim]
        for port in (*proto.graph.input, *proto.graph.output)
    }
    everything = "past_sequence_length + sequence_length"
    assert list(axes)[:4] == ["input_ids", "attention_mask", "position_ids", "past_key_values.0.key"]
    assert axes["input_ids"] == axes["position_ids"] == ["batch_size", "sequence_length"]
    assert axes["attention_mask"] == ["batch_size", everything]
    assert axes["past_key_values.1.value"] == ["batch_size", 3, "past_sequence_length", 8]
    assert axes["present.1.value"] == ["batch_size", 3, everything, 8]
    assert axes["logits"] == ["batch_size", "sequence_length", 50]


def test_the_head_is_the_tokens_matrix_unless_told_otherwise(weights):
    tied, own = (decoder_graph(weights, SMALL, tied=tied).ByteSize() for tied in (True, False))
    assert own - tied > 50 * 24 * 4 - 100


def test_the_weights_are_named_and_sized_as_the_network_has_them(weights):
    assert {name: value.shape for name, value in weights.items()} == weights_of(SMALL)
    assert sum(np.prod(size) for size in weights_of(ROAD).values()) < 400_000


def test_weights_are_drawn_by_the_seed():
    def first(seed):
        return decoder(SMALL, seed).embed_tokens.weight

    assert torch.equal(first(3), first(3))
    assert not torch.equal(first(3), first(4))
