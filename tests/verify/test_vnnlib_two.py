"""VNN-LIB 2.0 through the `vnnlib` package."""

import sys

import pytest

from holdfast.core.errors import InputError, MissingExtra
from holdfast.verify.vnnlib import parse_vnnlib

pytest.importorskip("vnnlib")

HEAD = """; a comment first
(vnnlib-version <2.0>)
(declare-network N
  (declare-input X float32 [1,2])
  (declare-output Y float32 [1,2])
)
(assert (and (<= X[0,0] 1.0) (>= X[0,0] -1.0)))
"""
TAIL = """(assert (or (<= (+ Y[0,0] (* 2.0 Y[0,1])) 0.5) (and (> Y[0,1] Y[0,0]) (== X[0,1] 0.5))))
(assert (<= X[0,1] (- 1.0 (* 3.0 X[0,0]))))
(assert (<= X[0,1] 0.75))
(assert (>= X[0,1] -0.25))
"""
SAME = """(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)
(assert (and (<= X_0 1.0) (>= X_0 -1.0)))
(assert (or (<= (+ Y_0 (* 2 Y_1)) 0.5) (and (> Y_1 Y_0) (= X_1 0.5))))
(assert (<= (+ (* 3 X_0) X_1) 1.0))(assert (<= X_1 0.75))(assert (>= X_1 -0.25))
"""


@pytest.mark.parametrize("kind", ["float32", "real", "float64"])
def test_two_and_one_say_the_same(kind):
    assert parse_vnnlib(HEAD.replace("float32", kind) + TAIL) == parse_vnnlib(SAME)


def test_not_equal_is_two_strict_cases():
    spec = parse_vnnlib(HEAD + "(assert (== X[0,1] 0.0))(assert (!= Y[0,0] 1.0))")
    assert [(case.rows.tolist(), case.strict.tolist()) for case in spec.cases] == [
        ([[1, 0]], [True]),
        ([[-1, 0]], [True]),
    ]


def test_a_text_without_version_is_recognised_by_its_network():
    with pytest.raises(InputError, match="spec"):
        parse_vnnlib(HEAD.replace("(vnnlib-version <2.0>)", "") + "(assert (<= Y[0,9] 1.0))", "spec")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "(assert (<= Y[0,7] 1.0))", r"^spec:8: Index out of bounds .*Y\[0,7\]"),
        (HEAD + "(assert (<= Y[0,0] ", r"^spec: "),
        (HEAD + "(assert (<= Y[0,0] 1.0))", r"^spec: expected a bounded input set"),
        (HEAD + "(assert (<= (* Y[0,0] Y[0,1]) 1.0))", r"linear term"),
        (HEAD.replace("float32", "int32").replace("1.0", "1"), r"real or float, got I32"),
        (
            HEAD.replace("(declare-output", '(declare-hidden H float32 [1] "h")(declare-output'),
            r"hidden node 'H'",
        ),
        (
            HEAD.replace(
                "(assert",
                "(declare-network M (declare-input A float32 [1])(declare-output B float32 [1]))(assert",
            )
            + "(assert (<= B[0] 1.0))",
            r"one network, got 2",
        ),
        (HEAD.replace("(declare-input", "(declare-input Z float32 [3])(declare-input"), r"one input, got 2"),
    ],
)
def test_what_is_beyond_or_wrong_is_told_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_vnnlib(text, "spec")
    assert "\n" not in str(caught.value)


def test_without_the_package_the_pip_line_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "vnnlib", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[verify\]"):
        parse_vnnlib(HEAD + TAIL)
