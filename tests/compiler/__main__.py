"""More random programs than the tests run: `python -m tests.compiler 200000 1000` runs those of so
many seeds, and prints each that differs from eager execution, as short as it can be made; with
`sizes` behind, they are called for one number of rows after another, with `dynamic` besides.
"""

from __future__ import annotations

import sys
from collections import Counter

from . import random_growth, random_programs

SIZE = 14  # lines


def main(first: int, count: int, way: str = "") -> int:
    """How many differed."""
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        program = random_growth.made(seed, SIZE)
        if way:
            program = random_programs.with_sizes(program, way == "dynamic")
        fault = random_programs.fault_of(program)
        if fault:
            found["differ"] += 1
            short = random_programs.shortened(program)
            calls = "\n".join(map(str, short.calls))
            print(f"seed {seed}: {fault[:500]}\n{short.source}\n{calls}", flush=True)
        if (seed + 1 - first) % 100 == 0:
            print(f"{seed + 1 - first} programs, {found['differ']} differ", flush=True)
    return found["differ"]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:3]), *sys.argv[3:4])))
