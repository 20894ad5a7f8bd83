import json
import re

import pytest

from holdfast.core.errors import CardError, ModelError, UnknownName
from holdfast.graph import load
from holdfast.graph.load import describe, load_model, shipped

CARD = """
task = "classify"
classes = {classes}
[input]
size = [{size}]
layout = "{layout}"
dtype = "{dtype}"
[head]
name = "classifier"
"""


def write_card(path, classes=10, size="64, 64", layout="nchw", dtype="float32"):
    path.write_text(CARD.format(classes=classes, size=size, layout=layout, dtype=dtype), encoding="utf-8")
    return path


def test_a_model_with_its_card_beside_it(make_net, tmp_path):
    path = make_net({"p": (1, 10)})
    write_card(tmp_path / "net.toml")
    model = load_model(path)
    assert (model.name, model.path, model.guessed) == ("net", path, ())
    assert len(model.sha256) == 64
    assert model.read() == path.read_bytes()
    assert load_model(str(path)) == model


def test_a_card_given_wins_and_without_one_the_graph_is_guessed(make_net, tmp_path):
    path = make_net({"p": (1, 10)})
    assert load_model(path).guessed
    write_card(tmp_path / "net.toml", classes=7)
    other = write_card(tmp_path / "other.toml")
    assert len(load_model(path, other).card.classes) == 10


@pytest.mark.parametrize(
    ("card", "told"),
    [
        (
            {"classes": 7},
            "head 'classifier': output 'p' (1, 10): expected one score for each of the card's 7 classes",
        ),
        (
            {"size": "64, 32"},
            "the card describes an input (1, 3, 32, 64) (nchw, 64×32), the model takes image float32",
        ),
        ({"layout": "nhwc"}, "the card describes an input (1, 64, 64, 3) (nhwc, 64×64), the model takes"),
        ({"dtype": "uint8"}, "the card describes an input of type uint8, the model takes image float32"),
    ],
)
def test_a_card_that_does_not_fit_is_told_on_loading(make_net, tmp_path, card, told):
    path = make_net({"p": (1, 10)})
    write_card(tmp_path / "net.toml", **card)
    with pytest.raises(CardError, match=re.escape(told)) as caught:
        load_model(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_shipped_models_by_name(make_net, tmp_path, monkeypatch):
    write_card(tmp_path / "signs-class.toml")
    make_net({"p": (1, 10)}, name="signs-class.onnx")
    monkeypatch.setattr(load, "_shipped_folder", lambda: tmp_path)
    assert shipped() == ["signs-class"]
    assert load_model("signs-class").name == "signs-class"
    with pytest.raises(UnknownName, match=r"unknown model 'sings-class'. Did you mean 'signs-class'\?"):
        load_model("sings-class")
    with pytest.raises(
        ModelError, match=r"no such model file; give the path of an .onnx file or one of signs-class"
    ):
        load_model("sings-class.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)


def test_a_file_in_the_way_of_a_name_is_a_path(make_net, tmp_path, monkeypatch):
    make_net({"p": (1, 10)}, name="net")
    monkeypatch.chdir(tmp_path)
    assert load_model("net").card.head.name == "classifier"


def test_a_model_described(make_net):
    facts = describe(make_net({"p": (1, 10)}))
    told = facts.text()
    assert re.search(r"^head +classifier$", told, re.M)
    assert re.search(r"^guessed +head: classifier, because one output 'p'", told, re.M)
    assert json.loads(json.dumps(facts.to_dict()))["card"]["task"] == "classify"


def test_a_model_no_card_fits_is_still_described(make_net):
    facts = describe(make_net({"p": (1, 7, 7, 7, 7)}))
    assert facts.card is None
    assert re.search(r"^problem +.*no known head fits", facts.text(), re.M)
    assert facts.to_dict()["card"] is None
