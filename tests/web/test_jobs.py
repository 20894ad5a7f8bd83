"""Audits as child processes: started, queued, followed, cancelled, and gone when the server goes."""

import json
import os
import re
import sys

import pytest

from helpers.server import gone, until
from holdfast.audit.options import AuditOptions
from holdfast.config.parser import parse
from holdfast.core.errors import InputError
from holdfast.web.form import Places, command_of, options_of

HERE = {"sec-fetch-site": "same-origin", "origin": "null"}


def start(client, **changed):
    fields = {"model": "net.onnx", "data": "scenes", "budget": "1m", "fail-if": "", **changed}
    return client.post("/start", data={**fields, "token": client.token}, headers=HERE)


def cancel(client, key):
    return client.post("/cancel", data={"key": key, "token": client.token}, headers=HERE)


def states(client):
    return [job.state for job in reversed(client.queue.jobs())]


def poll(client, **given):
    return client.get("/progress", params=given, headers={"hx-request": "true"})


def test_an_audit_runs_is_followed_and_is_listed(site, folders):
    with site("wait") as client:
        assert start(client).headers["location"] == "/#running"
        until(lambda: "of 40" in poll(client).text)
        first = poll(client)
        assert first.status_code == 200
        assert 'aria-current="step"' in first.text
        until(lambda: poll(client).text != first.text)  # it moves
        assert "<noscript>" in client.get("/").text
        alone = client.get("/progress").text
        assert '<noscript><meta http-equiv="refresh" content="1"></noscript>' in alone
        (folders[1] / "go").touch()
        until(lambda: states(client) == ["done"])
        last = poll(client)
        assert last.status_code == 286  # htmx stops asking
        assert 'hx-swap-oob="outerHTML:#run-list"' in last.text
        assert "net on scenes" not in first.text
        assert "refresh" not in client.get("/progress").text
        job = client.queue.jobs()[0]
        assert client.get(f"/log/{job.key}").text == "done\n"
        assert f"/page/{job.key}" not in client.get("/").text
        assert client.get(f"/page/{job.key}").status_code == 404
        (job.folder / "report.html").write_text("<h1>as told</h1>")
        assert f"/page/{job.key}" in client.get("/").text
        opened = client.get(f"/page/{job.key}")
        assert opened.text == "<h1>as told</h1>"
        assert "sandbox" in opened.headers["content-security-policy"]
        assert json.loads((job.folder / "job.json").read_text())["state"] == "done"


def test_what_was_said_and_shown_is_not_sent_again(site):
    with site("slow") as client:
        start(client)
        until(lambda: "of 40" in poll(client).text)
        said = "net.onnx on scenes: running, evaluate"
        text = client.get("/").text
        seen = text.split('name="version" value="')[1].split('"')[0]
        until(lambda: "running, noise" in poll(client).text)
        again = poll(client, announcement="net.onnx on scenes: running, noise", version=seen).text
        assert 'id="announcement"' not in again
        assert 'id="run-list"' not in again
        other = poll(client, announcement=said, version="another").text
        assert 'id="announcement"' in other
        assert 'id="run-list"' in other


def test_one_runs_the_others_wait_and_there_is_an_end_to_waiting(site, folders):
    with site("wait") as client:
        for _ in range(6):
            assert start(client).status_code == 303
        assert states(client) == ["running"] + ["queued"] * 5
        refused = start(client)
        assert refused.status_code == 429
        assert "already queued" in refused.text
        assert cancel(client, client.queue.jobs()[0].key).status_code == 303  # the last of the queue
        assert states(client)[-1] == "cancelled"
        (folders[1] / "go").touch()
        until(lambda: states(client) == ["done"] * 5 + ["cancelled"])


def test_cancelled_it_says_so_and_the_next_one_runs(site, folders):
    with site("slow") as client:
        start(client)
        start(client, data="scenes/images")
        folder = folders[1] / "audit-net-on-scenes-abcdef"
        until(lambda: (folder / "progress.json").exists())
        first = client.queue.jobs()[1]
        pid = first.pid
        assert cancel(client, first.key).status_code == 303
        until(lambda: states(client) == ["cancelled", "running"])
        assert gone(pid)
        assert json.loads((folder / "progress.json").read_text())["state"] == "cancelled"
        text = client.get("/").text
        assert "completed work is saved" in text
        assert "model=net.onnx&amp;data=scenes&amp;budget=1m" in text  # again, with one click
        assert cancel(client, first.key).status_code == 303  # once more changes nothing
        assert states(client) == ["cancelled", "running"]
        assert cancel(client, "nobody").status_code == 404


@pytest.mark.skipif(not hasattr(os, "fork"), reason="process groups are of Unix")
def test_one_that_will_not_end_is_ended_with_its_children(site, folders):
    with site("stubborn") as client:
        start(client)
        until(lambda: (folders[1] / "inner").exists() and "of 40" in poll(client).text)
        inner = int((folders[1] / "inner").read_text())
        job = client.queue.jobs()[0]
        cancel(client, job.key)
        assert "cancelling" in client.get("/").text
        until(lambda: states(client) == ["cancelled"])
        until(lambda: gone(job.pid) and gone(inner))


def test_when_the_server_ends_so_do_its_audits(site, folders):
    with site("slow") as client:
        start(client)
        start(client)
        until(lambda: "of 40" in poll(client).text)
        queue, pid = client.queue, client.queue.jobs()[1].pid
    assert gone(pid)
    assert [job.state for job in queue.jobs()] == ["cancelled", "cancelled"]
    with site("quick") as client:  # the next server knows of them
        assert states(client) == ["cancelled", "cancelled"]
        (client.queue.jobs()[0].folder / "job.json").write_text("{")
        old = client.queue.jobs()[1].folder / "job.json"
        old.write_text(old.read_text().replace('"cancelled"', '"running"'))
    with site("quick") as client:
        assert states(client) == ["interrupted"]


