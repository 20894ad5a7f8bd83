"""An experiment as a table and a page: what is missing, what failed, what is dangerous in names."""

from pathlib import Path

import pytest

from holdfast.audit.gates import GateVerdict, gate_of
from holdfast.core.errors import OutputError
from holdfast.experiment.page import gates_table, page, plan_table, results, verdict, write
from holdfast.experiment.plan import Condition, DatasetEntry, Experiment, ModelEntry
from holdfast.experiment.result import ExperimentResult, TrialResult
from holdfast.report.tables import to_csv, to_text

GATE = gate_of("clean.map50 < 0.5")
LINES = (
    TrialResult(
        "net", "scenes", "clean", "evaluate", metric="AP", value=0.5, images=9, page="/r/pages/a b&c.html"
    ),
    TrialResult(
        "net", "scenes", "<b>phone", "evaluate", metric="AP", value=0.4, points_lost=10.0, low=-1.0, high=20.0
    ),
    TrialResult("net", "", "verify: p", "verify", metric="holds"),
    TrialResult("bad", "scenes", "clean", "evaluate", "failed", notes="it does not fit"),
    TrialResult("net", "scenes", "all", "audit", value=0.3, gates=(GateVerdict(GATE, 0.3, True, "why"),)),
)


@pytest.fixture
def found():
    models = (ModelEntry(path="net.onnx", name="net"), ModelEntry(path="bad.onnx", name="bad"))
    experiment = Experiment(
        file=Path("exp.toml"),
        models=models,
        data=(DatasetEntry(path="s", name="scenes"),),
        conditions=(Condition(do="evaluate", name="clean"),),
    )
    return ExperimentResult(experiment, LINES, 5, "2026-01-01T00:00:00+00:00", 12.0, "holdfast run exp.toml")


def test_a_line_of_the_table_says_metric_difference_and_interval():
    rows = to_text(results(LINES)).splitlines()
    assert rows[3].split("  ")[0] == "net"
    assert "10.00  [-1.00, 20.00]" in rows[3]
    assert "–" in rows[4]
    assert "failed" in rows[5]
    assert "it does not fit" in rows[5]
    assert to_csv(results(LINES)).splitlines()[1].startswith("net,scenes,clean,AP,0.5,,,9")


def test_the_verdict_names_failures_losses_and_gates(found):
    said = verdict(found)
    assert "5 of 5 trials were run; 1 failed" in said
    assert "largest loss: net on scenes: <b>phone, 10.00 points of AP" in said
    assert "Gates: 1 failed." in said


def test_the_page_escapes_names_and_links_relative(found):
    text = page(found, Path("/r/report.html"))
    assert 'href="pages/a%20b%26c.html"' in text
    assert "<b>phone" not in text
    assert "&lt;b&gt;phone" in text
    assert 'href="../r/pages/a%20b%26c.html"' in page(found, Path("/elsewhere/page.html"))
    assert "1 gate failed" in text
    assert "1 trial failed" in text


def test_the_page_is_never_a_folder(found, tmp_path):
    with pytest.raises(OutputError, match="is a folder"):
        write(found, tmp_path)
    assert write(found, tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_the_other_tables():
    assert "would fail: it does not fit" in to_text(plan_table(LINES))
    assert "clean.map50 < 0.5" in to_text(gates_table(LINES))
