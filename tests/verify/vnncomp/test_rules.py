import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.verify.vnncomp.rules import (
    RULES,
    ToolAnswer,
    Votes,
    bonus,
    judge,
    percent,
    scored_seconds,
)

YEARS = ["2021", "2022", "2023", "2025", "2026"]


def told(*answers, grades=()):
    """Tools a, b, … with (status, seconds) each; None is a timeout."""
    made = []
    for i, answer in enumerate(answers):
        status, seconds = answer or ("timeout", 300.0)
        grade = grades[i] if i < len(grades) else "unchecked"
        made.append(ToolAnswer("abcdefg"[i], status, seconds, grade))
    return made


H, V = "holds", "violated"


@pytest.mark.parametrize(
    ("times", "points"),
    [  # rows of the published scores of 2021 (marabou-cifar10 2, 8, 9, 39, 44; oval21 6)
        ([14.9, None, 1.0, 1.0, None, 4.4], [10, 0, 12, 12, 0, 10]),
        ([None, None, 1.0, 4.2, None, None], [0, 0, 12, 11, 0, 0]),
        ([2.6, None, 1.0, 1.6, None, 4.2], [10, 0, 12, 11, 0, 10]),
        ([1.0, None, 1.0, 5.1, None, 4.1], [12, 0, 12, 10, 0, 10]),
        ([1.0, None, 1.0, 1.2, 74.2, 4.2], [12, 0, 12, 10, 10, 10]),
    ],
)
def test_the_published_points_of_2021_come_out_again(times, points):
    said = told(*[t and (V, t) for t in times])
    assert list(judge(RULES["2021"], said).points.values()) == points


def test_the_published_conflict_of_2021_comes_out_again():
    # oval21, cifar_base_kw-img1697: one tool says holds, six say violated.
    said = told((H, 18.1), (V, 9.6), (V, 1.0), (V, 7.8), (V, 1.0), (V, 11.8), (V, 4.3))
    ruling = judge(RULES["2021"], said)
    assert list(ruling.points.values()) == [-100, 10, 12, 10, 12, 10, 10]
    assert ruling.truth == V
    assert ruling.contradicted


def test_a_tie_of_2021_counts_for_nobody():
    ruling = judge(RULES["2021"], told((H, 1.0), (V, 1.0)))
    assert set(ruling.points.values()) == {0}
    assert ruling.truth is None
    assert set(ruling.standing.values()) == {"open"}


def test_earlier_votes_count_in_a_vote_and_nowhere_else():
    said = told((H, 1.0))
    assert judge(RULES["2021"], said, Votes(0, 5)).points["a"] == -100
    assert judge(RULES["2025"], said, Votes(0, 5)).points["a"] == 10


def test_what_random_tests_find_is_worth_one_point():
    said = [*told((V, 3.0), None), ToolAnswer("randgen", V, 1.0)]
    assert judge(RULES["2021"], said).points == {"a": 1, "b": 0, "randgen": 1}
    assert judge(RULES["2022"], said).points["a"] == 11


@pytest.mark.parametrize(
    ("year", "grades", "points"),
    [  # a says holds, b and c violated
        ("2022", ("", "invalid", "missing"), [12, -100, -100]),
        ("2022", ("", "invalid", "valid"), [-100, 12, 12]),
        ("2022", ("", "invalid", "tolerated"), [-100, 12, 12]),
        ("2023", ("", "invalid", "valid"), [-150, 10, 10]),
        ("2023", ("", "invalid", "tolerated"), [-150, 10, 10]),
        ("2023", ("", "invalid", "missing"), [10, -150, -150]),
        ("2025", ("", "invalid", "valid"), [-150, -150, 10]),
        ("2025", ("", "invalid", "tolerated"), [10, -150, 10]),
        ("2025", ("", "missing", "unchecked"), [0, -150, 0]),
        ("2026", ("", "valid", "unchecked"), [-150, 10, 10]),
        ("2023", ("", "unchecked", "invalid"), [0, 0, 0]),
    ],
)
def test_counterexamples_decide_later(year, grades, points):
    ruling = judge(RULES[year], told((H, 1.0), (V, 1.0), (V, 1.0), grades=grades))
    assert list(ruling.points.values()) == points


