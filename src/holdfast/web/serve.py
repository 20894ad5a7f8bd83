"""The server: two loopback sockets, and a shutdown that leaves no process behind."""

import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from holdfast.core.errors import InputError, OutputError
from holdfast.web.app import app_of
from holdfast.web.form import command_of
from holdfast.web.jobs import Command

ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_SETTINGS: dict[str, Any] = {
    "log_level": "critical", "access_log": False, "server_header": False, "proxy_headers": False,
    "ws": "none", "http": "h11", "loop": "asyncio", "lifespan": "on",
    "timeout_graceful_shutdown": 2, "limit_concurrency": 100, "timeout_keep_alive": 15,
}  # fmt: skip


def serve(
    root: Path, runs: Path, port: int, *, ready: Callable[[str], None], command: Command = command_of
) -> None:
    """Serve until a signal stops the server; call `ready` with the address once it accepts requests."""
    if not root.is_dir():
        raise InputError(f"{root}: expected a folder with models and data, got none")
    if runs.exists() and not runs.is_dir():
        raise InputError(f"--runs {runs}: expected a folder, got a file")
    sockets = bound(port)
    try:
        port = sockets[0].getsockname()[1]
        app = app_of(root, runs, port=port, command=command)
        server = _Server(uvicorn.Config(app, **_SETTINGS), lambda: ready(f"http://127.0.0.1:{port}/"))
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
