"""Tests modelled_job, on which the tests of the operator rely, without a cluster: it is stopped, restarted, killed and finished, and
its files must show whether it trained on a sample twice."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from cluster_support import clean_environment, eventually
from local_network import free_port
from operator_jobs_support import TrainedOnce

JOB, SUPERVISOR = os.environ["MODELLED_JOB"], os.environ["SUPERVISOR_PROGRAM"]
ENDLESS = 1_000_000  # samples


def handles_sigterm(process):
    """Returns whether a process has installed a handler for SIGTERM."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(caught, 16) >> (signal.SIGTERM - 1) & 1


class ModelledJobTest(TrainedOnce, unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-modelled-job-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.shares = {"job": self.directory / "share"}
        self.shares["job"].mkdir()
        self.port = free_port()
        self.supervisor = self.start_supervisor()
        self.groups = 0

    def start_supervisor(self):
        supervisor = subprocess.Popen(
            [SUPERVISOR, "127.0.0.1", str(self.port), "tests/job"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for cleanup in (supervisor.wait, supervisor.kill, supervisor.stdout.close, supervisor.stdin.close):
            self.addCleanup(cleanup)
        return supervisor

    def announce(self, group, replicas):
        self.supervisor.stdin.write(f"{group}{' 127.0.0.1' * replicas}\n")
        self.supervisor.stdin.flush()

    def start(self, replicas, announce=True, samples=ENDLESS, **variables):
        """Starts the next group with these additional environment variables. It trains until finish() is called. Returns its processes."""
        group, port = self.groups, free_port()
        self.groups += 1
        if announce:
            self.announce(group, replicas)
        processes = []
        for rank in range(replicas):
            environment = clean_environment(
                ADAPTDL_CHECKPOINT_PATH=self.directory / "checkpoint", ADAPTDL_SHARE_PATH=self.shares["job"],
                ADAPTDL_JOB_ID="tests/job", ADAPTDL_SUPERVISOR_URL=f"http://127.0.0.1:{self.port}", ADAPTDL_MASTER_PORT=port,
                ADAPTDL_NUM_REPLICAS=replicas, ADAPTDL_REPLICA_RANK=rank, ADAPTDL_NUM_RESTARTS=group,
                ADAPTDL_CHECKPOINT_EVERY="0.3s", **variables,
            )  # fmt: skip
            (self.directory / "checkpoint").mkdir(exist_ok=True)
            options = ["--samples", str(samples), "--step-ms", "40", "--until", str(self.shares["job"] / "finish")]
            processes.append(subprocess.Popen([JOB, *options], env=environment))
            self.addCleanup(processes[-1].wait)
            self.addCleanup(processes[-1].kill)
        return processes

    def finish(self):
        (self.shares["job"] / "finish").touch()

    def codes(self, processes):
        return [process.wait(60) for process in processes]

    def wait_for_steps(self, count):
        """Waits until the last group has completed more than `count` steps."""
        steps = eventually(lambda: [line for line in self.journal("job", "step") if line["group"] == self.groups - 1][count:])
        self.assertTrue(steps)

    def test_no_sample_is_repeated_after_stops_restarts_and_supervisor_outages(self):
        for replicas in (1, 2):
            running = self.start(replicas)
            self.wait_for_steps(10)
            running[-1].terminate()
            self.assertEqual(self.codes(running), [143] * replicas)
        self.supervisor.kill()
        self.supervisor.wait()  # its port is free afterwards
        running = self.start(2, announce=False)
        time.sleep(1)
        self.supervisor = self.start_supervisor()
        self.announce(self.groups - 1, 2)
        self.wait_for_steps(5)
        self.supervisor.kill()
        self.finish()
        self.assertEqual(self.codes(running), [0, 0])
        self.assert_trained_once("job")

    def test_steps_repeated_after_a_crash_are_counted_once(self):
        running = self.start(2)
        self.wait_for_steps(20)
        running[0].send_signal(signal.SIGKILL)
        self.assertEqual(self.codes(running), [-signal.SIGKILL, 1])
        running = self.start(2)
        self.wait_for_steps(20)
        self.finish()
        self.assertEqual(self.codes(running), [0, 0])
        self.assert_trained_once("job", crashed=True)
        # A job that is started again after its end has nothing to do.
        samples = json.loads((self.shares["job"] / "done.json").read_text(encoding="utf-8"))["samples"]
        self.assertEqual(self.codes(self.start(1, samples=samples)), [0])
        self.assert_trained_once("job", samples, crashed=True)

    def test_a_replica_that_is_waiting_for_its_peers_can_be_stopped(self):
        running = self.start(2, announce=False)
        self.assertTrue(eventually(lambda: handles_sigterm(running[0])))
        running[0].terminate()
        self.assertEqual(running[0].wait(60), 143)
        running[1].terminate()

    def test_a_replica_that_cannot_join_a_running_job_reports_that_to_the_supervisor(self):
        running = self.start(1, announce=False, ADAPTDL_REPLICA_ID="0-1", ADAPTDL_GENERATION="1")
        self.assertEqual(self.codes(running), [1])
        hints, _ = self.supervisor.communicate(timeout=60)
        self.assertEqual(json.loads(hints)["liveRescale"], False)

    def test_a_group_that_trains_after_its_successor_began_is_detected(self):
        running = self.start(1)
        self.wait_for_steps(5)
        running[0].terminate()
        self.assertEqual(self.codes(running), [143])
        running = self.start(1)
        self.wait_for_steps(5)
        self.finish()
        self.assertEqual(self.codes(running), [0])
        self.assert_trained_once("job")
        stray = {**self.journal("job", "step")[0], "from": 0, "to": 64}
        with open(self.shares["job"] / "journal.jsonl", "a", encoding="utf-8") as journal:
            journal.write(json.dumps(stray) + "\n")
        with self.assertRaisesRegex(AssertionError, "group 0 of job is alive after 1 began"):
            self.assert_trained_once("job", crashed=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
