"""What each family of noise costs after each mitigation, in miniature; and the starting weights."""

import onnx
import pytest

from helpers.classifiers import normalised_classifier
from helpers.models import image_folder
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.report.tables import to_csv, to_text
from holdfast.train.mitigate.matrix import families
from holdfast.train.mitigate.rows import held_out, mitigations
from holdfast.train.mitigate.training import Training, train, training_jobs
from holdfast.train.onnx import open_trainable
from holdfast.train.tables import families_csv, families_table
from models.signs.start import NETS, start


def quiet(text):
    return None


def test_a_miniature(tmp_path):
    model = load_model(normalised_classifier(tmp_path / "model"))
    seen, tested = held_out(open_dataset(image_folder(tmp_path / "data", 96, size=40)), 4)
    training = Training(model, seen, tmp_path / "work", steps=2, batch=8, rate=1e-3)
    rows = mitigations(model)
    models = train(training, training_jobs(rows, (0,)), quiet)
    assert len({found.sha256 for found in models.values()}) == 8  # each is trained in its own way
    kept = {order: found for order, found in models.items() if order.row.name in ("standard", "adversarial")}
    trial = (tested, tmp_path / "runs", ("decode", "colour"))
    found = families(training, kept, *trial)
    assert [one.model for one in found.models] == ["standard", "adversarial"]
    assert {row.family for row in found.models[0].rows} == {"decode", "colour"}
    assert families(training, kept, *trial) == found
    text = to_text(families_table(found, "bn"))
    assert "Fig. 4" in text
    assert "Decode" in text
    head, *body = to_csv(families_csv(found, "bn")).splitlines()
    assert len(body) == 2
    assert dict(zip(head.split(","), body[0].split(","), strict=True))["trained_with"] == "standard"


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_starting_weights_keep_their_normalisation(name, tmp_path):
    model = start(name, tmp_path, 0, quiet, steps=2, pictures=80, jobs=1)
    nodes = [node.op_type for node in onnx.load(str(model.path)).graph.node]
    assert nodes.count("BatchNormalization") == nodes.count("Conv") > 5
    net = open_trainable(model.path)
    assert len(net.normalisations) == nodes.count("Conv")
    names = [one.scale for one in net.normalisations]
    assert len(set(names)) == len(names)  # equal numbers were not made one weight
    assert load_model(model.path).card == model.card
    machine = load_pipeline(pipeline_of(model.card), model, 1)
    data = open_dataset("far:0:1").entries[0].load().data
    assert len(machine.predict(machine.prepare(data)).values) == 20
    again = start(name, tmp_path, 0, pytest.fail, steps=2, pictures=80, jobs=1)
    assert again == model  # made once
    other = start(name, tmp_path, 0, quiet, steps=3, pictures=80, jobs=1)
    assert other.sha256 != model.sha256  # a miniature's weights are not taken for others
