"""Keys and values that processes share over TCP. One process holds them, see `store_server`.

Source: https://docs.pytorch.org/docs/stable/distributed.html#distributed-key-value-store
"""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

from ..core import fork_safety
from ..core.argument_repr import argument_repr
from ..core.errors import DistributedError, InvalidType
from .store_frames import GREETING, receive, send
from .store_server import WORKERS, Server
from .work import seconds_of

__all__ = [
    "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError", "Store", "TCPStore",
]  # fmt: skip

DistError = DistributedError  # PyTorch's name

_GRACE = 5.0  # seconds beyond a time-out in which the server must say that it is over
_PAUSE = 0.05  # seconds between attempts to reach a server that is not there yet
_servers: weakref.WeakValueDictionary[int, Server] = weakref.WeakValueDictionary()


class DistStoreError(DistributedError):
    """A store does not have what is asked for, within the time-out."""


class QueueEmptyError(DistStoreError):
    """A queue of a store holds nothing."""


class DistNetworkError(DistributedError):
    """A store's server cannot be reached, or has gone."""


class Store:
    """Base of stores.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Store
    """

    _seconds: float

    __repr__ = argument_repr

    @property
    def timeout(self) -> timedelta:
        """How long `get`, `wait` and what else waits do so."""
        return timedelta(seconds=self._seconds)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time-out."""
        self._seconds = seconds_of(timeout)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle '{type(self).__name__}' object: it is a connection; make one of the "
            "same host and port in the other process"
        )


class TCPStore(Store):
    """Keys and values that processes share. One of them, with `is_master`, serves them; it listens
    at `host_name` alone. Values are bytes, or text, which becomes UTF-8.

    Args:
        host_name: Host at which the master listens.
        port: Port there; 0 lets the master choose a free one, see `port`.
        world_size: Number of processes that make the store. Default: None, not known.
        is_master: Whether this one serves. Default: False.
        timeout: Time-out of the connection and of what waits. Default: 300 s.
        wait_for_workers: Whether the master waits for `world_size` processes. Default: True.
        multi_tenant: Whether masters of one process and port share a server. Default: False.
        master_listen_fd: Socket that is bound already and the master listens at. Default: None.
        use_libuv: Ignored.

    Anyone who can reach the port can read and change the values, as in PyTorch: give the address of
    a network that is trusted.

    Errors: DistNetworkError where the server is not to be reached, or lost; DistStoreError where a
        key does not come in time.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.TCPStore

    >>> store = ad.distributed.TCPStore("127.0.0.1", 0, is_master=True)
    >>> store.set("step", "3")
    >>> store.get("step"), store.add("step", 2), store.check(["other"])
    (b'3', 5, False)
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        self.host = host_name
        self.port = port
        self._seconds = seconds_of(timeout)
        self._server = (
            _server(host_name, port, multi_tenant, master_listen_fd) if is_master else None
        )
        if self._server is not None:
            self.port = self._server.port
        self._connect()
        if world_size is None or world_size < 1:
            return
        self.add(WORKERS.decode(), 1)
        if self._server is not None and wait_for_workers:
            come = self._server.table.await_workers(world_size, self._seconds)
            if come < world_size:
                raise DistStoreError(
                    f"TCPStore: Timed out after {self._seconds:g} seconds waiting for clients. "
                    f"{come}/{world_size} clients joined."
                )

    def _connect(self) -> None:
        self._process = os.getpid()
        self._lock = fork_safety.lock()
        self._socket: socket.socket | None = None
        end = time.monotonic() + self._seconds
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        while True:
            try:
                left = max(end - time.monotonic(), _PAUSE)
                made = socket.create_connection((host, self.port), left)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.sendall(GREETING)
            except OSError as error:  # it may not listen yet
                if time.monotonic() + _PAUSE > end or isinstance(error, socket.gaierror):
                    raise DistNetworkError(
                        f"TCPStore: The client socket has timed out after {self._seconds:g} s "
                        f"while trying to connect to ({self.host}, {self.port}) ({error}); is the "
                        "process with is_master=True there?"
                    ) from None
                time.sleep(_PAUSE)
            else:
                self._socket = made
                weakref.finalize(self, made.close)
                return

    def _ask(self, operation: str, *fields: bytes, seconds: float | None = None) -> list[bytes]:
        """The answer of the server to an operation.

        Errors: DistStoreError where it is too late; DistNetworkError.
        """
        seconds = self._seconds if seconds is None else seconds
        with self._lock:
            if self._process != os.getpid():
                raise DistNetworkError(
                    f"TCPStore.{operation}: this connection belongs to the process that made it; "
                    "after a fork, use store.clone()"
                )
            if self._socket is None:
                raise DistNetworkError(f"TCPStore.{operation}: the connection was lost before")
            try:
                self._socket.settimeout(seconds + _GRACE)
                send(self._socket, [operation.encode(), repr(seconds).encode(), *fields])
                status, *result = receive(self._socket)
            except ValueError as error:  # nothing was sent
                raise DistStoreError(f"TCPStore.{operation}: {error}; share a file") from None
            except OSError as error:
                self._drop()
                raise DistNetworkError(
                    f"TCPStore.{operation}: no answer from ({self.host}, {self.port}) ({error}). "
                    "Connection was likely closed. Did the remote server shutdown or crash?"
                ) from None
            except BaseException:  # an answer that nobody reads would be taken for the next one
                self._drop()
                raise
        if status == b"done":
            return result
        if status == b"empty":
            raise QueueEmptyError(f"TCPStore.{operation}: queue is empty")
        if status == b"late":
            keys = fields if operation in ("get", "wait") else fields[:1]
            names = ", ".join(each.decode(errors="replace") for each in keys)
            raise DistStoreError(
                f"TCPStore.{operation}: wait timeout after {seconds * 1000:.0f}ms, keys: {names}"
            )
        raise DistStoreError(f"TCPStore.{operation}: {b' '.join(result).decode(errors='replace')}")

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # ---- values ------------------------------------------------------------------------------

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key's value."""
        self._ask("set", _key(key), _value(value))

    def get(self, key: str) -> bytes:
        """The value of a key, once there is one."""
        return self._ask("get", _key(key))[0]

    def add(self, key: str, amount: int) -> int:
        """Add a number to a key, which starts at 0; the sum."""
        return int(self._ask("add", _key(key), b"%d" % amount)[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Add to the end of a key's value."""
        self._ask("append", _key(key), _value(value))

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Set a key if its value is the expected one, or it is missing and "" is expected; its
        value after that, or what was expected where it is missing.
        """
        values = _value(expected_value), _value(desired_value)
        return self._ask("compare_set", _key(key), *values)[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there."""
        self._ask("wait", *_keys(keys, "wait"), seconds=self._limit(timeout))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        return bool(self._ask("check", *_keys(keys, "check"))[0])

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return bool(self._ask("delete", _key(key))[0])

    def num_keys(self) -> int:
        """The number of keys. With a `world_size`, one of them counts the processes."""
        return len(self._ask("list_keys"))

    def list_keys(self) -> list[str]:
        """All keys."""
        return [each.decode() for each in self._ask("list_keys")]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, once all have one."""
        return self._ask("get", *_keys(keys, "multi_get"))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys at once."""
        names = _keys(keys, "multi_set")
        if len(names) != len(values):
            raise DistStoreError("multi_set: keys and values vectors must be of same size")
        pairs = zip(names, map(_value, values), strict=True)
        self._ask("set", *(each for pair in pairs for each in pair))

    # ---- queues, barriers --------------------------------------------------------------------

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue."""
        self._ask("queue_push", _key(key), _value(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value from a queue, and wait for it if `block`.

        Errors: QueueEmptyError where the queue is empty and `block` is False.
        """
        return self._ask("queue_pop", _key(key), *([b"block"] if block else []))[0]

    def queue_len(self, key: str) -> int:
        """How many values a queue holds."""
        return int(self._ask("queue_len", _key(key))[0])

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Wait until `world_size` processes wait at this key."""
        self._ask("barrier", _key(key), b"%d" % world_size, seconds=self._limit(timeout))

    # ---- the store ---------------------------------------------------------------------------

    def _limit(self, timeout: timedelta | None) -> float:
        return self._seconds if timeout is None else seconds_of(timeout)

    def clone(self) -> TCPStore:
        """A connection to the same server, which may wait while this one is used."""
        made = object.__new__(TCPStore)
        made.host, made.port, made._seconds = self.host, self.port, self._seconds
        made._server = self._server if self._process == os.getpid() else None
        made._connect()
        return made

    def has_extended_api(self) -> bool:
        """Whether there are `append`, `multi_get`, `multi_set` and queues: True."""
        return True

    def __repr__(self) -> str:
        role = "the server" if self._server is not None else "a client"
        return f"TCPStore({self.host!r}, {self.port}, {role})"


def _server(host: str, port: int, shared: bool, descriptor: int | None) -> Server:
    present = _servers.get(port) if shared and port else None
    if present is not None:
        return present
    try:
        if descriptor is not None:
            listener = socket.socket(fileno=descriptor)
            listener.listen()
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host or "127.0.0.1", port), family=family, backlog=128)
    except OSError as error:
        raise DistNetworkError(
            f"TCPStore: The server socket has failed to listen at ({host}, {port}) ({error}); give "
            "an address of this machine and a free port, or port 0"
        ) from None
    made = Server(listener)
    _servers[made.port] = made
    return made


def _key(key: str) -> bytes:
    if not isinstance(key, str):
        raise InvalidType(f"TCPStore: a key is text, not {type(key).__name__}; give a str")
    return key.encode()


def _value(value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise InvalidType(
        f"TCPStore: a value is text or bytes, not {type(value).__name__}; give str(value)"
    )


def _keys(keys: Sequence[str], operation: str) -> list[bytes]:
    if isinstance(keys, str):
        raise InvalidType(f"TCPStore.{operation}: keys come in a list; give [{keys!r}]")
    return [_key(each) for each in keys]
