import gzip

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers import models as making
from holdfast.core.errors import InputError
from holdfast.verify.vnncomp.page import as_json, disagreements
from holdfast.verify.vnncomp.results import ResultRow, header, line_of
from holdfast.verify.vnncomp.rules import RULES
from holdfast.verify.vnncomp.score import aligned, read_tools, read_votes, score

SPEC = (
    "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)"
    "(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 1))(assert (<= Y_0 0.5))"
)


def sum_network(path):
    """y = x0 + x1."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    return making.save_graph(path, nodes, [x], [y], {"w": np.ones((2, 1), np.float32)})


@pytest.fixture
def files(tmp_path):
    """A benchmark `sums` of one network with specifications p0 … p3, the second packed."""
    folder = tmp_path / "vnncomp" / "sums"
    sum_network(folder / "onnx" / "sum.onnx")
    (folder / "vnnlib").mkdir()
    for i in range(4):
        data = SPEC.encode()
        name = folder / "vnnlib" / f"p{i}.vnnlib"
        name.with_name(f"{name.name}.gz").write_bytes(gzip.compress(data)) if i == 1 else name.write_bytes(
            data
        )
    return folder.parent


GOOD, TIGHT, OUTSIDE, SAFE = (
    "((X_0 0.25)\n(X_1 0.125)\n(Y_0 0.375))",
    "((X_0 0.2)\n(X_1 -0.00005)\n(Y_0 0.19995))",
    "((X_0 -1)\n(X_1 1)\n(Y_0 0))",
    "((X_0 0.5)\n(X_1 0.5)\n(Y_0 1.0))",
)


@pytest.fixture
def ours(tmp_path):
    """A function that writes our results: (result, counterexample or "") of p0, p1, …"""

    def write(*answers, name="results.csv", category="sums"):
        lines = [header()]
        for i, (result, witness) in enumerate(answers):
            file = ""
            if witness:
                file = f"{name}.witnesses/{i}.counterexample"
                (tmp_path / file).parent.mkdir(exist_ok=True)
                (tmp_path / file).write_text(witness)
            row = ResultRow(
                category, "onnx/sum.onnx", f"vnnlib/p{i}.vnnlib", 60.0, result, 1.0 + i, 2.0, witness=file
            )
            lines.append(line_of(row))
        (tmp_path / name).write_text("".join(lines))
        return str(tmp_path / name)

    return write


@pytest.fixture
def theirs(tmp_path):
    """A function that writes another tool's official table, with its counterexamples where they belong."""

    def write(*answers, tool="peer", category="sums"):
        folder = tmp_path / tool
        folder.mkdir(exist_ok=True)
        lines = []
        for i, (result, witness) in enumerate(answers):
            start = f"./vnncomp2023_benchmarks/benchmarks/{category}"
            lines.append(
                f"{category},{start}/onnx/sum.onnx,{start}/vnnlib/p{i}.vnnlib,9.5,{result},{5.0 + i}\n"
            )
            if witness is not None:
                (folder / f"2023_{category}").mkdir(exist_ok=True)
                file = folder / f"2023_{category}" / f"sum_p{i}.counterexample.gz"
                file.write_bytes(gzip.compress(witness.encode()))
        (folder / "results.csv").write_text("".join(lines))
        return str(folder / "results.csv")

    return write


def grades(made, tool="holdfast"):
    return [one.answers[tool].grade for one in made.instances]


def test_our_counterexamples_are_replayed(ours, files):
    table = ours(("violated", GOOD), ("violated", TIGHT), ("violated", OUTSIDE), ("violated", SAFE))
    made = score([table], RULES["2025"], benchmarks=[files])
    assert grades(made) == ["valid", "tolerated", "invalid", "invalid"]
    (line,) = made.lines
    assert (line.solved, line.violated, line.wrong, line.points) == (2, 2, 2, 20 - 300)
    assert (line.seconds, line.cpu_seconds) == (1.5, 8.0)
    assert line.percent == 0.0
    told = [what for _, what in disagreements(made)]
    assert any("outside the box, by 1" in what for what in told)
    assert any("the outputs are safe, by 0.5" in what for what in told)
    assert grades(score([table], RULES["2025"], benchmarks=[files / "sums"])) == grades(made)


