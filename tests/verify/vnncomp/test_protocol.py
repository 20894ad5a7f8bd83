import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError, UnknownName
from holdfast.verify.vnncomp.protocol import (
    STATUSES,
    Counterexample,
    counterexample_text,
    protocol_named,
    read_counterexample,
    result_text,
    status_of,
)

TEXT = counterexample_text(Counterexample(np.array([0.1, -2.0]), np.array([1e-7])))


@pytest.mark.parametrize(
    ("protocol", "status", "text"),
    [
        ("document", "holds", "unsat 1.500\n"),
        ("document", "violated", "sat 1.500\n"),
        ("document", "timeout", "timeout 1.500\n"),
        ("document", "unknown", "unknown 1.500\n"),
        ("document", "error", "error 1.500\n"),
        ("2021", "holds", "holds\n"),
        ("2021", "violated", "violated\n"),
        ("2021", "error", "error\n"),
        ("2022", "holds", "unsat\n"),
        ("2022", "timeout", "timeout\n"),
        ("2022", "violated", "sat\n((X_0 0.1)\n(X_1 -2.0)\n(Y_0 1e-07))\n"),
    ],
)
def test_each_protocol_has_its_words(protocol, status, text):
    assert result_text(protocol, status, 1.5, TEXT if status == "violated" else "") == text


def test_a_violation_that_cannot_be_shown_is_not_claimed():
    for witness in ("", "((X_0 1)", "((X_1 1))", "((X_0 one))"):
        assert result_text("2022", "violated", 1.0, witness) == "unknown\n"
    assert result_text("2021", "violated", 1.0) == "violated\n"


@given(st.sampled_from(STATUSES), st.sampled_from(["document", "2021", "2022"]))
def test_every_result_is_read_back(status, protocol):
    word = result_text(protocol, status, 2.0, TEXT).split()[0]
    assert status_of(word) == status


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("UNSAT", "holds"),
        (" sat ", "violated"),
        ("run_instance_timeout", "timeout"),
        ("prepare_instance_timeout", "timeout"),
        ("prepare_instance_error_1", "unknown"),
        ("no_result_in_file", "unknown"),
        ("error_exit_code_137", "error"),
        ("error_nonmaximal", "unknown"),
        ("timeout(X_00", "timeout"),
        ("", "unknown"),
        ("banana", None),
    ],
)
def test_words_of_the_official_tables(word, status):
    assert status_of(word) == status


values = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=6)


@given(values, values)
def test_a_counterexample_is_read_back_to_the_last_digit(x, y):
    found = Counterexample(np.array(x, np.float64), np.array(y, np.float64))
    again = read_counterexample("sat\n" + counterexample_text(found))
    assert again.inputs.tolist() == x
    assert again.outputs.tolist() == y


def test_spaces_and_order_are_free():
    found = read_counterexample(" ( ( Y_0  2 )(X_1 -1e3)\n\n(X_0\t.5) )\n")
    assert found.inputs.tolist() == [0.5, -1000.0]
    assert found.outputs.tolist() == [2.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected"),
        ("sat", "expected"),
        ("(X_0 1)", "expected"),
        ("((X_0 1) (X_0 2))", "X_0 is given twice"),
        ("((X_0 1) (X_2 2))", "X_1 is missing"),
        ("((X_0 one))", "expected a number, got 'one'"),
        ("((Z_0 1))", "expected"),
        ("((X_0 1) junk)", "got 'junk'"),
        ("((X_0 1)", "got 'X_0 1'|expected"),
        ("(X_0 1))", "expected"),
        ("X_0 1)", "expected"),
    ],
)
def test_what_is_no_counterexample_is_refused(text, told):
    with pytest.raises(InputError, match=told):
        read_counterexample(text, "w.txt")


def test_protocols_by_name():
    assert protocol_named("2022") == "2022"
    with pytest.raises(UnknownName, match="2022"):
        protocol_named("2020")


def test_the_statuses_are_those_of_a_verdict():
    from typing import get_args

    from holdfast.core.property import Status

    assert get_args(Status) == STATUSES
