"""An S3-compatible server on loopback: moto behind a proxy that injects faults."""

import http.client
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = {"500": 500, "503": 503}


class FaultyProxy(ThreadingHTTPServer):
    """Requests are passed on to a port; the next ones of `faults` fail instead: 500, 503, late or cut."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.faults, self.requests = port, [], []
        self.lock = threading.Lock()

    def next_fault(self, line):
        with self.lock:
            self.requests.append(line)
            return self.faults.pop(0) if self.faults else ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fault = self.server.next_fault(f"{self.command} {self.path}")
        if fault in FAULTS:
            self.send_response(FAULTS[fault])
            self.send_header("content-length", "0")
            self.end_headers()
            return
        if fault == "late":
            time.sleep(1.5)
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=30)
        upstream.request(self.command, self.path, body, dict(self.headers))
        reply = upstream.getresponse()
        content = reply.read()
        upstream.close()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                self.send_header(name, value)
        length = reply.getheader("content-length") if self.command == "HEAD" else str(len(content))
        self.send_header("content-length", length or "0")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
        if fault == "cut":
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815


@contextmanager
def s3_server(bucket):
    """The proxy in front of a new server with one empty bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    proxy = FaultyProxy(port)
    threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request("PUT", f"/{bucket}")
    link.getresponse().read()
    link.close()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()
