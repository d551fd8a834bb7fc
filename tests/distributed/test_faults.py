"""Ranks that are killed or stopped, and what `adjoint run` leaves behind: nothing."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from adjoint.distributed import work
from tests.distributed.worlds import ENGINES, ROOT, run

TRAINING = """
import contextlib, os, sys, time
import adjoint as ad, adjoint.distributed as dist
with contextlib.suppress(ImportError):
    import torch.distributed  # what gloo's engine imports
# Where others compute, ranks come seconds apart: the time-out begins when all are here.
open(f"{sys.argv[1]}/here{os.environ['RANK']}", "w").close()
everyone = [f"{sys.argv[1]}/here{k}" for k in range(int(os.environ["WORLD_SIZE"]))]
while not all(map(os.path.exists, everyone)):
    time.sleep(0.01)
dist.init_process_group(timeout=float(sys.argv[2]))
rank = dist.get_rank()
with open(f"{sys.argv[1]}/pid{rank}", "w") as file:
    file.write(str(os.getpid()))
x = ad.ones(1000)
try:
    while True:
        dist.all_reduce(x, dist.ReduceOp.AVG)
except ad.DistributedError as error:
    with open(f"{sys.argv[1]}/error{rank}", "w") as file:
        file.write(f"{time.time()} {error}")
    raise
"""


def source():
    return os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)


def start(tmp_path, engine, timeout, size=3, program=TRAINING):
    """A run that communicates for ever: the process of `adjoint run`, and the ranks' numbers."""
    file = tmp_path / "program.py"
    file.write_text(program)
    command = ["--nproc", size, "--engine", engine, file, tmp_path, timeout]
    job = subprocess.Popen(
        [sys.executable, "-m", "adjoint", "run", *map(str, command)],
        env={**os.environ, "PYTHONPATH": source()}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    files = [tmp_path / f"pid{rank}" for rank in range(size)]
    end = time.monotonic() + 600  # no busy machine reaches it
    while not all(f.exists() and f.read_text() for f in files):
        if time.monotonic() > end:
            job.terminate()
        assert job.poll() is None, job.stdout.read()
        time.sleep(0.02)
    return job, [int(f.read_text()) for f in files]


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def errors(tmp_path, since):
    """By rank: after how many seconds it raised, and what."""
    found = {}
    for file in tmp_path.glob("error*"):
        at, _, text = file.read_text().partition(" ")
        found[int(file.name.removeprefix("error"))] = (float(at) - since, text)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.sweep)])
def test_a_killed_rank_is_named_by_the_others(tmp_path, engine, victim):
    job, pids = start(tmp_path, engine, timeout=60)
    since = time.time()
    os.kill(pids[victim], signal.SIGKILL)
    said, _ = job.communicate(timeout=300)
    assert job.returncode
    assert not any(map(alive, pids))
    raised = errors(tmp_path, since)
    if engine == "gloo":
        # Where others compute, a rank may not have run in the seconds that it is given.
        ended = {k for k in range(3) if f"rank {k} (process {pids[k]}) went on" in said}
        assert raised and set(raised) | ended == {0, 1, 2} - {victim}
    elif not raised:  # MPICH's mpiexec ends the others
        assert f"rank {victim} (process {pids[victim]}) was killed by SIGKILL" in said
    for seconds, text in raised.values():
        assert f"rank {victim} is dead (process {pids[victim]}" in text
        assert seconds < 60  # not by the time-out; in 2 s where nothing else runs


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["raise KeyError('mine')", "sys.exit(0)"])
def test_a_rank_that_leaves_early_is_noticed_by_the_others(tmp_path, engine, how):
    if engine == "mpi" and "exit" in how:
        timeout = 3  # it waits for the others, so that MPI can be finalized
    else:
        timeout = 60
    path = program(
        tmp_path,
        "import sys\n"
        "import adjoint as ad, adjoint.distributed as dist\n"
        f"dist.init_process_group(timeout={timeout})\n"
        f"if dist.get_rank() == 1:\n    {how}\n"
        "dist.all_reduce(ad.ones(2))\n",
    )
    since = time.time()
    done = run(["--nproc", 2, "--engine", engine, path], check=False)
    assert done.returncode
    assert time.time() - since < 45
    said = done.stdout + done.stderr
    assert "KeyError: 'mine'" in said or "exit" in how
    words = ["rank 1 is dead", "rank 1 does not answer"]
    if engine == "mpi":  # mpiexec may end the others first; the one that left has said why
        words += ["KeyError", "not all ranks have ended within 3 s of this one"]
    assert any(word in said for word in words), said


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stopped_rank_is_named_within_the_time_out(tmp_path, engine):
    job, pids = start(tmp_path, engine, timeout=5)
    since = time.time()
    os.kill(pids[1], signal.SIGSTOP)
    job.communicate(timeout=300)
    assert job.returncode
    assert not any(map(alive, pids))
    raised = errors(tmp_path, since)
    assert all(f"rank 1 is stopped (process {pids[1]}" in text for _, text in raised.values())
    seconds, first = min(raised.values())  # the other one may see that this one has left
    assert "its time-out is 5 s" in first or "imed out" in first
    assert seconds < 60


