"""Measures how much faster adaptdl computes goodput and fits its parameters than the published Python package.

Fails if a goal is missed; skipped if the package cannot be installed. Each figure is from the fastest of several
repetitions, so that other load on the machine has little influence.
"""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SOURCE_ROOT"], "tests", "e2e"))
import goodput_support  # noqa: E402
import python_peer  # noqa: E402

ROUNDS = 3
FUNCTION = dict(perf=[0.1, 0.01, 0.2, 0.01, 0.05, 0.005, 1.7], grad=[0.5, 3.0], init=128)
LIMITS = dict(max=12_800, min_local=16, max_local=256, accumulation=True)
# All configurations differ, so that no result can be reused.
REPLICAS = list(range(1, 1001))
DIFFERENT = dict(replicas=REPLICAS, nodes=[1 + number % 16 if number >= 16 else 1 for number in REPLICAS])


def figures(ours, python):
    """Yields each comparison: its name, the goal, and the times that adaptdl and the Python package take, in seconds."""
    fitted, _ = goodput_support.split(goodput_support.observations("cifar10"), 50, 0)
    for name, goal, repeat, question in (
        ("1,000 single calls of optimize", 50, (20, 1), dict(FUNCTION, **LIMITS, **DIFFERENT, what="time optimize")),
        ("one call of optimize for 1,000 configurations", 5, (50, 50),
         dict(FUNCTION, **LIMITS, **DIFFERENT, what="time optimize many")),
        ("fit_perf_params of 50 profiled points", 100, (50, 3), dict(what="time fit", observations=fitted)),
    ):
        times = [(ours.ask(**question, repeat=repeat[0])[0], python.ask(**question, repeat=repeat[1])[0])
                 for _ in range(ROUNDS)]
        yield (name, goal, *map(min, zip(*times)))


def main():
    try:
        ours, python = goodput_support.programs()
    except unittest.SkipTest as reason:
        print(reason)
        return python_peer.SKIPPED
    missed = 0
    for name, goal, our_time, python_time in figures(ours, python):
        ratio = python_time / our_time
        missed += ratio < goal
        print(f"{name}: {our_time * 1e3:.3f} ms, {python_time * 1e3:.1f} ms in Python: "
              f"{ratio:.0f} times faster, the goal is {goal}")
    ours.end()
    python.end()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
