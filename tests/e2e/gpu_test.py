"""Tests runs on a GPU. One GPU is enough: replicas share it with Gloo, since NCCL allows only one replica per GPU."""

import importlib.util
import json
import os
import signal
import sys
import unittest

from run_support import RunTest, eventually, interrupt, is_alive, replicas_of, targets_of

DIGITS = os.environ["DIGITS"]
ENOUGH, FOREVER = 60, 1_000_000  # epochs


class GpuTest(RunTest):
    def digits(self, *options):
        return self.start(*options, "--checkpoint", "c", "--", DIGITS, "--epochs", ENOUGH, "--log-json", "log")

    def epochs(self):
        """Returns what was logged for each epoch."""
        path = self.directory / "log"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for_epochs(self, run, count):
        eventually(lambda: len(self.epochs()) >= count or run.process.poll() is not None)
        self.assertGreaterEqual(len(self.epochs()), count, run.text())

    def assert_trained(self):
        epochs = self.epochs()
        self.assertEqual([epoch["epoch"] for epoch in epochs], list(range(ENOUGH)))
        self.assertGreater(epochs[-1]["accuracy"], 0.95)

    def stop(self, run):
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())

    def test_a_replica_uses_the_gpu_by_default_and_resumes_after_a_stop(self):
        run = self.digits("-n", 1)
        self.wait_for_epochs(run, 3)
        [replica] = replicas_of(run.pid)
        self.assertIn("/dev/nvidia0", targets_of(replica))
        self.stop(run)
        done = len(self.epochs())
        self.assertLess(done, ENOUGH)
        run = self.digits("-n", 1)
        self.assertEqual(run.finish(), 0, run.text())
        self.assert_trained()

    def test_two_replicas_on_one_gpu_are_rejected_without_gloo(self):
        run = self.start("-n", 2, "--no-checkpoint", "--", DIGITS, "--log-json", "log")
        self.assertEqual(run.finish(), 2, run.text())
        self.assertEqual(self.epochs(), [])
        run = self.digits("-n", 2, "--backend", "gloo")
        self.assertEqual(run.finish(), 0, run.text())
        self.assert_trained()

    def test_a_run_resizes_and_survives_a_killed_replica_without_a_restart(self):
        # The run has two CPU devices, but CUDA_VISIBLE_DEVICES lets their replicas share the GPU.
        run = self.start(
            "-n", "1:2", "--device-kind", "cpu", "--devices", 2, "--backend", "gloo", "--name", "gpu", "--checkpoint", "c",
            "--", "env", "CUDA_VISIBLE_DEVICES=0", DIGITS, "--epochs", FOREVER, "--log-json", "log",
        )  # fmt: skip
        self.wait_for_epochs(run, 3)
        self.adaptdl("resize", "gpu", "1")
        self.assertTrue(eventually(lambda: self.epochs()[-1]["replicas"] == 1), run.text())
        self.adaptdl("resize", "gpu", "2")
        self.assertTrue(eventually(lambda: self.epochs()[-1]["replicas"] == 2), run.text())
        survivor, victim = replicas_of(run.pid)
        self.assertIn("/dev/nvidia0", targets_of(victim))
        os.kill(victim, signal.SIGKILL)
        self.wait_for_epochs(run, len(self.epochs()) + 2)
        self.assertTrue(is_alive(survivor), run.text())
        self.stop(run)
        self.assertGreater(self.epochs()[-1]["accuracy"], 0.9)
        self.assertNotIn("restarting all replicas", run.text())

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs Python's torch")
    def test_a_replica_that_runs_out_of_gpu_memory_is_reported(self):
        program = "import torch; torch.empty(1 << 44, device='cuda')"
        run = self.start("-n", 1, "--no-checkpoint", "--", sys.executable, "-c", program)
        self.assertEqual(run.finish(), 1, run.text())
        run.wait_for("replica 0 failed first: it ran OUT OF MEMORY and exited with code 1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
