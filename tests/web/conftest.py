"""A site over two folders, and a quick stand-in for the audit that behaves like one on disk."""

import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from helpers.audit import better_audit, sample_audit
from holdfast.audit.result import save

PORT = 8765

# Writes progress.json as an audit does, ends at once or when the file `go` is there, and leaves an audit.
FAKE = """
import json, os, pathlib, sys, time
from holdfast.core.processes import end_with_stdin
end_with_stdin()
runs, model, data, mode = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
if mode == "fail":
    print("holdfast: net.onnx: expected a model, got <b>nothing</b>")
    sys.exit(2)
folder = runs / f"audit-{{pathlib.Path(model).stem}}-on-{{pathlib.Path(data).name}}-abcdef"
folder.mkdir(parents=True, exist_ok=True)
started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())

def tell(state, part, done):
    plain = {{"state": state, "part": part, "done": done, "total": 40, "started": started, "pid": os.getpid(),
             "parts": ["evaluate", "noise", "attack"]}}
    (folder / "p").write_text(json.dumps(plain))
    (folder / "p").replace(folder / "progress.json")

if mode == "stubborn":
    import signal
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    inner = os.fork()
    if inner == 0:
        time.sleep(600)
    (runs / "inner").write_text(str(inner))
go, step = runs / "go", 0
while mode != "quick" and not (mode == "wait" and go.exists()):
    step += 1
    tell("running", "evaluate" if step < 10 else "noise", step % 40)
    time.sleep(0.05)
plain = json.loads(pathlib.Path({pattern!r}).read_text())
plain["created"], plain["data"]["name"] = started, pathlib.Path(data).name
(folder / "audit.json").write_text(json.dumps(plain))
(folder / "report.html").write_text("<!doctype html><title>audit</title><h1>The page of the audit</h1>")
tell("done", "attack", 40)
print("a gate failed" if mode == "gate" else "done")
"""


@pytest.fixture
def fake(tmp_path):
    """A function that gives the command of a stand-in audit of that mode."""
    script = tmp_path / "fake_audit.py"
    pattern = save(sample_audit(), tmp_path / "pattern")
    script.write_text(FAKE.format(pattern=str(pattern)))

    def command(mode):
        return lambda wanted: [
            sys.executable, str(script), str(wanted.runs), wanted.model, wanted.data, mode,
        ]  # fmt: skip

    command.script = script
    return command


@pytest.fixture
def folders(tmp_path):
    """A root with models and data, and a folder of runs; what lies beside them must not be reached."""
    root, runs = tmp_path / "root", tmp_path / "runs"
    (root / "scenes" / "images").mkdir(parents=True)
    (root / "net.onnx").write_bytes(b"not looked into")
    (root / "scenes" / "annotations.json").write_text("{}")
    (root / ".hidden").mkdir()
    runs.mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "secret.onnx").write_bytes(b"secret")
    return root, runs


@pytest.fixture
def two_runs(folders):
    """Two audits in the folder of runs, the better one newer; their folders."""
    first, second = folders[1] / "audit-net-on-scenes-000001", folders[1] / "audit-net-on-scenes-000002"
    save(sample_audit(), first)
    save(replace(better_audit(), created="2026-02-03T04:05:06+00:00"), second)
    return first, second


@pytest.fixture
def site(folders, fake):
    """A function that opens the site with a stand-in of that mode and gives a client; closed at the end."""
    pytest.importorskip("starlette", reason="no Starlette: pip install 'holdfast[web]'")
    from starlette.testclient import TestClient

    from holdfast.web.app import app_of
    from holdfast.web.jobs import Patience

    @contextmanager
    def client(mode="quick", command=None):
        app = app_of(
            *folders,
            port=PORT,
            command=command or fake(mode),
            patience=Patience(interrupt=0.3, terminate=0.3),
        )
        with TestClient(
            app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False, raise_server_exceptions=True
        ) as made:
            made.token = app.state.site.token
            made.queue = app.state.site.queue
            yield made

    return client
