"""A run on a real Ray cluster, through the driver: it follows the nodes that come, are drained and die."""

import collections
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import python_peer  # beside this file
import ray_support
from local_network import leave_network
from run_support import ADAPTDL, eventually

PROGRAM = os.environ["RESCALE_PROGRAM"]
DRIVER = pathlib.Path(os.environ["SOURCE_ROOT"]) / "share/adaptdl/ray/driver.py"
SAMPLES, BATCH = 240, 12
PATIENCE = 120


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = ray_support.python()
        leave_network()

    def setUp(self):
        # The path must be short: Ray's sockets are in it.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ar-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.cluster = ray_support.RayCluster(self.python, self.directory)
        self.addCleanup(self.cluster.end)
        self.samples, self.until = self.directory / "samples", self.directory / "until"
        self.samples.touch()

    def start(self, replicas):
        log = open(self.directory / "out", "wb")
        self.addCleanup(log.close)
        self.driver = subprocess.Popen(
            [self.python, DRIVER, "--adaptdl", ADAPTDL, "--cpus", "1", "--", "--name", "job", "--replicas", replicas, "--device-kind", "cpu",
             "--checkpoint", self.directory / "checkpoints", "--grace", "60s", "--", PROGRAM, "--epochs", "1000000", "--samples", self.samples,
             "--until", self.until, "--step-time", "200"],
            cwd=self.directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env={**self.cluster.environment, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(self.directory / "state"),
                 "XDG_RUNTIME_DIR": str(self.directory), "PYTHONUNBUFFERED": "1", "ADAPTDL_CHECKPOINT_EVERY": "0"})
        self.addCleanup(self.end_driver)

    def end_driver(self):
        if self.driver.poll() is None:
            self.driver.kill()
        self.driver.wait()

    def text(self):
        return (self.directory / "out").read_text(errors="replace")

    def training(self):
        """The processes that trained on the last few batches."""
        return {line.split()[0] for line in self.samples.read_text().splitlines()[-12:]}

    def wait_for(self, replicas):
        """Waits until so many replicas train."""
        self.samples_before = len(self.samples.read_text().splitlines())
        enough = lambda: len(self.samples.read_text().splitlines()) > self.samples_before + 12 and len(self.training()) == replicas
        self.assertTrue(eventually(lambda: enough() or self.driver.poll() is not None, PATIENCE), self.text())
        self.assertIsNone(self.driver.poll(), self.text())

    def test_a_run_grows_with_the_cluster_and_survives_drained_and_dead_nodes(self):
        self.start("1:3")
        self.assertTrue(eventually(lambda: "adaptdl: " in self.text(), PATIENCE), self.text())
        nodes = [self.cluster.add_node()]
        self.wait_for(1)
        nodes += [self.cluster.add_node(), self.cluster.add_node()]
        self.wait_for(3)
        self.cluster.drain(nodes[0], 60)
        self.wait_for(2)
        self.cluster.kill(nodes[1])
        self.wait_for(1)
        nodes.append(self.cluster.add_node())
        self.wait_for(2)
        self.until.touch()
        self.assertEqual(self.driver.wait(PATIENCE), 0, self.text())
        times = collections.Counter()
        for line in self.samples.read_text().splitlines():
            _, epoch, *samples = line.split()
            times.update((epoch, sample) for sample in samples)
        # The dead node cost the step under way, which was done again, and its replica may not have reported its last samples.
        epochs = 1 + max(int(epoch) for epoch, _ in times)
        self.assertGreaterEqual(len(times), epochs * SAMPLES - BATCH)
        self.assertLessEqual(sum(times.values()), epochs * SAMPLES + BATCH)


if __name__ == "__main__":
    python_peer.main()
