"""The published CCTSDB-YOLO files: what they do, and what their description says, are two things."""

import dataclasses

import pytest

from holdfast.patchbench.folder import name_of, open_benchmark
from holdfast.patchbench.run import evaluate_bench

# Known from enumeration by other means: the tightest sat and unsat, and an image that is unsafe both ways.
TIGHT, SAT, BOTH = 0.49401, "01937_0", "00099_1"


@pytest.fixture(scope="module")
def result(shared_data):
    bench = open_benchmark(shared_data / "vnncomp" / "cctsdb_yolo")
    wanted = {("00559_0", "patch-1"), (SAT, "patch-1"), (BOTH, "patch-1")}
    rows = tuple(
        row for row in bench.rows if any(name_of(row) == n and p in row.network_name for n, p in wanted)
    )
    assert len(rows) == 3
    return {name_of(row): one for row, one in zip(
        rows, evaluate_bench(dataclasses.replace(bench, rows=rows), jobs=2).pictures, strict=True
    )}  # fmt: skip


def test_both_are_labelled_apart(result):
    for one in result.values():
        assert [shown.kind for shown in one.maps] == ["file", "described"]
        file, described = one.maps
        assert file.map.outputs.shape == (63, 63)  # the closed range 0 … 62
        assert file.map.unchanged == 60 * 63  # nothing for the first input ≥ 3
        assert not file.over
        assert described.over
        assert described.map.outputs.shape == (64, 64)
        assert "all columns" in file.words
        assert file.map.clean == pytest.approx(1.0, abs=1e-5)


def test_the_known_answers(result):
    status = {name: [shown.map.status for shown in one.maps] for name, one in result.items()}
    assert status == {
        "00559_0": ["holds", "holds"],
        SAT: ["violated", "holds"],
        BOTH: ["violated", "violated"],
    }
    assert result[SAT].maps[0].map.minimum == pytest.approx(TIGHT, abs=1e-5)
