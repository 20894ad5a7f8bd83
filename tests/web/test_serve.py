"""The server itself: loopback only, one line for a taken port, and an end that leaves nothing behind."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.server import gone, served, until
from holdfast.core.errors import OutputError

pytest.importorskip("uvicorn", reason="no uvicorn: pip install 'holdfast[web]'")


def test_only_addresses_of_this_machine_are_bound():
    from holdfast.web.serve import bound

    made = bound(0)
    try:
        names = [one.getsockname() for one in made]
        assert {name[0] for name in names} <= {"127.0.0.1", "::1"}
        assert "127.0.0.1" in {name[0] for name in names}
        assert len({name[1] for name in names}) == 1
        with pytest.raises(
            OutputError, match=f"port {names[0][1]} is taken by another program; give another"
        ):
            bound(names[0][1])
    finally:
        for one in made:
            one.close()


def test_a_taken_port_a_missing_root_and_an_unknown_port_are_one_line(fails, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = fails("serve", tmp_path, "--port", port, "--no-open")
    assert line == f"port {port} is taken by another program; give another one, such as --port {port + 1}"
    assert "expected a folder" in fails("serve", tmp_path / "none", "--no-open")
    assert "from 0 to 65535" in fails("serve", tmp_path, "--port", 65536)
    (tmp_path / "file").touch()
    assert "--runs" in fails("serve", tmp_path, "--runs", tmp_path / "file", "--port", 0, "--no-open")
    assert "unknown option '--host'" in fails("serve", "--host", "::")


@pytest.mark.parametrize("module", ["starlette", "uvicorn"])
def test_a_missing_extra_is_one_line_with_the_remedy(fails, tmp_path, monkeypatch, module):
    for name in [n for n in sys.modules if n.partition(".")[0] == module or n.startswith("holdfast.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    line = fails("serve", tmp_path, "--no-open")
    assert line == (f"the local web page needs {module}, which is not installed: pip install 'holdfast[web]'")


def test_without_htmx_the_remedy_is_named(monkeypatch):
    from importlib import metadata

    from holdfast.core.errors import MissingExtra
    from holdfast.web import render

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    render.htmx.cache_clear()
    with pytest.raises(MissingExtra, match=re.escape("pip install 'holdfast[web]'")):
        render.htmx()
    monkeypatch.undo()
    assert render.htmx().startswith("var htmx")
    assert "django" not in sys.modules


@pytest.mark.skipif(os.name == "nt", reason="signals are of Unix")
def test_the_command_serves_and_ctrl_c_ends_it(tmp_path):
    command = [sys.executable, "-m", "holdfast", "serve", ".", "--port", "0", "--no-open"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?key=(\S+)", line)
        port, key = int(found.group(1)), found.group(2)
        for host in ("127.0.0.1", "localhost"):
            asked = http.client.HTTPConnection(host, port, timeout=20)
            asked.request("GET", "/", headers={"Cookie": f"holdfast-{port}={key}"})
            found = asked.getresponse()
            assert found.status == 200
            assert found.getheader("server") is None
            asked.close()
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        asked.request("GET", "/", headers={"Host": f"evil.example:{port}"})
        assert asked.getresponse().status == 400
        asked.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (0, "stopped\n", "")


def test_without_the_key_of_the_address_nothing_is_answered(folders, fake):
    root, runs = folders

    def ask(path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, headers=headers)
        found = connection.getresponse()
        text = found.read().decode()
        connection.close()
        return found, text

    with served(root, runs, fake.script, "--token") as (_process, address):
        port = int(re.search(r":(\d+)/", address).group(1))
        key = address.partition("?key=")[2]
        for path in (
            "/",
            "/?key=wrong",
            "/runs",
            "/files",
            f"/runs?key={key}",
            "/static/style.css",
            "/log/x",
        ):
            found, text = ask(path)
            assert found.status == 403, path
            assert "open the address that `holdfast serve` printed" in text
        assert ask("/start", "POST", Origin=f"http://127.0.0.1:{port}")[0].status == 403
        assert ask("/", Cookie=f"holdfast-{port}=wrong; holdfast-1={key}")[0].status == 403
        found, _ = ask(f"/?key={key}")
        assert (found.status, found.getheader("location")) == (303, "/")
        cookie = found.getheader("set-cookie")
        assert cookie.startswith(f"holdfast-{port}={key};")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        found, text = ask("/", Cookie=f"other=1; holdfast-{port}={key}")
        assert found.status == 200
        assert key not in text


def test_connections_without_a_request_do_not_lock_others_out(folders, fake, monkeypatch):
    from holdfast.web import serve

    root, runs = folders
    with served(root, runs, fake.script) as (_process, address):
        port = int(address.rsplit(":", 1)[1].strip("/"))
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * serve.WAITING)]
        for connection in silent[::2]:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        asked.request("GET", "/")
        assert asked.getresponse().status == 200
        asked.close()
        silent[0].settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""  # closed, as the oldest
        for connection in silent:
            connection.close()


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HTTP/1.1\r\nHost:", b"POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\na"],
)
def test_a_request_that_stops_is_dropped(monkeypatch, begun):
    import asyncio

    import uvicorn

    from holdfast.web import serve

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass

    async def play():
        config = uvicorn.Config(app, **serve._SETTINGS | {"lifespan": "off"})
        config.load()
        loop = asyncio.get_running_loop()
        state = uvicorn.server.ServerState()
        server = await loop.create_server(lambda: serve._Protocol(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(begun)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        server.close()
        assert not serve._Protocol.waiting

    monkeypatch.setattr(serve, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(serve._Protocol._expect, "__defaults__", (0.2,))
    asyncio.run(play())


@pytest.mark.skipif(os.name == "nt", reason="signals are of Unix")
def test_the_audit_of_a_killed_server_ends(folders, fake):
    root, runs = folders
    with served(root, runs, fake.script) as (process, address):
        pid = started_audit(runs, address)
        process.kill()
        process.wait()
        until(lambda: gone(pid))


@pytest.mark.skipif(os.name == "nt", reason="signals are of Unix")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_however_it_is_ended_its_audit_ends_with_it(folders, fake, number):
    root, runs = folders
    with served(root, runs, fake.script) as (process, address):
        pid = started_audit(runs, address)
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        assert gone(pid)
        assert json.loads((runs / PROGRESS).read_text())["state"] == "cancelled"


PROGRESS = Path("audit-net-on-scenes-abcdef", "progress.json")


def started_audit(runs, address):
    """The process of an audit that is started by the form."""
    port = int(address.rsplit(":", 1)[1].strip("/"))
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    asked.request("GET", "/")
    token = re.search(r'name="token" value="([^"]+)"', asked.getresponse().read().decode()).group(1)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://127.0.0.1:{port}"}
    asked.request("POST", "/start", f"token={token}&model=net.onnx&data=scenes&budget=1m", headers)
    assert asked.getresponse().status == 303
    asked.close()
    until((runs / PROGRESS).exists)
    return json.loads((runs / PROGRESS).read_text())["pid"]
