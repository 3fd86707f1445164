"""Tests a job that is stopped and resumed: no work is lost or repeated, and the result is the same as without interruptions."""
import json
import os
import random
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from checkpoints import read_tensors  # in this directory
from extent import FULL
from local_network import leave_network
from run_support import eventually, is_alive, replicas_of

ADAPTDL = os.environ["ADAPTDL_BIN"]
DIGITS = os.environ["DIGITS"]
STOPPED = 143
INTERRUPTIONS = 20 if FULL else 5
FEWER = 20 if FULL else 3


class Job:
    """The digits program under `adaptdl run`, with its own checkpoint directory."""

    def __init__(self, directory, epochs, *, seed=1):
        self.directory = Path(directory)
        self.checkpoints = self.directory / "checkpoints"
        self.log = self.directory / "log.json"
        self.arguments = [DIGITS, "--seed", str(seed), "--log-json", str(self.log), "--epochs", str(epochs)]

    def set_epochs(self, epochs):
        self.arguments[-1] = str(epochs)

    def start(self, replicas, *options):
        command = [ADAPTDL, "run", "-n", str(replicas), "--checkpoint", str(self.checkpoints), *options, "--", *self.arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(self.directory)})

    def run(self, replicas, *options, stop_after=None, of="training"):
        """Runs the job to completion, or sends SIGINT `stop_after` seconds after the start of the training or run.

        Returns the exit code.
        """
        self.output = ""
        with self.start(replicas, *options) as process:
            # A job that has trained all its epochs never prints this line. A run does not handle signals
            # before it has printed its first line.
            for line in iter(process.stdout.readline, "") if stop_after is not None else ():
                self.output += line
                if of == "run" or "[0] adaptdl: starting at epoch" in line:
                    time.sleep(stop_after)
                    process.send_signal(signal.SIGINT)
                    break
            self.output += process.stdout.read()
        return process.returncode

    def parameters(self):
        newest = max(self.checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        tensors = read_tensors(newest / "adaptdl-dataparallel.safetensors")
        return {name: data for name, data in tensors.items() if name.startswith("model/")}

    def epochs(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


class ResumeTest(unittest.TestCase):
    def interrupted_as_uninterrupted(self, replicas, interruptions):
        chance = random.Random(replicas)
        with tempfile.TemporaryDirectory() as whole_directory, tempfile.TemporaryDirectory() as directory:
            whole = Job(whole_directory, epochs=12)
            self.assertEqual(whole.run(replicas), 0, whole.output)
            # The stops are spread over the training, even if this machine is now up to twice as fast as during the uninterrupted
            # run; some of them come before the training begins.
            spread = sum(epoch["seconds"] for epoch in whole.epochs()) / interruptions / 2
            stops = jobs = 0
            # If this process is not scheduled for a while, the job may end too early; another job then gets the remaining stops.
            while stops < interruptions:
                job = Job(Path(directory) / str(jobs), epochs=12)
                job.directory.mkdir()
                jobs += 1
                while (code := self.run_on(job, replicas, chance, spread, stops, interruptions)) != 0:
                    # On a busy machine, a program may take so long to start that it is stopped before it handles SIGTERM.
                    if code != 1 or "stopped without saving a checkpoint; either their first step had not begun" not in job.output:
                        self.assertEqual(code, STOPPED, job.output)
                    stops += 1
                self.assert_same(job, whole)

    def run_on(self, job, replicas, chance, spread, stops, interruptions):
        """Runs the job until its next stop or to completion, and returns the exit code."""
        if stops >= interruptions:
            return job.run(replicas)
        if stops % 5 == 4:
            return job.run(replicas, stop_after=chance.uniform(0, 0.3), of="run")
        return job.run(replicas, stop_after=chance.uniform(0, spread))

    def assert_same(self, job, whole):
        self.assertEqual(job.parameters(), whole.parameters())
        self.assertEqual(len(job.epochs()), len(whole.epochs()))
        for resumed, uninterrupted in zip(job.epochs(), whole.epochs()):
            for name in ("epoch", "replicas", "batch_size", "accuracy", "samples"):
                self.assertEqual(resumed[name], uninterrupted[name])
            # The terms of a sum that was saved midway and then resumed are added in a different order.
            self.assertAlmostEqual(resumed["loss"], uninterrupted["loss"], places=12)

    def test_repeated_interruptions_of_one_replica_leave_the_final_parameters_bitwise_unchanged(self):
        self.interrupted_as_uninterrupted(1, INTERRUPTIONS)

    def test_repeated_interruptions_of_two_replicas_leave_the_final_parameters_bitwise_unchanged(self):
        self.interrupted_as_uninterrupted(2, FEWER)

    def test_repeated_interruptions_of_three_replicas_leave_the_final_parameters_bitwise_unchanged(self):
        self.interrupted_as_uninterrupted(3, FEWER)

    def test_each_epoch_covers_all_samples_when_resumed_on_1_to_4_replicas(self):
        with tempfile.TemporaryDirectory() as directory:
            job = Job(directory, epochs=6)
            for replicas in (1, 2, 3, 4, 1, 2, 3, 4):
                self.assertIn(job.run(replicas, stop_after=0.1), (STOPPED, 0), job.output)
            self.assertEqual(job.run(2), 0, job.output)
            epochs = job.epochs()
            self.assertEqual([epoch["epoch"] for epoch in epochs], list(range(6)))
            for epoch in epochs:
                # drop_last omits less than one batch per replica; redistributing the samples adds at most one per replica.
                self.assertGreater(epoch["samples"], 1437 - 64 - 4)
                self.assertLess(epoch["samples"], 1437 + 64)
            self.assertGreater(epochs[-1]["accuracy"], 0.9)

    def test_rerunning_a_killed_launchers_command_resumes_from_a_periodic_checkpoint(self):
        with tempfile.TemporaryDirectory() as whole_directory, tempfile.TemporaryDirectory() as directory:
            job = Job(directory, epochs=100000)  # more than it can finish before it is killed
            every = ("--checkpoint-every", "100ms")
            with job.start(2, *every) as process:
                self.assertTrue(eventually(lambda: len(list(job.checkpoints.glob("checkpoint-*"))) >= 2))
                replicas = replicas_of(process.pid)
                process.kill()
            self.assertEqual(len(replicas), 2)
            self.assertTrue(eventually(lambda: not any(map(is_alive, replicas))))
            epochs = len(job.epochs()) + 3
            whole = Job(whole_directory, epochs=epochs)
            self.assertEqual(whole.run(2), 0, whole.output)
            job.set_epochs(epochs)
            self.assertEqual(job.run(2, *every), 0, job.output)
            self.assertRegex(job.output, r"checkpoint-\d+")
            self.assertEqual(job.parameters(), whole.parameters())
            # An epoch that ended between the checkpoint and the kill is logged twice.
            logged = {epoch["epoch"]: epoch for epoch in job.epochs()}
            for uninterrupted in whole.epochs():
                self.assertAlmostEqual(logged[uninterrupted["epoch"]]["loss"], uninterrupted["loss"], places=12)

    def test_a_finished_job_does_not_train_again(self):
        with tempfile.TemporaryDirectory() as directory:
            job = Job(directory, epochs=1)
            self.assertEqual(job.run(2), 0, job.output)
            before = job.parameters()
            self.assertEqual(job.run(1), 0, job.output)
            self.assertEqual(job.parameters(), before)
            self.assertEqual(len(job.epochs()), 1)


if __name__ == "__main__":
    leave_network()
    unittest.main()