def test_a_failed_one_says_why_in_its_own_line_escaped(site):
    with site("fail") as client:
        start(client)
        until(lambda: states(client) == ["failed"])
        text = client.get("/").text
    assert "expected a model, got &lt;b&gt;nothing&lt;/b&gt;" in text


@pytest.mark.parametrize(
    ("code", "state", "note"),
    [
        (0, "done", ""),
        (1, "done", "a gate failed"),
        (4, "done", "some images failed"),
        (5, "done", "a gate is not decided"),
        (3, "failed", "exit code 3"),
    ],
)
def test_exit_codes_are_told_in_words(site, code, state, note):
    with site(command=lambda wanted: [sys.executable, "-c", f"raise SystemExit({code})"]) as client:
        start(client)
        until(lambda: not client.queue.jobs()[0].live)
        assert client.queue.jobs()[0].state == state
        assert note in client.queue.jobs()[0].note


def test_a_command_that_cannot_be_started_is_a_failed_audit(site):
    with site(command=lambda wanted: ["/nowhere/at/all"]) as client:
        start(client)
        assert states(client) == ["failed"]
        assert "could not start" in client.get("/").text


def test_an_audit_of_another_terminal_is_shown_but_not_ended_here(site, folders):
    folder = folders[1] / "audit-other-on-scenes-123456"
    folder.mkdir()
    plain = {
        "state": "running",
        "part": "noise",
        "done": 3,
        "total": 9,
        "started": "2026-01-01T00:00:00+00:00",
        "pid": os.getpid(),
        "parts": ["noise"],
    }
    (folder / "progress.json").write_text(json.dumps(plain))
    with site() as client:
        text = client.get("/").text
        assert "audit-other-on-scenes-123456" in text
        assert "3 of 9" in text
        assert re.search(r'class="elapsed">\d+:\d\d min<', text)
        assert 'action="/cancel"' not in text
        (folder / "progress.json").write_text(json.dumps({**plain, "pid": 2**22 + 12345}))
        assert "3 of 9" not in client.get("/").text  # its process is gone
        for damaged in ("[]", "{", '{"pid": "x", "parts": 3, "done": -1}', "null"):
            (folder / "progress.json").write_text(damaged)
            assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"model": ""}, "model: expected"),
        ({"model": "../secret/secret.onnx"}, "below the root"),
        ({"model": "/etc/passwd"}, "below the root"),
        ({"model": "scenes"}, "expected an .onnx file"),
        ({"model": "upload:../../secret/secret.onnx"}, "below the root"),
        ({"model": "upload:../audit.onnx"}, "below the root"),
        ({"model": "--version"}, "below the root"),
        ({"data": ""}, "data: expected"),
        ({"data": "../secret"}, "below the root"),
        ({"data": "-o"}, "below the root"),
        ({"data": "signs:x"}, "below the root"),
        ({"budget": "soon"}, "--budget"),
        ({"budget": "-1m"}, "--budget"),
        ({"places": "3"}, "places: expected a whole number from 4"),
        ({"only": "squares\natack"}, "only: expected"),
        ({"fail-if": "noise.map50.points_lost"}, "gates"),
        ({"fail-if": "--json=x > 1"}, "gates"),
        ({"fail-if": "nois.map50.drop > 0.02"}, "Did you mean"),
        ({"fail-if": "\n".join(["noise.map50.points_lost > 2"] * 60)}, "at most 50"),
        ({"fail-if": "noise.map50.points_lost\x00 > 0.02"}, "printable"),
    ],
)
def test_a_form_that_cannot_be_taken_comes_back_with_one_line(site, changed, line):
    with site() as client:
        found = start(client, **changed)
        assert found.status_code == 400
        assert line in found.text
        assert found.text.count('role="alert"') == 1
        assert 'name="budget"' in found.text
        assert client.queue.jobs() == []


def test_the_command_is_a_list_in_which_no_field_can_be_an_option(folders):
    root, runs = folders
    (root / "-o.onnx").touch()
    (root / "--version").mkdir()
    gates = "noise.map50.points_lost > 2\n\n  clean.map50 < 0.5 "
    values = {"model": "-o.onnx", "data": "--version", "budget": "90s", "split": "--json=x", "fail-if": gates}
    options = options_of(values, Places(root, runs), runs / "page.html")
    assert command_of(options) == [
        sys.executable, "-P", "-m", "holdfast", "audit", str(root / "-o.onnx"), str(root / "--version"),
        "--budget", "90s", "--split=--json=x", "--runs", str(runs),
        "--fail-if", "noise.map50.points_lost > 2", "--fail-if", "clean.map50 < 0.5",
        "-o", str(runs / "page.html"),
    ]  # fmt: skip
    with pytest.raises(InputError):
        options_of(values | {"budget": "x" * 5000}, Places(root, runs), runs)


def test_the_audit_command_parses_to_the_options_of_the_form(folders):
    runs = folders[1]
    gates = ("noise.map50.points_lost > 2",)
    options = AuditOptions(
        model="signs-yolo", data="signs:0:4", budget="90s", fail_if=gates, runs=runs, out=runs / "page.html"
    )
    assert parse(AuditOptions, command_of(options)[5:]) == options
