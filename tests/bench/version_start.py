"""How long `adaptdl --version` takes, from the fork to the exit code: the floor under every use of the command.

Usage: version_start.py ADAPTDL. Prints the median and the 95th percentile over 200 starts, and those of /bin/true to
compare with.
"""

import os
import statistics
import sys
import time

STARTS = 200


def start(program, *arguments):
    """Milliseconds of one start."""
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
    # In turns, so that whatever else the machine does touches both alike.
    pairs = [(start(adaptdl, "--version"), start("/bin/true")) for _ in range(STARTS)]
    for name, times in zip(("adaptdl --version", "/bin/true"), zip(*pairs)):
        print(
            f"{name}: median {statistics.median(times):.2f} ms, "
            f"95th percentile {statistics.quantiles(times, n=20)[-1]:.2f} ms"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
