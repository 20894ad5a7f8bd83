"""The suite of speech: what each noise does, what is kept, and what cannot be done."""

import dataclasses

import numpy as np
import pytest

from helpers.speech import SPECTRUM, hum, write_autoregressive, write_clips, write_parallel, write_wav
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.metrics.speech import mean_square
from holdfast.noise.speech import cells
from holdfast.noise.speech.card import load_speech
from holdfast.noise.speech.cells import ClipErrors, SpeechRunner
from holdfast.noise.speech.clips import open_clips
from holdfast.noise.speech.options import CLEAN, System, options, select_options
from holdfast.noise.speech.page import clip_example, open_example, save_example
from holdfast.noise.speech.result import SpeechSuite, open_suite, save, suite_folder
from holdfast.noise.speech.run import SpeechPlan, estimate, measure, prepare, reserve
from holdfast.noise.speech.spectrum import Vocoder, log_mel
from holdfast.noise.suite import NoiseSelection

FEW = NoiseSelection(only=("precision=fp16", "precision=int8-mixed", "stft=symmetric-window", "stft=power-2"))
QUICK = Vocoder(iterations=3)


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    write_parallel(folder / "m")
    write_autoregressive(folder / "m", length=20.0)
    write_clips(folder / "clips")
    return folder


def plan_of(ground, name="fast", wanted=FEW, **more):
    more.setdefault("runs", ground / "runs")
    more.setdefault("vocoder", QUICK)
    data = more.pop("data", None) or open_clips(ground / "clips")
    return SpeechPlan(load_speech(ground / "m" / f"{name}.onnx"), data, wanted, **more)


@pytest.mark.parametrize("name", ["fast", "taco"])
def test_every_noise_is_measured(ground, name):
    prepared = prepare(plan_of(ground, name))
    made = measure(prepared)
    rows = {row.option: row for row in made.rows}
    assert list(rows) == ["fp16", "int8-mixed", "power-2", "symmetric-window"]
    assert all(row.outcome == "measured" for row in made.rows)
    assert 0 < rows["fp16"].mel.mean < rows["int8-mixed"].mel.mean < 1.0
    assert rows["fp16"].wave.mean > 0
    assert rows["power-2"].heard.mean > 10 * rows["symmetric-window"].heard.mean > 0
    assert (rows["int8-mixed"].clips, rows["fp16"].clips, made.clips) == (3, 4, 4)
    assert "1 of the 4 texts" in made.calibration
    assert made.combined.option == "precision=int8-mixed + stft=power-2"
    assert made.combined.mel is None
    assert made.combined.clips == 3
    assert made.own.mean > made.copy.mean > 0
    assert made.own.low <= made.own.mean <= made.own.high
    seen = clip_example(prepared, made)
    assert [s.label for s in seen.sounds] == [
        "recording", "clean", "precision=int8-mixed", "stft=power-2", "precision=int8-mixed + stft=power-2"
    ]  # fmt: skip
    assert seen.clip == "c3"  # the shortest text that was not calibrated on
    save_example(seen, ground / "kept")
    again = open_example(ground / "kept", name)
    assert [s.label for s in again.sounds] == [s.label for s in seen.sounds]
    assert (again.sounds[1].wave == seen.sounds[1].wave).all()
    assert open_example(ground / "kept", "nobody") is None


def test_the_numbers_are_what_the_definitions_say(ground):
    plan = plan_of(
        ground, wanted=NoiseSelection(only=("stft=symmetric-window",)), data=open_clips(ground / "clips", 1)
    )
    (row,) = measure(prepare(plan)).rows
    studio = SpeechRunner(plan.model, QUICK, {})
    (clip,) = plan.data.clips
    take = studio.reference(clip)
    other = dataclasses.replace(SPECTRUM, periodic=False)
    wave = studio.wave(take.spoken.mel, System(settings=("symmetric-window",)))
    assert row.wave.mean == mean_square(wave, take.wave)
    assert row.heard.mean == mean_square(log_mel(wave, SPECTRUM), log_mel(take.wave, SPECTRUM))
    assert row.mel.mean == mean_square(log_mel(take.recording, other), log_mel(take.recording, SPECTRUM))


