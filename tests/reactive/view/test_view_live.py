"""The live page: the feed never waits, the server answers only whom it should, the page follows."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import adjoint as ad
from adjoint.view import live
from adjoint.view.graphs import Watched
from adjoint.view.live import Feed, LiveServer, Updates
from adjoint.view.snapshot import Edge, NodeInfo, Snapshot

from . import chromium


class Chain:
    """A graph of `count` nodes in a row, as the source of a page."""

    def __init__(self, count):
        self.count = count
        self.state = "stale"

    def snapshot(self):
        nodes = [
            NodeInfo(i, "add", state=self.state, value=lambda i=i: ad.full((2,), i).numpy())
            for i in range(self.count)
        ]
        return Snapshot(nodes, [Edge(i, i + 1, 0) for i in range(self.count - 1)], "chain")

    def structure(self):
        return self.count


def get(server, path, host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", f"127.0.0.1:{server.port}" if host is None else host)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body.decode()


# ---- the feed ------------------------------------------------------------------------------------


def test_readers_get_all_events_in_order():
    feed = Feed(8)
    for node in range(5):
        feed.push("ran", node, 1.5)
    events, lost, cursor = feed.read(0)
    assert [event.node for event in events] == [0, 1, 2, 3, 4] and (lost, cursor) == (0, 5)
    assert feed.read(cursor) == ([], 0, 5)


def test_a_slow_reader_loses_the_oldest_and_knows_it():
    feed = Feed(8)
    for node in range(20):
        feed.push("ran", node)
    events, lost, cursor = feed.read(0)
    assert [event.node for event in events] == list(range(12, 20)) and lost == 12 and cursor == 20


def test_many_writers():
    feed = Feed(1 << 14)
    threads = [
        threading.Thread(target=lambda k=k: [feed.push("ran", k) for _ in range(1000)])
        for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events, lost, _ = feed.read(0)
    assert len(events) == 8000 and lost == 0
    assert sorted({event.node for event in events}) == list(range(8))


def test_messages_count_one_update(monkeypatch):
    now = 100.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    feed = Feed()
    updates = Updates(feed, lambda: 10_000)
    assert updates.message() is None
    feed.push("ran", 1, 2.0)
    feed.push("ran", 2, 3.0)
    feed.push("reused", 3)
    message = updates.message()
    assert message["text"] == "2 of 10,000 nodes ran, 1 reused"
    assert message["nodes"] == [[1, "fresh", 2.0], [2, "fresh", 3.0], [3, "fresh", None]]
    assert message["update"] and not message["changed"]
    feed.push("ran", 4, 1.0)  # at once: the same update
    message = updates.message()
    assert message["text"].startswith("3 of") and not message["update"]
    now += 1.0
    feed.push("ran", 1, 1.0)
    message = updates.message()
    assert message["text"] == "1 of 10,000 nodes ran" and message["update"]


def test_lost_events_make_the_page_read_the_graph_again():
    feed = Feed(4)
    updates = Updates(feed, lambda: 6)
    for node in range(6):
        feed.push("ran", node)
    assert updates.message()["changed"]


# ---- the server ----------------------------------------------------------------------------------


@pytest.fixture
def server():
    with LiveServer(Chain(3), Feed()) as made:
        yield made


def test_only_this_machine_can_reach_it(server):
    assert server._http.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 32


def test_what_is_served(server):
    root = f"/{server.token}/"
    answer, page = get(server, root)
    assert answer.status == 200 and "connect-src 'self'" in page
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers
    data = json.loads(get(server, root + "graph")[1])
    assert data["live"] and len(data["nodes"]) == 3 and "statistics" not in data["nodes"][0]
    found = json.loads(get(server, root + "node/2")[1])
    assert found["state"] == "stale" and found["statistics"]["mean"] == 2
    assert get(server, root + "node/9")[0].status == 404
    assert get(server, root + "etc/passwd")[0].status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "evil.example:{port}", ""]
)
def test_other_names_of_the_machine_are_refused(server, host):
    """A site that gives its own name this address (DNS rebinding) learns nothing."""
    answer, body = get(server, f"/{server.token}/graph", host.format(port=server.port))
    assert answer.status == 403 and "chain" not in body


@pytest.mark.parametrize("path", ["/", "/graph", "/x/", "/{token}x/", "/x/{token}/", "/é/"])
def test_without_the_token_nothing_is_found(server, path):
    path = path.format(token=server.token).encode().decode("latin-1")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection._encode_request = lambda text: text.encode("latin-1")
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", f"localhost:{server.port}")
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 404 and b"address" in answer.read()
    connection.close()


def test_other_methods_are_refused(server):
    assert get(server, f"/{server.token}/", method="POST")[0].status == 501


def test_a_browser_that_reads_nothing_does_not_hold_up_the_program():
    """The stream's thread is stuck writing; pushing goes on, and closing too."""
    feed = Feed(64)
    with LiveServer(Chain(2000), feed) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", f"/{server.token}/events")
        for node in range(200_000):
            feed.push("ran", node % 2000)
        assert feed.end == 200_000
        connection.close()


