"""Disturbs a training job with random failures: none may make it hang, cost more than the step in progress, or affect
its loss.

  failure_soak.py [--events N] [--seed N] [--deadline SECONDS]

Prints each event with the time until the job was training again, and a table of these times by kind of event. The
script needs the environment variables of the end-to-end tests, which `meson test -C build --benchmark -v failure-soak`
sets. The variables SOAK_EVENTS and SOAK_SEED change the defaults of --events and --seed.
"""

import argparse
import bisect
import collections
import os
import pathlib
import random
import re
import statistics
import sys
import unittest

from failure_soak_support import BATCH, DEVICES, KINDS, PROGRAM, RATE, SAMPLES, DisturbedJob, Samples
from run_support import PATIENCE, eventually, is_alive

# The number of epochs over which a loss is averaged, and the number of replicas during these epochs.
WINDOW, LAST_REPLICAS = 30, 2


def losses(lines):
    """Returns the loss of each epoch, as rank 0 reported it last."""
    found = {}
    for line in lines:
        if match := re.search(r"epoch (\d+) replicas \d+ loss ([\d.]+) samples", line):
            found[int(match[1])] = float(match[2])
    return [found[epoch] for epoch in sorted(found)]


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class FailureSoak(DisturbedJob):
    """Disturbs the job, and checks what it lost."""

    def happen(self, kind):
        self.kind, self.event, self.struck = kind, None, None
        needs = KINDS[kind].needs
        if needs > self.bounds[1]:
            self.change_bounds((1, DEVICES))
        # On a busy machine, the policy may decide that this many replicas are not worthwhile.
        if not eventually(lambda: len(self.training()) >= needs, self.deadline / 3):
            self.change_bounds((needs, DEVICES))
        self.until(lambda: len(self.training()) >= needs, f"{needs} replicas train")
        self.train_on(self.random.randrange(100))
        getattr(self, "hit_" + kind.replace(" ", "_"))(self.training())
        self.events.append(self.event)
        print(f"{len(self.events):4} {kind:12} {self.event.seconds:6.2f} s  epoch {self.samples.epoch()}", flush=True)

    def soak(self, kinds, seed, deadline=PATIENCE):
        self.random = random.Random(seed)
        self.deadline = deadline
        self.jobs, self.events, self.processes = [], [], set()
        (self.directory / "samples").touch()
        self.samples = Samples(self.directory / "samples")
        self.addCleanup(self.samples.close)
        self.start_job()
        for kind in kinds:
            self.happen(kind)
        self.end_job()
        try:
            self.assert_little_is_lost()
            self.assert_nothing_went_wrong_unnoticed()
            self.assert_loss_of_an_undisturbed_job()
        finally:
            self.print_table()

    def end_job(self):
        """Lets the job train without an event for the epochs over which the final loss is averaged, and ends it."""
        self.change_bounds((LAST_REPLICAS, LAST_REPLICAS))
        epoch = self.samples.epoch()
        for next_one in range(epoch + 1, epoch + WINDOW + 2):
            self.until(lambda: self.samples.epoch() >= next_one, f"{WINDOW} epochs without an event")
        self.processes.add(self.agent())
        (self.directory / "until").touch()
        self.assertEqual(self.job.finish(self.deadline), 0, self.job.text())
        self.assertTrue(eventually(lambda: not any(map(self.is_ours, self.processes))), "processes are left")

    def is_ours(self, pid):
        """Returns whether that process is alive and belongs to this job: in a long run, process IDs are reused."""
        try:
            return is_alive(pid) and bytes(self.directory) in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def assert_little_is_lost(self):
        """Asserts that only samples of the steps in progress were trained on again after an event, or were never reported.

        A process that dies may have trained on samples that it had not reported yet.
        """
        times, self.again = collections.Counter(), collections.Counter()
        begins = [event.line for event in self.events]
        for line, (epoch, samples) in enumerate(self.samples.read().lines):
            for sample in samples:
                times[epoch, sample] += 1
                if times[epoch, sample] > 1:
                    self.again[bisect.bisect_right(begins, line) - 1] += 1
        trained = collections.Counter(epoch for epoch, _ in times)
        self.missing = sum(SAMPLES - trained[epoch] for epoch in range(self.samples.epoch() + 1))
        self.assertNotIn(-1, self.again)
        for index, event in enumerate(self.events):
            bound = event.blows * BATCH + event.again
            self.assertLessEqual(self.again[index], bound, f"samples trained on again after event {index + 1}, {event}")
        self.assertLessEqual(self.missing, sum(event.blows for event in self.events) * BATCH)

    def assert_nothing_went_wrong_unnoticed(self):
        """Asserts that no process ended other than by a kill, and that all replicas were restarted only after all were
        killed."""
        notices = [line for job in self.jobs for line in job.err]
        ends = [line for line in notices if "exited with code" in line or "out of memory" in line.lower()]
        self.assertEqual(ends, [], "\n".join(notices))
        starts = [line for line in notices if "restarting all replicas" in line]
        self.assertEqual(len(starts), sum(event.kind == "all" for event in self.events), starts)

    def assert_loss_of_an_undisturbed_job(self):
        """Asserts that the loss of the last epochs is similar to that of an undisturbed job after the same number of epochs.

        The parameters are not bitwise equal, because dropout and batch normalization draw and average differently with
        different numbers of replicas. So the averages over a window of epochs with the same number of replicas are
        compared. Epochs vary randomly, as their spread shows; if the averages differ by 5 standard errors or more, the
        difference has another cause.
        """
        disturbed = losses(line for job in self.jobs for line in job.out)
        whole = self.start("--no-checkpoint", "-n", LAST_REPLICAS, PROGRAM, "--epochs", self.samples.epoch() + 1, *RATE)
        self.assertEqual(whole.finish(3600), 0, whole.text())
        undisturbed = losses(whole.out)
        one, other = disturbed[-WINDOW:], undisturbed[-WINDOW:]
        error = ((statistics.variance(one) + statistics.variance(other)) / WINDOW) ** 0.5
        one, other = statistics.mean(one), statistics.mean(other)
        print(f"loss {one:.3f}, undisturbed {other:.3f}, standard error of the difference {error:.3f}")
        self.assertLess(other + 5 * error, undisturbed[0], "the loss of the undisturbed job is inconclusive")
        self.assertLess(abs(one - other), 5 * error)

    def print_table(self):
        whole = SAMPLES * (self.samples.epoch() + 1)
        print(f"{self.missing} samples not trained on, {sum(self.again.values())} again, of {whole}")
        print(f"{'event':12} {'count':>5} {'median':>8} {'p95':>8} {'max':>8}")
        for kind in [*KINDS, "any"]:
            spans = [event.seconds for event in self.events if kind in (event.kind, "any")]
            if spans:
                figures = [statistics.median(spans), quantile(spans, 0.95), max(spans)]
                print(f"{kind:12} {len(spans):5} " + " ".join(f"{seconds:7.2f}s" for seconds in figures))


def random_kinds(events, seed):
    """Returns the kinds of `events` events: first each kind once, in random order, and then random kinds."""
    chance = random.Random(seed)
    once = chance.sample(list(KINDS), len(KINDS))[:events]
    weights = [kind.weight for kind in KINDS.values()]
    return once + chance.choices(list(KINDS), weights, k=events - len(once))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=int(os.environ.get("SOAK_EVENTS", 200)))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED", random.randrange(1_000_000))))
    parser.add_argument("--deadline", type=float, default=PATIENCE)
    options = parser.parse_args()

    class Soak(FailureSoak):
        def runTest(self):
            print(f"{options.events} events, --seed {options.seed}", flush=True)
            self.soak(random_kinds(options.events, options.seed), options.seed, options.deadline)

    result = unittest.TextTestRunner().run(Soak())
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
