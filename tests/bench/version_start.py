"""Measures how long `adaptdl --version` takes from the fork to the exit code, which is a lower bound for every command.

Usage: version_start.py ADAPTDL. Prints the median and the 95th percentile over 200 starts, and those of /bin/true for
comparison.
"""

import os
import statistics
import sys
import time

STARTS = 200


def start(program, *arguments):
    """Starts the program, waits for its end, and returns the elapsed time in milliseconds."""
    with open(os.devnull, "w") as null:
        began = time.perf_counter()
        pid = os.posix_spawn(
            program, [program, *arguments], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null.fileno(), 1)]
        )
        _, status = os.waitpid(pid, 0)
        elapsed = time.perf_counter() - began
    if status != 0:
        raise SystemExit(f"{program} failed with status {status}")
    return elapsed * 1e3


def main(adaptdl):
    # The two programs take turns, so that other load on the machine affects both alike.
    pairs = [(start(adaptdl, "--version"), start("/bin/true")) for _ in range(STARTS)]
    for name, times in zip(("adaptdl --version", "/bin/true"), zip(*pairs)):
        print(
            f"{name}: median {statistics.median(times):.2f} ms, "
            f"95th percentile {statistics.quantiles(times, n=20)[-1]:.2f} ms"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
