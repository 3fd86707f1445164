#!/usr/bin/env python3
"""Measures how long training pauses when its number of replicas changes from 1 to 2, and from 2 to 1.

    python3 tests/bench/rescale_pause.py ADAPTDL PROGRAM [--model digits|large] [--changes 20] [--no-torchrun]

One run measures 20 changes in each direction, for a small model (digits) and for one with 25 M parameters (large):

live     `adaptdl resize` of an `adaptdl run --replicas 1:2` that continues training
restart  Ctrl-C, which saves a checkpoint, and `adaptdl run --replicas N --checkpoint DIR` as soon as the run has ended
nnodes   `torchrun --nnodes=1:2` of PyTorch: another agent is started (growing), or is killed with its worker (shrinking)
kill     `torchrun --standalone --nproc_per_node=2`: one of two workers is killed, and both are restarted; the number of
         replicas stays the same, but this is torchrun's shortest pause; it is compared with shrinking

The program under torchrun trains the same model and loads its newest snapshot, as PyTorch's elastic examples do. To avoid
idle time, torchrun's monitor polls every 0.1 s (default: 5 s), and its rendezvous waits 1 s for further nodes (default:
30 s). The time for repeating the steps since the snapshot is not part of the pause.

The pause is the time in which the job completes no step, minus the normal step time. To measure it, each time between
two consecutive steps, from the last step before the change was requested to the fifth one after it, is reduced by the
normal step time of the group in which it ends, which is the median of ten steps before or after the change. The longest
of these times is the pause. Times are taken on rank 0 at the end of optimizer.step(), with the monotonic clock.

Prints a table in Markdown, and exits with 1 if a bound is not met: the 95th percentile of live must be at most 1 s, and
its median at most a tenth (growing: a fifth) of the median of each of the others. Without PyTorch for Python
($PYTHON_TORCH, python3, /usr/bin/python3) there is no comparison with torchrun, and the output says so.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
from local_network import free_port  # noqa: E402

MODELS = {"digits": "digits", "large": "25 M parameters"}
CHANGES = {"growing": (1, 2), "shrinking": (2, 1)}
BOUND_SECONDS = 1
BOUND_RATIO = {"growing": 5, "shrinking": 10}
NEAR = 5  # number of steps after a change in which the longest pause is searched for
USUAL = 10  # number of steps whose median is the normal step time
PATIENCE = 180
DDP_PROGRAM = pathlib.Path(__file__).with_name("rescale_pause_ddp.py")


class Steps:
    """The steps of a job, read from a file to which each replica adds a line when it has completed a step."""

    def __init__(self, path):
        self.path = path
        self.steps = []  # each step of rank 0: time in seconds, process, replicas
        self.others = {}  # process and time of the last step of rank 1
        self.read = 0
        self.alive = lambda: True

    def update(self):
        if not self.path.exists():
            return
        with self.path.open() as file:
            file.seek(self.read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            when, process, rank, replicas = map(int, line.split())
            if rank == 0:
                self.steps.append((when / 1e9, process, replicas))
            else:
                self.others = {"process": process, "time": when / 1e9}

    def wait(self, since, replicas, count):
        """Waits until `count` steps with that number of replicas have been completed after `since`. Returns the index of the
        first one."""
        deadline = time.monotonic() + PATIENCE
        first = 0
        while True:
            self.update()
            while first < len(self.steps) and (self.steps[first][0] <= since or self.steps[first][2] != replicas):
                first += 1
            if len(self.steps) >= first + count:
                return first
            if time.monotonic() > deadline or not self.alive():
                raise SystemExit(f"{self.path.name}: no {count} steps of {replicas} replicas came")
            time.sleep(0.02)

    def pause(self, asked, replicas):
        """Waits until a change that was requested at the time `asked` is over, and returns its pause in seconds."""
        first = self.wait(asked, replicas, 1 + USUAL)
        times = [step[0] for step in self.steps]
        last = max(place for place, when in enumerate(times) if when <= asked)
        gaps = [after - before for before, after in zip(times, times[1:])]
        normal = statistics.median(gaps[first : first + USUAL])
        # Times that end before the change are reduced by the normal step time of the old group.
        before = gaps[max(last - USUAL, 0) : last]
        old = statistics.median(before) if before else normal
        return max(gaps[place] - (old if place + 1 < first else normal) for place in range(last, first + NEAR))


class Processes:
    """The processes that were started and may still be running. They are killed at the end of the block."""

    def __init__(self, directory, environment):
        self.directory = directory
        self.environment = environment
        self.running = []

    def start(self, *command, **environment):
        with (self.directory / "output").open("a") as output:
            process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env={**self.environment, **environment}, start_new_session=True)
        self.running.append(process)
        return process

    def kill(self, process):
        """Kills the process and all others in its process group."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        self.running.remove(process)

    def interrupt(self, process, code):
        process.send_signal(signal.SIGINT)
        ended = process.wait(PATIENCE)
        self.running.remove(process)
        if ended != code:
            raise SystemExit(f"adaptdl run ended with {ended}, not {code}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for process in list(self.running):
            self.kill(process)
        if kind is not None and (self.directory / "output").exists():
            sys.stderr.write("".join((self.directory / "output").read_text(errors="replace").splitlines(True)[-30:]))


class Bench:
    def __init__(self, arguments, directory):
        self.adaptdl, self.program, self.changes = arguments.adaptdl, arguments.program, arguments.changes
        self.python = None if arguments.no_torchrun else find_torch()
        self.directory = directory
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTDL_")}
        self.environment = {**inherited, "HOME": str(directory), "XDG_RUNTIME_DIR": str(directory),
                            "XDG_STATE_HOME": str(directory / "state"), "OMP_NUM_THREADS": "1",
                            "ADAPTDL_CHECKPOINT_EVERY": "0", "PYTHONUNBUFFERED": "1"}

    def measure(self, model, way):
        """Returns the pauses of one way of changing the replicas, by kind of change."""
        print(f"{model}: {way}", file=sys.stderr, flush=True)
        directory = self.directory / f"{model}-{way}"
        directory.mkdir()
        with Processes(directory, self.environment) as processes:
            return getattr(self, way)(model, directory, processes)

    def alternate(self, steps, change):
        """Grows and shrinks the job in turn, and returns the pauses. `change` makes a change and returns
        the time at which it was requested."""
        pauses = {kind: [] for kind in CHANGES}
        steps.wait(0, 1, USUAL)
        for _ in range(self.changes):
            for kind, (_, replicas) in CHANGES.items():
                pauses[kind].append(steps.pause(change(replicas), replicas))
        return pauses

    def live(self, model, directory, processes):
        steps = Steps(directory / "steps")
        run = processes.start(self.adaptdl, "run", "--name", model, "--replicas", "1:2", "--devices", 2, "--device-kind",
                              "cpu", "--checkpoint", directory / "checkpoint", "--", self.program, model, steps.path)
        steps.alive = lambda: run.poll() is None

        def resize(replicas):
            asked = time.monotonic()
            subprocess.run([self.adaptdl, "resize", model, str(replicas)], env=self.environment, check=True,
                           stdout=subprocess.DEVNULL)
            return asked

        steps.wait(0, 2, 1)
        resize(1)
        pauses = self.alternate(steps, resize)
        processes.interrupt(run, 143)
        if len({process for _, process, _ in steps.steps}) != 1:
            raise SystemExit("the replica of rank 0 was started again: that was no live rescale")
        return pauses

    def restart(self, model, directory, processes):
        steps = Steps(directory / "steps")

        def start(replicas):
            run = processes.start(self.adaptdl, "run", "--name", model, "--replicas", replicas, "--devices", 2,
                                  "--device-kind", "cpu", "--checkpoint", directory / "checkpoint", "--", self.program,
                                  model, steps.path)
            steps.alive = lambda: run.poll() is None
            return run

        run = start(1)

        def change(replicas):
            nonlocal run
            asked = time.monotonic()
            processes.interrupt(run, 143)
            run = start(replicas)
            return asked

        pauses = self.alternate(steps, change)
        processes.interrupt(run, 143)
        return pauses

    def torchrun(self, model, directory, processes, steps, *options):
        # PyTorch 1.13 on Python 3.11 fails with its own default for the output of workers. Like the default, these options leave the
        # output of all workers as it is.
        return processes.start(self.python, "-m", "torch.distributed.run", "--redirects=9:1", "--tee=9:1",
                               "--max_restarts=10000", "--monitor_interval=0.1", *options, DDP_PROGRAM, model,
                               steps.path, directory / "snapshot")

    def nnodes(self, model, directory, processes):
        steps = Steps(directory / "steps")
        options = ["--nnodes=1:2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_id=rescale-pause",
                   f"--rdzv_endpoint=localhost:{free_port()}", "--rdzv_conf=last_call_timeout=1"]
        first = self.torchrun(model, directory, processes, steps, *options)
        steps.alive = lambda: first.poll() is None
        second = None

        def change(replicas):
            nonlocal second
            asked = time.monotonic()
            if replicas == 2:
                second = self.torchrun(model, directory, processes, steps, *options)
            else:
                processes.kill(second)
            return asked

        return self.alternate(steps, change)

    def kill(self, model, directory, processes):
        steps = Steps(directory / "steps")
        run = self.torchrun(model, directory, processes, steps, "--standalone", "--nproc_per_node=2")
        steps.alive = lambda: run.poll() is None
        steps.wait(0, 2, USUAL)
        pauses = []
        for _ in range(self.changes):
            victim = steps.others["process"]
            asked = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            while steps.others["process"] == victim:
                steps.wait(asked, 2, 1)
            pauses.append(steps.pause(asked, 2))
        return {"shrinking": pauses}


def find_torch():
    """Returns a Python interpreter that has PyTorch, or None if there is none."""
    for python in filter(None, (os.environ.get("PYTHON_TORCH"), "python3", "/usr/bin/python3")):
        if shutil.which(python) and subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True,
                                                   check=False).returncode == 0:
            return python
    return None


