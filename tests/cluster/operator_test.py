"""Tests the operator in a cluster: two jobs with modelled step times share the GPUs of two nodes, from creation to completion."""

import json
import time

import cluster_support
from operator_support import GPUS, INTERVAL, NODES, OperatorTest

ALL_GPUS = GPUS * len(NODES)
# Time in which the second job must get replicas: a scheduling cycle, plus the time to checkpoint and stop replicas of the first.
ONE_CYCLE = INTERVAL + 20


class SharingTest(OperatorTest):
    def row(self, name):
        """Returns the job's row in the table of `adaptdl ls`, without its name."""
        rows = [line.split() for line in self.adaptdl("ls").stdout.splitlines()]
        return next(row[1:] for row in rows if row and row[0] == name)

    def test_jobs_grow_share_and_take_over_gpus_and_train_every_sample_once(self):
        self.create_modelled_job("first", samples=1_000_000, until="finish")
        self.wait_for_replicas("first", 1)
        # The job gets more replicas as it is measured.
        alone = self.wait_for_replicas("first", ALL_GPUS)
        self.assertEqual(sorted(alone["allocation"]), sorted(NODES * GPUS))
        sizes = self.watch.sizes("first")
        self.assertEqual(sizes, sorted(sizes))
        self.assert_pods_as_agreed("first")
        self.assertIn(f"{ALL_GPUS}/{ALL_GPUS}", self.row("first"))
        self.assertIn("running", self.row("first"))
        self.assertGreater(self.status("first")["train"]["maxProfiledReplicas"], 0)

        # The first job gives GPUs to the second one.
        began = time.monotonic()
        self.create_modelled_job("second", samples=1_000_000, until="finish")
        self.wait_for_status("given replicas", "second", lambda status: status.get("phase") in ("Starting", "Running"))
        self.assertLess(time.monotonic() - began, ONE_CYCLE)
        self.wait_for_replicas("second", GPUS, GPUS)
        first = self.wait_for_replicas("first", GPUS, GPUS)
        self.assertGreater(first["group"], alone["group"])
        for name in ("first", "second"):
            self.assert_pods_as_agreed(name)
            self.assertEqual(self.listed(name)["state"], "Running")

        # The second job ends, and the first one takes over its GPUs.
        self.finish("second")
        ended = self.wait_for_status("ended", "second", lambda status: status.get("phase") in ("Succeeded", "Failed"))
        self.assertEqual(ended["phase"], "Succeeded", ended)
        self.assertRegex(ended["completionTimestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|\+00:00)$")
        again = self.wait_for_replicas("first", ALL_GPUS)
        self.assertGreater(again["group"], first["group"])
        self.finish("first")
        self.wait_for_status("ended", "first", lambda status: status.get("phase") == "Succeeded")
        for name in ("first", "second"):
            self.assert_trained_once(name)
            self.assertIn("succeeded", self.row(name))
            self.assertEqual(self.listed(name)["why"], "")
            # No replica runs any more, so that a pod of its own copies.
            copied = self.adaptdl("cp", f"{name}:/adaptdl/share/done.json", f"{name}.json")
            self.assertEqual(copied.returncode, 0, copied.stderr)
            self.assertEqual((self.directory / f"{name}.json").read_text(), (self.shares[name] / "done.json").read_text())

    def test_a_job_that_must_wait_says_why(self):
        """All GPUs are in use by a job that is not preemptible."""
        self.create_program_job("holder", "sleep 100000", minReplicas=ALL_GPUS, maxReplicas=ALL_GPUS, preemptible=False)
        self.wait_for_status("running", "holder", lambda status: status.get("readyReplicas") == ALL_GPUS)
        self.create_program_job("waiting", "true")
        pending = self.wait_for_status("pending", "waiting", lambda status: status.get("phase") == "Pending")
        self.assertFalse(pending.get("allocation"), json.dumps(pending))
        time.sleep(INTERVAL)
        listed = self.listed("waiting")
        self.assertEqual(listed["state"], "Pending")
        self.assertRegex(listed["why"], "^(waits|insufficient)", self.status("waiting"))
        done = self.adaptdl("delete", "holder", "--now")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wait_for_phase("waiting", "Starting", "Running", "Succeeded")
        self.wait_for_status("ended", "waiting", lambda status: status.get("phase") == "Succeeded")


if __name__ == "__main__":
    cluster_support.main()