def test_a_violation_of_ours_without_counterexample_is_missing(ours, files):
    made = score([ours(("violated", ""), ("violated", " "))], RULES["2025"], benchmarks=[files])
    assert grades(made) == ["missing", "missing"]
    assert made.lines[0].wrong == 2


def test_without_the_benchmarks_files_nothing_is_claimed(ours, files):
    made = score([ours(("violated", GOOD))], RULES["2025"])
    assert grades(made) == ["unchecked"]
    assert "give --benchmarks" in made.instances[0].answers["holdfast"].why
    with pytest.raises(InputError, match="expected a folder"):
        score([ours(("violated", GOOD))], RULES["2025"], benchmarks=[files / "none"])


def test_tools_are_compared_and_who_is_right_is_said(ours, theirs, files):
    mine = ours(("holds", ""), ("violated", GOOD), ("holds", ""), ("timeout", ""))
    peer = theirs(("sat", GOOD), ("unsat", None), ("sat", SAFE), ("unsat", None))
    made = score([mine, peer], RULES["2025"], benchmarks=[files])
    assert made.tools == ("holdfast", "peer")
    assert [one.ruling.truth for one in made.instances] == ["violated", "violated", "holds", "holds"]
    us, them = made.lines
    assert (us.points, us.solved, us.wrong) == (-150 + 10 + 10, 2, 1)
    assert (them.points, them.solved, them.wrong) == (10 - 150 - 150 + 10, 2, 2)
    told = {one.spec[-9:]: what for one, what in disagreements(made)}
    assert told["p0.vnnlib"].startswith(
        "holds: holdfast; violated: peer; violated is right: the counterexample of peer replays"
    )
    assert "the counterexample of holdfast replays" in told["p1.vnnlib"]
    assert "holds counts: no counterexample is valid" in told["p2.vnnlib"]
    assert "peer reports violated, but: the outputs are safe" in told["p2.vnnlib"]
    assert len(told) == 3


def test_other_tools_without_counterexamples_are_not_blamed(ours, theirs, files):
    made = score([ours(("holds", ""), ("timeout", "")), theirs(("sat", None), ("sat", None))], RULES["2025"])
    assert grades(made, "peer") == ["unchecked", "unchecked"]
    assert [line.wrong for line in made.lines] == [0, 0]
    assert [line.undecided for line in made.lines] == [1, 1]
    assert made.instances[1].ruling.points["peer"] == 10


def test_the_first_tables_instances_are_scored(ours, theirs):
    mine, peer = ours(("holds", "")), theirs(("unsat", None), ("unsat", None))
    made = score([mine, peer], RULES["2025"])
    assert (len(made.instances), made.skipped) == (1, 1)
    both = score([mine, peer], RULES["2025"], every=True)
    assert (len(both.instances), both.skipped) == (2, 0)
    assert [line.instances for line in both.lines] == [2, 2]


def test_percent_of_the_best_is_summed_over_benchmarks(ours, theirs, tmp_path):
    mine = ours(("holds", ""), ("holds", ""))
    more = ours(("holds", ""), name="more.csv", category="test")
    peer = theirs(("unsat", None), ("timeout", None))
    made = score([mine, more, peer], RULES["2025"])
    assert made.tools == ("holdfast", "peer")
    assert made.totals == {"holdfast": 100.0, "peer": 50.0}  # the test benchmark counts for nothing
    assert made.categories == ("sums", "test")


def test_time_is_scored_without_overhead_in_2021(ours, theirs):
    made = score(
        [ours(("holds", ""), ("holds", "")), theirs(("unsat", None), ("unsat", None))], RULES["2021"]
    )
    assert [s.seconds for s in made.instances[1].answers.values()] == [1.0, 1.0]  # 2 − 1 and 6 − 5
    assert [line.points for line in made.lines] == [24, 24]


