import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.verify.vnncomp.results import (
    COLUMNS,
    STATUSES,
    Counterexample,
    ResultRow,
    counterexample_text,
    header,
    line_of,
    read_counterexample,
    read_rows,
    result_text,
    status_of,
)

OFFICIAL = """\
acasxu,./benchmarks/acasxu/onnx/ACASXU_run2a_1_1_batch_2000.onnx,./benchmarks/acasxu/vnnlib/prop_1.vnnlib,26.1,unsat,8.9
acasxu,a.onnx,p.vnnlib,0.1,sat,2.5
acasxu,a.onnx,q.vnnlib,0.1,run_instance_timeout,176.0
acasxu,a.onnx,r.vnnlib,0.1,error_exit_code_1,3.0
acasxu,a.onnx,s.vnnlib,300.0,prepare_instance_timeout,-1
acasxu,a.onnx,t.vnnlib,0.1,,1.0
acasxu,b/test/test_nano.onnx,b/test/test_nano.vnnlib,22.7,unsat,5.8
"""


def test_official_tables_are_read(tmp_path):
    (tmp_path / "r.csv").write_text(OFFICIAL)
    rows = read_rows(tmp_path / "r.csv")
    assert [r.result for r in rows] == ["holds", "violated", "timeout", "error", "timeout", "unknown"]
    assert rows[0].network.endswith("ACASXU_run2a_1_1_batch_2000.onnx")
    assert [r.seconds for r in rows][:2] == [8.9, 2.5]


def test_tables_without_prepare_time_and_with_other_headers_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("test,n.onnx,p.vnnlib,holds,1.25\n")
    assert read_rows(tmp_path / "a.csv")[0].seconds == 1.25
    (tmp_path / "b.csv").write_text("Benchmark,ONNX,VNNLIB,Prepare Time,Result,Run Time\nc,n,p,9,SAT,2\n")
    (row,) = read_rows(tmp_path / "b.csv")
    assert (row.category, row.result, row.seconds) == ("c", "violated", 2.0)


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), max_size=12)


@given(
    words, words.filter(bool), st.one_of(st.none(), st.floats(-1e6, 1e6)), st.floats(0, 1e5),
    st.sampled_from(["holds", "violated", "unknown", "timeout", "error"]),
)  # fmt: skip
def test_our_rows_are_read_back(tmp_path_factory, note, network, margin, seconds, result):
    row = ResultRow(
        "c,d", network, 'p "q".vnnlib', 116.0, result, seconds, seconds * 2, "e", margin, "w", note, "k"
    )
    path = tmp_path_factory.mktemp("rows") / "r.csv"
    path.write_text(header() + line_of(row), "utf-8")
    (again,) = read_rows(path)
    assert (again.network, again.note, again.result, again.limit) == (network, note, result, 116.0)
    assert again.seconds == pytest.approx(seconds, abs=1e-4)
    assert (again.margin is None) == (margin is None)
    if margin is not None:
        assert again.margin == pytest.approx(margin, abs=1e-4)
    assert line_of(again) == line_of(row), "reading and writing again changes a row"


def test_a_note_of_several_lines_stays_one_row():
    assert line_of(ResultRow("c", "n", "p", 1.0, "error", 1.0, note="a\nb\r\nc")).count("\n") == 1
    assert header().strip().split(",") == list(COLUMNS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "got none"),
        ("a,b\n", r"r.csv:1: expected category,network,spec,prepare time,result,run time, got 2 fields"),
        ("c,n,p,1,perhaps,2\n", r"r.csv:1: expected a result such as holds.*got 'perhaps'"),
        ("c,n,p,1,unsat,soon\n", "expected the seconds of the run, got 'soon'"),
    ],
)
def test_what_is_no_table_of_results_is_told(tmp_path, text, told):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError, match=told):
        read_rows(tmp_path / "r.csv")
    with pytest.raises(InputError, match="no such results"):
        read_rows(tmp_path / "none.csv")


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


def test_the_statuses_are_those_of_a_verdict():
    from typing import get_args

    from holdfast.core.property import Status

    assert get_args(Status) == STATUSES