def test_finished_cells_are_not_made_again(ground, tmp_path, monkeypatch):
    plan = plan_of(ground, runs=tmp_path)
    steps = []
    first = measure(prepare(plan), lambda what, total, unit: _noted(steps))
    assert sum(done for done, _ in steps[:4]) == 5 * 4 - 1  # int8 is not tested on one clip
    assert sum(found for _, found in steps[:4]) == 0

    def never(*_):
        raise AssertionError("made again")

    monkeypatch.setattr(cells, "_measure", never)
    assert measure(prepare(plan)) == first


class _noted:  # noqa: N801 - stands for a function
    def __init__(self, steps):
        self.steps = steps

    def __enter__(self):
        return lambda done, found: self.steps.append((done, found))

    def __exit__(self, *_):
        return None


def test_a_broken_cell_is_made_again_and_a_changed_clip_is_another(ground, tmp_path):
    folder = write_clips(tmp_path / "clips")
    plan = plan_of(
        ground, wanted=NoiseSelection(only=("stft=power-2",)), runs=tmp_path, data=open_clips(folder)
    )
    first = measure(prepare(plan))
    files = sorted((tmp_path / "cells").rglob("*.json"))
    assert len(files) == 8
    files[0].write_bytes(b"broken")
    assert measure(prepare(plan)) == first
    write_wav(folder / "wavs" / "c0.wav", hum(0.5, pitch=190.0))
    again = measure(prepare(dataclasses.replace(plan, data=open_clips(folder))))
    assert again != first
    assert len(list((tmp_path / "cells").rglob("*.json"))) == 10


@pytest.mark.slow
def test_two_processes_find_the_same(ground, tmp_path):
    alone = measure(prepare(plan_of(ground, runs=tmp_path / "a")))
    assert measure(prepare(plan_of(ground, runs=tmp_path / "b", jobs=2))) == alone


def test_calibration_on_other_texts_costs_no_clip(ground, tmp_path):
    others = open_clips(write_clips(tmp_path / "spare", ("go on.", "a road.", "wait here.")))
    made = measure(
        prepare(plan_of(ground, wanted=NoiseSelection(only=("precision=int8-mixed",)), calibration=others))
    )
    assert made.calibration == "2 texts of spare that are not tested on"
    assert made.rows[0].clips == 4


