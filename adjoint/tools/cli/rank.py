"""Wrapper that mpiexec starts for each rank: the program, with MPI's variables under torchrun's
names.

Run as a file, so that it costs next to nothing (`python adjoint/tools/cli/rank.py script.py ...`).
With `--watch` it stays beside the program and says how that was killed: the launchers of MPICH and
Intel MPI end the other ranks at once, and what they say then names any of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

DIES_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG
SIGKILL = 9
_NAMES = {  # of Open MPI, MPICH (and what is made of it), Slurm
    "RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
}


def told() -> dict[str, str]:
    """Variables of this rank from the environment, under torchrun's names."""
    found = {}
    for name, others in _NAMES.items():
        for other in others:
            if other in os.environ:
                found[name] = os.environ[other]
                break
    return found


def die_with_parent() -> None:
    """Asks the kernel to kill this process, whatever it executes, when its parent ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, SIGKILL)


def watch(command: list[str], environment: dict[str, str]) -> int:
    """Run a rank's program: its code, after a word about the signal that has killed it."""
    process = subprocess.Popen(
        command, env=environment, close_fds=False, preexec_fn=die_with_parent
    )
    code = process.wait()
    if code < 0:
        print(
            f"adjoint run: rank {environment.get('RANK', '?')} (process {process.pid}) was killed "
            f"by {signal.Signals(-code).name}",
            file=sys.stderr,
            flush=True,
        )
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    die_with_parent()
    watched = sys.argv[1] == "--watch"
    program = [sys.executable, *sys.argv[2 if watched else 1 :]]
    if watched:
        sys.exit(watch(program, {**os.environ, **told()}))
    os.execve(sys.executable, program, {**os.environ, **told()})
