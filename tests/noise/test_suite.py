"""What the noise suites of images, language and speech have in common."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UnknownName
from holdfast.noise import suite
from holdfast.noise.suite import NoiseSelection, OptionRow
from holdfast.noise.vision.result import NoiseRow
from holdfast.report.tables import to_csv


@dataclass(frozen=True)
class Offered:
    family: str
    name: str
    aliases: tuple = ()
    default: bool = True
    on_request: bool = False

    @property
    def labels(self):
        return tuple(f"{self.family}={name}" for name in (self.name, *self.aliases))


FAST, SLOW, HALF = (
    Offered("resize", "fast"),
    Offered("resize", "slow", (), False),
    Offered("precision", "fp16", ("half",)),
)


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        (NoiseSelection(), [FAST, HALF]),
        (NoiseSelection(every=True), [FAST, SLOW, HALF]),
        (NoiseSelection(only=("resize",)), [FAST]),
        (NoiseSelection(only=("resize=slow", "precision=half")), [SLOW, HALF]),
        (NoiseSelection(skip=("precision",)), [FAST]),
        (NoiseSelection(only=("precision",), skip=("precision=half",)), []),
    ],
)
def test_options_are_selected_by_family_name_or_alias(selection, taken):
    assert [one for one in (FAST, SLOW, HALF) if selection.takes(one)] == taken


def test_a_family_or_an_option_that_is_not_offered_is_an_error():
    NoiseSelection(only=("resize", "precision=half")).check([FAST, SLOW, HALF])
    with pytest.raises(UnknownName, match="unknown noise of boats 'resise'"):
        NoiseSelection(only=("resise=fast",)).check([FAST], "noise of boats")
    with pytest.raises(UnknownName, match="unknown resize 'fats'"):
        NoiseSelection(skip=("resize=fats",)).check([FAST])


@given(st.integers(1, 200), st.integers(1, 200))
def test_what_is_held_back_is_spread_and_at_most_a_quarter(total, count):
    held = suite.calibration_subset(range(total), count)
    assert len(held) == min(count, max(1, total // 4))
    assert list(held) == sorted(set(held))


def row(option, drop, changed=1, outcome="measured", alike="", family="resize"):
    return NoiseRow(family, option, outcome, points_lost=drop, changed=changed, alike=alike)


def test_the_worst_of_each_family_is_the_first_of_those_that_cost_most():
    rows = [
        row("a", 1.0),
        row("b", 2.0),
        row("c", 2.0),
        row("d", 0.0, 3, family="decode"),
        row("e", 0.0, 4, family="decode"),
    ]
    assert [r.option for r in suite.worst_per_group(rows, lambda r: r.family)] == ["b", "e"]


def test_rows_that_are_alike_or_have_no_number_are_not_counted():
    rows = [row("a", 1.0), row("b", 1.0, alike="a"), row("c", 0.0, outcome="identical"), row("d", None)]
    assert suite.distinct_rows(rows) == rows[:1]


def test_rows_without_a_number_have_the_outcome_that_says_most():
    outcomes = ["not installed", "impossible", "no effect"]
    rows = [row("a", None, outcome=outcome) for outcome in outcomes]
    assert [suite.common_outcome(rows[:n]) for n in range(4)] == ["not run", *outcomes]


def test_a_precision_stands_in_the_column_of_its_kind():
    assert row("int8-mixed", 0.0, family="precision").group == "INT8"
    assert row("fast", 0.0).group == "resize"
    with pytest.raises(NotImplementedError):
        _ = OptionRow().loss


def test_the_cost_of_a_suite_counts_what_is_left():
    done = suite.Estimate(model="m", items=3, variants=2, cells=6, missing=0)
    left = suite.Estimate(model="n", data="d", items=3, variants=2, cells=6, missing=4, seconds=1.5, sample=1)
    assert (done.name, left.name) == ("m", "n on d")
    lines = to_csv(suite.estimate_table([done, left], "clip", "systems", "", 1)).splitlines()
    assert lines[0] == "model,clips,systems,cells to run,seconds (estimate),MB (estimate),timed on"
    assert lines[1].endswith("all cells are cached")
    assert lines[2] == "n,3,2,4 of 6,1.5,0.0,1 clip"
