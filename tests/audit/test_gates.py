"""Gates: what is true fails, what was not measured fails, what cannot be understood is one line."""

from __future__ import annotations

import math
import operator
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audit import better_audit, sample_audit
from holdfast.audit.gates import (
    OPERATORS,
    Gate,
    GateVerdict,
    check,
    exit_code,
    gate_of,
    gates_of,
    gates_table,
    judge,
    measured_text,
    read_gates,
    value_text,
    verdict_sentence,
)
from holdfast.audit.result import AttackLevel, NoiseResult, Part
from holdfast.audit.values import values_of
from holdfast.core.errors import EXIT_CODES, InputError
from holdfast.report.tables import to_text


def judged(text: str, found=None) -> GateVerdict:
    (one,) = judge([gate_of(text)], sample_audit() if found is None else found, min_images=1)
    return one


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("space", ["", " ", "  \t"])
def test_a_gate_is_read(sign: str, space: str) -> None:
    gate = gate_of(f" noise.map50.points_lost{space}{sign}{space}1e-2 ")
    assert gate == Gate(f"noise.map50.points_lost {sign} 1e-2", "noise.map50.points_lost", sign, 0.01)


@pytest.mark.parametrize(
    "text",
    [
        "", "noise.map50.points_lost", "> 2", "noise.map50.points_lost >", "noise.map50.points_lost > x",
        "a => 1", "a = 1",
        "a > nan", "a > inf", "a > -inf", "a > 1 > 2", "a b > 1", "a >> 1", "a > 1 and b > 2", "a > 0,02",
    ],
)  # fmt: skip
def test_a_bad_gate_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^--fail-if: expected ") as caught:
        gate_of(text)
    assert "\n" not in str(caught.value)
    assert repr(text) in str(caught.value)


def test_a_percent_sign_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match=r"write 2 for 2 percentage points, 0\.02 for a fraction"):
        gate_of("noise.map50.points_lost > 2%")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_gate_or_an_input_error(text: str) -> None:
    try:
        gate = gate_of(text)
    except InputError:
        return
    assert math.isfinite(gate.bound)
    assert gate_of(gate.text) == gate


@pytest.mark.parametrize(
    ("text", "failed", "about"),
    [
        ("noise.map50.points_lost.point > 2", True, "resize=opencv-nearest"),
        ("noise.map50.points_lost.point > 5", False, "resize=opencv-nearest"),
        ("noise.map50.points_lost.point >= 5", True, ""),
        ("noise.map50.points_lost.low > 2", False, ""),
        ("noise.map50.points_lost.low > 1", True, ""),
        ("noise.precision.map50.points_lost.high > 2", True, "precision=int8"),
        ("noise.decode.opencv.map50.points_lost != 0", False, ""),
        ("attack.1000px.Se > 0.5", True, "7 of 8 images"),
        ("attack.smallest < 100", False, ""),
        ("attack.smallest <= 100", True, "2 of 8 images"),
        ("verify.violated > 0", True, "scene-0.jpg"),
        ("verify.unknown == 0", True, ""),
        ("square.certified < 0.7", True, ""),
        ("recheck.findings > 0", True, "scene-4.jpg under precision=int8"),
        ("matrix.map50.min < 0.2", False, "1000px"),
        ("clean.map50.low < 0.85", False, ""),
        ("clean.map50.point < 0.9", False, ""),
        ("attack.1000px.Se.point > 0.5", True, "7 of 8 images"),
    ],
)
def test_what_is_true_fails(text: str, failed: bool, about: str) -> None:
    one = judged(text)
    assert one.failed is failed
    assert about in one.reason
    assert one.value == values_of(sample_audit())[one.gate.name.removesuffix(".point")]
    alone = judged(text, values_of(sample_audit()))  # the numbers are enough to judge
    assert (alone.failed, alone.value) == (failed, one.value)


@pytest.mark.parametrize(
    ("text", "failed", "measured"),
    [
        ("noise.map50.points_lost > 2", False, "lower end 2 of 5"),
        ("noise.map50.points_lost > 1.9", True, "lower end 2 of 5"),
        ("noise.precision.map50.points_lost > 0", False, "lower end -1 of 1"),
        ("noise.combined.map50.points_lost.high > 12", True, "upper end 13 of 9"),
        ("clean.map50 < 0.9", True, "lower end 0.88 of 0.91"),
        ("clean.map50.point < 0.9", False, "0.91"),
        ("clean.recall < 0.9", False, "0.93"),
        ("attack.1000px.Se > 0.5", True, "0.869565"),
    ],
)
@pytest.mark.parametrize("values_only", [False, True])
def test_a_gate_compares_the_lower_end_unless_it_names_another(
    text: str, failed: bool, measured: str, values_only: bool
) -> None:
    audit = sample_audit()
    one = judged(text, values_of(audit) if values_only else audit)
    assert (one.failed, measured_text(one)) == (failed, measured)


