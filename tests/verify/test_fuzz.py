"""The fuzzer of the verifier: it finds no wrong proof, and it finds one where there is one."""

import dataclasses

import numpy as np
import pytest

import fuzz_verify
from holdfast.verify import falsify, run
from holdfast.verify.problem import EngineResult, VerificationProblem

NUMBERS = [0, 6, 9, 23, 39]


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Undo what the fuzzer changes in this process."""
    monkeypatch.setattr(VerificationProblem, "violates", None, raising=False)
    monkeypatch.setattr(falsify, "falsify", falsify.falsify)


@pytest.mark.parametrize("number", NUMBERS)
def test_no_proof_of_what_an_input_violates(number, tmp_path):
    outcome = fuzz_verify.tried(number, 0.3, tmp_path)
    assert outcome.attained != "not run"
    assert outcome.wrong == ""
    assert not list(tmp_path.iterdir())


def test_most_properties_that_hold_are_proven(tmp_path):
    found = [fuzz_verify.tried(number, 30.0, tmp_path).below for number in (1, 2, 3)]
    assert found.count("holds") >= 2


@pytest.mark.parametrize("real_only", [False, True])
def test_a_verifier_without_rounding_and_search_is_caught(monkeypatch, tmp_path, real_only):
    def careless(*_arguments):
        return EngineResult("holds", "careless", real_only=real_only)

    monkeypatch.setattr(run, "_search", careless)
    monkeypatch.setattr(fuzz_verify.Question, "attained_exactly", lambda _question: True)
    outcome = fuzz_verify.tried(0, 0.3, tmp_path)
    assert "careless proves what an input violates" in outcome.wrong
    assert {path.name for path in tmp_path.iterdir()} == {"0.onnx", "0.npz"}


@pytest.mark.parametrize(("above", "attained"), [(1.0, True), (-1.0, False)])
def test_a_threshold_that_only_rounding_attains_is_told_apart(above, attained):
    asked = fuzz_verify.question(np.random.default_rng([0, 25]), "Abs")
    assert dataclasses.replace(asked, lowest=asked.lowest + above).attained_exactly() is attained
