"""`holdfast.noise` of language and speech models: the command's numbers, as a result like the others."""

import csv
import json
from pathlib import Path

import pytest

import holdfast as hf
from helpers.frames import assert_is_frame
from helpers.language import lambada, language_model, piqa
from helpers.speech import write_autoregressive, write_clips, write_parallel
from holdfast.core.errors import DataError, InputError

ONLY = ["precision=fp16", "stft=power-2"]


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    language_model(folder / "models", "tiny")
    piqa(folder / "p.jsonl", 12)
    lambada(folder / "l.jsonl", 10)
    write_parallel(folder)
    write_autoregressive(folder, length=15.0)
    write_clips(folder / "clips", ("a road.", "stop."))
    return folder


@pytest.fixture(scope="module")
def suites(ground):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ground)
        language = hf.noise("models/tiny.onnx", ["p.jsonl", Path("l.jsonl")], task="language", only=["fp16"])
        speech = hf.noise(["fast.onnx", "taco.onnx"], "clips", task="speech", only=ONLY)
        yield {"language": language, "speech": speech}


@pytest.fixture(autouse=True)
def _here(ground, holdfast, monkeypatch):
    monkeypatch.chdir(ground)


def test_a_language_suite_is_what_the_command_line_gives(suites, holdfast):
    suite = suites["language"]
    assert isinstance(suite, hf.LanguageSuite)
    assert suite.sets == ("p", "l")
    words = ("noise", "models/tiny.onnx", "p.jsonl", "l.jsonl", "--task", "language", "--only", "fp16")
    assert holdfast(*words, "--json", "l.json").code == 0
    assert json.loads(Path("l.json").read_text())["models"] == suite.to_dict()["models"]
    assert suite.row("fp16") == suite.models[0].sets[0].default.rows[0]
    assert suite.row("fp16", "l", "tiny") == suite.models[0].sets[1].default.rows[0]
    assert suite.worst in (suite.row("fp16", "p"), suite.row("fp16", "l"))
    assert "FP16 points lost" in suite.table.caption
    for wrong in (("fp61",), ("fp16", "q"), ("fp16", "p", "tinny")):
        with pytest.raises(InputError, match="unknown"):
            suite.row(*wrong)


def test_a_speech_suite_is_what_the_command_line_gives(suites, holdfast):
    suite = suites["speech"]
    assert isinstance(suite, hf.SpeechSuite)
    words = ("noise", "fast.onnx", "taco.onnx", "clips", "--task", "speech", "--only", ",".join(ONLY))
    assert holdfast(*words, "--json", "s.json").code == 0
    assert json.loads(Path("s.json").read_text())["models"] == suite.to_dict()["models"]
    assert suite.row("stft=power-2", "taco") == suite.models[1].rows[1]
    assert suite.worst.loss == max(row.loss for model in suite.models for row in model.rows)
    assert "combined" in [str(name) for name in suite.table.columns]
    for wrong in (("stft=power-3",), ("stft=power-2", "tacco")):
        with pytest.raises(InputError, match="Did you mean"):
            suite.row(*wrong)


@pytest.mark.parametrize("task", ["language", "speech"])
def test_the_result_behaves_like_the_others(suites, task, tmp_path):
    suite = suites[task]
    assert repr(suite).startswith(f"<{type(suite).__name__} ")
    assert len(repr(suite)) < 200
    assert "<table" in suite._repr_html_()
    page, values, rows = (suite.save(tmp_path / f"a.{end}") for end in ("html", "json", "csv"))
    assert page.read_text().count("<audio") == (10 if task == "speech" else 0)
    assert json.loads(values.read_text()) == suite.to_dict()
    assert len(list(csv.DictReader(rows.read_text().splitlines()))) == len(suite._rows())
    assert_is_frame(suite.to_pandas(), suite._rows())
    again = hf.open_run(suite.folder)
    assert (again.models, again.folder) == (suite.models, suite.folder)
    assert hf.compare(suite, again).same


def test_nothing_is_printed_and_unusable_lines_are_in_the_result(ground, tmp_path, capfd):
    write_clips(tmp_path / "clips", ("a road.", "stop."))
    with (tmp_path / "clips" / "metadata.csv").open("a") as file:
        file.write("nothing\n")
    calls = {"only": ["precision=int8"], "task": "speech", "out": tmp_path / "page.html"}
    suite = hf.noise("fast.onnx", tmp_path / "clips", card="fast.toml", **calls)
    assert hf.noise("models/tiny.onnx", "p.jsonl", task="language", only="precision=int8").worst
    assert capfd.readouterr() == ("", "")
    assert len(suite.problems) == 1
    assert "1 line of clips skipped" in (tmp_path / "page.html").read_text()
    with pytest.raises(DataError, match=r"metadata\.csv:3"):
        hf.noise("fast.onnx", tmp_path / "clips", strict=True, **calls)


def test_options_and_subjects_of_image_models_are_refused(data):
    with pytest.raises(InputError, match=r"noise\(\): rule: not supported with task='speech'"):
        hf.noise("fast.onnx", "clips", task="speech", rule="voc")
    with pytest.raises(InputError, match=r"noise\(\): card: not supported with task='language'"):
        hf.noise("models/tiny.onnx", "p.jsonl", task="language", card="fast.toml")
    with pytest.raises(InputError, match=r"noise\(\): data: expected paths or names for task='speech'"):
        hf.noise("fast.onnx", data, task="speech")
    with pytest.raises(InputError, match=r"noise\(\): task: .*'sound'"):
        hf.noise("signs-class", "signs:0:2", task="sound")