def test_a_value_without_an_interval_is_compared_itself() -> None:
    sample = sample_audit()
    bare = replace(sample, clean=replace(sample.clean, low=None, high=None))
    for name in ("clean.map50", "clean.map50.point"):
        one = judged(f"{name} < 0.92", bare)
        assert (one.failed, one.end, one.value) == (True, "point", 0.91)
    assert "not measured" in judged("clean.map50.low < 0.92", bare).reason
    nan = judged("clean.map50 < 0.92", {"clean.map50": 0.91, "clean.map50.low": math.nan})
    assert (nan.end, nan.value) == ("point", 0.91)


def test_an_end_is_given_with_the_value_of_its_own_option() -> None:
    sample = sample_audit()
    sure = replace(sample.noises[0], points_lost=4.0, low=3.0, high=5.0)
    wide = replace(sample.noises[1], points_lost=6.0, low=-2.0, high=14.0)
    one = judged("noise.map50.points_lost > 2", replace(sample, noises=(sure, wide)))
    assert (one.failed, one.reason, measured_text(one)) == (True, sure.label, "lower end 3 of 4")


def test_the_mended_model_passes() -> None:
    gates = [gate_of("noise.map50.points_lost.low > 0")]
    assert judge(gates, sample_audit())[0].failed
    assert not judge(gates, better_audit())[0].failed


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(OPERATORS)),
    st.floats(-1, 1).filter(lambda x: abs(x) < 1),
    st.floats(-1, 1) | st.just(math.nan),
)
def test_operators_mean_what_python_means(sign: str, bound: float, value: float) -> None:
    names = {">": "gt", "<": "lt", ">=": "ge", "<=": "le", "==": "eq", "!=": "ne"}
    one = judged(f"noise.map50.points_lost {sign} {bound!r}", {"noise.map50.points_lost": value})
    if math.isnan(value):
        assert one.failed
        assert one.value is None
    else:
        assert one.failed is getattr(operator, names[sign])(value, bound)


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("values", [{}, {"attack.300px.Se": math.nan}])
def test_no_gate_passes_by_absence(sign: str, values: dict[str, float]) -> None:
    one = judged(f"attack.300px.Se {sign} 0.5", values)
    assert (one.failed, one.value) == (True, None)
    assert one.reason.startswith("not measured")


def test_why_a_number_was_not_measured() -> None:
    audit = sample_audit()
    left = Part("attack", 0, 40, 0.0, 0.0, "all images (one image takes 90 s)")
    without = replace(audit, attacks=(), parts=(left,))
    said = "not measured: attack skipped all images (one image takes 90 s)"
    assert judged("attack.300px.Se > 0.5", without).reason == said
    assert judged("attack.smallest < 300", without).reason == said
    nothing = replace(audit, attacks=(), parts=())
    assert judged("attack.300px.Se > 0.5", nothing).reason == "not measured: this audit did not run attack"
    other = judged("attack.300px.Se > 0.5").reason  # ran with other budgets, on fewer images
    assert "the attack ran only with 100px, 1000px" in other
    assert "attack skipped 32 of 40 images" in other
    assert judged("noise.runtime.map50.points_lost > 0", audit).reason == (
        "not measured: noise ran but gave no such number"
    )
    assert judged("verify.specs.violated > 0").reason == "not measured: this audit did not run specs"
    assert judged("audit.skipped > 0", nothing).reason == "not measured: the audit has no parts"


def test_why_a_noise_was_not_measured() -> None:
    noises = (
        NoiseResult("decode=dali", "decode", "not installed", note="pip install 'holdfast[dali]'"),
        NoiseResult("resize=square", "resize", "measured", 30.0),
        NoiseResult("ceil=ceil", "ceil", "no effect"),
    )
    audit = replace(sample_audit(), noises=noises)
    why = "not measured: decode=dali is not installed (pip install 'holdfast[dali]')"
    for name in ("noise.decode.dali.map50.points_lost", "noise.decode.map50.points_lost.low"):
        assert judged(f"{name} > 0.1", audit).reason == why
    assert judged("noise.map50.points_lost > 50", audit).failed is False
    assert "resize=square has no interval" in judged("noise.map50.points_lost.high > 50", audit).reason
    nan = replace(audit, noises=(replace(noises[1], points_lost=math.nan),))
    assert "resize=square gave no number" in judged("noise.map50.points_lost > 50", nan).reason


