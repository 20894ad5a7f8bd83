"""The server: two loopback sockets, and a shutdown that leaves no process behind."""

import asyncio
import errno
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.core.errors import InputError, OutputError
from holdfast.web.app import app_of
from holdfast.web.form import command_of
from holdfast.web.jobs import Command

ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
REQUEST_SECONDS = 10.0  # until the next request is complete, or between two parts of a body
LINGER_SECONDS = 2.0  # for a browser to read the answer before the connection is closed
WAITING = 50  # connections without a request; with one more, the oldest is closed


class _Protocol(H11Protocol):
    """HTTP that closes connections which send no request, or stop in the middle of one."""

    waiting: ClassVar[dict["_Protocol", asyncio.TimerHandle]] = {}  # oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()
        if len(self.waiting) > WAITING:
            next(iter(self.waiting)).drop()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.SEND_BODY:
            if self.conn.their_state is not h11.IDLE:
                self._complete()
            else:
                self._expect()
        elif self.cycle is None or not self.cycle.response_complete:
            self._complete()
            self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._complete()
        # The rest of a body that was rejected is read for a moment only.
        self._expect(LINGER_SECONDS if self.conn.their_state is h11.SEND_BODY else REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._complete()
        super().connection_lost(exc)

    def _expect(self, seconds: float = REQUEST_SECONDS) -> None:
        """Start the time for the rest of a request, unless it is running."""
        if self not in self.waiting:
            self.waiting[self] = self.loop.call_later(seconds, self.drop)

    def _complete(self) -> None:
        timer = self.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def drop(self) -> None:
        """Close the connection."""
        self._complete()
        self.transport.abort()


_SETTINGS: dict[str, Any] = {
    "log_level": "critical", "access_log": False, "server_header": False, "proxy_headers": False,
    "ws": "none", "http": _Protocol, "loop": "asyncio", "lifespan": "on",
    "timeout_graceful_shutdown": 2, "limit_concurrency": 100,
}  # fmt: skip


def serve(
    root: Path,
    runs: Path,
    port: int,
    *,
    ready: Callable[[str], None],
    token: bool = True,
    command: Command = command_of,
) -> None:
    """Serve until a signal stops the server; call `ready` with the address once it accepts requests.

    With `token` the address contains a secret, and only a browser that opened it is answered.
    """
    if not root.is_dir():
        raise InputError(f"{root}: expected a folder with models and data, got none")
    if runs.exists() and not runs.is_dir():
        raise InputError(f"--runs {runs}: expected a folder, got a file")
    sockets = bound(port)
    try:
        port = sockets[0].getsockname()[1]
        key = secrets.token_urlsafe(24) if token else None
        app = app_of(root, runs, port=port, key=key, command=command)
        address = f"http://127.0.0.1:{port}/" + (f"?key={key}" if key else "")
        server = _Server(uvicorn.Config(app, **_SETTINGS), lambda: ready(address))
        with _quietly_stopped(server):
            server.run(sockets)
    finally:
        for listener in sockets:
            listener.close()


class _Server(uvicorn.Server):
    """A server that reports when it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


@contextmanager
def _quietly_stopped(server: uvicorn.Server) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM and a closed terminal: stop the children, then the server.

    The server raises the signal again after its shutdown, when nothing is left to do.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    previous = {number: signal.signal(number, stop) for number in numbers}
    # Otherwise the command's thread would handle the signal that is raised again.
    listener = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(listener, warn_on_full_buffer=False)


def bound(port: int) -> list[socket.socket]:
    """Sockets of that port, or of any free one for 0, on the loopback addresses of this machine."""
    sockets: list[socket.socket] = []
    try:
        for family, address in ADDRESSES:
            try:
                listener = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # address family not supported
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, sockets[0].getsockname()[1] if len(sockets) > 1 else port))
                listener.listen(128)  # reserves the port
            except OSError as problem:
                if problem.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and len(sockets) > 1:
                    sockets.pop().close()
                    continue
                raise
    except OSError as problem:
        for listener in sockets:
            listener.close()
        in_use, suggestion = problem.errno == errno.EADDRINUSE, port + 1 if 1024 <= port < 65535 else 8765
        reason = "is taken by another program" if in_use else f"cannot be used: {problem.strerror}"
        raise OutputError(f"port {port} {reason}; give another one, such as --port {suggestion}") from problem
    return sockets
