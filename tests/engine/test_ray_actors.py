"""Work on a Ray cluster of two nodes on this machine: the same numbers as here, whatever dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import killer_task
from holdfast.core import fingerprint
from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import Network
from holdfast.engine import ray_actors
from holdfast.engine.execution import check_cluster
from holdfast.engine.store import FolderStore
from holdfast.verify.vnncomp.results import read_rows

NOISE = ["noise", "signs-class", "signs:0:60", "--only", "decode,resize"]
pytest.importorskip("ray", reason="ray is not installed: pip install 'holdfast[ray]'")


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one CPU each. They are ended one by one: `ray stop` would end every Ray on the machine."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]))
        yield from nodes(Cluster, patch)


def nodes(Cluster, patch):
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1)
    patch.setenv("RAY_ADDRESS", made.address)
    yield made
    made.shutdown()


def command(*words):
    return [sys.executable, "-P", "-m", "holdfast", *words]


def numbers(path):
    suite = json.loads(Path(path).read_text())
    return [{**model, "store": ""} for model in suite["models"]]


def cells(folder):
    return len(list(Path(folder).glob("cells/*/*.json")))


def test_an_item_that_ends_three_workers_is_skipped_and_the_rest_is_finished(cluster, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "helpers.killer_task", str(tmp_path)], capture_output=True, text=True
    )
    assert "[[0, 1], [2, 'skipped 3: it ended 3 worker processes" in done.stdout, done.stderr
    assert "[4], [5, 6]]" in done.stdout


def test_a_node_dies_and_another_comes_and_the_numbers_stay_the_same(cluster, tmp_path):
    local = command(*NOISE, "--runs", str(tmp_path / "local"), "--json", str(tmp_path / "local.json"))
    subprocess.run(local, check=True, capture_output=True)
    on_ray = command(
        *NOISE, "--runs", str(tmp_path / "ray"), "--json", str(tmp_path / "ray.json"), "--on", "ray"
    )
    run = subprocess.Popen(on_ray, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while cells(tmp_path / "ray") < 100 and run.poll() is None:
        time.sleep(0.05)
    assert run.poll() is None, run.stderr.read()
    cluster.remove_node(cluster.second, allow_graceful=False)
    cluster.add_node(num_cpus=1)
    assert run.wait(timeout=300) == 0, run.stderr.read()
    run.stderr.close()
    assert numbers(tmp_path / "ray.json") == numbers(tmp_path / "local.json")


def test_a_node_with_another_version_of_a_library_is_refused():
    run = ray_actors._Run.__new__(ray_actors._Run)
    here = ray_actors.software(["evaluate"])
    run.starting = {"reference": None}
    run.task = type("Task", (), {"kinds": ("evaluate",)})
    run.ray = type("Ray", (), {"get": lambda self, _: ("node-7", {**here, "pillow": "1.0"})})()
    message = f"node node-7 has pillow 1.0, this machine has {here['pillow']}; the results would differ"
    with pytest.raises(InputError, match=message):
        run._admit("reference")


def test_no_shard_is_sent_before_every_node_has_reported_its_software():
    sent, reports = [], iter(["a", "b"])
    here = ray_actors.software(["evaluate"])
    process = type("Process", (), {"remote": lambda self, items: sent.append(items) or object()})
    run = ray_actors._Run.__new__(ray_actors._Run)
    run.began, run.actors, run.task = time.monotonic(), [], type("Task", (), {"kinds": ("evaluate",)})
    run.starting = {name: ray_actors._Actor(type("Handle", (), {"process": process()})) for name in "ab"}
    run.todo = ray_actors.deque([ray_actors._Shard(n, (n,)) for n in range(9)])
    wait = lambda self, references, timeout: ([next(reports)], [])  # noqa: E731
    run.ray = type("Ray", (), {"wait": wait, "get": lambda self, reference: ("node", here)})()
    run.step(lambda done, found: None, 0.0)
    assert (len(run.actors), sent) == (1, [])
    run.step(lambda done, found: None, 0.0)
    assert sorted(sent) == [(0,), (1,), (2,), (3,)], "two shards for each of two actors"


def unstarted_run(shards, actors=0):
    """A run without a cluster."""
    ray = type("Ray", (), {"remote": lambda self, **options: lambda kind: None})()
    return ray_actors._Run(ray, killer_task.Killer(FolderStore(Path())), shards, actors)


def test_a_shard_is_complete_only_with_its_last_item():
    run = unstarted_run([(5, 6), (7,)])
    first, second = ray_actors._Shard(0, (5, 6)).pieces()
    run._store(second, [6])
    assert run.answers == {}, "half of a shard was taken for all of it"
    run._store(first, [5])
    run._store(ray_actors._Shard(1, (7,)), [7])
    assert run.answers == {0: [5, 6], 1: [7]}


def test_workers_that_never_start_end_the_run_with_one_line():
    error = type("RayError", (Exception,), {})

    def get(self, reference):
        raise error("No module named 'holdfast'")

    run = unstarted_run([(1,)])
    run.ray = type("Ray", (), {"get": get, "exceptions": type("E", (), {"RayError": error})})()
    run._start = lambda: None
    for _ in range(9):
        run.starting = {"reference": None}
        run._admit("reference")
    run.starting = {"reference": None}
    with pytest.raises(InputError, match=r"no worker starts, 10 attempts failed.*No module named 'holdfast'"):
        run._admit("reference")


def test_a_model_travels_through_the_store_by_its_content(tmp_path):
    import pickle

    store, path = FolderStore(tmp_path / "cells"), tmp_path / "net.onnx"
    path.write_bytes(b"the network")
    packed = ray_actors.pack(Network("net", path), store)
    assert pickle.loads(packed) == Network("net", path)  # noqa: S301
    path.write_bytes(b"another network")
    copied = pickle.loads(packed)  # noqa: S301
    assert copied.path != path
    assert copied.read() == b"the network"
    copied.path.unlink()
    store.path(f"model.{fingerprint.of_bytes(b'the network')}").unlink()
    with pytest.raises(HoldfastError, match="nor in the store"):
        pickle.loads(packed)  # noqa: S301


@pytest.mark.parametrize(
    ("on", "message"), [("ray://host:10001", "Ray Client is not supported"), ("x", "expected ray")]
)
def test_other_clusters_are_refused(on, message):
    with pytest.raises(InputError, match=message):
        check_cluster(on)


@pytest.mark.slow
def test_two_nodes_started_by_the_command_line_and_a_driver_that_is_killed(tmp_path, monkeypatch):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    ray = [
        str(Path(sys.executable).parent / "ray"),
        "start",
        "--block",
        "--num-cpus=1",
        "--disable-usage-stats",
    ]
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # else it depends on whether the machine has a token
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    places = [["--head", f"--port={port}", "--include-dashboard=false"], [f"--address=127.0.0.1:{port}"]]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    started = []
    try:
        for words in places:
            started.append(subprocess.Popen([*ray, *words], env=environment, **quiet))
            time.sleep(8)
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        run = command(*NOISE, "--runs", str(tmp_path), "--json", str(tmp_path / "ray.json"), "--on", "ray")
        driver = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while cells(tmp_path) < 50 and driver.poll() is None:
            time.sleep(0.05)
        driver.kill()
        _, errors = driver.communicate()
        assert driver.returncode == -signal.SIGKILL, errors
        finished = cells(tmp_path)
        done = subprocess.run(run, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert finished < cells(tmp_path)
        local = command(*NOISE, "--runs", str(tmp_path / "local"), "--json", str(tmp_path / "local.json"))
        subprocess.run(local, check=True, capture_output=True)
        assert numbers(tmp_path / "ray.json") == numbers(tmp_path / "local.json")
    finally:
        for one in started:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def test_verification_instances_run_on_ray(cluster, tmp_path):
    make = command("patchbench", "make", str(tmp_path / "bench"), "--images", "1")
    subprocess.run(make, check=True, capture_output=True)
    words = ["vnncomp", "run", str(tmp_path / "bench"), "-o", str(tmp_path / "r.csv"), "--limit", "60"]
    done = subprocess.run(command(*words, "--on", "ray"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "r.csv")
    assert rows
    assert {row.result for row in rows} <= {"holds", "violated"}
