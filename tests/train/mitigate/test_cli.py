"""`holdfast train matrix` and `compare` from files to tables, in miniature."""

import json

import pytest

from helpers.classifiers import normalised_classifier
from helpers.models import detector, image_folder
from holdfast.core.errors import DataError, HoldfastError, InputError, UnknownName
from holdfast.train import cli
from holdfast.train.options import MatrixOptions, MitigateOptions


@pytest.fixture
def files(tmp_path):
    return str(normalised_classifier(tmp_path / "model")), str(image_folder(tmp_path / "data", 96, size=40))


def matrix(model, data, **options):
    return cli.matrix(MatrixOptions(model=model, data=data, **options))


def compare(model, data, **options):
    return cli.compare(MitigateOptions(model=model, data=data, **options))


def short(tmp_path):
    return {"steps": 2, "batch": 8, "work": tmp_path / "work"}


def test_matrix(files, tmp_path, capsys):
    names = ("pillow-bilinear", "opencv-nearest")
    out = tmp_path / "matrix.json"
    assert matrix(*files, with_=names, json=out, **short(tmp_path)) == 0
    shown = capsys.readouterr()
    assert "train \\ test" in shown.out
    assert "points lost against the best row" in shown.out
    assert "training 3 of 3 rows" in shown.err
    plain = json.loads(out.read_text())
    assert [line["train"] for line in plain["lines"]] == ["pillow-bilinear", "opencv-nearest", "mix"]
    assert (plain["images"], plain["trained_on"], plain["steps"]) == (24, 72, 2)
    assert matrix(*files, with_=names, csv=True, **short(tmp_path)) == 0  # nothing is trained again
    again = capsys.readouterr()
    assert "to be trained" not in again.err
    assert again.out.splitlines()[0].startswith("over,model,data,images")
    assert matrix(*files, with_=names, latex=True, **short(tmp_path)) == 0
    assert r"\begin{tabular}" in capsys.readouterr().out


def test_matrix_over_decoders_with_other_images_to_test_on(files, tmp_path, capsys):
    other = str(image_folder(tmp_path / "other", 20, seed=5, size=40))
    asked = {"over": "decode", "with_": ("pillow", "fast-idct"), "test": other, "markdown": True}
    assert matrix(*files, **asked, **short(tmp_path)) == 0
    assert "on 20 images of other" in capsys.readouterr().out


def test_compare(files, tmp_path, capsys):
    out = tmp_path / "compare.json"
    asked = {"with_": ("standard", "mix"), "only": ("colour",), "json": out}
    assert compare(*files, **asked, **short(tmp_path), out=tmp_path / "fig4.html") == 0
    page = (tmp_path / "fig4.html").read_text()
    for word in ("<svg", "Noise after each mitigation", "Worst option of each noise family"):
        assert word in page
    text = capsys.readouterr().out
    assert "trained with" in text
    assert "Colour mode" in text
    assert [one["model"] for one in json.loads(out.read_text())["models"]] == ["standard", "mix"]


def test_one_clear_line(files, tmp_path):
    with pytest.raises(DataError, match="test images of data are also in the training data data"):
        matrix(*files, test=files[1], **short(tmp_path))
    with pytest.raises(UnknownName, match="pillow-bilinear"):
        matrix(*files, with_=("pillow-bilinaer", "pillow-box"), **short(tmp_path))
    with pytest.raises(UnknownName, match="augmix"):
        compare(*files, with_=("augmax",), **short(tmp_path))
    with pytest.raises(UnknownName, match="decode"):
        compare(*files, only=("decod",), **short(tmp_path))
    with pytest.raises(InputError, match="not several"):
        matrix(*files, csv=True, latex=True)
    with pytest.raises(HoldfastError, match="expected a classifier, got a model with the task"):
        matrix(str(detector(tmp_path)), files[1], **short(tmp_path))
