"""The report of a run while it goes on, served to a browser on this machine and to nobody else."""

from __future__ import annotations

import errno
import json
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any

from tianji.core.errors import TianJiError
from tianji.observe.report import LIVE_PORT
from tianji.observe.report.run_files import MISSING, Stamp, stamp_of

if TYPE_CHECKING:  # numpy is loaded when somebody looks, not when a run starts
    from tianji.observe.report.run_reader import RunReader

HOST = "127.0.0.1"
LOOKED_SECONDS = 3.0  # since the last question: somebody is looking
LINGER_SECONDS = 2.5  # that the end waits for them to see it
SILENT_SECONDS = 5.0  # that a browser may say nothing
REQUEST_SECONDS = 15.0  # that it may take to ask and to hear the answer, in all
MOST_CONNECTIONS = 16  # at once: each holds a thread and a descriptor that the run may need


class Dashboard:
    """A page that shows one run live: started before the run, closed after it.

    dashboard = Dashboard(folder, None)
    url = dashboard.start()
    ...                                          # train
    dashboard.close()

    It only reads the run's folder. Whoever may log in to this machine may look; no other can.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._port = LIVE_PORT if port is None else port
        self._source = PageSource(folder)
        self._server: ThreadingTCPServer | None = None

    def start(self) -> str:
        """Begins to serve beside everything else; returns the address to open."""
        self._server = _bound(self._port, self._source)
        threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="dashboard", daemon=True
        ).start()
        return f"http://{HOST}:{self._server.server_address[1]}/"

    def close(self) -> None:
        """Ends; if somebody is looking, only once they have been told how the run ended."""
        if self._server is None:
            return
        if self._source.end_awaited():
            self._source.end_seen.wait(LINGER_SECONDS)
        self._server.shutdown()
        self._server.server_close()
        self._server = None


def _bound(port: int, source: PageSource) -> ThreadingTCPServer:
    if not 0 <= port <= 65_535:
        raise TianJiError(f"dashboard: want a port from 0 to 65535, got {port}")
    other = port + 1 if 1024 <= port < 65_535 else LIVE_PORT  # those below belong to the system
    advice = f"name another, as in --dashboard {other}, or 0 for any that is free"
    try:
        return _Server((HOST, port), partial(_Handler, source))
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"failed: {error.strerror}"
        raise TianJiError(f"dashboard: port {port} {why}: {advice}") from error


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True  # a browser that hangs keeps no run from ending

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._deadlines: dict[socket.socket, float] = {}  # of the connections that are open
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own, or hangs up if too many are being answered."""
        with self._lock:
            full = len(self._deadlines) >= MOST_CONNECTIONS
            if not full:
                self._deadlines[request] = time.monotonic() + REQUEST_SECONDS
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Hangs up on whoever takes too long; called several times a second."""
        now = time.monotonic()
        with self._lock:  # under which no connection closes and leaves its number to another
            for request in [each for each, end in self._deadlines.items() if end < now]:
                with suppress(OSError):  # the other side has hung up first
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """The end of every connection, however it came."""
        with self._lock:
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says what went wrong, unless a browser has just gone in the middle of an answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class PageSource:
    """What is served: the page, and the run's data as it stands."""

    def __init__(self, folder: Path) -> None:
        self.end_seen = threading.Event()
        self._folder = folder
        self._lock = threading.Lock()
        self._reader: RunReader | None = None
        self._stamp: tuple[Any, ...] | None = None
        self._data = b""
        self._asked_at = float("-inf")
        self._before: Stamp = stamp_of(folder / "summary.json")  # of a run that is resumed

    def end_awaited(self) -> bool:
        """Whether the run has ended while somebody is looking."""
        ended = stamp_of(self._folder / "summary.json") not in (MISSING, self._before)
        return ended and time.monotonic() - self._asked_at < LOOKED_SECONDS

    def page(self) -> tuple[bytes, str]:
        """The page, which asks for the data itself, and the policy that it is to be shown under."""
        from tianji.observe.report.page import page, policy

        return page(None).encode(), policy(live=True)

    def data(self) -> tuple[bytes, bool]:
        """The run as JSON, made anew only when a file has changed, and whether it has ended."""
        from tianji.observe.report.page import data_of
        from tianji.observe.report.run_reader import RunReader

        with self._lock:
            self._asked_at = time.monotonic()
            if self._reader is None:
                self._reader = RunReader(self._folder, self._before)
            if (stamp := self._reader.refresh()) != self._stamp:
                self._stamp = stamp
                document = data_of([self._reader.document(live=True)])
                self._data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
            return self._data, self._reader.ended


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of two addresses, if they are asked of this machine by its own name."""

    timeout = SILENT_SECONDS

    def __init__(self, source: PageSource, *args: Any) -> None:
        self._source = source
        super().__init__(*args)  # which answers the request

    def do_GET(self) -> None:
        """The page or its data."""
        path = self.path.partition("?")[0]
        if not self._asked_of_us():
            self._refuse(HTTPStatus.FORBIDDEN)
        elif path == "/":
            page, policy = self._source.page()
            self._send(HTTPStatus.OK, "text/html", page, f"{policy}; frame-ancestors 'none'")
        elif path == "/data.json":
            data, ended = self._source.data()
            self._send(HTTPStatus.OK, "application/json", data)
            if ended and self.command == "GET":
                self._source.end_seen.set()
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Nothing can be changed from here."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _asked_of_us(self) -> bool:
        """A page elsewhere could make its own name point here; then the browser names that host."""
        assert isinstance(self.server, _Server)
        ours = {f"{host}:{self.server.server_address[1]}" for host in (HOST, "localhost", "[::1]")}
        named = self.headers.get_all("Host") or []
        return len(named) == 1 and named[0].strip().lower() in ours

    def _refuse(self, status: HTTPStatus) -> None:
        self._send(status, "text/plain", f"{status.value} {status.phrase}\n".encode())

    def _send(
        self, status: HTTPStatus, kind: str, body: bytes, policy: str = "default-src 'none'"
    ) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
        }
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET, HEAD"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Says no more about this machine than it must."""
        return "tianji"

    def log_message(self, format: str, *args: Any) -> None:
        """A line for every question would bury what the run has to say."""
