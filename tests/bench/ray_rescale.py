"""Measures how long training pauses when nodes join a Ray cluster, and when they are drained.

    python3 tests/bench/ray_rescale.py ADAPTDL PROGRAM [--model digits|large] [--rounds 5] [--no-ray-train]

In each round, the cluster grows from one node to three, and shrinks to one through drain notices of 30 s, one node at a time.
All nodes are on this machine, and have one CPU each. A step takes at least 300 ms divided by the number of replicas, as if each
node had a device of its own: a job whose goodput does not grow with the number of nodes would not use all of them.

live       `adaptdl submit --ray` of a program that continues training
ray train  Ray Train's elastic training of the same model in PyTorch, which restarts all workers from the newest snapshot. To
           shorten the benchmark, Ray Train considers the number of workers every 5 s (default: 60 s). The time until it does is
           not part of the pause.

The pause is measured as in rescale_pause.py: it is the time in which the job completes no step, minus the normal step time.
Prints a table in Markdown, and exits with 1 if the 95th percentile of live is over 2 s. Without a Python environment for Ray
Train, there is no comparison, and the output says so.
"""

import argparse
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
import python_peer  # noqa: E402
import ray_support  # noqa: E402
from local_network import leave_network  # noqa: E402
from rescale_pause import USUAL, Steps, cell, percentile  # noqa: E402

NODES = 3
NOTICE = 30  # seconds
STEP_MS = 300
BOUND_SECONDS = 2
CHANGES = ("growing", "shrinking")
PEER = pathlib.Path(__file__).with_name("ray_rescale_train.py")
# PyTorch comes from the system. These versions work with its NumPy.
RAY_TRAIN = [*ray_support.RAY, "numpy==1.26.4", "pandas==2.2.3", "pyarrow==18.1.0", "fsspec==2026.9.0", "tensorboardX==2.6.5"]


class Bench:
    def __init__(self, arguments):
        self.adaptdl, self.program, self.rounds = arguments.adaptdl.resolve(), arguments.program.resolve(), arguments.rounds

    def measure(self, way, model, python):
        """Returns the pauses of one way of training, by kind of change."""
        print(f"{model}: {way}", file=sys.stderr, flush=True)
        # The path must be short, because Ray creates its sockets below it.
        directory = pathlib.Path(tempfile.mkdtemp(prefix="ar-"))
        cluster = ray_support.RayCluster(python, directory, HOME=str(directory), XDG_STATE_HOME=str(directory / "state"),
                                         XDG_RUNTIME_DIR=str(directory), OMP_NUM_THREADS="1")
        try:
            nodes = [cluster.add_node()]
            steps = Steps(directory / "steps")
            end = getattr(self, way.replace(" ", "_"))(model, directory, cluster)
            try:
                return self.change(cluster, steps, nodes)
            except SystemExit:
                print(self.log(), file=sys.stderr)
                raise
            finally:
                end()
        finally:
            cluster.end()
            shutil.rmtree(directory, ignore_errors=True)

    def change(self, cluster, steps, nodes):
        pauses = {kind: [] for kind in CHANGES}
        steps.wait(0, 1, USUAL)
        for _ in range(self.rounds):
            for replicas in range(2, NODES + 1):
                asked = time.monotonic()
                nodes.append(cluster.add_node())
                pauses["growing"].append(steps.pause(asked, replicas))
            for replicas in range(NODES - 1, 0, -1):
                asked = time.monotonic()
                drained = nodes.pop(0)  # that of rank 0
                cluster.drain(drained, NOTICE)
                pauses["shrinking"].append(steps.pause(asked, replicas))
                cluster.stop(drained)
        return pauses

    def live(self, model, directory, cluster):
        project = directory / "project"
        project.mkdir()
        shutil.copy(self.program, project / "program")
        environment = {"PATH": "", "HOME": str(directory)}
        ray = ["--ray", cluster.url]
        job = subprocess.run([self.adaptdl, "submit", *ray, "--gpus", "0", "--max-replicas", str(NODES), "--no-checkpoint", project, "--",
                              "./program", model, directory / "steps", str(STEP_MS)], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.log = lambda: subprocess.run([self.adaptdl, "logs", *ray, job], env=environment, capture_output=True, text=True).stdout
        return lambda: subprocess.run([self.adaptdl, "delete", *ray, job], env=environment, check=True, stdout=subprocess.DEVNULL)

    def ray_train(self, model, directory, cluster):
        self.log = (directory / "train.log").read_text
        with open(directory / "train.log", "wb") as log:
            process = subprocess.Popen([cluster.python, PEER, model, directory / "steps", directory / "snapshot", str(NODES), str(STEP_MS)],
                                       env=cluster.environment, stdout=log, stderr=log)

        def end():
            process.send_signal(signal.SIGKILL)
            process.wait()

        return end


def report(pauses):
    """Prints the table, and returns the bounds that were not met."""
    ways = list(dict.fromkeys(way for _, way in pauses))
    missed = []
    print("\nSeconds of pause, median / 95th percentile.\n")
    print(f"| model | change | number | {' | '.join(ways)} |")
    print(f"| --- | --- | --- |{' --- |' * len(ways)}")
    for model in dict.fromkeys(model for model, _ in pauses):
        for kind in CHANGES:
            live = pauses[model, "live"][kind]
            print(f"| {model} | {kind} | {len(live)} | {' | '.join(cell(pauses[model, way][kind]) for way in ways)} |")
            if percentile(live) > BOUND_SECONDS:
                missed.append(f"{model}, {kind}: the 95th percentile of live is {percentile(live):.2f} s, over {BOUND_SECONDS} s")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adaptdl", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path, help="the built rescale_pause_program")
    parser.add_argument("--model", choices=("digits", "large"), action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-ray-train", action="store_true")
    arguments = parser.parse_args()
    try:
        python = ray_support.python()
    except unittest.SkipTest as reason:
        print(f"skipped: {reason}")
        return python_peer.SKIPPED
    pythons = {"live": python}
    try:
        if not arguments.no_ray_train:
            pythons["ray train"] = python_peer.venv("ray-train", RAY_TRAIN, system_site_packages=True, python=python_peer.python_with_torch())
    except unittest.SkipTest as reason:
        print(f"Ray Train: skipped ({reason})")
    leave_network()
    bench = Bench(arguments)
    pauses = {(model, way): bench.measure(way, model, pythons[way]) for model in arguments.model or ["digits"] for way in pythons}
    missed = report(pauses)
    print("\n" + ("\n".join(f"FAIL: {each}" for each in missed) or "PASS: all bounds are met"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
