"""The store of keys and values that processes share."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta

import pytest

import adjoint as ad
from adjoint.distributed import store_frames

dist = ad.distributed
HOST = "127.0.0.1"
SHORT, LONG = timedelta(seconds=0.2), timedelta(seconds=60)


@pytest.fixture
def store():
    return dist.TCPStore(HOST, 0, is_master=True, timeout=LONG)


def client(store, **options):
    return dist.TCPStore(HOST, store.port, timeout=options.pop("timeout", LONG), **options)


def steps(store, library):
    """What the operations give, one after another."""

    def failing(kind, operation):
        with pytest.raises(kind):
            operation()
        return kind.__name__

    store.set("text", "1")
    store.set("bytes", b"\xff\0")
    yield store.get("text"), store.get("bytes"), store.num_keys()
    yield store.add("n", 3), store.add("n", -5), store.get("n"), store.add("text", 1)
    yield store.compare_set("c", "", "v"), store.compare_set("c", "v", "w")
    yield store.compare_set("c", "other", "x"), store.compare_set("d", "other", "x")
    yield store.check(["c", "n"]), store.check(["c", "d"]), store.check([])
    yield store.delete_key("c"), store.delete_key("c"), store.wait(["n"])
    store.append("l", "x")
    store.append("l", "y")
    store.multi_set(["p", "q"], ["1", "2"])
    yield store.get("l"), store.multi_get(["q", "p"])
    yield failing(library.DistStoreError, lambda: store.multi_set(["p"], ["1", "2"]))
    yield failing(library.QueueEmptyError, lambda: store.queue_pop("k", False)), store.num_keys()
    store.queue_push("k", "1")
    store.queue_push("k", "2")
    yield (
        store.queue_len("k"),
        store.num_keys(),
        store.queue_len("none"),
        store.queue_pop("k"),
        sorted(store.list_keys()),
    )
    yield store.queue_pop("k", False), store.queue_len("k"), store.num_keys()
    store.set_timeout(SHORT)
    yield store.timeout, store.has_extended_api(), store.host
    yield failing(library.DistStoreError, lambda: store.get("missing"))
    yield failing(library.DistStoreError, lambda: store.wait(["n", "missing"], SHORT))
    yield failing(library.DistStoreError, lambda: store.queue_pop("k"))
    yield (
        failing(TypeError, lambda: store.set("n", 1)),
        failing(TypeError, lambda: pickle.dumps(store)),
    )
    yield store.clone().get("n")


def test_operations_give_what_pytorchs_give(store):
    library = pytest.importorskip("torch.distributed")
    theirs = library.TCPStore(HOST, 0, None, True, LONG)
    assert list(steps(store, dist)) == list(steps(theirs, library))


OTHER = """
import sys
from datetime import timedelta
import adjoint as ad
store = ad.distributed.TCPStore("127.0.0.1", int(sys.argv[1]), 2, timeout=timedelta(seconds=60))
store.set("from the other", store.get("from the first") + b"!")
store.barrier("both", 2)
print(store.add("sum", 2), store.queue_pop("tasks"))
"""
SERVER = """
import time
import adjoint as ad
store = ad.distributed.TCPStore("127.0.0.1", 0, is_master=True)
store.set("x", "1")
print(store.port, flush=True)
time.sleep(600)
"""


def started(program, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_share_values():
    with socket.create_server((HOST, 0)) as listener:  # the other one may come before the store
        port = listener.getsockname()[1]
    other = started(OTHER, str(port))
    store = dist.TCPStore(HOST, port, 2, True, LONG)  # waits for both
    store.queue_push("tasks", "job")
    store.set("from the first", "hello")
    assert store.get("from the other") == b"hello!"
    store.barrier("both", 2)
    assert store.num_keys() >= 3 and store.get("init/") == b"2"
    assert other.communicate(timeout=120)[0] == "2 b'job'\n" and other.returncode == 0


def test_a_lost_server_is_an_error_for_who_waits_and_who_comes_later():
    server = started(SERVER)
    port = int(server.stdout.readline())
    store = dist.TCPStore(HOST, port, timeout=LONG)
    assert store.get("x") == b"1"
    threading.Timer(0.3, server.kill).start()
    with pytest.raises(dist.DistNetworkError, match="Did the remote server shutdown or crash"):
        store.get("what never comes")
    with pytest.raises(dist.DistNetworkError, match="lost before"):
        store.get("x")
    server.wait()
    server.stdout.close()
    with pytest.raises(dist.DistNetworkError, match="trying to connect"):
        dist.TCPStore(HOST, port, timeout=SHORT)


def test_time_outs_name_the_keys_and_leave_the_store_usable(store):
    with pytest.raises(dist.DistStoreError, match=r"wait timeout after 200ms, keys: a, b"):
        store.wait(["a", "b"], SHORT)
    with pytest.raises(dist.DistStoreError, match="keys: gate"):
        store.barrier("gate", 2, SHORT)
    with pytest.raises(dist.DistStoreError, match=r"waiting for clients. 1/2 clients joined"):
        dist.TCPStore(HOST, 0, 2, True, SHORT)
    assert dist.TCPStore(HOST, 0, 2, True, SHORT, wait_for_workers=False).get("init/") == b"1"
    assert store.add("n", 1) == 1
    other = client(store)
    waiting = threading.Thread(
        target=other.barrier, args=("gate", 2)
    )  # the one that gave up is not counted
    waiting.start()
    with pytest.raises(dist.DistStoreError):
        store.get("missing" if store.set_timeout(SHORT) is None else "")
    assert waiting.is_alive()
    store.barrier("gate", 2, LONG)
    waiting.join(60)
    assert not waiting.is_alive()


def test_it_listens_at_the_host_that_is_given_alone(store):
    for address in ("127.0.0.2", "::1"):  # of this machine as well
        with pytest.raises(OSError):
            socket.create_connection((address, store.port), 1)
    with pytest.raises(dist.DistNetworkError, match="port 0"):
        dist.TCPStore(HOST, store.port, is_master=True)
    shared = dist.TCPStore(HOST, store.port, is_master=True, multi_tenant=True)
    shared.set("x", "1")
    assert store.get("x") == b"1"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        store_frames.GREETING + b"\xff\xff\xff\xff",
        store_frames.GREETING + b"\0\0\0\x08\0\0\0\xffabcd",
        store_frames.GREETING + b"\0\0\0\x03abc",
        store_frames.GREETING + b"\0\0\0\0",
    ],
)
def test_what_no_store_sends_ends_the_connection(store, sent):
    with socket.create_connection((HOST, store.port), 60) as stranger:
        stranger.sendall(sent)
        with suppress(ConnectionResetError):  # with bytes that were not read
            assert stranger.recv(1) == b""
    assert store.add("n", 1) == 1


def test_requests_that_make_no_sense_are_refused(store):
    with pytest.raises(dist.DistStoreError, match=r"add: invalid literal"):
        store.add("n", 1 if store.set("n", "word") is None else 0)
    with pytest.raises(dist.DistStoreError, match="no such operation"):
        store._ask("__reduce__")
    with pytest.raises(dist.DistStoreError, match="share a file"):
        store.set("large", bytes(store_frames.LIMIT))
    for wrong in (lambda: store.get(b"n"), lambda: store.wait("n"), lambda: store.set("n", None)):
        with pytest.raises(ad.InvalidType):
            wrong()
    assert store.get("n") == b"word"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_a_clone_is_asked(store):
    store.set("x", "1")
    child = os.fork()
    if child == 0:
        try:
            store.get("x")
        except dist.DistNetworkError as error:
            right = "clone()" in str(error) and store.clone().get("x") == b"1"
            del store
            os._exit(0 if right else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("x") == b"1"  # the child's end has not closed it


def test_the_server_goes_with_the_last_that_holds_it():
    store = dist.TCPStore(HOST, 0, is_master=True)
    other, kept = client(store), store.clone()
    del store
    assert other.add("n", 1) == kept.add("n", 0)
    holding = [kept]
    del kept
    waiting = threading.Timer(0.3, holding.clear)
    waiting.start()
    with pytest.raises(dist.DistNetworkError):
        other.get("what never comes")
    waiting.join()


def test_ranks_do_not_meet_by_it(store):
    with pytest.raises(ad.Unsupported, match="init_method"):
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
