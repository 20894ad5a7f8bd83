import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.errors import InputError, OutputError
from holdfast.engine.execution import Execution, Part, PartFinished, executing
from holdfast.verify.vnncomp.instances import limited, read_instances
from holdfast.verify.vnncomp.results import header, read_rows
from holdfast.verify.vnncomp.run import BenchmarkPlan, run, shares, witness_folder

MIXED = {"a.vnnlib": "holds", "b.vnnlib": "violated", "c.vnnlib": "crash", "d.vnnlib": "unknown"}


@pytest.fixture
def plan(fake, bench, tmp_path):
    def make(specs=MIXED, jobs=1, most=None, **more):
        instances = limited(read_instances(bench(specs, **more)), most=most)
        return BenchmarkPlan(tuple(instances), tmp_path / "r.csv", jobs, fake)

    return make


def test_every_instance_gets_a_row_in_order(plan, tmp_path):
    told = []
    rows = run(plan(), told.append)
    assert [r.result for r in rows] == ["holds", "violated", "error", "unknown"]
    assert [(s.done, s.total, s.reused) for s in told] == [(i, 4, 0) for i in (1, 2, 3, 4)]
    assert [s.left for s in told][-1] == 0
    assert all(s.left > 0 for s in told[:-1])
    again = read_rows(tmp_path / "r.csv")
    assert [(r.spec, r.result, r.engine, r.note, r.key) for r in again] == [
        (r.spec, r.result, r.engine, r.note, r.key) for r in rows
    ]
    assert rows[0].margin == 0.25
    assert (rows[0].category, rows[0].limit) == ("bench", 20.0)
    witness = tmp_path / rows[1].witness
    assert witness.parent == witness_folder(tmp_path / "r.csv")
    assert witness.read_text() == "((X_0 0.5)\n(Y_0 0.25))\n"
    assert [r.witness for r in rows if r.result != "violated"] == ["", "", ""]


def test_finished_instances_are_not_run_again(plan, log, tmp_path):
    first = run(plan())
    before = (tmp_path / "r.csv").read_bytes()
    told = []
    assert [r.key for r in run(plan(), told.append)] == [r.key for r in first]
    assert told == []
    assert len(log()) == 4
    assert (tmp_path / "r.csv").read_bytes() == before


def test_instances_in_parts_and_in_another_store_have_the_same_rows(plan, log, tmp_path):
    def run_there(part, out):
        with executing(Execution(str(tmp_path / "store"), part)):
            return run(replace(plan(), out=tmp_path / out))

    with pytest.raises(PartFinished, match="part 1/2 is finished: 2 of 4 items"):
        run_there(Part(1, 2), "first.csv")
    assert len(log()) == 2
    rows = run_there(None, "joined.csv")
    assert len(log()) == 4
    assert [r.result for r in rows] == ["holds", "violated", "error", "unknown"]
    assert (tmp_path / rows[1].witness).read_text() == "((X_0 0.5)\n(Y_0 0.25))\n"
    assert [r.result for r in run_there(None, "again.csv")] == [r.result for r in rows]
    assert len(log()) == 4, "an instance of the store was run again"
    with executing(Execution(str(tmp_path / "processes"))):
        assert [r.result for r in run(replace(plan(jobs=2), out=tmp_path / "p.csv"))] == [
            r.result for r in rows
        ]


@pytest.mark.parametrize("change", ["spec", "network", "limit", "command"])
def test_what_has_changed_is_run_again(plan, log, fake, tmp_path, change):
    run(plan())
    specs = {**MIXED, "a.vnnlib": "unknown"} if change == "spec" else MIXED
    changed = plan(specs, most=10.0 if change == "limit" else None)
    if change == "network":
        (tmp_path / "bench" / "net.onnx").write_bytes(b"other")
    if change == "command":
        changed = BenchmarkPlan(changed.instances, changed.out, 1, (*fake[:1], "-B", fake[1]))
    rows = run(changed)
    assert len(log()) == (5 if change == "spec" else 8)
    assert len(read_rows(tmp_path / "r.csv")) == 4, "stale rows stay"
    assert rows[0].result == ("unknown" if change == "spec" else "holds")


def test_rows_of_other_benchmarks_stay(plan, tmp_path):
    run(plan())
    run(plan({"z.vnnlib": "holds"}, name="other"))
    rows = read_rows(tmp_path / "r.csv")
    assert [r.category for r in rows] == ["bench"] * 4 + ["other"]
    run(plan())
    assert len(read_rows(tmp_path / "r.csv")) == 5