def test_events_stream(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", f"/{server.token}/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.readline() == b": hello\n"
    server.feed.push("ran", 1, 5.0)
    assert answer.readline() == b"\n"
    found = json.loads(answer.readline().removeprefix(b"data: "))
    assert found["nodes"] == [[1, "fresh", 5.0]]
    server.source.count = 4
    assert answer.readline() == b"\n"
    assert json.loads(answer.readline().removeprefix(b"data: "))["changed"]
    answer.close()
    connection.close()


# ---- following a Graph ---------------------------------------------------------------------------


def test_what_is_followed():
    """`graph` before other variables, the named one before it; a tensor stands for its graph."""
    feed = Feed()
    names = {}
    watched = Watched(names, None, feed, "p")
    assert watched.find() is None and watched.snapshot().nodes == []
    first, second = ad.Graph(), ad.Graph()
    names["y"] = first.input(1.0) + 1
    assert watched.find() is first._state
    names.update(graph=second, last=first)
    assert watched.find() is second._state
    assert Watched(names, "last", feed, "p").find() is first._state
    assert Watched(names, "missing", feed, "p").find() is None


def test_events_of_a_graph_reach_the_feed():
    feed, graph = Feed(), ad.Graph()
    x, w = graph.input(2.0), graph.input(3.0)
    y = x * w + x
    watched = Watched({"graph": graph}, None, feed, "p")
    with graph.events() as log:
        watched.structure()
        y.item()
    assert [event.what for event in feed.read(0)[0]] == ["ran"] * len(log.ran) == ["ran"] * 2
    watched.find()  # the block has ended and taken its observer away: attached again
    end = feed.end
    x.set(5.0)
    with graph.events() as log:
        y.item()
    events = feed.read(end)[0]
    assert [event.node for event in events] == [id(cell) for cell in log.cells]
    ids = {node.id for node in watched.snapshot().nodes}
    assert {event.node for event in events} <= ids and all(e.time_us > 0 for e in events)


def test_the_structure_changes_with_nodes_and_edits(monkeypatch):
    graph = ad.Graph()
    x = graph.input(2.0)
    y = x * 3
    watched = Watched({"graph": graph}, None, Feed(), "p")
    monkeypatch.setattr(watched, "_next", 0.0)
    seen = [watched.structure()]
    z = y + 1
    monkeypatch.setattr(watched, "_next", 0.0)
    seen.append(watched.structure())
    z.set_input(0, x)
    monkeypatch.setattr(watched, "_next", 0.0)
    seen.append(watched.structure())
    assert len(set(seen)) == 3


# ---- in a browser --------------------------------------------------------------------------------

in_browser = pytest.mark.skipif(chromium.PROGRAM is None, reason="Debian's chromium is missing")


@pytest.fixture(scope="module")
def browser():
    made = chromium.Browser()
    yield made
    made.close()


@in_browser
def test_the_page_follows(browser):
    feed, source = Feed(), Chain(10_000)
    with LiveServer(source, feed) as server:
        browser.open(server.url)
        assert browser.run("count") == 10_000
        browser.wait("stream.readyState === 1")
        time.sleep(0.3)  # the stream begins with what comes after it was opened
        for node in (5, 6, 7):
            feed.push("ran", node, 12.5)
        browser.wait("$('progress').textContent === '3 of 10,000 nodes ran'")
        assert browser.run("[...glow.keys()]") == [5, 6, 7]
        assert browser.run("nodes[6].state + nodes[6].time + nodes[8].state") == "fresh12.5stale"
        browser.run("show(7)")
        browser.wait("$('panel').innerText.includes('mean')")
        assert browser.errors == []
        source.count = 20
        browser.wait("count === 20")
    browser.wait("$('progress').textContent === 'the program has ended'")


PROGRAM = """
import time
import adjoint as ad
graph = ad.Graph()
with graph:
    x, w = graph.input((2,), "x"), graph.input((2,), "w")
    h = x * w
    for _ in range(50):
        w2 = w + 1
        h = h + w2
    y = h + x
w.set(ad.ones(2))
print("ready", flush=True)
while True:
    x.set(ad.ones(2))
    y.numpy()
    time.sleep(0.4)
"""


@in_browser
def test_the_command_follows_a_program(browser, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "-m", "adjoint", "view", "--live", "program.py"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ad.__file__))},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in background
    )  # fmt: skip
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+/\S+", process.stdout.readline()).group()
        assert process.stdout.readline() == "ready\n"
        browser.open(url)
        browser.wait(
            "count > 100 && /^[0-9]+ of 1[0-9][0-9] nodes ran/.test($('progress').textContent)"
        )
        assert browser.errors == []
    finally:
        try:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