def test_an_attack_on_nothing_withstands_nothing() -> None:
    audit = replace(sample_audit(), attacks=(AttackLevel("300px", 300, 0.9, 0.9, 0, 0, 8, None, "gradient"),))
    for name in ("attack.300px.Se", "attack.300px.broken"):
        one = judged(f"{name} > 0.5", audit)
        assert one.failed
        assert "at 300px, 0 of 8 images had a detected object" in one.reason


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("attack.smallest < 100", False),
        ("attack.smallest < 301", False),
        ("attack.smallest <= 300", False),
        ("attack.smallest <= 301", True),
        ("attack.smallest < 1000", True),
        ("attack.smallest == 300", False),
        ("attack.smallest == 1000", True),
        ("attack.smallest > 100", True),
    ],
)
def test_what_no_budget_breaks_is_judged_up_to_the_largest_tried(text: str, failed: bool) -> None:
    audit = replace(sample_audit(), attacks=(AttackLevel("300px", 300, 0.9, 0.9, 8, 0, 8, None, "gradient"),))
    assert judged(text, audit).failed is failed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("noise.map50.points_lost > 200", "in percentage points from -100 to 100, this is never true"),
        ("clean.map50 < 80", "a fraction from 0 to 1, got 80; 80% is 0.8"),
        ("attack.300px.broken > 1", "this is never true"),
        ("verify.violated < 0", "a count of 0 or more, this is never true"),
        ("verify.violated > -1", "got -1"),
        ("attack.smallest < 0", "a number of pixels of 0 or more"),
    ],
)
def test_a_gate_that_cannot_mean_what_it_says_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=r"^gate ") as caught:
        check([gate_of(text)])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("noise.map50.drop > 0.02", "'noise.map50.points_lost > 2' (in percentage points)?"),
        ("noise.resize.map50.drop.low > 0.02", "'noise.resize.map50.points_lost.low > 2'"),
        ("noise.map50.combined > 0.05", "'noise.combined.map50.points_lost > 5'"),
        ("audit.left_out > 0", "did you mean 'audit.skipped > 0'?"),
    ],
)
def test_a_former_name_gets_its_new_name_and_unit(old: str, new: str) -> None:
    with pytest.raises(InputError) as caught:
        check([gate_of(old)])
    assert new in str(caught.value)


def test_a_typo_is_no_missing_number() -> None:
    with pytest.raises(
        InputError, match=r"unknown name 'atack\.300px\.Se'.*Did you mean 'attack\.300px\.Se'\?"
    ):
        judged("atack.300px.Se > 0.5")
    with pytest.raises(InputError, match="unknown name"):
        judged("atack.300px.Se > 0.5", {})
    with pytest.raises(InputError, match="unknown name"):
        check([gate_of("noise.map50.points_lost > 10")], metrics=("top1",))


TOML = """
[gates]
fail-if = ["noise.map50.points_lost > 2", "verify.violated > 0"]
"nothing moves it" = "attack.300px.Se > 0.5"
noise.map50.points_lost = "> 3"
attack.300px.broken = ">=0.5"
"clean.map50" = "< 0.8"
"""