def test_names_of_tools(ours, theirs, tmp_path):
    first, second = ours(("holds", "")), ours(("holds", ""), name="old.csv")
    assert list(read_tools([first, second])) == ["holdfast", "holdfast (old)"]
    assert list(read_tools([f"new={first}", f"before={second}"])) == ["new", "before"]
    with pytest.raises(InputError, match="two tables of 'a' have the same instances"):
        read_tools([f"a={first}", f"a={second}"])
    (tmp_path / "empty.csv").write_text(header())
    with pytest.raises(InputError, match=r"empty\.csv: expected rows of results, got none"):
        read_tools([str(tmp_path / "empty.csv")])
    renamed = tmp_path / "nnenum.csv"
    renamed.write_text("c,n.onnx,p.vnnlib,1,unsat,2\n")
    assert list(read_tools([str(renamed)])) == ["nnenum"]


def test_as_much_of_a_path_as_needed_tells_instances_apart(tmp_path):
    rows = [("medical/n.onnx", "medical/p.vnnlib"), ("robot/n.onnx", "robot/p.vnnlib")]
    for name, start in (("a", ""), ("b", "x/bench/")):
        lines = "".join(f"c,{start}{n},{p},1,unsat,2\n" for n, p in rows)
        (tmp_path / f"{name}.csv").write_text(lines)
    found = aligned(read_tools([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]))
    assert [set(said) for said in found.values()] == [{"a", "b"}, {"a", "b"}]
    assert next(iter(found)) == ("c", "medical/n.onnx", "medical/p.vnnlib", 0)


def test_a_year_before_the_category_and_repeated_lines_are_understood(tmp_path):
    (tmp_path / "a.csv").write_text("acasxu,n.onnx,p.vnnlib,1,unsat,2\n" * 2)
    (tmp_path / "b.csv").write_text("2023_acasxu,o/n.onnx,v/p.vnnlib.gz,1,unsat,2\n" * 2)
    found = aligned(read_tools([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]))
    assert [set(said) for said in found.values()] == [{"a", "b"}, {"a", "b"}]


def test_answers_against_a_majority_are_listed(ours, files, tmp_path):
    (tmp_path / "sums").mkdir()
    votes = tmp_path / "sums" / "votes.csv"
    votes.write_text(
        "network,spec,tools_saying_holds,tools_saying_violated\n"
        "sum.onnx,p0.vnnlib,4,1\nsum.onnx,p1.vnnlib,0,3\nsum.onnx,p2.vnnlib,2,2\n"
    )
    table = ours(("violated", GOOD), ("holds", ""), ("holds", ""), ("holds", ""))
    made = score([table], RULES["2025"], [votes], [files])
    told = [what for _, what in disagreements(made)]
    shown = "holdfast reports violated with a counterexample that replays"
    assert told == [
        f"{shown}, but 4 earlier tools report holds, 1 violated",
        "holdfast reports holds, but 0 earlier tools report holds, 3 violated",
    ]
    assert made.lines[0].wrong == 0, "votes are no proof"
    assert score([table], RULES["2021"], [votes], [files]).lines[0].wrong == 2
    votes.write_text("network,spec\nn,p\n")
    with pytest.raises(InputError, match=r"votes\.csv:2: expected network,spec,tools_saying_holds"):
        read_votes([votes])


def test_the_score_as_plain_values(ours, theirs, files):
    made = score([ours(("violated", GOOD)), theirs(("unsat", None))], RULES["2026"], benchmarks=[files])
    plain = as_json(made)
    assert plain["totals"] == {"holdfast": 100.0, "peer": 0.0}
    assert plain["instances"][0]["tools"]["holdfast"] == {
        "result": "violated", "seconds": 1.0, "witness": "valid", "standing": "right", "points": 10,
    }  # fmt: skip
    assert plain["disagreements"][0]["spec"] == "vnnlib/p0.vnnlib"
    assert [line["points"] for line in plain["benchmarks"]] == [10, -150]
