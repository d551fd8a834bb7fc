"""Live page of a running graph: a server on this machine only, and the event feed behind it.

The program's side of the feed is one tuple written into a ring: it never waits, whatever a browser
does. A reader that is too slow misses events, knows how many, and reads the whole graph again.
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from ...core.errors import AdjointError
from .page import detail, page_data, to_html, to_json
from .snapshot import Snapshot

RING = 1 << 16  # events that a slow reader may be behind
TICK = 0.05  # seconds between two messages to a browser
PAUSE = 0.2  # seconds without an event after which the next one begins a new update


class Event(NamedTuple):
    """An event of a node: it ran, was reused, or was cut off."""

    number: int
    what: str  # "ran", "reused" or "cut"
    node: int
    time_us: float
    at: float  # time.monotonic()


class Feed:
    """Ring buffer of the last events, written by the program's threads and read by the server's."""

    def __init__(self, size: int = RING) -> None:
        self._ring: list[Event | None] = [None] * size
        self._next = itertools.count().__next__  # one step, so two writers never share a place
        self._written = 0

    def push(self, what: str, node: int, time_us: float = 0.0) -> None:
        """Append an event; never waits."""
        number = self._next()
        self._ring[number % len(self._ring)] = Event(number, what, node, time_us, time.monotonic())
        self._written = number + 1

    def read(self, cursor: int) -> tuple[list[Event], int, int]:
        """The events from number `cursor` on, how many of them are lost, and the next cursor."""
        end = self._written
        first = max(cursor, end - len(self._ring))
        slots = [self._ring[number % len(self._ring)] for number in range(first, end)]
        events = [
            event
            for number, event in zip(range(first, end), slots, strict=True)
            if event is not None and event.number == number
        ]
        return events, end - cursor - len(events), end

    @property
    def end(self) -> int:
        """The number of the next event."""
        return self._written


class ShownObject(Protocol):
    """The object that a live page shows."""

    def snapshot(self) -> Snapshot:
        """The present graph."""

    def structure(self) -> object:
        """A value that differs after nodes came or went; quick to compute."""


class Updates:
    """Conversion of events into messages, one instance per browser."""

    def __init__(self, feed: Feed, total: Callable[[], int]) -> None:
        self.feed = feed
        self.total = total
        self.cursor = feed.end
        self.ran: set[int] = set()
        self.reused: set[int] = set()
        self.last = 0.0

    def message(self) -> dict[str, Any] | None:
        """A message about events since the last one; None if there are none."""
        events, lost, self.cursor = self.feed.read(self.cursor)
        if not events and not lost:
            return None
        fresh = bool(events) and events[0].at - self.last > PAUSE
        times: dict[int, float | None] = {}
        for event in events:
            if event.at - self.last > PAUSE:  # only the last update is shown
                self.ran.clear()
                self.reused.clear()
                times.clear()
                fresh = True
            self.last = event.at
            if event.what == "ran":
                self.ran.add(event.node)
                times[event.node] = round(event.time_us, 1)
            else:
                self.reused.add(event.node)
                times.setdefault(event.node, None)
        text = f"{len(self.ran):,} of {self.total():,} node{'s'[: self.total() != 1]} ran"
        if self.reused - self.ran:
            text += f", {len(self.reused - self.ran):,} reused"
        nodes = [[node, "fresh", took] for node, took in times.items()]
        return {"update": fresh, "nodes": nodes, "text": text, "changed": lost > 0}


class LiveServer:
    """Server of one graph's page at `url`, until `close()`.

    Only programs of this machine reach it, only under a name of this machine (so no other site's
    page can, by giving its own name this address), and only with the random token in `url`.

    >>> from adjoint.view.live import Feed, LiveServer
    >>> class Fixed:
    ...     def snapshot(self):
    ...         return ad.ones(1, requires_grad=True).graph()
    ...     def structure(self):
    ...         return 0
    >>> with LiveServer(Fixed(), Feed()) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, source: ShownObject, feed: Feed) -> None:
        self.source = source
        self.feed = feed
        self.token = secrets.token_urlsafe(24)
        self.closed = threading.Event()
        self.shown = 0  # nodes of the snapshot that was served last
        server = self

        class BoundHandler(Handler):
            live = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), BoundHandler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LiveServer at {self.url}, {'closed' if self.closed.is_set() else 'open'}>"

    @property
    def port(self) -> int:
        """The port that the system chose."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """The page's address, with its token."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def snapshot(self) -> Snapshot:
        """The present graph; messages refer to its number of nodes."""
        snapshot = self.source.snapshot()
        self.shown = len(snapshot.nodes)
        return snapshot

    def close(self) -> None:
        """Stop serving."""
        self.closed.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Handler(BaseHTTPRequestHandler):
    """HTTP handler of one request."""

    live: LiveServer
    timeout = 30  # of a browser that takes nothing
    server_version = "adjoint"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page, its data, a node's details, or the stream of events."""
        port = self.live.port
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return self._refuse(403, "this server answers only to a name of its own machine")
        token, _, path = urlsplit(self.path).path[1:].partition("/")
        if not secrets.compare_digest(token.encode(), self.live.token.encode()):
            return self._refuse(404, "not found; the address is the one that was printed")
        try:
            if path == "":
                self._answer(to_html(self.live.snapshot(), live=True), "text/html")
            elif path == "graph":
                data = page_data(self.live.snapshot(), details=False)
                self._answer(to_json({**data, "live": True}), "application/json")
            elif path.startswith("node/"):
                self._node(path.removeprefix("node/"))
            elif path == "events":
                self._stream()
            else:
                self._refuse(404, "not found")
        except AdjointError as error:
            self._refuse(500, str(error))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True  # the browser has gone

    def _node(self, text: str) -> None:
        for node in self.live.snapshot().nodes:
            if str(node.id) == text:
                return self._answer(
                    to_json({"state": node.state, **detail(node)}), "application/json"
                )
        return self._refuse(404, "no such node")

    def _stream(self) -> None:
        self._head(200, "text/event-stream")
        for message in self._messages():
            self.wfile.write(message)
            self.wfile.flush()

    def _messages(self) -> Iterator[bytes]:
        """Messages for a browser as server-sent events; a comment now and then tests whether it is
        still connected.
        """
        live = self.live
        updates = Updates(live.feed, lambda: live.shown)
        structure = live.source.structure()
        yield b": hello\n\n"
        quiet = 0
        while not live.closed.wait(TICK):
            message = updates.message()
            now = live.source.structure()
            if now != structure:
                structure = now
                message = {**(message or {}), "changed": True}
            quiet = 0 if message else quiet + 1
            if message:
                yield f"data: {json.dumps(message)}\n\n".encode()
            elif quiet % 100 == 0:
                yield b": still here\n\n"

    def _answer(self, text: str, kind: str) -> None:
        body = text.encode()
        self._head(200, f"{kind}; charset=utf-8", len(body))
        self.wfile.write(body)

    def _refuse(self, status: int, why: str) -> None:
        body = why.encode()
        self._head(status, "text/plain; charset=utf-8", len(body))
        self.wfile.write(body)

    def _head(self, status: int, kind: str, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()

    def log_message(self, format: str, *values: Any) -> None:
        """Does nothing: the program's own output is on the terminal."""