def test_nothing_is_tested_on_a_text_it_was_calibrated_on(ground, tmp_path):
    whole = open_clips(ground / "clips")
    one = dataclasses.replace(whole, clips=whole.clips[:1])
    row = {r.option: r for r in measure(prepare(plan_of(ground, data=one, runs=tmp_path))).rows}["int8-mixed"]
    assert row.outcome == "impossible"
    assert "8-bit integers need texts to calibrate on" in row.note
    said = [clip.text for clip in whole.clips]
    twice = tuple(dataclasses.replace(c, text=said[at // 2]) for at, c in enumerate(whole.clips))
    prepared = prepare(plan_of(ground, data=dataclasses.replace(whole, clips=twice), runs=tmp_path))
    assert len(prepared.reserved.without) == 2  # the one text is said in two clips
    assert len({clip.text for clip in twice if clip.name in prepared.reserved.without}) == 1
    assert "1 of the 2 texts" in prepared.reserved.words


def test_what_the_card_has_anyway_is_no_noise(ground):
    prepared = prepare(plan_of(ground, wanted=NoiseSelection(only=("stft=periodic-window", "stft=power-2"))))
    assert [one.option.name for one in prepared.candidates] == ["power-2"]
    with pytest.raises(DataError, match="already those of the card"):
        prepare(plan_of(ground, wanted=NoiseSelection(only=("stft=periodic-window",))))


def test_the_same_up_to_rounding_is_no_effect(ground):
    pytest.importorskip("scipy")
    only = ("stft=scipy", "stft=scipy-default", "stft=constant-padding")
    rows = measure(prepare(plan_of(ground, wanted=NoiseSelection(only=only)))).rows
    found = {row.option: row for row in rows}
    assert found["scipy"].outcome in ("no effect", "identical")
    assert found["constant-padding"].alike == "scipy-default"
    assert found["scipy-default"].heard.mean > 1e-6


def test_what_is_not_installed_is_a_row(ground, monkeypatch):
    monkeypatch.setattr("holdfast.core.extras.is_installed", lambda name: name != "torch")
    kept = ("stft=torch", "stft=power-2")
    skip = tuple(one.label for one in options() if one.label not in kept)
    made = measure(prepare(plan_of(ground, wanted=NoiseSelection(only=("stft",), skip=skip))))
    row = next(r for r in made.rows if r.option == "torch")
    assert row.outcome == "not installed"
    assert "pip install 'holdfast[speech]'" in row.note
    with pytest.raises(InputError, match="--only stft=torch: torch is not installed"):
        prepare(plan_of(ground, wanted=NoiseSelection(only=("stft=torch",))))


def test_words_that_mean_nothing_are_told(ground):
    with pytest.raises(
        UnknownName, match=r"unknown noise family or option of speech 'stfd'\. Did you mean 'stft'"
    ):
        select_options(NoiseSelection(only=("stfd",)))
    with pytest.raises(UnknownName, match="Did you mean 'symmetric-window'"):
        select_options(NoiseSelection(skip=("stft=symetric-window",)))
    with pytest.raises(InputError, match="exclude all"):
        select_options(NoiseSelection(only=("precision",), skip=("precision",)))


def test_the_defaults_hold_the_papers_precisions_and_all_settings():
    names = [one.label for one in select_options(NoiseSelection())]
    assert {"precision=fp16", "precision=int8-mixed", "precision=int8-dynamic", "stft=scipy-default"} <= set(
        names
    )
    assert [one.name for one in select_options(NoiseSelection(only=("precision=int8",)))] == ["int8-minmax"]
    assert "stft=scipy-unscaled" not in names
    assert "stft=scipy-unscaled" in [one.label for one in select_options(NoiseSelection(every=True))]
    assert "numpy" not in [one.name for one in options()]


def test_clips_that_fail_are_counted_and_all_of_them_an_error(ground, tmp_path):
    folder = write_clips(tmp_path / "clips")
    write_wav(folder / "wavs" / "c1.wav", hum(0.4), rate=16000)
    plan = plan_of(
        ground, wanted=NoiseSelection(only=("stft=power-2",)), runs=tmp_path, data=open_clips(folder)
    )
    made = measure(prepare(plan))
    assert made.clips == 3
    assert made.rows[0].clips == 3
    (failed,) = made.failed
    assert "got 16000" in failed
    with pytest.raises(DataError, match=r"c1 \(line 2\): .*got 16000"):
        measure(prepare(dataclasses.replace(plan, strict=True, runs=tmp_path / "strict")))
    for place in range(4):
        write_wav(folder / "wavs" / f"c{place}.wav", hum(0.4), channels=2)
    with pytest.raises(DataError, match=r"all 4 clips failed; first c0 \(line 1\): .*one channel, got 2"):
        measure(prepare(dataclasses.replace(plan, data=open_clips(folder))))


def test_a_model_that_never_stops_is_noted(ground, tmp_path):
    write_autoregressive(tmp_path, "endless", length=1e9)
    model = load_speech(tmp_path / "endless.onnx")
    plan = dataclasses.replace(plan_of(ground, wanted=NoiseSelection(only=("precision=fp16",))), model=model)
    made = measure(prepare(plan))
    (note,) = made.notes
    assert note.startswith("the clean model does not stop on 4 of 4 clips (c0, c1, c2)")
    assert note.endswith("ended at max_frames 60")
    assert made.rows[0].unstopped == 4


def test_an_operator_that_fails_on_every_clip_is_impossible(ground, tmp_path):
    pytest.importorskip("torch")
    path = write_parallel(tmp_path)
    card = path.with_suffix(".toml")
    card.write_text(card.read_text().replace("hop = 64", "hop = 64\ncentre = false"))
    plan = dataclasses.replace(
        plan_of(ground, wanted=NoiseSelection(only=("stft=torch",))), model=load_speech(path)
    )
    (row,) = measure(prepare(plan)).rows
    assert row.outcome == "impossible"
    assert row.note.startswith("every clip failed: torch.istft does not take back")


def test_changed_lengths_are_counted():
    from holdfast.noise.speech.run import _row
    from holdfast.noise.suite import Candidate

    option = next(o for o in options() if o.label == "precision=fp16")
    system = CLEAN.apply(option)
    found = {
        system: (
            ClipErrors("a", 10, 10, 0.1, 0.2, 0.3, 0.4),
            ClipErrors("b", 12, 10, 0.3, 0.4, 0.5, 0.6),
            ClipErrors("c", failed="no"),
        )
    }
    row = _row(Candidate(option, "measured", "", system), found)
    assert (row.longer, row.clips, row.failed) == (1, 2, 1)
    assert row.mel.mean == pytest.approx(0.2)


def test_a_suite_is_saved_and_opened(ground, tmp_path):
    made = SpeechSuite(
        "clips", (measure(prepare(plan_of(ground))),), "holdfast …", "now", 1.0, {"numpy": "2"}
    )
    folder = suite_folder(made, tmp_path)
    save(made, folder)
    assert open_suite(folder) == made
    with pytest.raises(InputError, match=r"expected the speech\.json of a noise run"):
        open_suite(tmp_path)


def test_the_estimate_runs_a_sample_and_keeps_nothing(ground, tmp_path):
    found = estimate(plan_of(ground, runs=tmp_path / "runs"))
    assert (found.items, found.variants, found.cells, found.missing, found.sample) == (4, 5, 19, 19, 2)
    assert found.seconds > 0
    assert not (tmp_path / "runs").exists()


def test_an_estimate_counts_what_is_left(ground, tmp_path):
    plan = plan_of(ground, wanted=NoiseSelection(only=("stft=power-2",)), runs=tmp_path)
    measure(prepare(plan))
    done = estimate(plan)
    assert (done.cells, done.missing, done.seconds, done.sample) == (8, 0, 0.0, 0)
    more = estimate(
        dataclasses.replace(plan, selection=NoiseSelection(only=("stft=power-2", "precision=fp16")))
    )
    assert (more.cells, more.missing) == (12, 4)


def test_texts_to_calibrate_on_are_spread_over_those_that_are_not_tested_on(ground, tmp_path):
    others = open_clips(write_clips(tmp_path / "more", [f"road {i}." for i in "abcdefgh"]))
    found = reserve(plan_of(ground, calibration=others, calibration_clips=2))
    assert found.items == ("road c.", "road g.")
    assert (found.words, found.without) == ("2 texts of more that are not tested on", frozenset())
    same = reserve(plan_of(ground, calibration=open_clips(ground / "clips")))
    assert "(clips has no others)" in same.words


def test_a_seeded_vocoder_is_another_system(ground):
    only = NoiseSelection(only=("stft=power-2",))
    seeded = measure(prepare(plan_of(ground, wanted=only, vocoder=Vocoder(iterations=3, seed=1))))
    plain = measure(prepare(plan_of(ground, wanted=only)))
    assert seeded.vocoder == "Griffin-Lim, 3 iterations, initial phase from seed 1"
    assert not np.isclose(seeded.copy.mean, plain.copy.mean)