def test_gates_of_a_gates_table(tmp_path: Path) -> None:
    file = tmp_path / "gates.toml"
    file.write_text(TOML)
    read = read_gates(file)
    assert [g.text for g in read] == [
        "noise.map50.points_lost > 2", "verify.violated > 0", "attack.300px.Se > 0.5",
        "noise.map50.points_lost > 3", "attack.300px.broken >= 0.5", "clean.map50 < 0.8",
    ]  # fmt: skip
    assert [g.title for g in read] == ["", "", "nothing moves it", "", "", ""]
    check(read)
    assert gates_of({}, "x") == ()
    assert gates_of({"fail-if": "verify.violated > 0"}, "x") == (gate_of("verify.violated > 0"),)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("gates = 3", "f.toml: gates: expected a table"),
        ("gates = ['verify.violated > 0']", "f.toml: gates: expected a table"),
        (
            "[gates]\nfail-if = ['verify.violated > 0', 3]",
            "gates.fail-if[1]: expected a gate, got 3",
        ),
        ("[gates]\nfail-if = ['verify.violated > 0', 'x']", "gates.fail-if[1]: expected NAME, one of"),
        ("[gates]\nfail-if = true", "gates.fail-if: expected a list of gates"),
        ("[gates]\nclean.map50 = 0.8", "gates.clean.map50: expected a gate"),
        ("[gates]\nslow = ['audit.seconds > 9']", "gates.slow: expected a gate"),
        ("[gates]\nslow = 'never'", "gates.slow: expected NAME, one of"),
        ("[gate]\n", "f.toml: expected a table [gates]"),
        ("[gates", "f.toml: expected a TOML file"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, monkeypatch, text: str, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_gates(Path("f.toml"))
    assert place in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml: expected a TOML file"):
        read_gates(Path("nowhere.toml"))


def test_the_table_says_gate_got_verdict_and_reason() -> None:
    gates = gates_of(tomllib.loads(TOML)["gates"], "gates")
    rows = judge(gates, sample_audit(), min_images=8)
    shown = gates_table(rows)
    assert shown.caption == "6 gates: 3 failed, 3 passed"
    assert [head.name for head in shown.heads] == ["fail if", "measured", "n", "verdict", "reason"]
    lower = ("lower end 2 of 5", 40, "passed", "resize=opencv-nearest")
    assert shown.rows[0] == ("noise.map50.points_lost > 2", *lower)
    assert shown.rows[2][:4] == ("nothing moves it: attack.300px.Se > 0.5", "not measured", None, "failed")
    assert shown.rows[5][1:4] == ("lower end 0.88 of 0.91", 40, "passed")
    assert len(to_text(shown).splitlines()) == 9
    assert gates_table(judge([gates[5]], sample_audit())).caption == "1 gate: 1 passed"


FEW = ("attack.1000px.Se > 0.5", "attack.1000px.Se < 0.5", "attack.smallest <= 100", "square.broken > 0",
       "matrix.map50.min < 0.9")  # fmt: skip


@pytest.mark.parametrize("text", FEW)
def test_a_number_of_few_images_decides_no_gate(text: str) -> None:
    (one,) = judge([gate_of(text)], sample_audit())
    assert (one.failed, one.decided, one.verdict, one.images) == (False, False, "not decided", 8)
    assert one.reason.startswith("n = 8 < 20 (--min-images)")
    assert gates_table([one]).caption == "1 gate: 1 not decided"
    (asked,) = judge([gate_of(text)], sample_audit(), min_images=8)
    assert asked.decided
    (least,) = judge([replace(gate_of(text), min_images=8)], sample_audit())
    assert least == replace(asked, gate=least.gate)


@pytest.mark.parametrize(
    ("texts", "failures", "code"),
    [
        ([], [], 0),
        (["clean.map50 < 0.5"], [], 0),
        (["clean.map50 < 0.5"], ["a.jpg"], 4),
        (["clean.map50 < 0.5", FEW[0]], [], 5),
        ([FEW[0]], ["a.jpg"], 5),
        (["clean.map50 < 0.9", FEW[0]], ["a.jpg"], 1),
    ],
)
def test_a_gate_that_is_not_decided_has_its_own_exit_code(texts, failures, code) -> None:
    assert exit_code(judge([gate_of(text) for text in texts], sample_audit()), failures) == code
    assert EXIT_CODES[code]


def test_counts_of_what_was_found_are_facts_of_any_number_of_images() -> None:
    for text in ("verify.violated > 0", "recheck.findings > 0", "verify.unknown == 0"):
        assert judge([gate_of(text)], sample_audit(), min_images=10**6)[0].failed


def test_a_number_that_was_not_measured_fails_whatever_its_images() -> None:
    (one,) = judge([gate_of("attack.300px.Se > 0.5")], sample_audit())
    assert (one.failed, one.value) == (True, None)


def test_the_least_number_of_images_stands_in_the_gates_table() -> None:
    made = gates_of(
        {"min-images": 8, "fail-if": ["attack.1000px.Se > 0.5"], "square": {"broken": "> 0"}}, "g"
    )
    assert [gate.min_images for gate in made] == [8, 8]
    assert all(one.decided for one in judge(made, sample_audit()))
    for bad in (0, "8", True, 8.5):
        with pytest.raises(InputError, match=r"g\.min-images: expected a number of images, 1 or more"):
            gates_of({"min-images": bad, "fail-if": []}, "g")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not measured"), (math.nan, "not measured"), (math.inf, "none"), (3.0, "3"), (12345.0, "12345"),
     (0.020003, "0.020003"), (1 / 3, "0.333333"), (-0.01, "-0.01")],
)  # fmt: skip
def test_numbers_as_they_are_read(value: float | None, text: str) -> None:
    assert value_text(value) == text


def test_a_verdict_in_one_sentence() -> None:
    assert verdict_sentence(judged("clean.map50 < 0.9")) == (
        "clean.map50 < 0.9: failed, lower end 0.88 of 0.91 (n = 40; mAP@.5, rule VOC)"
    )
    assert verdict_sentence(judged("noise.map50.points_lost.point > 2")) == (
        "noise.map50.points_lost.point > 2: failed, measured 5 (n = 40; resize=opencv-nearest)"
    )
    assert verdict_sentence(judged("clean.images < 10")) == "clean.images < 10: passed, measured 40"
    assert verdict_sentence(judged("verify.specs.holds < 1")) == (
        "verify.specs.holds < 1: failed, not measured: this audit did not run specs"
    )
