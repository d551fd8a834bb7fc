"""`adjoint run`: a program on several ranks of this machine, or one written for PyTorch."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import InvalidArgument, Unsupported
from ...torch_api import alias
from .rank import die_with_parent

HELP = "run a program on several ranks (adjoint.distributed), or a PyTorch program (--as-torch)"

GRACE = 2.0  # seconds in which the other ranks may say what they miss, once one has failed
_MARK = "ADJOINT_RUN_ID"  # what every process of a run has in its environment


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    add("--nproc", "--nproc-per-node", "--nproc_per_node", type=_count, default=1, metavar="N",
        help="how many ranks")  # fmt: skip
    add("--engine", choices=("gloo", "mpi"), default=None,
        help="what carries their messages: gloo (PyTorch's) or mpi (mpi4py)")  # fmt: skip
    add("--max-restarts", type=int, default=0, metavar="K",
        help="how often all ranks start again after one has failed")  # fmt: skip
    add("--master-port", type=int, default=0, metavar="PORT", help="where they meet; 0: any")
    add("--as-torch", action="store_true",
        help="`import torch` gives adjoint's modules (adjoint.as_torch)")  # fmt: skip
    add("-m", "--module", action="store_true", help="the program is a module, as for python -m")
    add("program", help="the Python file")
    add("arguments", nargs=argparse.REMAINDER, help="what it is given")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the ranks until all have ended; the code of the first that failed. A PyTorch program
    that is not to be several ranks takes this process over.
    """
    command = ["-m"] if options.module else []
    command += [options.program, *options.arguments]
    if not options.module and not os.path.exists(options.program):
        raise InvalidArgument(f"run: there is no file {options.program!r}")
    if options.as_torch:
        if options.engine == "gloo":
            raise Unsupported(
                "run: --engine gloo is PyTorch's, and --as-torch does without; use --engine mpi"
            )
        os.environ.update(alias.inherited(os.environ))
        if options.nproc > 1 and not _has("mpi4py"):
            raise Unsupported(
                "run: ranks of a program with --as-torch need mpi4py: pip install 'adjoint[mpi]'"
            )
        if options.nproc == 1 and options.engine is None and not options.max_restarts:
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, *command])
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    has_gloo = _has("torch") and not options.as_torch
    engine = options.engine or ("gloo" if has_gloo else "mpi")
    for attempt in range(options.max_restarts + 1):
        job = Job(options.nproc, engine, command, options.master_port, attempt)
        code = job.run()
        if not code or attempt == options.max_restarts:
            return code
        print(
            f"adjoint run: starts again ({attempt + 1} of {options.max_restarts})", file=sys.stderr
        )
    return code


def _interrupt(signum: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


class Job:
    """The ranks of one start."""

    def __init__(self, n: int, engine: str, command: list[str], port: int, attempt: int) -> None:
        self.mark = uuid.uuid4().hex
        self.environment = {
            **os.environ,
            _MARK: self.mark,
            "ADJOINT_ENGINE": engine,
            "LOCAL_WORLD_SIZE": str(n),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port or _free_port()),
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "WORLD_SIZE": str(n),
        }
        if sys.platform == "linux":  # all are here, wherever the host's name may lead
            self.environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.commands: list[tuple[str, list[str], dict[str, str]]] = []
        if engine == "mpi":
            shim = [sys.executable, str(Path(__file__).with_name("rank.py"))]
            self.commands.append(("mpiexec", launcher(n, shim) + command, {}))
        else:
            for rank in range(n):
                more = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                self.commands.append((f"rank {rank}", [sys.executable, *command], more))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> int:
        """Start, wait, and leave no process behind."""
        try:
            for name, command, more in self.commands:
                self.processes[name] = subprocess.Popen(
                    command,
                    env={**self.environment, **more},
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            return self._watch()
        finally:
            self._end()

    def _watch(self) -> int:
        """Waits until all have ended, or, once one has failed, for a little while."""
        failed, limit = 0, float("inf")
        waiting = dict(self.processes)
        while waiting and time.monotonic() < limit:
            for name, process in list(waiting.items()):
                code = process.poll()
                if code is None:
                    continue
                del waiting[name]
                if code and not failed:
                    failed = 128 - code if code < 0 else code
                    limit = time.monotonic() + GRACE
                    print(
                        f"adjoint run: {name} (process {process.pid}) {_end_of(code)}",
                        file=sys.stderr,
                    )
            time.sleep(0.01)
        for name, process in waiting.items():
            print(
                f"adjoint run: {name} (process {process.pid}) went on, and is ended",
                file=sys.stderr,
            )
        return failed

    def _end(self) -> None:
        """Kill whatever of the run is still there."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        limit = time.monotonic() + 0.5
        while time.monotonic() < limit and any(p.poll() is None for p in self.processes.values()):
            time.sleep(0.01)
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pid in _marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _end_of(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _marked(mark: str) -> list[int]:
    """The processes that have a run's mark in their environment (where the system shows them)."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launcher(n: int, shim: list[str]) -> list[str]:
    """mpiexec's command for so many ranks on this machine, each behind `shim`.

    Errors: Unsupported where there is none.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if found is None or not _has("mpi4py"):
        raise Unsupported(
            "run: --engine mpi needs mpi4py and mpiexec: pip install 'adjoint[mpi]' (or "
            "`pip install mpi4py mpich`), or use --engine gloo"
        )
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in version.stdout + version.stderr:
        return [found, "-n", str(n), *shim, "--watch"]
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return [found, "--oversubscribe", "--with-ft", "ulfm", *root, "-n", str(n), *shim]
