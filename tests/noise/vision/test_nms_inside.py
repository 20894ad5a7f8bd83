"""Models that select detections in their graph are measured by detections, not by shapes of a black image."""

import onnx
import pytest

from helpers import models as making
from helpers.nms_graphs import blobs_as
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model, write_guess
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.run import NoisePlan, measure, prepare


def declared(path, count):
    """Declare this number of detections, as an exporter writes those of its example image."""
    model = onnx.load(path)
    for output in model.graph.output:
        first = output.type.tensor_type.shape.dim[0]
        first.ClearField("dim_param")
        first.dim_value = count
    onnx.save(model, path)


@pytest.mark.parametrize("count", [0, 3], ids=["free", "declared"])
def test_a_graph_with_nms_inside_is_measured_by_its_detections(count, tmp_path):
    """Runtimes and precisions: the black image has no detection, the others have one or more."""
    path = blobs_as("torchvision", tmp_path / "net.onnx")
    if count:
        declared(path, count)
    write_guess(path)
    model = load_model(path)
    data = open_dataset(making.blob_coco(tmp_path / "blobs", 6, name="stop sign"))
    only = ("runtime=openvino", "precision=fp16", "precision=int8-minmax", "ceil")
    plan = EvaluationPlan(model, data, runs=tmp_path / "runs", jobs=1)
    suite = measure(prepare(NoisePlan(plan, NoiseSelection(only=only), replicates=20)))
    rows = {row.label: row for row in suite.rows}
    assert suite.clean > 0.9
    assert rows["runtime=openvino"].outcome in ("measured", "no effect")
    assert rows["runtime=openvino"].points_lost == pytest.approx(0, abs=0.1)
    assert rows["runtime=openvino"].failed == 0
    assert {rows[f"precision={n}"].outcome for n in ("fp16", "int8-minmax")} <= {"measured", "no effect"}
    assert rows["ceil=ceil"].outcome == "no effect"
