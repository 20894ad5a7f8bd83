"""Models whose weights stay in files: rewritten one weight at a time, to the same numbers."""

import numpy as np
import onnx
import pytest

from helpers.opt import written_opt
from holdfast.core.errors import ModelError
from holdfast.graph.rewrite import streamed
from holdfast.graph.session import runtime
from holdfast.noise.language import cells
from holdfast.noise.language.cells import convert_graph
from holdfast.noise.language.open import language_subject
from holdfast.noise.suite import Reserved

SMALL = {"vocabulary": 300, "hidden": 64, "heads": 4, "ffn": 128, "positions": 64, "tied": False}


def external(folder, **options):
    """A model of OPT's layout with its weights in another file."""
    folder.mkdir(parents=True)
    path = written_opt(folder, **options)
    proto = onnx.load(path)
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin")
    return path


def logits(path):
    session = runtime().InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ids = np.arange(2, 14, dtype=np.int64)[None]
    known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(12)[None]}
    return session.run(["logits"], {i.name: known[i.name] for i in session.get_inputs()})[0]


def converted(path, precision, runs):
    return convert_graph(language_subject(path), precision, Reserved((), ""), runs)


@pytest.mark.parametrize("precision", ["fp16", "bf16-weights", "int8-dynamic"])
def test_a_streamed_rewrite_gives_the_numbers_of_one_in_memory(tmp_path, monkeypatch, precision):
    path = external(tmp_path / "net", **SMALL)
    whole = converted(path, precision, tmp_path / "whole")
    monkeypatch.setattr(cells, "LIMIT", 1000)
    monkeypatch.setattr(streamed, "LARGE", 4096)
    parts = converted(path, precision, tmp_path / "parts")
    assert set(parts.paths) == {".onnx", ".onnx.data"}
    assert parts.paths[".onnx"].stat().st_size < parts.paths[".onnx.data"].stat().st_size
    assert parts.changed
    np.testing.assert_allclose(logits(parts.paths[".onnx"]), logits(whole.paths[".onnx"]), atol=2e-5)
    assert np.abs(logits(parts.paths[".onnx"]) - logits(path)).max() > 0
    assert not list((tmp_path / "parts").glob(".writing-*"))
    before = parts.paths[".onnx.data"].stat().st_mtime_ns
    assert converted(path, precision, tmp_path / "parts").paths[".onnx.data"].stat().st_mtime_ns == before


def test_calibrated_bits_of_a_large_model_are_refused_and_leave_nothing(tmp_path, monkeypatch):
    path = external(tmp_path / "net", **SMALL)
    monkeypatch.setattr(cells, "LIMIT", 1000)
    with pytest.raises(ModelError, match="use int8-dynamic"):
        converted(path, "int8-minmax", tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*")) if (tmp_path / "runs").exists() else True


@pytest.mark.slow
def test_a_model_of_more_than_two_gigabytes(tmp_path):
    """OPT's layout with 570 million weights; the files are deleted again."""
    sizes = {"vocabulary": 2000, "hidden": 3072, "heads": 24, "ffn": 12288, "positions": 64, "tied": False}
    folder = tmp_path / "net"
    folder.mkdir()
    large = folder / "large.onnx"
    layers = 5
    from helpers.opt import opt_graph, opt_tokenizer

    onnx.save(
        opt_graph(layers=layers, **sizes),
        large,
        save_as_external_data=True,
        location="weights.bin",
    )
    opt_tokenizer(sizes["vocabulary"]).save(str(folder / "tokenizer.json"))
    try:
        assert language_subject(large).bytes > 2.1e9
        clean = logits(large)
        for precision, most in (("fp16", 0.02), ("int8-dynamic", 0.2)):
            made = converted(large, precision, tmp_path / precision)
            found = logits(made.paths[".onnx"])
            difference = np.abs(found - clean).max() / np.abs(clean).max()
            assert 0 < difference < most
            for file in made.paths.values():
                file.unlink()
    finally:
        for file in folder.iterdir():
            file.unlink()
