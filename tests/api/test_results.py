"""Results: short in text, plain as dictionaries, tables for pandas, files, and HTML in a notebook."""

import csv
import json
import sys
import types
from pathlib import Path

import pytest

import holdfast as hf
from helpers.frames import assert_is_frame
from holdfast.core.errors import HoldfastError, InputError, OutputError
from holdfast.core.property import Verdict


@pytest.fixture(scope="module")
def results(model, data, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("results"))
        before = hf.evaluate(model, data)
        after = hf.evaluate(model.deployed(resize="opencv-nearest"), data)
        yield {
            "evaluation": before,
            "suite": hf.noise(model, data, only=["resize=opencv-nearest"]),
            "diagnosis": hf.diagnose(model.deployed(resize="opencv-nearest"), data),
            "outcome": hf.attack(
                model, data[3], pixels=50, steps=2, shrink=False, features="none", page=False
            ),
            "audit": hf.audit(model, data, budget="none", only=["evaluate"]),
            "comparison": hf.compare(before, after),
            "verdict": Verdict("holds", "sweep", 0.5, bound=0.1),
        }


KINDS = ("evaluation", "suite", "diagnosis", "outcome", "audit", "comparison", "verdict")


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_short_in_text_and_shows_itself_in_a_notebook(results, kind):
    result = results[kind]
    assert repr(result).startswith(f"<{type(result).__name__} ")
    assert len(repr(result)) < 400
    assert "<table" in result._repr_html_() or "<iframe" in result._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_saved_by_the_ending_of_the_path(results, kind, tmp_path):
    result = results[kind]
    page, values, rows = (result.save(tmp_path / "in" / f"a.{end}") for end in ("html", "json", "csv"))
    assert page.read_text().lower().startswith("<!doctype html>")
    assert isinstance(json.loads(values.read_text()), dict)
    assert len(list(csv.DictReader(rows.read_text().splitlines()))) == len(result._rows())
    with pytest.raises(InputError, match=r"ends in .html, .json or .csv"):
        result.save(tmp_path / "a.txt")


def test_a_file_that_cannot_be_written_is_an_output_error(results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        results["verdict"].save(tmp_path / "file" / "a.json")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_becomes_a_data_frame(results, kind):
    assert_is_frame(results[kind].to_pandas(), results[kind]._rows())


def test_a_missing_package_is_named_with_its_pip_line(results, monkeypatch):
    for name in ("pandas", "fiftyone"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(HoldfastError, match=r"^to_pandas\(\) needs pandas.*: pip install pandas$"):
        results["suite"].to_pandas()
    with pytest.raises(HoldfastError, match=r"^to_fiftyone\(\) needs fiftyone.*: pip install fiftyone$"):
        results["evaluation"].to_fiftyone()


def fiftyone():
    """A stand-in: labels and samples are what they were given."""
    made = types.SimpleNamespace(samples=[])
    record = lambda **given: given  # noqa: E731
    dataset = types.SimpleNamespace(add_samples=made.samples.extend, samples=made.samples)
    names = dict.fromkeys(("Sample", "Detection", "Detections", "Classification"), record)
    return types.SimpleNamespace(Dataset=lambda: dataset, **names)


def test_an_evaluation_becomes_a_fiftyone_dataset(results, data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fiftyone", fiftyone())
    sample = results["evaluation"].to_fiftyone(tmp_path / "media").samples[3]
    truth = sample["ground_truth"]["detections"]
    assert tuple(one["label"] for one in truth) == data[3].labels
    assert all(0 <= side <= 1 for one in truth for side in one["bounding_box"])
    assert "confidence" in sample["predictions"]["detections"][0]
    assert Path(sample["filepath"]).read_bytes() == data[3].data
    with pytest.raises(InputError, match="give a folder to write them to"):
        results["evaluation"].to_fiftyone()


def test_numbers_of_an_evaluation_have_names(results, data):
    res = results["evaluation"]
    assert (res.metric, res.images, res.top1, res.miou) == ("AP", len(data), None, None)
    assert res.map == res.metrics["AP"] == res.value
    assert res.map50 == res.metrics["AP50"]
    assert sum(row["true_positives"] for row in res.per_image) == res.result["at_score"]["tp"]


def test_an_option_of_a_suite_is_found_by_its_label(results):
    suite = results["suite"]
    assert suite.row("resize=opencv-nearest") == suite.worst
    assert suite.worst.points_lost == suite.worst.loss
    with pytest.raises(InputError, match="Did you mean 'resize=opencv-nearest'"):
        suite.row("resize=opencv-neares")


def test_a_saved_run_is_opened_again(results):
    for kind in ("evaluation", "suite", "audit"):
        assert hf.open_run(results[kind].folder).to_dict() == results[kind].to_dict()
