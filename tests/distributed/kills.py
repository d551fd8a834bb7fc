"""Kills of a random rank at a random moment, by hand: `python -m tests.distributed.kills mpi 50`.

It prints, of each, who was killed when, and at the end how long the survivors took.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

from tests.distributed.test_faults import alive, errors, start

LIMIT = 60  # seconds that nothing should take


def kill_one(folder, engine, seed):
    """Kill a rank of three that communicate: the seconds until the last of the others has raised,
    or, where the launcher ends them, has ended.
    """
    draw = random.Random(seed)
    job, pids = start(folder, engine, timeout=LIMIT)
    victim, moment = draw.randrange(3), draw.uniform(0, 1)
    time.sleep(moment)
    since = time.time()
    os.kill(pids[victim], signal.SIGKILL)
    others = [pid for rank, pid in enumerate(pids) if rank != victim]
    while any(map(alive, others)) and time.time() < since + LIMIT:
        time.sleep(0.002)
    ended = time.time() - since
    said, _ = job.communicate(timeout=LIMIT)
    assert job.returncode
    assert not any(map(alive, pids))
    raised = errors(folder, since)
    named = f"rank {victim} is dead (process {pids[victim]}"
    for _, text in raised.values():
        assert named in text
    assert raised or f"rank {victim} (process {pids[victim]}) was killed by SIGKILL" in said, said
    return max((seconds for seconds, _ in raised.values()), default=ended)


def main(engine, count):
    found = []
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            found.append(kill_one(pathlib.Path(folder), engine, seed))
        print(f"{engine} {seed}: {found[-1]:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    print(
        f"{engine}, {len(found)} kills: median {statistics.median(found):.2f} s, "
        f"largest {max(found):.2f} s"
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
