"""A benchmark whose specifications say what the verifier is to do, and a verifier that does it."""

import sys
import textwrap

import pytest

FAKE = textwrap.dedent(
    """
    import json, os, signal, subprocess, sys, time

    network, spec, *options = sys.argv[1:]
    given = dict(zip(options[::2], options[1::2]))
    with open(spec) as stream:
        what, *more = stream.read().split()
    with open(os.path.join(os.path.dirname(spec), "log"), "a") as log:
        log.write(os.path.basename(spec) + "\\n")
    with open(given["--json"], "w") as stream:
        json.dump({"engine": "fake", "margin": 0.25, "note": "as told", "limit": given["--timeout"],
                   "real_arithmetic_only": more == ["really"],
                   "cores": sorted(os.sched_getaffinity(0)),
                   "threads": os.environ.get("OMP_NUM_THREADS")}, stream)
    if what == "sleep":
        time.sleep(float(more[0]))
        what = more[1]
    if what == "meet":
        open(spec + ".here", "w").close()
        while not os.path.exists(os.path.join(os.path.dirname(spec), more[0] + ".here")):
            time.sleep(0.01)
        what = "holds"
    if what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(spec + ".pids", "w") as stream:
            stream.write(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    if what == "crash":
        sys.exit("ValueError: deliberate")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "burn":
        while time.process_time() < float(more[0]):
            pass
        what = "holds"
    if what == "lie":
        print("holds")
        sys.exit(1)
    if what == "mute":
        sys.exit(0)
    if what == "violated":
        with open(given["--witness"], "w") as stream:
            stream.write("((X_0 0.5)\\n(Y_0 0.25))\\n")
    print(what)
    print("engine fake")
    sys.exit({"holds": 0, "violated": 1, "error": 2, "unknown": 3, "timeout": 3}.get(what, 0))
    """
)


@pytest.fixture
def fake(tmp_path):
    """The command of the verifier that does as it is told."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    return (sys.executable, str(script))


@pytest.fixture
def bench(tmp_path):
    """A function that writes a benchmark of these specifications (name -> what to do) and gives its csv."""

    def write(specs, limit=20, networks=("net.onnx",), name="bench"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for network in networks:
            (folder / network).write_bytes(network.encode())
        lines = []
        for spec, what in specs.items():
            (folder / spec).write_text(what)
            lines += [f"{network},{spec},{limit}\n" for network in networks]
        (folder / "instances.csv").write_text("".join(lines))
        return folder / "instances.csv"

    return write


@pytest.fixture
def log(tmp_path):
    """A function that tells which specifications were run, in order."""

    def read(name="bench"):
        path = tmp_path / name / "log"
        return path.read_text().split() if path.exists() else []

    return read
