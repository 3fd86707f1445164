"""Kills parts of a Ray cluster at random, and drains nodes, while a job is training there.

The job must continue, or resume from its newest checkpoint once it is submitted again. It must train on each sample and
leave nothing on any node. $SOAK_EVENTS is the number of kills (default: 50), with one drain after every five, and
$SOAK_SEED is the seed (default: random).
"""

import collections
import json
import os
import pathlib
import random
import secrets
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
from run_support import ADAPTDL, eventually  # noqa: E402

PROGRAM = os.environ["RESCALE_PROGRAM"]
KILLS = int(os.environ.get("SOAK_EVENTS", "50"))
SEED = int(os.environ.get("SOAK_SEED", secrets.randbelow(1 << 32)))
SAMPLES = 240  # samples that the program trains on per epoch
NODES = 3
NOTICE = 30  # seconds between a drain's notice and its deadline
PATIENCE = 180
PAUSE = 8  # maximum number of seconds until the next kill once the job is training again


class RaySoak(unittest.TestCase):
    def setUp(self):
        python = ray_support.python()
        leave_network()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ar-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.cluster = ray_support.RayCluster(python, self.directory, HOME=str(self.directory), XDG_STATE_HOME=str(self.directory / "state"),
                                              XDG_RUNTIME_DIR=str(self.directory), OMP_NUM_THREADS="1")
        self.addCleanup(self.cluster.end)
        self.nodes = [self.cluster.add_node() for _ in range(NODES)]
        self.samples, self.until = self.directory / "samples", self.directory / "until"
        self.samples.touch()
        self.project = self.directory / "project"
        self.project.mkdir()
        shutil.copy(PROGRAM, self.project / "program")
        self.random = random.Random(SEED)
        self.events = collections.Counter()

    def adaptdl(self, command, *arguments):
        done = subprocess.run([ADAPTDL, command, "--ray", self.cluster.url, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE,
                              env={"PATH": "", "HOME": str(self.directory)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def submit(self):
        self.job = self.adaptdl("submit", "--gpus", 0, "--max-replicas", NODES, "--checkpoint-path", self.directory / "checkpoints",
                                self.project, "--", "./program", "--epochs", 1000000, "--samples", self.samples, "--until", self.until,
                                "--step-time", 200).strip()

    def state(self):
        [job] = json.loads(self.adaptdl("ls", "--json", self.job))
        return job["state"]

    def wait_until_it_trains(self, may_end):
        """Waits until the job is training. Submits it again if it has ended, which it may do only with `may_end`."""
        def count():
            return self.samples.read_text().count("\n")

        before = count()
        deadline = time.monotonic() + PATIENCE
        while count() < before + 12:
            self.assertLess(time.monotonic(), deadline, self.adaptdl("logs", self.job))
            if self.state() in ("Failed", "Stopped"):
                self.assertTrue(may_end, self.adaptdl("logs", self.job))
                self.assertTrue(eventually(lambda: not self.replicas(), PATIENCE), "replicas are left behind")
                self.submit()
            time.sleep(0.3)

    def replicas(self):
        return self.cluster.processes_of("./program --epochs")

    def kill(self):
        """Kills a part at random. Returns the name of the part, or None if it has no process."""
        parts = {
            "replica": self.replicas,
            "replica server": lambda: self.cluster.processes_of("adaptdl-replicas"),
            "actor": lambda: self.cluster.processes_of("ray::ReplicaServer"),
            "driver": lambda: self.cluster.processes_of(r"\S*python\S* -c .*driver.py --adaptdl"),
            "launcher": lambda: self.cluster.processes_of(".adaptdl/adaptdl run"),
            "agent": lambda: self.cluster.processes_of("adaptdl-agent"),
            "node": lambda: None,
        }  # fmt: skip
        part = self.random.choices(list(parts), [12, 5, 8, 3, 3, 8, 8])[0]
        if part == "node":
            node = self.random.choice(self.nodes)
            self.nodes.remove(node)
            self.cluster.kill(node)
            self.nodes.append(self.cluster.add_node())
            return part
        pids = sorted(parts[part]())
        if not pids:
            return None
        os.kill(self.random.choice(pids), signal.SIGKILL)
        return part

    def drain(self):
        node = self.nodes.pop(0)
        self.cluster.drain(node, NOTICE)
        self.nodes.append(self.cluster.add_node())
        self.events["drain"] += 1

    def test_a_job_survives_kills_and_drains_and_trains_on_each_sample(self):
        print(f"SOAK_SEED={SEED}", flush=True)
        self.submit()
        self.wait_until_it_trains(may_end=False)
        while True:
            killed = self.events.total() - self.events["drain"]
            began = time.monotonic()
            if killed // 5 > self.events["drain"]:
                what = "drain"
                self.drain()
            elif killed == KILLS:
                break
            elif what := self.kill():
                self.events[what] += 1
            else:
                continue
            self.wait_until_it_trains(may_end=what in ("driver", "launcher"))
            print(f"{self.events.total()}: {what}, training again after {time.monotonic() - began:.1f} s", flush=True)
            time.sleep(self.random.uniform(0, PAUSE))
        self.until.touch()
        self.assertTrue(eventually(lambda: self.state() == "Succeeded", PATIENCE), self.adaptdl("logs", self.job))
        trained = collections.defaultdict(set)
        for line in self.samples.read_text().splitlines():
            _, epoch, *samples = line.split()
            trained[int(epoch)].update(samples)
        self.assertEqual(sorted(trained), list(range(max(trained) + 1)))
        # A replica that is killed may not have reported its last samples.
        missing = {epoch: SAMPLES - len(samples) for epoch, samples in trained.items() if len(samples) != SAMPLES}
        self.assertLessEqual(sum(missing.values()), 12 * self.events.total(), missing)
        self.assertTrue(eventually(lambda: not self.cluster.processes_of(".*(driver.py|adaptdl-agent|adaptdl-replicas|.adaptdl/adaptdl|./program)"), PATIENCE), "processes are left behind")
        self.assertEqual(self.cluster.requested(), 0)
        print(f"{dict(self.events)}, {len(trained)} epochs", flush=True)


if __name__ == "__main__":
    python_peer.main()
