#!/usr/bin/env python3
"""Measures how much strangers delay the steps of a job and the changes of its replicas.

    python3 tests/bench/run_strangers.py ADAPTDL PROGRAM [--changes 20] [--seconds 20]

PROGRAM is the built rescale_pause_program. One run measures, first without and then with strangers that connect a thousand
times to each listening port of the job (tests/e2e/strangers.py), as another user if this process runs as root:

steps   the median and the 99th percentile of the step time of two replicas, over --seconds seconds
pause   the median and the 95th percentile of the pause in a live change of replicas (see rescale_pause.py)

Prints a table in Markdown, and exits with 1 if strangers delay a step by more than 100 ms at the 99th percentile, or a
change by more than 1 s at the 95th.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import rescale_pause  # noqa: E402
import strangers  # noqa: E402

STEP_BOUND, PAUSE_BOUND = 0.1, 1.0
NOBODY = 65534


class Strangers:
    """Runs strangers.py until the end of the block."""

    def __enter__(self):
        other = ["--uid", str(NOBODY)] if os.geteuid() == 0 else []
        spared = map(str, strangers.listening_ports())
        self.process = subprocess.Popen([sys.executable, strangers.__file__, *other, *spared], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        self.process.communicate()


class NoStrangers:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Bench(rescale_pause.Bench):
    def steps(self, model, directory, processes):
        """Returns the step times of two replicas."""
        steps = rescale_pause.Steps(directory / "steps")
        run = processes.start(self.adaptdl, "run", "--name", model, "--replicas", 2, "--devices", 2, "--device-kind", "cpu",
                              "--checkpoint", directory / "checkpoint", "--", self.program, model, steps.path)
        steps.alive = lambda: run.poll() is None
        steps.wait(0, 2, rescale_pause.USUAL)
        begin = time.monotonic()
        time.sleep(self.seconds)
        steps.update()
        processes.interrupt(run, 143)
        times = [when for when, _, _ in steps.steps if when >= begin]
        return [after - before for before, after in zip(times, times[1:])]


def percentile(values, percent):
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adaptdl", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--changes", type=int, default=20, help="of each kind")
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    settings = types.SimpleNamespace(adaptdl=arguments.adaptdl.resolve(), program=arguments.program.resolve(),
                                     changes=arguments.changes, no_torchrun=True)
    found = {}
    for condition, strangers in ("without strangers", NoStrangers), ("with strangers", Strangers):
        with tempfile.TemporaryDirectory(prefix="adaptdl-bench-") as directory, strangers():
            bench = Bench(settings, pathlib.Path(directory))
            bench.seconds = arguments.seconds
            steps = bench.measure("digits", "steps")
            pauses = [pause for each in bench.measure("digits", "live").values() for pause in each]
        found[condition] = (percentile(steps, 50), percentile(steps, 99), statistics.median(pauses), percentile(pauses, 95))
    print("\n| milliseconds | steps, median | steps, 99th | pause, median | pause, 95th |\n| --- | --- | --- | --- | --- |")
    for condition, values in found.items():
        print(f"| {condition} | {' | '.join(f'{1000 * value:.1f}' for value in values)} |")
    delays = [found["with strangers"][i] - found["without strangers"][i] for i in range(4)]
    missed = delays[1] > STEP_BOUND or delays[3] > PAUSE_BOUND
    print("\nFAIL: a bound is not met" if missed else "\nPASS: all bounds are met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