def test_lines_that_are_twice_in_the_csv_are_run_twice(plan, fake, bench, tmp_path, log):
    listing = bench({"a.vnnlib": "holds"})
    listing.write_text(listing.read_text() * 2)
    twice = BenchmarkPlan(read_instances(listing), tmp_path / "r.csv", 1, fake)
    assert len({r.key for r in run(twice)}) == 2
    run(twice)
    assert len(log()) == 2


def test_a_torn_line_is_run_again(plan, log, tmp_path):
    run(plan())
    out = tmp_path / "r.csv"
    whole = out.read_bytes()
    out.write_bytes(whole[:-7])
    run(plan())
    assert len(log()) == 5
    rows, before = read_rows(out), whole.decode().splitlines()
    assert [r.key for r in rows] == [line.rsplit(",", 1)[1] for line in before[1:]]
    out.write_bytes(header().encode()[:5])
    run(plan())
    assert len(log()) == 9


def test_a_file_that_is_no_result_is_not_overwritten(plan, tmp_path):
    (tmp_path / "r.csv").write_text("my,precious\n1,2\n")
    with pytest.raises(InputError, match="expected results of an earlier run"):
        run(plan())
    assert (tmp_path / "r.csv").read_text() == "my,precious\n1,2\n"


def test_two_runs_do_not_write_the_same_results(plan, tmp_path):
    import fcntl

    folder = witness_folder(tmp_path / "r.csv")
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(OutputError, match="another process is writing"):
            run(plan())
    finally:
        os.close(handle)
    assert len(run(plan())) == 4


def test_jobs_share_the_cores(plan, tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    assert shares(1) == [()]
    if len(cores) > 1:
        given = shares(2)
        assert sorted(given[0] + given[1]) == cores
        specs = {f"{i}.vnnlib": f"meet {i ^ 1}.vnnlib" for i in range(4)}
        rows = run(plan(specs, jobs=2))
        assert [r.result for r in rows] == ["holds"] * 4, "each ends only while the other one runs too"
        assert [r.spec for r in rows] == list(specs)
        assert [r.spec for r in read_rows(tmp_path / "r.csv")] == list(specs)
    with pytest.raises(InputError, match="at most one per core"):
        shares(len(cores) + 1)
    with pytest.raises(InputError, match="at least 1"):
        run(plan(jobs=0))


def test_an_error_in_between_leaves_no_process(plan, tmp_path):
    def stop(step):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        run(plan({"a.vnnlib": "holds", "b.vnnlib": "hang"}, jobs=min(2, len(os.sched_getaffinity(0)))), stop)
    pids = tmp_path / "bench" / "b.vnnlib.pids"
    if pids.exists() and pids.read_text():
        begun = [int(pid) for pid in pids.read_text().split()]
        deadline = time.monotonic() + 10
        while any(map(alive, begun)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(alive, begun))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


PROGRAM = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from holdfast.verify.vnncomp.instances import read_instances
    from holdfast.verify.vnncomp.run import BenchmarkPlan, run
    listing, out, *command = sys.argv[1:]
    run(BenchmarkPlan(read_instances(Path(listing)), Path(out), 1, tuple(command)))
    """
)


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_goes_on_where_it_was(fake, bench, log, tmp_path, how):
    specs = {f"{i}.vnnlib": "sleep 0.15 holds" for i in range(8)}
    specs["5.vnnlib"] = "hang"
    listing, out = bench(specs), tmp_path / "r.csv"
    command = [sys.executable, "-c", PROGRAM, str(listing), str(out), *fake]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    pids = tmp_path / "bench" / "5.vnnlib.pids"
    deadline = time.monotonic() + 30
    while not (pids.exists() and pids.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(how)
    process.wait(timeout=30)
    finished = read_rows(out)
    assert [r.spec for r in finished] == [f"{i}.vnnlib" for i in range(5)]
    verifier, _ = map(int, pids.read_text().split())
    deadline = time.monotonic() + 60
    while alive(verifier) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(verifier), "the verifier outlives the runner"
    if how != signal.SIGINT:  # nobody was left to end the child's own child
        os.kill(int(pids.read_text().split()[1]), signal.SIGKILL)
    (tmp_path / "bench" / "5.vnnlib").write_text("holds")
    rows = run(BenchmarkPlan(read_instances(listing), out, 1, fake))
    assert [r.result for r in rows] == ["holds"] * 8
    assert log() == [f"{i}.vnnlib" for i in range(6)] + [f"{i}.vnnlib" for i in range(5, 8)]
    assert [(r.key, r.seconds) for r in read_rows(out)[:5]] == [(r.key, r.seconds) for r in finished]
    assert not list(witness_folder(out).glob(".holdfast*")), "what the killed run left lying stays"
