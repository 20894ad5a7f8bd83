"""An audit as JUnit XML, read back by a parser."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audit import sample_audit
from holdfast.audit.ci import junit
from holdfast.audit.gates import gate_of, judge
from holdfast.audit.result import Audit, Part

GATES = [gate_of(t) for t in ("noise.map50.points_lost > 1", "clean.map50 < 0.5", "attack.300px.Se > 0.5")]


def suite_of(audit: Audit, gates=GATES) -> ET.Element:
    whole = ET.fromstring(junit(audit, judge(gates, audit)).encode())  # noqa: S314 - it is our own
    assert whole.tag == "testsuites"
    (suite,) = whole
    return suite


def test_one_testcase_a_gate() -> None:
    suite = suite_of(sample_audit())
    assert suite.get("name") == "holdfast audit net on scenes"
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped", "time")}
    assert counts == {"tests": "3", "failures": "2", "errors": "0", "skipped": "0", "time": "101.500"}
    assert suite.get("timestamp") == "2026-01-02T03:04:05"
    cases = suite.findall("testcase")
    assert [c.get("name") for c in cases] == [g.text for g in GATES]
    assert [c.get("classname") for c in cases] == ["holdfast.noise", "holdfast.clean", "holdfast.attack"]
    assert [c.find("failure") is not None for c in cases] == [True, False, True]
    assert "passed, lower end 0.88 of 0.91" in cases[1].findtext("system-out", "")


def test_a_failure_says_what_was_got_and_how_to_get_it_again() -> None:
    first, _, last = (case.find("failure") for case in suite_of(sample_audit()).findall("testcase"))
    assert first is not None
    assert last is not None
    assert first.get("message") == (
        "noise.map50.points_lost > 1: failed, lower end 2 of 5 (n = 40; resize=opencv-nearest)"
    )  # fmt: skip
    assert "reproduce: holdfast noise net.onnx scenes --only resize=opencv-nearest" in (first.text or "")
    assert first.get("type") == "gate"
    assert last.get("type") == "not measured"
    assert "the attack ran only with 100px, 1000px" in (last.get("message") or "")
    assert f"reproduce: {sample_audit().command}" in (last.text or "")


def test_a_gate_that_is_not_decided_is_skipped() -> None:
    suite = suite_of(sample_audit(), [gate_of("attack.1000px.Se > 0.5")])
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    skipped = suite.find("testcase/skipped")
    assert skipped is not None
    assert "not decided: n = 8 < 20 (--min-images)" in skipped.get("message", "")


def test_without_gates_the_parts_are_listed_and_nothing_is_judged() -> None:
    left = Part("specs", 0, 40, 0.0, 0.0, 'no <specification> was "given"')
    audit = replace(sample_audit(), parts=(*sample_audit().parts, left, Part("matrix", 0, 40, 3.0, 3.0)))
    suite = suite_of(audit, [])
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "0", "1")
    cases = {c.get("name"): c for c in suite.findall("testcase")}
    assert list(cases) == ["evaluate", "noise", "attack", "specs", "matrix"]
    assert {c.get("classname") for c in cases.values()} == {"holdfast.audit"}
    skipped = cases["specs"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == left.skipped
    said = cases["attack"].findtext("system-out", "")  # ran, if on fewer
    assert said.startswith("ran on 8 of 40 images; skipped: 32 of 40 images")
    assert cases["matrix"].findtext("system-out") == "ran"
    assert cases["evaluate"].get("time") == "2.000"


def test_model_notes_and_failed_images_are_told() -> None:
    suite = suite_of(replace(sample_audit(), failed=("a.jpg: truncated", "b.jpg: empty")))
    properties = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert properties["model"] == "net.onnx"
    assert properties["model.sha256"] == "ab" * 32
    assert properties["command"] == sample_audit().command
    assert suite.findtext("system-err") == "failed image: a.jpg: truncated\nfailed image: b.jpg: empty"
    assert "calibrated" in suite.findtext("system-out", "")
    tags = list(dict.fromkeys(e.tag for e in suite))
    assert tags == ["properties", "testcase", "system-out", "system-err"]  # the schema's order


@pytest.mark.parametrize("created", ["", "yesterday"])
def test_no_time_is_no_timestamp(created: str) -> None:
    assert suite_of(replace(sample_audit(), created=created)).get("timestamp") is None


def test_times_are_in_utc() -> None:
    audit = replace(sample_audit(), created="2026-01-02T03:04:05.678+05:30")
    assert suite_of(audit).get("timestamp") == "2026-01-01T21:34:05"


def test_names_are_escaped_and_control_characters_replaced() -> None:
    name = "a<b>&\"c'\x00\x1b[31m\ud800\ufffe]]>"
    audit = sample_audit()
    nasty = replace(audit, model={**audit.model, "name": name}, notes=(name,), command=f"holdfast {name}")
    suite = suite_of(nasty)
    legal = "a<b>&\"c'��[31m��]]>"
    assert suite.get("name") == f"holdfast audit {legal} on scenes"
    assert suite.findtext("system-out") == legal


@settings(max_examples=30, deadline=None)
@given(st.text())
def test_whatever_a_model_is_called_the_file_is_xml(name: str) -> None:
    audit = sample_audit()
    nasty = replace(audit, model={"name": name, "path": name}, failed=(name,), notes=(name,), command=name)
    assert len(suite_of(nasty).findall("testcase")) == 3
