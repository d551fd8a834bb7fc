"""The server of a store: keys, values and queues in one process, which clients change and wait for.

TCPStore -> socket -> a thread for each connection -> Table
TCPStore -> socket -> a thread for each connection ----^
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..core import fork_safety
from .store_frames import GREETING, receive, receive_exactly, send

__all__ = ["WORKERS", "Server", "Table"]

WORKERS = b"init/"  # the key that counts the stores which were made with a `world_size`
_PATIENCE = 10.0  # seconds in which a client must say what it is


class Table:
    """The entries of a store. An operation takes seconds to wait and byte strings, and returns byte
    strings.

    Errors: TimeoutError where what is waited for does not come; LookupError where a queue that
    is not waited for is empty; ValueError for a request that makes no sense.
    """

    def __init__(self) -> None:
        self.closed = False
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}
        self.barriers: dict[bytes, tuple[int, int]] = {}  # key -> times passed, how many wait
        self.changed = threading.Condition(fork_safety.lock())

    def answer(self, request: Sequence[bytes]) -> list[bytes]:
        """The answer to a client's request: a status and what belongs to it."""
        try:
            operation = _OPERATIONS.get(request[0])
            if operation is None:
                raise ValueError("there is no such operation")
            with self.changed:
                result = operation(self, float(request[1]), list(request[2:]))
                self.changed.notify_all()
            return [b"done", *result]
        except TimeoutError:
            return [b"late"]
        except LookupError:
            return [b"empty"]
        except (ValueError, TypeError) as error:
            return [b"wrong", str(error).encode()]

    def close(self) -> None:
        """Let all who wait go."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def await_that(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until `holds()`, with the lock released.

        Errors: TimeoutError; ConnectionError where the server is closed.
        """
        held = self.changed.wait_for(lambda: self.closed or holds(), _bounded(seconds))
        if self.closed:
            raise ConnectionError("the store is closed")
        if not held:
            raise TimeoutError

    def wait(self, seconds: float, keys: list[bytes]) -> list[bytes]:
        """Wait for keys."""
        self.await_that(lambda: all(key in self.values for key in keys), seconds)
        return []

    def get(self, seconds: float, keys: list[bytes]) -> list[bytes]:
        """The values of keys, once all are there."""
        self.wait(seconds, keys)
        return [self.values[key] for key in keys]

    def set(self, seconds: float, pairs: list[bytes]) -> list[bytes]:
        """Set keys, each with its value after it."""
        self.values.update(zip(pairs[::2], pairs[1::2], strict=True))
        return []

    def append(self, seconds: float, pair: list[bytes]) -> list[bytes]:
        """Add bytes to the end of a value."""
        key, value = pair
        self.values[key] = self.values.get(key, b"") + value
        return []

    def add(self, seconds: float, pair: list[bytes]) -> list[bytes]:
        """Add a number to a key, which starts at 0; the sum."""
        key, number = pair
        total = b"%d" % (int(self.values.get(key, b"0")) + int(number))
        self.values[key] = total
        return [total]

    def compare_set(self, seconds: float, fields: list[bytes]) -> list[bytes]:
        """Set a key to a value if it has the expected one, or is missing and nothing is expected;
        the value that it has now.
        """
        key, expected, desired = fields
        present = self.values.get(key)
        if present == expected or (present is None and not expected):
            present = self.values[key] = desired
        return [expected if present is None else present]

    def check(self, seconds: float, keys: list[bytes]) -> list[bytes]:
        """Whether all keys are there."""
        return [b"1" if all(key in self.values for key in keys) else b""]

    def delete(self, seconds: float, keys: list[bytes]) -> list[bytes]:
        """Whether the key was there, which it is no more."""
        (key,) = keys
        return [b"" if self.values.pop(key, None) is None else b"1"]

    def list_keys(self, seconds: float, fields: list[bytes]) -> list[bytes]:
        """All keys that have a value."""
        return [*self.values]

    def queue_push(self, seconds: float, pair: list[bytes]) -> list[bytes]:
        """Put a value at the end of a queue."""
        key, value = pair
        self.queues.setdefault(key, deque()).append(value)
        return []

    def queue_pop(self, seconds: float, fields: list[bytes]) -> list[bytes]:
        """The first value of a queue, which is taken from it; with a second field, wait for it."""
        key, *waits = fields
        if key not in self.queues and not waits:
            raise LookupError
        self.await_that(lambda: key in self.queues, seconds)
        queue = self.queues[key]
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return [value]

    def queue_len(self, seconds: float, keys: list[bytes]) -> list[bytes]:
        """How many values a queue holds."""
        (key,) = keys
        return [b"%d" % len(self.queues.get(key, ()))]

    def barrier(self, seconds: float, pair: list[bytes]) -> list[bytes]:
        """Wait until so many wait at this key; it can be used again then."""
        key, size = pair
        turn, waiting = self.barriers.get(key, (0, 0))
        if waiting + 1 >= int(size):
            self.barriers[key] = turn + 1, 0
            return []
        self.barriers[key] = turn, waiting + 1
        try:
            self.await_that(lambda: self.barriers[key][0] != turn, seconds)
        except TimeoutError:
            self.barriers[key] = turn, self.barriers[key][1] - 1
            raise
        return []

    def await_workers(self, size: int, seconds: float) -> int:
        """Wait until so many stores are connected; how many there are."""
        with self.changed:
            self.changed.wait_for(lambda: self.workers() >= size or self.closed, _bounded(seconds))
            return self.workers()

    def workers(self) -> int:
        """How many stores that were made with a `world_size` have come."""
        return int(self.values.get(WORKERS, b"0"))


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), threading.TIMEOUT_MAX)