@pytest.mark.parametrize(
    "signum", [pytest.param(signal.SIGTERM, marks=pytest.mark.sweep), signal.SIGKILL]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_launcher_that_is_ended_takes_the_ranks_along(tmp_path, engine, signum):
    job, pids = start(tmp_path, engine, timeout=5, size=2)
    os.kill(job.pid, signum)
    job.communicate(timeout=300)
    end = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(alive, pids))
    assert job.returncode in (130, -signum)


def program(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


def test_ranks_are_told_who_they_are(tmp_path):
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR ADJOINT_ENGINE"
    path = program(
        tmp_path,
        "import os, sys\n"
        f"words = [os.environ[name] for name in {names.split()!r}]\n"
        "assert 0 < int(os.environ['MASTER_PORT']) < 65536\n"
        "os.write(1, (' '.join(words + sys.argv[1:]) + '\\n').encode())\n",
    )
    done = run(["--nproc", 2, "--engine", "gloo", path, "--lr", "0.1"])
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"{r} {r} 2 2 127.0.0.1 gloo --lr 0.1" for r in range(2)]


STORE = """
import os, sys, time, adjoint.distributed as dist
for _ in range(2):
    dist.init_process_group("gloo", init_method=sys.argv[1].format(os.environ["MASTER_PORT"]),
        rank=int(os.environ["RANK"]), world_size=2, timeout=60)
    rows = [line.split() for f in ("tcp", "tcp6") for line in open("/proc/net/" + f)]
    port = "%04X" % int(os.environ["MASTER_PORT"])
    if dist.get_rank() == 0:
        found = {r[1] for r in rows if r[1].endswith(":" + port) and r[3] == "0A"}
        os.write(1, f"{sorted(found) == ['0100007F:' + port]}\\n".encode())
    dist.barrier()
    time.sleep(0.1 * (dist.get_rank() == 0))  # others begin the next group at the store of this one
    dist.destroy_process_group()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/net")
@pytest.mark.parametrize("place", ["env://", "tcp://127.0.0.1:{}"])
def test_the_store_of_ranks_on_one_machine_listens_to_it_alone(tmp_path, place):
    pytest.importorskip("torch")
    done = run(["--nproc", 2, "--engine", "gloo", program(tmp_path, STORE), place])
    assert done.stdout.split() == ["True", "True"]


def test_a_rank_that_fails_ends_the_run_with_its_code(tmp_path):
    path = program(
        tmp_path,
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "os.write(1, b'%d\\n' % child.pid)\n"
        "if os.environ['RANK'] == '1':\n    sys.exit(7)\n"
        "time.sleep(1000)\n",
    )
    done = run(["--nproc", 2, "--engine", "gloo", path], check=False)
    assert done.returncode == 7
    assert "rank 1 (process" in done.stderr and "ended with code 7" in done.stderr
    assert "rank 0 (process" in done.stderr and "is ended" in done.stderr
    children = [int(word) for word in done.stdout.split()]
    assert len(children) == 2 and not any(map(alive, children))


def test_restarts(tmp_path):
    path = program(
        tmp_path,
        "import os, sys\n"
        "count = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "os.write(1, (count + '\\n').encode())\n"
        "sys.exit(count != '2')\n",
    )
    done = run(["--nproc", 2, "--engine", "gloo", "--max-restarts", 3, path])
    assert sorted(done.stdout.split())[-2:] == ["2", "2"]
    assert "starts again (2 of 3)" in done.stderr and "(3 of 3)" not in done.stderr


def test_a_program_that_is_not_there(tmp_path):
    done = run(["--nproc", 2, tmp_path / "none.py"], check=False)
    assert done.returncode == 1 and "there is no file" in done.stderr
    done = run(["--nproc", 0, "x.py"], check=False)
    assert done.returncode == 2 and "'0' is no number of ranks" in done.stderr


def test_what_mpiexec_tells_under_torchruns_names(monkeypatch):
    from adjoint.tools.cli.rank import told

    for name in list(os.environ):
        if name.startswith(("OMPI", "PMI", "SLURM", "MPI_")):
            monkeypatch.delenv(name)
    assert told() == {}
    for name, value in {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert told() == {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}


def test_a_wait_looks_again_and_again_before_it_sleeps(monkeypatch):
    """MPI goes on only while it is called: 10 ms of looks, between which others have the core."""
    now, did, looks = [0.0], [], [0]

    class Clock:
        @staticmethod
        def monotonic():
            now[0] += 0.001
            return now[0]

        @staticmethod
        def sleep(seconds):
            did.append("sleep")
            now[0] += seconds

    monkeypatch.setattr(work, "time", Clock)
    monkeypatch.setattr(work, "_offer_core", lambda: did.append("yield"))

    def found_after(count):
        def test():
            looks[0] += 1
            return looks[0] > count

        looks[0] = 0
        did.clear()
        now[0] = 0.0
        return test

    assert work.poll(found_after(99), 1.0) and did == []
    assert work.poll(found_after(105), 1.0) and set(did) == {"yield"}
    assert work.poll(found_after(150), 1.0)
    assert did.index("sleep") == did.count("yield") and 5 < did.count("yield") < 12
    assert not work.poll(found_after(10**9), 0.05) and now[0] < 0.06
    assert not work.poll(found_after(10**9), 0.005) and "sleep" not in did
