"""Compares our noise scale, scaling factors and progress with those of the published Python package `adaptdl`. Both
train on the same given gradients. Needs Debian's python3-torch, and the Python Package Index on the first run.

For each number of replicas, each side runs all cases in one job. The cases avoid two known differences. First, Adam's
moments are reset when the scale changes. The package resets them between measuring the local gradients and measuring
their mean, so the two are preconditioned differently in this one step, while we reset the moments before the step. So,
with AdamScale, the scale changes only while nothing is preconditioned yet, that is, in Adam's first five steps.
Second, after a lone step with a single gradient, from which nothing can be learned, the package drops the averages of
all earlier steps, while we keep them.
"""

import array
import bisect
import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import peer_jobs
import python_peer

PROGRAM = os.environ["SCALING_PROGRAM"]
PEER = pathlib.Path(__file__).with_name("python_scaling_peer.py")
REPLICAS = 1, 2
ACCUMULATION = 0, 1, 3
TOLERANCE = 1e-6
PATIENCE = 300
BATCH_SIZE = 8  # the initial batch size
SIZES = 61, 17  # elements of the two parameters, each of which is a separate parameter group


class Cases:
    """The cases for one number of replicas: {name: case}. A case has these values:

    optimizer, rule    names of the optimizer and the scaling rule; for LEGWScale also warmup_epochs and data_size
    lr                 learning rate of each parameter group
    sizes              number of elements of each of the two parameters
    batch_size         the initial batch size
    schedule           (local batch size, accumulation steps) of each step; the first step has the initial batch size
    gradients          a file of float32 values: [batches, replicas, elements]
    """

    def __init__(self, directory, replicas):
        self.directory = directory
        self.replicas = replicas
        self.cases = {}
        self.spoilt = {}  # the steps of each case with a gradient that is not finite

    def add(self, name, schedule, rule="AdaScale", optimizer="SGD", spoilt=()):
        """Adds a case. `spoilt` maps batch numbers to the value of one gradient element on the first replica."""
        path = self.directory / f"{self.replicas}-{len(self.cases)}.f32"
        self.write_gradients(path, sum(accumulation + 1 for _, accumulation in schedule), dict(spoilt))
        self.cases[name] = dict(
            name=name, rule=rule, optimizer=optimizer, lr=[0.1, 0.03], sizes=SIZES, batch_size=BATCH_SIZE,
            schedule=schedule, gradients=str(path), warmup_epochs=1.5, data_size=64
        )
        ends = list(itertools.accumulate(accumulation + 1 for _, accumulation in schedule))
        self.spoilt[name] = {bisect.bisect(ends, batch) for batch in dict(spoilt)}

    def write_gradients(self, path, batches, spoilt):
        """Writes random gradients. Their signal rotates slowly, and is as strong as the noise in the first group but
        weak in the second."""
        chosen = random.Random(str((self.replicas, len(self.cases))))
        directions = [[chosen.gauss(0, 1) for _ in range(sum(SIZES))] for _ in range(2)]
        values = array.array("f")
        for batch in range(batches):
            for replica in range(self.replicas):
                for place in range(sum(SIZES)):
                    signal = math.cos(batch / 20) * directions[0][place] + math.sin(batch / 20) * directions[1][place]
                    values.append((1 if place < SIZES[0] else 0.1) * signal + chosen.gauss(0, 1))
                if replica == 0 and batch in spoilt:
                    values[-sum(SIZES) + 5] = spoilt[batch]
        path.write_bytes(values.tobytes())

    def even(self, accumulation):
        """Returns (local batch size, accumulation steps) of a step that has the initial batch size."""
        return BATCH_SIZE // self.replicas // (accumulation + 1), accumulation


def make_cases(directory, replicas):
    cases = Cases(directory, replicas)
    for accumulation in ACCUMULATION:
        first = cases.even(accumulation)
        times = lambda factor: (int(first[0] * factor), accumulation)
        growing = [first] * 10 + [times(5)] * 15 + [times(3)] * 10 + [times(17)] * 5
        for rule in "AdaScale", "LinearScale", "SqrtScale", "LEGWScale":
            cases.add(f"SGD {rule}, accumulation {accumulation}", growing, rule)
        cases.add(f"Adam AdaScale, accumulation {accumulation}", growing, optimizer="Adam")
        for optimizer in "Adam", "AdamW":
            for factor in 1, 4:
                schedule = [first] + [times(factor)] * 30
                name = f"{optimizer} AdamScale, scale {factor}, accumulation {accumulation}"
                cases.add(name, schedule, "AdamScale", optimizer)
        batches = accumulation + 1
        spoilt = {6 * batches: math.nan, 11 * batches: math.inf, 12 * batches: -math.inf, 20 * batches: math.nan}
        cases.add(f"not finite, accumulation {accumulation}", [first] * 15 + [times(4)] * 10, spoilt=spoilt)
    one, two, four = (cases.even(accumulation) for accumulation in ACCUMULATION)
    between = [one] * 6 + [two] * 6 + [one] * 6 + [(40, 0)] * 6 + [(24, 3)] * 6 + [four] * 6 + [one] * 4
    cases.add("between accumulations", between)
    # A single replica measures a step without accumulation together with the step before it, so the steps next to a
    # spoilt one matter, too.
    cases.add("not finite between accumulations", between,
              spoilt={3: math.nan, 6: math.inf, 20: math.nan, 60: math.inf})
    return cases