@pytest.mark.parametrize(
    ("year", "grade", "points"),
    [
        ("2021", "missing", 12),
        ("2022", "missing", 12),
        ("2023", "missing", -150),
        ("2025", "missing", -150),
        ("2025", "invalid", -150),
        ("2025", "tolerated", 10),
        ("2025", "unchecked", 10),
        ("2026", "valid", 10),
    ],
)
def test_a_violation_nobody_contradicts(year, grade, points):
    assert judge(RULES[year], told((V, 1.0), grades=[grade])).points["a"] == points


statuses = st.sampled_from(["holds", "violated", "unknown", "timeout", "error"])
grades = st.sampled_from(["valid", "tolerated", "invalid", "missing", "unchecked"])
answers = st.lists(st.tuples(statuses, st.floats(0.1, 900), grades), max_size=6)


@given(st.sampled_from(YEARS), answers)
def test_points_and_standings_go_together(year, given_answers):
    rules = RULES[year]
    said = [ToolAnswer(str(i), s, t, g) for i, (s, t, g) in enumerate(given_answers)]
    ruling = judge(rules, said)
    for one in said:
        standing, points = ruling.standing[one.tool], ruling.points[one.tool]
        assert (standing == "none") == (one.status not in (H, V))
        assert points == rules.wrong if standing == "wrong" else points >= 0
        assert (points > 0) == (standing == "right")
        if one.status == H and any(s.grade == "valid" and s.status == V for s in said) and year != "2021":
            assert standing == "wrong", "a counterexample stands, and holds is let pass"
    assert ruling.contradicted == ({H, V} <= {s.status for s in said})


def test_times_are_scored_without_overhead_where_time_counts():
    assert scored_seconds(RULES["2021"], 7.5, 6.0) == 1.5
    assert scored_seconds(RULES["2021"], 6.2, 6.0) == 1.0
    assert scored_seconds(RULES["2025"], 6.2, 6.0) == 6.2
    assert bonus(RULES["2025"], 1.0, [1.0]) == 0


def test_percent_of_the_best():
    assert percent(91, 177) == pytest.approx(51.41, abs=0.005)  # ERAN on oval21, published
    assert percent(-37, 177) == 0.0
    assert percent(-5, -5) == 0.0
    assert percent(0, 0) == 0.0


def test_every_year_says_its_rules():
    assert all(rules.says.startswith(f"VNN-COMP {name}") for name, rules in RULES.items())


def test_the_majority_is_what_more_said():
    assert Votes(3, 1).majority == "holds"
    assert Votes(1, 3).majority == "violated"
    assert Votes(2, 2).majority is None
    ruling = judge(RULES["2021"], told((H, 1.0), (H, 1.0), (V, 1.0)))
    assert ruling.truth == H
    assert list(ruling.points.values()) == [12, 12, -100]


def test_random_tests_outvote_everybody():
    said = [*told((H, 1.0), (H, 1.0)), ToolAnswer("randgen", V, 1.0)]
    assert judge(RULES["2021"], said).points == {"a": -100, "b": -100, "randgen": 1}


def test_the_reason_is_told():
    def reason(*grades):
        said = told((H, 1.0), *[(V, 1.0)] * len(grades), grades=("", *grades))
        return judge(RULES["2025"], said).reason

    assert reason() == "no tool contradicts"
    assert reason("invalid") == "no counterexample is valid"
    assert reason("invalid", "tolerated") == "the counterexample of c is valid only within the tolerance"
    assert reason("unchecked", "invalid") == "the counterexample of b is not available"
    assert reason("valid", "valid") == "the counterexample of b, c is valid"
    assert judge(RULES["2025"], told(None)).reason == "no tool has an answer"