def percentile(values):
    """Returns the 95th percentile, with linear interpolation between the values."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def cell(values):
    return f"{statistics.median(values):.2f} / {percentile(values):.2f}" if values else "-"


def report(pauses):
    """Prints the table, and returns the bounds that were not met."""
    ways = [way for way in ("live", "restart", "nnodes", "kill") if any(way == key[1] for key in pauses)]
    missed = []
    print("\nSeconds of pause, median / 95th percentile; in brackets, the ratio of the median to that of live.\n")
    print(f"| model | replicas | changes | {' | '.join(ways)} |")
    print(f"| --- | --- | --- |{' --- |' * len(ways)}")
    for model in dict.fromkeys(model for model, _ in pauses):
        for kind, (before, after) in CHANGES.items():
            live = pauses[model, "live"][kind]
            name = f"{MODELS[model]}, {kind}"
            cells = [cell(live)]
            if percentile(live) > BOUND_SECONDS:
                missed.append(f"{name}: the 95th percentile of live is {percentile(live):.2f} s, over {BOUND_SECONDS} s")
            for way in ways[1:]:
                others = pauses[model, way].get(kind)
                if not others:
                    cells.append("-")
                    continue
                ratio = statistics.median(others) / max(statistics.median(live), 1e-6)
                cells.append(f"{cell(others)} ({ratio:.0f}x)")
                if ratio < BOUND_RATIO[kind]:
                    missed.append(f"{name}: the median of {way} is {ratio:.1f} times that of live, below {BOUND_RATIO[kind]} times")
            print(f"| {MODELS[model]} | {before} to {after} | {len(live)} | {' | '.join(cells)} |")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adaptdl", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path, help="the built rescale_pause_program")
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--changes", type=int, default=20, help="of each kind")
    parser.add_argument("--no-torchrun", action="store_true")
    parser.add_argument("--log", type=pathlib.Path, help="a file for each pause, in JSON")
    arguments = parser.parse_args()
    arguments.adaptdl, arguments.program = arguments.adaptdl.resolve(), arguments.program.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    pauses = {}
    with tempfile.TemporaryDirectory(prefix="adaptdl-bench-") as directory:
        bench = Bench(arguments, pathlib.Path(directory))
        ways = ["live", "restart", *(["nnodes", "kill"] if bench.python else [])]
        for model in arguments.model or MODELS:
            for way in ways:
                pauses[model, way] = bench.measure(model, way)
    if arguments.log:
        arguments.log.write_text(json.dumps({f"{model} {way}": each for (model, way), each in pauses.items()}))
    print(__doc__.split("\n\n", 2)[2].rsplit("\n\n", 1)[0])
    missed = report(pauses)
    if not bench.python:
        why = "not asked for" if arguments.no_torchrun else "no Python has PyTorch: $PYTHON_TORCH, python3, /usr/bin/python3"
        print(f"\ntorchrun: skipped ({why})")
    print("\n" + ("\n".join(f"FAIL: {each}" for each in missed) or "PASS: all bounds are met"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
