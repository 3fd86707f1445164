"""Opens a thousand unauthorized connections to every port of a run: it trains and rescales as if there had been none."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import unittest

import strangers  # in this directory
from local_network import leave_network
from run_support import RunTest, children, eventually

PROGRAM = os.environ["RESCALE_PROGRAM"]
STRANGERS = pathlib.Path(strangers.__file__)
SAMPLES = 240  # per epoch
EACH = 1000
NOBODY = 65534


def memory_of(pid):
    """Returns the size of a process's resident anonymous memory, in bytes."""
    fields = pathlib.Path(f"/proc/{pid}/status").read_text().split("\n")
    return int(next(line.split()[1] for line in fields if line.startswith("RssAnon:"))) << 10


class UnauthorizedConnectionsTest(RunTest):
    def setUp(self):
        super().setUp()
        self.environment.update(OMP_NUM_THREADS="1", ADAPTDL_CHECKPOINT_EVERY="0")
        self.samples = self.directory / "samples"
        self.samples.touch()

    def beset(self):
        """Starts the strangers in the background, as another user if this process runs as root."""
        other = ["--uid", str(NOBODY)] if os.geteuid() == 0 else []
        spared = map(str, strangers.listening_ports())
        process = subprocess.Popen([sys.executable, STRANGERS, *other, "--each", str(EACH), *spared],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def training(self, run):
        trained = {int(line.split()[0]) for line in self.samples.read_text().splitlines()}
        return [pid for pid in children(run.pid) if pid in trained]

    def test_a_job_trains_and_rescales_despite_many_unauthorized_connections(self):
        besetting = self.beset()
        until = self.directory / "until"
        run = self.start("--name", "job", "--replicas", 2, "--devices", "3", "--device-kind", "cpu", "--",
                         PROGRAM, "--epochs", 10000, "--until", until, "--step-time", 20, "--samples", self.samples)
        self.assertTrue(eventually(lambda: len(self.training(run)) == 2), run.text())
        before = {pid: memory_of(pid) for pid in (run.pid, *self.training(run))}
        for _ in range(2):  # the permanent listeners: the supervisor's and rank 0's
            self.assertRegex(besetting.stdout.readline(), r"^\d+$")
        for size in (3, 1, 2, 3):
            self.adaptdl("resize", "job", size)
            self.assertTrue(eventually(lambda: len(self.training(run)) == size), run.text())
        growth = {pid: memory_of(pid) - bytes for pid, bytes in before.items() if pid in (run.pid, *self.training(run))}
        until.touch()
        self.assertEqual(run.finish(), 0, run.text())
        visits = json.loads(besetting.communicate()[0].splitlines()[-1])
        self.assertGreater(len(visits), 8, visits)
        self.assertLess(max(growth.values()), 64 << 20, growth)

        times, processes = collections.Counter(), set()
        for line in self.samples.read_text().splitlines():
            process, epoch, *samples = line.split()
            processes.add(process)
            times.update((epoch, sample) for sample in samples)
        self.assertEqual(set(times.values()), {1})
        self.assertEqual(len(times) % SAMPLES, 0)
        # No replica that stayed was restarted.
        self.assertEqual(len(processes), 2 + 1 + 1 + 1, run.text())


if __name__ == "__main__":
    leave_network()  # otherwise the strangers would connect to other tests, too
    unittest.main(verbosity=2)
