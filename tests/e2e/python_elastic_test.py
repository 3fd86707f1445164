"""Tests an unchanged program that uses the published Python package `adaptdl` in an elastic run. Needs Debian's
python3-torch, and the Python Package Index on the first run.

Such a program knows nothing about generations and reports no progress. It finds its peers through the supervisor, is
rescaled by checkpoint and restart, and posts its hints after half a minute.
"""

import collections
import os
import pathlib
import re
import signal
import unittest

import python_peer
from run_support import RunTest, eventually, interrupt, replicas_of

PROGRAM = pathlib.Path(__file__).with_name("python_elastic_program.py")
SAMPLES, STEPS_AN_EPOCH, STEPS = 256, 16, 128
HINTS_PATIENCE = 180  # the program posts hints half a minute after its first step
TRUTH = 1, -2, 3, 0.5, 0  # the parameters that the program must find


class PythonElasticTest(RunTest):
    @classmethod
    def setUpClass(cls):
        cls.python = python_peer.adaptdl_torch()

    def start_python(self, *waits, replicas="1:2", devices=2, options=(), **more):
        """Starts the program, which waits after each of these steps until go_on() is called for the step."""
        self.name = f"linear{os.getpid()}"
        program = [PROGRAM, *(f"--wait={step}:{self.directory / f'go-{step}'}" for step in waits), *options]
        return self.start(
            "--replicas", replicas, "--devices", devices, "--device-kind", "cpu", "--name", self.name,
            "--checkpoint", "c", "--", self.python, *program, **more,
        )  # fmt: skip

    def go_on(self, step):
        (self.directory / f"go-{step}").touch()

    def resize_at(self, run, step, replicas, size):
        """Resizes the run while its replicas are waiting after the step. Returns the step after which they resume."""
        run.wait_for(f"waits after step {step}", replicas)
        self.adaptdl("resize", self.name, size)
        run.wait_for(f"to {size} replica{'s'[: size > 1]}: waiting up to 30s for replica")
        self.go_on(step)
        return self.begun(run, size, after=step)

    def begun(self, run, size, after):
        """Waits until `size` replicas have begun after a step later than `after`, and returns that step."""

        def found():
            matches = [re.search(rf"rank (\d+) of {size} begins after step (\d+)", line) for line in run.out]
            return [(int(match[1]), int(match[2])) for match in matches if match and int(match[2]) > after]

        eventually(lambda: len(found()) >= size or run.process.poll() is not None)
        ranks, steps = zip(*found() or [((), ())])
        self.assertEqual(sorted(ranks), list(range(size)), run.text())
        self.assertEqual(len(set(steps)), 1, run.text())
        return steps[0]

    def samples(self, *runs):
        """Returns how often each (epoch, sample) was trained on."""
        counts = collections.Counter()
        for line in (line for run in runs for line in run.out):
            if match := re.fullmatch(r"\[\d+\] epoch (\d+): ([\d ]+)", line):
                counts.update((int(match[1]), int(index)) for index in match[2].split())
        return counts

    def assert_each_sample_once(self, *runs):
        counts = self.samples(*runs)
        self.assertEqual(len(counts), SAMPLES * STEPS // STEPS_AN_EPOCH)
        self.assertEqual(set(counts.values()), {1})

    def assert_ends_right(self, run):
        self.assertEqual(run.finish(), 0, run.text())
        for line in run.wait_for(f"ends after step {STEPS} with "):
            for found, true in zip(map(float, line.split(" with ")[1].split()), TRUTH, strict=True):
                self.assertAlmostEqual(found, true, delta=0.05)

    def test_a_resized_program_resumes_at_its_step_and_trains_on_each_sample_once(self):
        # The program must not connect to its supervisor through a proxy that the user has configured.
        proxy = "http://127.0.0.1:9"
        run = self.start_python(10, 40, http_proxy=proxy, HTTP_PROXY=proxy, no_proxy="example.org", NO_PROXY=None)
        self.assertEqual(self.resize_at(run, 10, 2, 1), 11)
        run.wait_for("restarting with 1 replica from checkpoint-0")
        self.assertEqual(self.resize_at(run, 40, 1, 2), 41)
        run.wait_for("restarting with 2 replicas from checkpoint-1")
        self.assert_ends_right(run)
        self.assert_each_sample_once(run)
        self.assertEqual(self.listed("--all")[self.name]["restarts"], 2)
        self.assertNotIn("Received", run.text())

    def test_an_interrupted_program_resumes_when_it_is_run_again(self):
        stopped = self.start_python(10)
        stopped.wait_for("waits after step 10", 2)
        interrupt(stopped)
        stopped.wait_for("interrupted: waiting up to 30s")
        self.go_on(10)
        self.assertEqual(stopped.finish(), 143, stopped.text())
        again = self.start_python(10, 40)
        self.assertEqual(self.begun(again, 2, after=10), 11)
        self.assertEqual(self.resize_at(again, 40, 2, 1), 41)
        again.wait_for("restarting with 1 replica from checkpoint-1")
        self.assert_ends_right(again)
        self.assert_each_sample_once(stopped, again)

    def test_after_a_replica_is_killed_all_replicas_restart_from_the_last_checkpoint(self):
        run = self.start_python(10, 40)
        self.assertEqual(self.resize_at(run, 10, 2, 1), 11)
        run.wait_for("waits after step 40")
        [replica] = replicas_of(run.pid)
        os.kill(replica, signal.SIGKILL)
        run.wait_for("restarting all replicas from checkpoint-0")
        self.go_on(40)
        self.assert_ends_right(run)
        counts = self.samples(run)
        twice = 40 - 11  # steps
        self.assertEqual(sum(counts.values()), (STEPS + twice) * SAMPLES // STEPS_AN_EPOCH)
        self.assertEqual(set(counts.values()), {1, 2})

    def test_posted_hints_determine_the_number_of_replicas(self):
        # A batch size of at most 32 and a local batch size of at least 16 allow two replicas at most.
        options = ["--autoscale", "32:16", "--pause", "0.05", "--epochs", "1000000"]
        run = self.start_python(replicas="1:3", devices=3, options=options)
        run.wait_for("rank 0 of 3 begins after step 0")
        shrinks = re.compile(r"adaptdl: from 3 to ([12]) replicas?: waiting up to 30s for replicas 0, 1, 2")
        match = eventually(lambda: next(filter(None, map(shrinks.match, run.err)), None), HINTS_PATIENCE)
        self.assertTrue(match, run.text())
        self.begun(run, int(match[1]), after=0)
        run.wait_for("device allocation changed: ")
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        self.assertNotIn("Received", run.text())

    def test_the_python_package_reads_the_same_environment_as_in_a_cluster(self):
        names = "job_id master_addr replica_rank num_nodes num_replicas num_restarts checkpoint_path share_path"
        calls = ", ".join(f"adaptdl.env.{name}()" for name in names.split())
        script = f"import adaptdl.env; print({calls}, adaptdl.env.supervisor_url() is not None)"
        run = self.run_to_end(
            "-n", 2, "--name", "seen", "--checkpoint", "c", "--share", "s", "--", self.python, "-c", script
        )
        paths = f"{self.directory / 'c'} {self.directory / 's'}"
        self.assertEqual(
            sorted(run.out),
            [f"[{rank}] local/seen 127.0.0.1 {rank} 1 2 0 {paths} True" for rank in range(2)],
        )


if __name__ == "__main__":
    python_peer.main()
