"""Every ADJOINT_* environment variable, in one table."""

from __future__ import annotations

import os
from typing import NamedTuple

from .errors import InvalidArgument


class Switch(NamedTuple):
    """One environment variable: its name, default and meaning."""

    name: str
    default: str
    meaning: str


SWITCHES = (
    Switch("ADJOINT_SMOKE", "", "set: examples and demos run a few steps only, to be tested"),
    Switch("ADJOINT_BACKEND", "auto", "auto, native (kernels for large arrays) or numpy (none)"),
    Switch("ADJOINT_COMPILED", "", "0: the core's files run interpreted, though compiled"),
    Switch("ADJOINT_NATIVE_SIZE", "4096", "elements above which an array is large; 0: all are"),
    Switch("ADJOINT_NUM_THREADS", "", "threads of the native backend; empty: as many as cores"),
    Switch("ADJOINT_MEMORY_CACHE", "", "bytes of freed memory kept; empty: an eighth of all"),
    Switch("ADJOINT_PROGRESS", "auto", "progress bars: auto (only on a terminal), on, off"),
    Switch("ADJOINT_CACHE_DIR", "~/.cache/adjoint", "where compiled kernels are kept"),
    Switch("ADJOINT_CACHE_BYTES", "268435456", "how much of them is kept; 0: nothing"),
    Switch(
        "ADJOINT_CPU", "", "x86-64-v2, -v3, -v4: kernels for such processors; empty: for this one"
    ),
    Switch("ADJOINT_OPTIMIZE", "2", "how fast kernels are to be; 0: slow ones, compiled sooner"),
    Switch(
        "ADJOINT_DEBUG",
        "",
        "what to hear on stderr: dispatch,compile,passes,kernels,code,collectives or some; "
        "traceback: our frames, too",
    ),
    Switch("ADJOINT_SCAN", "auto", "auto: machine code may run ad.scan; python: Python does"),
    Switch(
        "ADJOINT_ENGINE", "", "what carries messages between ranks: gloo or mpi (`adjoint run`)"
    ),
    Switch("ADJOINT_LIMITS", "", "NAME=number,...: other limits than core/policy.py has"),
    Switch("ADJOINT_STRICT", "0", "1: a slower way where a kernel is expected is an error"),
    Switch(
        "ADJOINT_ONEDNN", "auto", "oneDNN: auto (the installed package), off, or a library's path"
    ),
)
_BY_NAME = {switch.name: switch for switch in SWITCHES}

CALLED = "adjoint"  # by what name types are shown; "torch" after `adjoint.as_torch()`


def read(name: str) -> str:
    """The value of a switch now.

    >>> from adjoint.core import config
    >>> config.read("ADJOINT_PROGRESS") in ("auto", "on", "off")
    True
    """
    return os.environ.get(name, _BY_NAME[name].default)


def read_count(name: str) -> int:
    """The value of a switch that is a number of something.

    Errors: InvalidArgument unless digits.

    >>> from adjoint.core import config
    >>> config.read_count("ADJOINT_CACHE_BYTES") >= 0
    True
    """
    text = read(name)
    if not text.isdecimal():
        raise InvalidArgument(f"{name}={text}: expected a number such as {_BY_NAME[name].default}")
    return int(text)
