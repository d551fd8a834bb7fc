"""How the examples on graphs compare two programs: their times interleaved, the median ratio.

Not a program by itself.
"""

import statistics
import time


def gain(ours, theirs, rounds=15, calls=1):
    """How many times longer `theirs()` takes than `ours()`: the median over alternating rounds.

    Other work on the machine slows both alike, so the ratio means something where a time does not.
    """

    def seconds(function):
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        return time.perf_counter() - begin

    ours(), theirs()  # what happens only once is not measured
    ratios = []
    for _ in range(rounds):
        mine = seconds(ours)
        ratios.append(seconds(theirs) / mine)
    return statistics.median(ratios)
