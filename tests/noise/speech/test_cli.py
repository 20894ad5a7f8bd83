"""`holdfast noise --task speech` from the outside."""

import json

import pytest

from helpers.speech import hum, write_autoregressive, write_clips, write_parallel, write_wav

ONLY = ["--only", "precision=fp16,stft=power-2"]


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    write_parallel(folder)
    write_autoregressive(folder, length=15.0)
    write_clips(folder / "clips", ("a road.", "stop."))
    return folder


@pytest.fixture
def run(ground, holdfast, monkeypatch):
    monkeypatch.chdir(ground)

    def call(*words):
        done = holdfast("noise", *words, "--task", "speech", "--jobs", "1")
        return done.code, done.out, done.err

    return call


def test_two_models_on_the_same_clips(run, ground, holdfast):
    code, out, err = run("fast.onnx", "taco.onnx", "clips", *ONLY, "-o", "page.html", "--json", "all.json")
    assert code == 0
    assert "clean vs. original audio" in out
    assert "combined" in out
    assert "precision FP16" in out
    assert err.count("noise fast: 6/6 clips × systems") == 1
    plain = json.loads((ground / "all.json").read_text())
    assert [m["model"] for m in plain["models"]] == ["fast", "taco"]
    assert plain["models"][0]["rows"][0]["mel"]["mean"] > 0
    assert (ground / "page.html").read_text().count("<audio") == 2 * 5
    folder = err.split("run      ")[1].split(" (")[0]
    assert holdfast("report", folder, "-o", "again.html").code == 0
    assert (ground / "again.html").read_text().count("<audio") == 2 * 5


@pytest.mark.parametrize(
    ("how", "start"), [("--csv", "model,data,kind"), ("--markdown", "fast"), ("--latex", r"\begin{table}")]
)
def test_other_shapes(run, how, start):
    code, out, _ = run("fast.onnx", "clips", *ONLY, how)
    assert code == 0
    assert out.startswith(start)


def test_a_dry_run_measures_nothing(run, ground):
    code, out, _ = run("fast.onnx", "clips", *ONLY, "--dry-run", "--runs", "dry")
    assert code == 0
    assert "clips" in out
    assert not (ground / "dry").exists()


def test_some_clips_only(run):
    code, out, err = run("fast.onnx", "clips", "--only", "precision=int8", "--images", "1", "--csv")
    assert code == 0
    assert "fast,clips,parallel,precision,int8-minmax,measured,1," in out
    assert "1 texts of clips that are not tested on" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fast.onnx"], "expected MODEL… CLIPS"),
        (["fast.onnx", "nowhere"], "nowhere: no such folder"),
        (["nothing.onnx", "clips"], "nothing.onnx: no such model file"),
        (["fastspeach", "clips"], "unknown acoustic model 'fastspeach'"),
        (["fast.onnx", "clips", "--only", "decode"], "unknown noise family or option of speech 'decode'"),
        (["fast.onnx", "clips", "--card", "none.toml"], "none.toml"),
        (["fast.onnx", "clips", "--rule", "voc"], "--rule: not supported with --task speech"),
        (["fast.onnx", "clips", "--csv", "--latex"], "expected one of --csv, --markdown and --latex"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(run, words, said):
    code, _, err = run(*words)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_bad_clips_are_told_and_the_rest_is_measured(run, ground):
    folder = write_clips(ground / "bad", ("a road.", "stop.", "über all."))
    write_wav(folder / "wavs" / "c1.wav", hum(0.4), rate=16000)
    with (folder / "metadata.csv").open("a") as file:
        file.write("c7|No normalised text\n")
    code, _, err = run("fast.onnx", "bad", *ONLY)
    assert code == 4
    assert "metadata.csv:4: expected id|text|normalised text, got 2 of 3 fields" in err
    assert "c1.wav: expected 8000 Hz, as in the card, got 16000" in err
    assert "c2 (line 3): the card has no symbol for 'ü'" in err


def test_bad_lines_alone_are_exit_code_4_and_strict_ends_at_the_first(run, ground):
    folder = write_clips(ground / "lines", ("a road.", "stop."))
    with (folder / "metadata.csv").open("a") as file:
        file.write("c7|No normalised text\n" * 12)
    code, _, err = run("fast.onnx", "lines", *ONLY)
    assert code == 4
    assert "data     2 more lines that cannot be used" in err
    code, _, err = run("fast.onnx", "lines", *ONLY, "--strict")
    assert code == 2
    assert err.startswith("holdfast: lines/metadata.csv:3: expected id|text|normalised text, got 2 of 3")


def test_a_bad_clip_is_named_in_the_folder_at_hand_and_strict_sees_finished_ones(run, ground):
    for name in ("one", "two"):
        folder = write_clips(ground / name, ("a road.", "stop."))
        write_wav(folder / "wavs" / "c1.wav", hum(0.4), rate=16000)
        code, _, err = run("fast.onnx", name, *ONLY)
        assert code == 4
        assert "c1 (line 2): wavs/c1.wav: expected 8000 Hz" in err, "not one/wavs/c1.wav"
    code, _, err = run("fast.onnx", "two", *ONLY, "--strict")
    assert code == 2
    assert "holdfast: c1 (line 2): wavs/c1.wav: expected 8000" in err
