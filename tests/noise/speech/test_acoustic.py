"""Acoustic models in ONNX Runtime: both kinds against a plain computation, and what can be wrong."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from helpers.speech import (
    LETTERS,
    card_text,
    decoder_model,
    encoder_model,
    parallel_model,
    write_autoregressive,
    write_parallel,
)
from holdfast.core.errors import DataError, ModelError
from holdfast.noise.speech.acoustic import feeds_of, ids_of, open_synthesizer
from holdfast.noise.speech.card import load_speech

TEXT = "Stop here."


def weights(model):
    return {w.name: numpy_helper.to_array(w).astype(np.float64) for w in model.graph.initializer}


def test_a_parallel_model_says_what_its_weights_say(tmp_path):
    voice = open_synthesizer(load_speech(write_parallel(tmp_path)))
    w = weights(parallel_model())
    ids = [LETTERS.index(c) for c in TEXT.lower() + "~"]
    inner = np.tanh(np.repeat(w["table"][ids], 6, axis=0) @ w["first"])
    spoken = voice.speak(TEXT)
    assert spoken.stopped
    assert spoken.mel == pytest.approx(inner @ w["second"] * 2.0 - 5.0, abs=1e-5)


def test_mel_first_is_turned(tmp_path):
    path = write_parallel(tmp_path)
    wanted = open_synthesizer(load_speech(path)).speak(TEXT).mel
    proto = onnx.load(path)
    proto.graph.node.append(onnx.helper.make_node("Transpose", ["mel"], ["turned"], perm=[0, 2, 1]))
    del proto.graph.output[:]
    shape = [1, 20, "frames"]
    proto.graph.output.append(onnx.helper.make_tensor_value_info("turned", 1, shape))
    onnx.save(proto, path)
    more = 'mel = "turned"\nlayout = "mel-first"'
    path.with_suffix(".toml").write_text(card_text("parallel", more))
    assert open_synthesizer(load_speech(path)).speak(TEXT).mel == pytest.approx(wanted)


def test_an_autoregressive_model_goes_frame_by_frame_until_it_stops(tmp_path):
    voice = open_synthesizer(load_speech(write_autoregressive(tmp_path, length=12.0)))
    first, second = weights(encoder_model()), weights(decoder_model())
    ids = [LETTERS.index(c) for c in TEXT.lower() + "~"]
    context = (first["table"][ids] @ first["first"]).mean(axis=0)
    frame, state, frames = np.zeros(20), np.zeros(16), []
    for _ in range(12):
        state = np.tanh(np.concatenate([context, frame, state]) @ second["inner"])
        frame = state @ second["outer"]
        frames.append(frame)
    spoken = voice.speak(TEXT)
    assert spoken.stopped
    assert spoken.mel == pytest.approx(np.stack(frames) * 2.0 - 5.0, abs=1e-4)


def test_a_decoder_that_never_stops_is_ended(tmp_path):
    voice = open_synthesizer(load_speech(write_autoregressive(tmp_path, length=1e9)))
    spoken = voice.speak(TEXT)
    assert not spoken.stopped
    assert len(spoken.mel) == 60


def test_feeds_are_what_the_graphs_were_run_on(tmp_path):
    voice = open_synthesizer(load_speech(write_autoregressive(tmp_path, length=12.0)))
    feeds = feeds_of(voice, (TEXT, "go", "has # in it"), every=5)
    assert len(feeds["encoder"]) == 2
    assert len(feeds["decoder"]) == 5  # steps 1, 6, 11, 16, 21 of the two texts
    assert set(feeds["decoder"][0]) == {"memory", "frame", "state0", "state1"}
    assert feeds["decoder"][0]["state1"].shape == (1, len(TEXT) + 1)
    assert voice.nets["decoder"](feeds["decoder"][1])["mel"].shape == (1, 20)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ('mel = "mol"', "expected an output 'mol' of the model, got mel"),
        ('input = "letters"', "expected an input 'letters' of the model, got ids"),
    ],
)
def test_names_that_are_not_there_are_told(tmp_path, card, said):
    path = write_parallel(tmp_path, more=card)
    with pytest.raises(ModelError, match=said):
        open_synthesizer(load_speech(path))


def test_outputs_of_other_shapes_are_told(tmp_path):
    path = write_parallel(tmp_path, mels=30)
    with pytest.raises(ModelError, match=r"the card says \(1, frames, 20\) .* got \(1, 66, 30\)"):
        open_synthesizer(load_speech(path)).speak(TEXT)
    path = write_autoregressive(tmp_path)
    onnx.save(decoder_model(mels=30), tmp_path / "taco-decoder.onnx")
    with pytest.raises((ModelError, DataError), match=r"taco-decoder\.onnx"):
        open_synthesizer(load_speech(path)).speak(TEXT)


def test_a_decoder_without_its_states_is_told(tmp_path):
    path = write_autoregressive(tmp_path)
    proto = onnx.load(tmp_path / "taco-decoder.onnx")
    del proto.graph.output[-1]
    onnx.save(proto, tmp_path / "taco-decoder.onnx")
    with pytest.raises(ModelError, match="expected an output 'next_state1' of the decoder"):
        open_synthesizer(load_speech(path))


def test_a_file_that_is_no_onnx_is_told(tmp_path):
    path = write_parallel(tmp_path)
    path.write_bytes(b"<html>")  # load_speech reads the card alone
    with pytest.raises(ModelError, match="HTML"):
        open_synthesizer(load_speech(path))


def test_a_model_that_is_exchanged_meanwhile_is_told(tmp_path):
    model = load_speech(write_parallel(tmp_path))
    write_parallel(tmp_path, seed=1)
    with pytest.raises(ModelError, match="the model was changed meanwhile"):
        open_synthesizer(model)


def test_infinite_values_are_told(tmp_path):
    path = write_parallel(tmp_path)
    proto = onnx.load(path)
    (table,) = (w for w in proto.graph.initializer if w.name == "second")
    table.CopyFrom(numpy_helper.from_array(np.full((24, 20), np.nan, np.float32), "second"))
    onnx.save(proto, path)
    with pytest.raises(DataError, match="NaN or infinite"):
        open_synthesizer(load_speech(path)).speak(TEXT)


def test_text_becomes_ids(tmp_path):
    card = load_speech(write_parallel(tmp_path)).card
    assert ids_of("Ab.", card).tolist() == [[1, 2, 27, 28]]
    with pytest.raises(DataError, match=r"the card has no symbol for 'é' \(character 4 of 'café'\)"):
        ids_of("Café", card)


def test_longer_symbols_win(tmp_path):
    path = write_parallel(tmp_path)
    text = path.with_suffix(".toml").read_text().replace('".", "~"', '"th", "~"')
    path.with_suffix(".toml").write_text(text)
    card = load_speech(path).card
    assert ids_of("the", card).tolist() == [[27, 5, 28]]


@pytest.mark.parametrize(("value", "told"), [(np.nan, r"its weight '\w+' has NaN or infinite"), (0.0, "")])
def test_a_model_that_cannot_run_for_its_weights_is_named(tmp_path, value, told):
    path = write_parallel(tmp_path)
    model = onnx.load(path)
    first = next(w for w in model.graph.initializer if w.data_type == onnx.TensorProto.FLOAT)
    first.CopyFrom(numpy_helper.from_array(np.full_like(numpy_helper.to_array(first), value), first.name))
    onnx.save(model, path)
    net = open_synthesizer(load_speech(path)).nets["model"]
    with pytest.raises(
        DataError, match=rf"cannot run fast.onnx on it{f' .{told} values.' if told else ''}: "
    ) as said:
        net({"ids": np.zeros((1, 1, 1, 1), np.float64)})
    assert ("NaN" in str(said.value)) == bool(told)