_OPERATIONS = {
    each.__name__.encode(): each
    for each in (
        Table.wait, Table.get, Table.set, Table.append, Table.add, Table.compare_set, Table.check,
        Table.delete, Table.list_keys, Table.queue_push, Table.queue_pop, Table.queue_len,
        Table.barrier,
    )
}  # fmt: skip


class Server:
    """A table and the socket at which it is asked; it goes when nobody holds it any more."""

    def __init__(self, listener: socket.socket) -> None:
        self.table = Table()
        self.port = int(listener.getsockname()[1])
        connections: set[socket.socket] = set()
        threading.Thread(
            target=_accept, args=(self.table, listener, connections), daemon=True,
            name="adjoint-store",
        ).start()  # fmt: skip
        arguments = (self.table, listener, connections, os.getpid())
        self.close = weakref.finalize(self, _close, *arguments)


def _close(
    table: Table, listener: socket.socket, connections: set[socket.socket], process: int
) -> None:
    if os.getpid() != process:  # after a fork, the sockets are the other process's
        return
    table.close()
    for each in (listener, *connections):
        with suppress(OSError):  # it is closed
            each.shutdown(socket.SHUT_RDWR)  # which wakes the thread that reads it
    listener.close()


def _accept(table: Table, listener: socket.socket, connections: set[socket.socket]) -> None:
    while not table.closed:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connections.add(connection)
        threading.Thread(
            target=_serve, args=(table, connection, connections), daemon=True,
            name="adjoint-store-client",
        ).start()  # fmt: skip


def _serve(table: Table, connection: socket.socket, connections: set[socket.socket]) -> None:
    """Answer one client until it goes, or says what no client says."""
    try:
        connection.settimeout(_PATIENCE)
        if receive_exactly(connection, len(GREETING)) != GREETING:
            return
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not table.closed:
            request = receive(connection)
            if len(request) < 2:
                return
            try:
                send(connection, table.answer(request))
            except ValueError as error:  # values that are too long together
                send(connection, [b"wrong", str(error).encode()])
    except OSError:  # it is gone
        pass
    finally:
        connections.discard(connection)
        connection.close()
