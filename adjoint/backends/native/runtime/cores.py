"""Number of threads that are worth having: the physical cores that this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from ....core import config
from ....core.errors import InvalidArgument


def default_num_threads() -> int:
    """ADJOINT_NUM_THREADS or OMP_NUM_THREADS where set, else the usable physical cores.

    Errors: InvalidArgument where ADJOINT_NUM_THREADS is not a positive integer.

    >>> from adjoint.backends.native.runtime import cores
    >>> cores.default_num_threads() >= 1
    True
    """
    wish = config.read("ADJOINT_NUM_THREADS").strip()
    if wish:
        if not (wish.isascii() and wish.isdecimal() and int(wish)):
            raise InvalidArgument(f"ADJOINT_NUM_THREADS={wish}: expected a positive integer")
        return int(wish)
    openmp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if openmp.isascii() and openmp.isdecimal() and int(openmp):
        return int(openmp)
    return usable_cores()


def usable_cores(root: str = "/") -> int:
    """Physical cores in this process's affinity mask, or fewer where a control group allows less.

    `root` is where the system's files are.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = _physical(os.sched_getaffinity(0), Path(root))
    return max(1, min(cores, math.floor(_quota(Path(root)))))


def _physical(processors: Iterable[int], root: Path) -> int:
    """Number of cores that `processors` are on; hyperthreads of one core count once."""
    cores = set()
    for processor in processors:
        path = root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
        cores.add(_read(path) or f"{processor}")
    return len(cores)


def _quota(root: Path) -> float:
    """Processors' worth of time that the control groups of this process allow: the least."""
    least = math.inf
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        group = Path(name.lstrip("/"))
        for part in (group, *group.parents):
            if controllers == "":  # version 2
                quota, _, period = _read(root / "sys/fs/cgroup" / part / "cpu.max").partition(" ")
            elif "cpu" in controllers.split(","):
                folder = root / "sys/fs/cgroup/cpu" / part
                quota, period = (
                    _read(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                )
            else:
                continue
            if quota.isdecimal() and period.isdecimal() and int(period):
                least = min(least, int(quota) / int(period))
    return min(least, 1e9)


def _read(path: Path) -> str:
    """A small system file without its newline; empty where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