def run_all(commands, environments):
    """Runs the replicas of a job until they end. Raises AssertionError if one of them fails."""
    pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    processes = [subprocess.Popen(command, env=env, **pipes) for command, env in zip(commands, environments)]
    try:
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, (process, output) in enumerate(zip(processes, outputs)):
        if process.returncode != 0:
            raise AssertionError(f"replica {rank} of {processes[0].args[0]} ended with {process.returncode}:\n{output}")


def run_ours(spec, output, replicas):
    run_all([[PROGRAM, spec, output]] * replicas, peer_jobs.our_environments(replicas))


def run_python(python, spec, output, replicas, store):
    run_all([[python, PEER, spec, output, str(rank), str(replicas), store] for rank in range(replicas)],
            peer_jobs.python_environments(replicas))


def steps_of(output, cases):
    """Returns {case name: list of what was measured after each step}."""
    lines = iter(output.read_text().splitlines())
    return {name: [json.loads(next(lines)) for _ in one["schedule"]] for name, one in cases.items()}


def as_list(value):
    return value if isinstance(value, list) else [value]


class PythonScalingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = python_peer.adaptdl_torch()
        cls.ours, cls.python, cls.spoilt = {}, {}, {}
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            for replicas in REPLICAS:
                made = make_cases(directory, replicas)
                cases, cls.spoilt[replicas] = made.cases, made.spoilt
                spec, output = directory / f"{replicas}.json", directory / "output"
                spec.write_text(json.dumps(list(cases.values())))
                run_ours(spec, output, replicas)
                cls.ours[replicas] = steps_of(output, cases)
                run_python(python, spec, output, replicas, directory / f"store-{replicas}")
                cls.python[replicas] = steps_of(output, cases)

    def compare(self, kind):
        """Compares all cases whose names begin with `kind`."""
        names = [(replicas, name) for replicas in REPLICAS for name in self.ours[replicas] if name.startswith(kind)]
        self.assertTrue(names)
        largest = 0
        for replicas, name in names:
            with self.subTest(replicas=replicas, case=name):
                steps = zip(self.ours[replicas][name], self.python[replicas][name], strict=True)
                not_counted = 0
                for step, (ours, python) in enumerate(steps):
                    # The package counts spoilt steps as progress, but we do not, so their progress is subtracted.
                    if step in self.spoilt[replicas][name]:
                        not_counted += python["gain"]
                        python["gain"] = 0
                    python["progress"] -= not_counted
                    what = f"step {step}: {ours}, of the package {python}"
                    largest = max(largest, self.compare_step(ours, python, what))
        print(f"{kind}: {len(names)} cases, largest relative difference {largest:.1e}")

    def compare_step(self, ours, python, what):
        """Compares the values of a step. Returns their largest relative difference, not including `sqr` and `var`."""
        difference = 0
        for name in "factors", "gain", "progress", "scale", "weights":
            for mine, theirs in zip(as_list(ours[name]), as_list(python[name]), strict=True):
                self.assertLessEqual(abs(mine - theirs), TOLERANCE * abs(theirs), f"{name} in {what}")
                difference = max(difference, abs(mine - theirs) / max(abs(theirs), 1e-300))
        for group in range(len(SIZES)):
            # Both may be close to 0, since they are differences of the same two measurements.
            whole = abs(python["sqr"][group]) + abs(python["var"][group])
            for name in "sqr", "var":
                difference_here = abs(ours[name][group] - python[name][group])
                self.assertLessEqual(difference_here, TOLERANCE * whole, f"{name} in {what}")
        return difference

    def test_scaling_rules_under_sgd_agree_with_the_python_package_at_changing_scales(self):
        self.compare("SGD")

    def test_adam_scale_agrees_with_the_python_package_on_preconditioned_gradients(self):
        self.compare("Adam AdamScale")
        self.compare("AdamW AdamScale")

    def test_ada_scale_under_adam_agrees_with_the_python_package_at_changing_scales(self):
        self.compare("Adam AdaScale")

    def test_scaling_agrees_with_the_python_package_when_accumulation_begins_and_ends(self):
        self.compare("between")

    def test_scaling_agrees_with_the_python_package_around_steps_with_nan_or_infinity(self):
        self.compare("not finite")


if __name__ == "__main__":
    python_peer.main()
