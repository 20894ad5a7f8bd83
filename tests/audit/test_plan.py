"""What an audit plans: times, shares, numbers that are chosen once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.audit.options import SHARES, AuditSettings, budget_seconds
from holdfast.audit.plan import Clock
from holdfast.core.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("90s", 90),
        ("1h30m", 5400),
        ("600", 600),
        ("1.5m", 90),
        (" 2M ", 120),
        ("none", 0),
        ("1h5s", 3605),
    ],
)
def test_times_are_read(text, seconds):
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "-5m", "5 minutes", "0", "0s", "1d", "nan", "inf", "9999999h", "5m3h"]
)
def test_what_is_no_time_is_one_line(text):
    with pytest.raises(InputError, match="--budget: expected a time such as 10m"):
        budget_seconds(text)


def test_parts_bring_what_they_stand_on():
    assert AuditSettings(only=("matrix",)).parts == ("evaluate", "noise", "attack", "squares", "matrix")
    assert AuditSettings(only=("recheck",)).parts == ("evaluate", "noise", "squares", "recheck")
    with_spec = AuditSettings(only=("recheck",), spec=(Path("a.vnnlib"),)).parts
    assert with_spec == ("evaluate", "noise", "squares", "specs", "recheck")
    assert AuditSettings(only=("attack",)).parts == ("evaluate", "attack")
    assert AuditSettings().parts == tuple(name for name in SHARES if name != "specs")
    assert AuditSettings(spec=(Path("a.vnnlib"),)).parts == tuple(SHARES)
    with pytest.raises(InputError, match="did you mean 'squares'"):
        AuditSettings(only=("square",))
    with pytest.raises(InputError, match="pixels: expected a whole number from 1"):
        AuditSettings(pixels=(0,))


@given(st.floats(1, 1e6), st.floats(0, 1e6))
def test_what_is_left_is_shared_and_never_more(budget, elapsed):
    options = AuditSettings(budget=f"{budget:f}")
    clock = Clock(options, path=None)
    clock.began -= elapsed
    left = max(0.0, budget - elapsed)
    total = sum(clock.seconds(name) for name in options.parts)
    assert total <= left + 1e-6
    clock.done = list(options.parts[:-1])
    assert clock.seconds(options.parts[-1]) <= left


def test_without_a_budget_there_is_no_end(tmp_path):
    clock = Clock(AuditSettings(budget="none"), tmp_path / "plan.json")
    assert clock.seconds("noise") == float("inf")
    assert clock.number("noise", None, clock.seconds("noise"), 1, 128) == 128


def test_a_number_is_chosen_once(tmp_path):
    clock = Clock(AuditSettings(), tmp_path / "plan.json")
    assert clock.number("noise", None, 17.9, 2, 100) == 17
    assert clock.number("noise", None, 50, 2, 100) == 17
    assert clock.number("attack", None, 0.2, 1, 100) == 1
    assert clock.number("attack", 9, 0.2, 1, 8) == 8
    assert (tmp_path / "plan.json").read_text().split() == ["{", '"noise":', "17,", '"attack":', "1", "}"]


def test_a_planned_number_is_limited_to_what_is_possible(tmp_path):
    clock = Clock(AuditSettings(), tmp_path / "plan.json", planned={"evaluate": 0, "attack": 10**9})
    assert clock.number("evaluate", None, 5.0, 2, 6) == 2
    assert clock.number("attack", None, 5.0, 1, 6) == 6
