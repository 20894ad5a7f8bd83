"""An audit as SARIF, checked by what the schema of 2.1.0 and code scanning require."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audit import sample_audit
from holdfast.audit.ci import KINDS, findings, model_uri, sarif
from holdfast.audit.gates import gate_of, judge
from holdfast.audit.result import Audit, Matrix, MatrixCell, Proof, Recheck

ROOT = Path("/repo")
GATES = [
    gate_of(text)
    for text in (
        "noise.map50.points_lost > 1", "noise.resize.map50.points_lost.point > 2",
        "noise.precision.map50.points_lost.high > 2",
        "clean.map50 < 0.5", "attack.300px.Se > 0.5",
    )
]  # fmt: skip


# What the schema allows in each object, of which it forbids all others; and what it requires.
ALLOWED = {
    "run": "tool invocations columnKind results properties",
    "driver": "name version rules",
    "rule": "id shortDescription fullDescription help defaultConfiguration",
    "result": "ruleId ruleIndex level message locations partialFingerprints properties",
    "place": "physicalLocation",
    "physical": "artifactLocation region",
    "region": "startLine startColumn endLine endColumn",
    "call": "executionSuccessful commandLine toolExecutionNotifications",
    "notification": "level message",
}


def closed(kind: str, one: dict[str, Any]) -> None:
    assert set(one) <= set(ALLOWED[kind].split()), kind


def checked(audit: Audit, gates=GATES) -> dict[str, Any]:
    """The only run of the log, after the checks every log must pass."""
    log = json.loads(sarif(audit, judge(gates, audit), ROOT))
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    assert log["$schema"].startswith("https://")
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    closed("run", run)
    closed("driver", driver)
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    assert driver["name"] == "holdfast"
    rules = driver["rules"]
    assert len({r["id"] for r in rules}) == len(rules)
    for rule in rules:
        closed("rule", rule)
        assert all(rule[key]["text"] for key in ("shortDescription", "fullDescription", "help"))
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    for result in run["results"]:
        closed("result", result)
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
        (place,) = result["locations"]
        closed("place", place)
        closed("physical", place["physicalLocation"])
        uri = place["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"(?:[A-Za-z0-9._~/:-]|%[0-9A-F]{2})*", uri), uri
        region = place["physicalLocation"]["region"]
        closed("region", region)
        assert 1 <= region["startLine"] <= region["endLine"]
        assert 1 <= region["startColumn"] <= region["endColumn"]
    for call in run["invocations"]:
        closed("call", call)
        assert call["executionSuccessful"] is True
        for told in call["toolExecutionNotifications"]:
            closed("notification", told)
            assert told["message"]["text"]
            assert told["level"] in ("none", "note", "warning", "error")
    return run


def of_rule(run: dict[str, Any], rule: str) -> list[dict[str, Any]]:
    return [r for r in run["results"] if r["ruleId"] == rule]


def test_failed_gates_are_errors_under_the_rule_of_their_pattern() -> None:
    run = checked(sample_audit())
    errors = [r for r in run["results"] if r["level"] == "error"]
    assert [r["ruleId"] for r in errors] == [
        "gate/noise.METRIC.points_lost", "gate/noise.FAMILY.METRIC.points_lost",
        "gate/noise.FAMILY.METRIC.points_lost",
        "gate/attack.BUDGET.Se",
    ]  # fmt: skip
    first, second, third, last = errors
    ends = [[row["properties"][key] for key in ("value", "end", "point")] for row in (first, second, third)]
    assert ends == [[2.0, "low", 5.0], [5.0, "point", 5.0], [3.0, "high", 1.0]]
    assert first["properties"]["bound"] == 1.0
    assert first["properties"]["command"] == "holdfast noise net.onnx scenes --only resize=opencv-nearest"
    assert first["properties"]["command"] in first["message"]["text"]
    assert "lower end 2 of 5 (n = 40; resize=opencv-nearest)" in first["message"]["text"]
    assert "measured 5 (n = 40; resize=opencv-nearest)" in second["message"]["text"]
    assert second["properties"]["command"] == first["properties"]["command"]
    assert last["properties"]["value"] is None
    assert "not measured" in last["message"]["text"]
    rules = [r["id"] for r in run["tool"]["driver"]["rules"]]
    assert rules == [
        "gate/noise.METRIC.points_lost", "gate/noise.FAMILY.METRIC.points_lost", "gate/clean.METRIC",
        "gate/attack.BUDGET.Se", *KINDS,
    ]  # fmt: skip


def test_a_gate_that_is_not_decided_is_a_note() -> None:
    run = checked(sample_audit(), [gate_of("attack.1000px.Se > 0.5")])
    assert not [r for r in run["results"] if r["level"] == "error"]
    (row,) = of_rule(run, "gate/attack.BUDGET.Se")
    assert row["level"] == "note"
    assert "not decided: n = 8 < 20 (--min-images)" in row["message"]["text"]
    assert row["properties"]["images"] == 8


def test_a_finding_of_few_images_is_a_note() -> None:
    run = checked(sample_audit(), [])
    levels = {r["level"] for rule in ("attack", "square") for r in of_rule(run, rule)}
    assert levels == {"note"}
    assert all("Indication only (n = 8)." in r["message"]["text"] for r in of_rule(run, "attack"))
    assert {r["level"] for r in of_rule(run, "noise")} == {"warning"}  # of 40 images


def test_findings_are_there_without_gates() -> None:
    run = checked(sample_audit(), [])
    assert not [r for r in run["results"] if r["level"] == "error"]
    noise = [r["message"]["text"] for r in of_rule(run, "noise")]
    assert len(noise) == 2  # precision=int8 is not clear, identical ones are none
    assert noise[0].startswith(
        "resize=opencv-nearest: mAP@.5, 5.00 points lost (95% interval 2.00 to 8.00, n = 40)"
    )
    assert "resize=opencv-nearest + precision=int8" in noise[1]
    attack = of_rule(run, "attack")
    assert [r["properties"]["pixels"] for r in attack] == [100, 1000]
    assert "hide every detected object in 7 of 8 images" in attack[1]["message"]["text"]
    (square,) = of_rule(run, "square")
    assert "3 of 8 images: scene-0.jpg, scene-1.jpg, scene-2.jpg" in square["message"]["text"]
    assert "column 12, row 40" in square["message"]["text"]
    (recheck,) = of_rule(run, "recheck")
    assert "holds for the training pipeline, violated under precision=int8" in recheck["message"]["text"]
    assert recheck["level"] == "warning"


def test_the_other_kinds_of_findings() -> None:
    sample = sample_audit()
    audit = replace(
        sample,
        proofs=(
            Proof("a.vnnlib", "", "violated", "falsify", 1.0),
            Proof("b.vnnlib", "", "holds", "bounds", 1.0),
        ),
        rechecks=tuple(
            Recheck("square", f"{n}.jpg", "runtime=ncnn", "violated", "holds", 9) for n in range(14)
        ),
        matrix=replace(
            sample.matrix, cells=(MatrixCell("300px", "colour=nv12", 0.2, 8, 5, 5, 20.0, 10.0, 30.0),)
        ),
    )
    run = checked(audit, [])
    assert [r["properties"].get("extra_points_lost") for r in of_rule(run, "matrix")] == [20.0]
    (spec,) = of_rule(run, "spec")
    assert spec["message"]["text"].startswith("Specification a.vnnlib is violated (engine falsify).")
    assert not of_rule(run, "square")
    (recheck,) = of_rule(run, "recheck")  # one for all images
    assert recheck["level"] == "note"
    assert "(14×)" in recheck["message"]["text"]
    assert "and 4 more" in recheck["message"]["text"]


def test_an_audit_without_anything_found_has_no_results() -> None:
    nothing = dict.fromkeys(("noises", "attacks", "proofs", "rechecks"), ())
    audit = replace(sample_audit(), **nothing, combined=None, matrix=Matrix())
    assert findings(audit) == ()
    assert checked(audit, [])["results"] == []


def test_results_can_be_told_apart_and_found_again() -> None:
    first, second = (checked(sample_audit())["results"] for _ in range(2))
    prints = [r["partialFingerprints"]["primaryLocationLineHash"] for r in first]
    assert len(set(prints)) == len(prints)
    assert first == second
    moved = replace(sample_audit(), clean=replace(sample_audit().clean, value=0.5))
    again = checked(moved, GATES[:3])["results"]
    assert prints[0] == again[0]["partialFingerprints"]["primaryLocationLineHash"]


def test_what_was_left_out_and_what_failed_is_told() -> None:
    run = checked(replace(sample_audit(), failed=("a.jpg: truncated",)))
    (call,) = run["invocations"]
    assert call["commandLine"] == sample_audit().command
    told = [(n["level"], n["message"]["text"]) for n in call["toolExecutionNotifications"]]
    assert told[0][1].startswith("attack: skipped: 32 of 40 images")
    assert told[1] == ("warning", "failed image: a.jpg: truncated")


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("models/net.onnx", "models/net.onnx"),
        ("./models/net.onnx", "models/net.onnx"),
        ("/repo/models/net 1.onnx", "models/net%201.onnx"),
        ("/repository/net.onnx", "file:///repository/net.onnx"),
        ("/else/a b#.onnx", "file:///else/a%20b%23.onnx"),
        ("a:b?c#d%.onnx", "a%3Ab%3Fc%23d%25.onnx"),
        ("größe.onnx", "gr%C3%B6%C3%9Fe.onnx"),
        ("signs-plain", "signs-plain"),
    ],
)
def test_paths_become_uris(path: str, uri: str) -> None:
    assert model_uri(path, ROOT) == uri


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_whatever_a_model_is_called_the_log_is_valid(name: str) -> None:
    audit = sample_audit()
    nasty = replace(audit, model={"name": name, "path": f"x/{name}"}, failed=(name,), command=name)
    run = checked(nasty)
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert urlsplit(uri).scheme == ""
    assert Path(unquote(uri)) == Path(f"x/{name}")


def test_a_file_name_that_is_no_utf8() -> None:
    name = b"net-\xe9.onnx".decode("utf-8", "surrogateescape")
    run = checked(replace(sample_audit(), model={"name": name, "path": name}, failed=(name,), command=name))
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "net-%E9.onnx"
    assert model_uri(f"/else/{name}", ROOT) == "file:///else/net-%E9.onnx"
