"""VNN-LIB 1.0: what is read, what is refused, and that printing and reading are inverse."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.verify.vnnlib import Disjunct, Spec, formulas, parse_vnnlib, print_vnnlib, read_vnnlib
from holdfast.verify.vnnlib.read import _parse

XY = "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)\n"
BOX = "(assert (>= X_0 -1))(assert (<= X_0 2.5))\n"


def rows_of(text: str) -> list[tuple[list[list[float]], list[float]]]:
    return [(case.rows.tolist(), case.bound.tolist()) for case in parse_vnnlib(XY + BOX + text).cases]


@pytest.mark.parametrize(
    ("formula", "row", "bound"),
    [
        ("(<= Y_0 0.5)", [1, 0], 0.5),
        ("(>= Y_0 0.5)", [-1, 0], -0.5),
        ("(<= 0.5 Y_0)", [-1, 0], -0.5),
        ("(>= Y_0 Y_1)", [-1, 1], 0),
        ("(<= (- Y_0 Y_1) -1e-3)", [1, -1], -1e-3),
        ("(<= (+ Y_0 (* -2.0 Y_1) 3) (+ Y_1 1))", [1, -3], -2),
        ("(<= (* 3 (- Y_0 1)) (- 1.5))", [3, 0], 1.5),
        ("(<= Y_0 (/ 1 3))", [1, 0], 1 / 3),
        ("(<= (/ Y_0 4) (- (/ 1 8) Y_1))", [0.25, 1], 0.125),
        ("(<= Y_0 .5)", [1, 0], 0.5),
        ("(<= Y_0 +5.)", [1, 0], 5),
        ("(<= (- Y_0) -0.0)", [-1, 0], 0),
    ],
)
def test_a_row_is_read_in_any_notation(formula, row, bound):
    assert rows_of(f"(assert {formula})") == [([row], [bound])]


def test_and_or_nest_and_multiply_out():
    inner = "(and (<= Y_0 2) (or (<= Y_1 3) (<= Y_1 4)))"
    text = f"(assert (and (or (<= Y_0 1) {inner}) (<= Y_1 5)))(assert (>= Y_0 0))"
    common = ([[-1.0, 0.0]], [0.0])
    expected = [([1], [5]), ([2, 3], [5]), ([2, 4], [5])]
    got = rows_of(text)
    assert [bounds[1:] for _, bounds in got] == [a + b for a, b in expected]
    assert all(rows[0] == common[0][0] and bounds[0] == 0 for rows, bounds in got)


def test_an_or_of_boxes_times_an_or_of_outputs_is_their_product_and_shares_arrays():
    text = XY + (
        "(assert (or (and (>= X_0 0) (<= X_0 1)) (and (>= X_0 4) (<= X_0 5))))"
        "(assert (or (<= Y_0 0) (<= Y_1 0)))"
    )
    cases = parse_vnnlib(text).cases
    assert [(c.lower[0], c.upper[0], c.rows.tolist()) for c in cases] == [
        (0, 1, [[1, 0]]),
        (0, 1, [[0, 1]]),
        (4, 5, [[1, 0]]),
        (4, 5, [[0, 1]]),
    ]
    assert cases[0].lower is cases[1].lower


def test_rows_may_tie_inputs_and_outputs():
    (case,) = parse_vnnlib(XY + BOX + "(assert (<= (+ Y_0 X_0) (* 2 X_0)))").cases
    assert case.rows.tolist() == [[1, 0]]
    assert case.inputs.tolist() == [[-1]]


def test_equality_is_two_bounds():
    (case,) = parse_vnnlib(XY + "(assert (= X_0 0.5))(assert (= Y_0 Y_1))").cases
    assert (case.lower[0], case.upper[0]) == (0.5, 0.5)
    assert case.rows.tolist() == [[1, -1], [-1, 1]]


def test_strict_is_kept_for_outputs_and_exact_for_inputs():
    (case,) = parse_vnnlib(XY + "(assert (> X_0 0))(assert (< X_0 1))(assert (< Y_0 Y_1))").cases
    assert case.strict.tolist() == [True]
    assert 0 < case.lower[0] < 1e-300
    assert case.upper[0] == np.nextafter(1, 0)
    assert "(< Y_0 Y_1)" in print_vnnlib(parse_vnnlib(XY + BOX + "(assert (> Y_1 Y_0))"))


def test_the_tightest_of_several_bounds_counts():
    (case,) = parse_vnnlib(XY + BOX + "(assert (<= X_0 2))(assert (and (<= X_0 7) (>= X_0 -0.5)))").cases
    assert (case.lower[0], case.upper[0]) == (-0.5, 2)


def test_a_scaled_bound_is_a_bound():
    (case,) = parse_vnnlib(XY + "(assert (<= (* -3 X_0) 1))(assert (<= X_0 (+ 1 1)))").cases
    assert (case.lower[0], case.upper[0]) == (-1 / 3, 2)
    assert case.inputs is None


def test_an_empty_box_is_dropped_with_a_note():
    spec = parse_vnnlib(XY + BOX + "(assert (or (>= X_0 3) (<= Y_0 0)))")
    assert len(spec.cases) == 1
    assert "1 of 2 cases" in spec.notes[0]
    assert parse_vnnlib(XY + "(assert (>= X_0 1))(assert (<= X_0 0))").cases == ()


def test_constant_formulas_are_true_or_false():
    assert len(rows_of("(assert (<= 1 2))(assert true)(assert (or (and) (<= Y_0 1)))")) == 2
    assert rows_of("(assert (< 1 1))") == []
    assert rows_of("(assert (or))") == []


def test_spacing_comments_order_and_idle_commands_do_not_matter():
    text = (
        "; a comment (assert (<= Y_0 99))\n(set-logic QF_LRA)\t(assert(<=\n X_0 ; inside\n 1))\r\n"
        "(  declare-fun Y_0 ( ) Real )(declare-const X_0 Real)( assert ( >= X_0 -1 ) )"
        "(assert (<= Y_0 0))(check-sat)"
    )
    spec = parse_vnnlib(text)
    assert (spec.inputs, spec.outputs) == (1, 1)
    assert (spec.cases[0].lower[0], spec.cases[0].upper[0], spec.cases[0].bound[0]) == (-1, 1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(assert (<= Y_0 1)", r":3:1: expected '\)' to close this list, got the end"),
        ("(assert (<= Y_0 1)))", r":3:20: expected '\(', got '\)'"),
        ("(assert (<= Y_0 one))", r":3:17: expected a number, X_i or Y_i, got 'one'"),
        ("(assert (<= Y_0 nan))", r":3:17: .* got 'nan'"),
        ("(assert (<= Y_0 1e999))", r":3:17: .* too large"),
        ("(assert (<= X_0 1e999))", r":3:17: .* too large"),
        ("(assert (<= Y_7 1))", r":3:13: .* Y_7, which is not declared"),
        ("(assert (<= X_7 1))", r":3:13: .* X_7, which is not declared"),
        ("(assert (=> Y_0 1))", r":3:10: expected one of .* got '=>'"),
        ("(assert (and Y_0 (<= Y_0 1)))", r":3:14: expected a formula"),
        ("(assert (<= Y_0 (<= Y_1 1)))", r":3:17: .* got a formula"),
        ("(assert (<= (* Y_0 Y_1) 1))", r":3:20: expected a linear term"),
        ("(assert (<= (/ Y_0 0) 1))", r":3:20: expected a constant other than 0"),
        ("(assert (<= Y_0))", r":3:10: expected two terms"),
        ("(assert)", r":3:2: expected one formula"),
        ("(assert (+ Y_0 1))", r":3:9: expected a formula.* got a term"),
        ("(frobnicate 1)", r":3:2: expected declare-const, .* got 'frobnicate'"),
        ("()", r":3:1: expected declare-const, .* got an empty list"),
        ("((and))", r":3:2: expected declare-const, .* got a list"),
        ("(declare-const Z_0 Real)", r":3:16: expected a variable X_0"),
        ("(declare-const X_1 Int)", r":3:20: expected X_1 to be Real, got 'Int'"),
        ("(declare-const X_01 Real)", r":3:16: expected a variable"),
        ("(declare-const Y_3 Real)", r"expected Y_2 to be declared"),
        ("\\", r":3:1: expected '\(', got"),
    ],
)
def test_an_error_names_file_line_and_column(text, message):
    with pytest.raises(InputError, match=f"^spec.vnnlib{message}" if message[0] == ":" else message):
        parse_vnnlib(XY + BOX.replace("\n", " ") + "\n" + text, "spec.vnnlib")


def test_missing_bounds_and_variables_are_refused():
    with pytest.raises(InputError, match="no upper bound of X_0"):
        parse_vnnlib(XY + "(assert (>= X_0 0))")
    with pytest.raises(InputError, match="no lower bound of X_0"):
        parse_vnnlib(XY + "(assert (<= X_0 0))(assert (or (<= Y_0 0) (>= X_0 -1)))")
    with pytest.raises(InputError, match="got no Y variable"):
        parse_vnnlib("(declare-const X_0 Real)(assert (>= X_0 0))(assert (<= X_0 0))")


def test_too_many_cases_are_refused(monkeypatch):
    monkeypatch.setattr(formulas, "LIMIT", 1000)
    one_of_ten = "(assert (or " + " ".join(f"(<= Y_0 {i})" for i in range(10)) + "))"
    assert len(rows_of(one_of_ten * 3)) == 1000
    with pytest.raises(InputError, match="at most 1,000 cases"):
        rows_of(one_of_ten * 4)


def test_deep_nesting_needs_no_stack():
    deep = "(<= Y_0 0)"
    for i in range(3000):
        deep = f"({'or' if i % 2 else 'and'} {deep})"
    assert rows_of(f"(assert {deep})") == [([[1, 0]], [0])]


def test_files_are_read_packed_or_not_and_bad_ones_refused(tmp_path, monkeypatch):
    text = XY + BOX + "(assert (<= Y_0 0))"
    plain, packed = tmp_path / "a.vnnlib", tmp_path / "a.vnnlib.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_vnnlib(plain) == read_vnnlib(packed) == parse_vnnlib(text)
    packed.write_bytes(gzip.compress(text.encode())[:-12])
    with pytest.raises(InputError, match="readable VNN-LIB"):
        read_vnnlib(packed)
    packed.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="readable VNN-LIB"):
        read_vnnlib(packed)
    packed.write_bytes(gzip.compress(b" " * 2_000_000))
    monkeypatch.setenv("HOLDFAST_LIMITS", "spec-mb=1")
    with pytest.raises(InputError, match="the limit spec-mb is 1 "):
        read_vnnlib(packed)
    for content in ("", "  \n"):
        plain.write_text(content)
        with pytest.raises(InputError, match="empty"):
            read_vnnlib(plain)
    plain.write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match=r"a.vnnlib:1:1: expected '\('"):
        read_vnnlib(plain)
    with pytest.raises(InputError, match="no such specification"):
        read_vnnlib(tmp_path / "none.vnnlib")
    with pytest.raises(InputError, match="readable VNN-LIB"):
        read_vnnlib(tmp_path)


NUMBERS = st.floats(-1e6, 1e6).map(lambda v: v + 0.0) | st.sampled_from([0.0, 1.0, -1.0, 0.1, 5e-324, 1e300])


@st.composite
def specs(draw) -> Spec:
    inputs, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    boxes = draw(
        st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=inputs, max_size=inputs), max_size=3)
    )
    cases = []
    for box in boxes:
        lower, upper = np.array([min(p) for p in box]), np.array([max(p) for p in box])
        m, tied = draw(st.integers(0, 3)), draw(st.booleans())
        weights = st.lists(
            st.sampled_from([0.0, 0.0, 1.0, -1.0]) | NUMBERS, min_size=outputs, max_size=outputs
        )
        rows = np.array([draw(weights) for _ in range(m)]).reshape(m, outputs)
        rows[~rows.any(axis=1), 0] = 1.0
        over = np.zeros((m, inputs))
        over[:1, 0] = 2.5
        strict = np.array([draw(st.booleans()) for _ in range(m)], bool)
        bound = np.array([draw(NUMBERS) for _ in range(m)])
        cases.append(Disjunct(lower, upper, rows, bound, strict, over if tied and m else None))
    return Spec(inputs, outputs, tuple(cases))


@given(specs())
@settings(max_examples=80, deadline=None)
def test_reading_what_was_printed_gives_the_same_specification(spec):
    text = print_vnnlib(spec)
    assert parse_vnnlib(text) == spec
    assert _parse(text, quick=False) == spec
    assert print_vnnlib(parse_vnnlib(text)) == text


@given(specs())
@settings(max_examples=30, deadline=None)
def test_a_bound_one_ulp_off_shows(spec):
    text = print_vnnlib(spec)
    if not spec.cases or not len(spec.cases[0].bound):
        return
    first = spec.cases[0]
    other = Disjunct(
        first.lower, first.upper, first.rows, np.nextafter(first.bound, np.inf), first.strict, first.inputs
    )
    assert parse_vnnlib(text) != Spec(spec.inputs, spec.outputs, (other, *spec.cases[1:]))


@given(st.text(alphabet="()XY_01.<=>+-*/; \nandorsetclrikR", max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused_in_one_line_and_both_ways_agree(text):
    results = []
    for quick in (True, False):
        try:
            results.append(_parse(XY + BOX + text, quick=quick))
        except InputError as problem:
            results.append((str(problem), problem.item))
    assert results[0] == results[1]
    assert isinstance(results[0], Spec) or "\n" not in results[0][0]


def test_the_quick_way_reads_real_files_as_the_general_one(shared_data):
    for file in ("cctsdb_yolo/vnnlib", "oval21/vnnlib", "acasxu", "mnistfc"):
        for path in sorted((shared_data / "vnncomp" / file).glob("*.vnnlib*"))[:40:8]:
            if path.suffix == ".compiled":
                continue
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
            spec = _parse(text)
            assert spec == _parse(text, quick=False)
            assert parse_vnnlib(print_vnnlib(spec)) == spec
