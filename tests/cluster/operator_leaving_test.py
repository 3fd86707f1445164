"""Tests that jobs leave nodes that are about to be removed or are being drained, before the nodes are gone."""

import cluster_support
from operator_support import OperatorTest


class LeavingTest(OperatorTest):
    """Scheduling cycles are so far apart that jobs must leave the nodes between two cycles."""

    settings = {"interval": "1h"}

    def start_on(self, node, other):
        """Starts a job with two replicas on `node`, then gives `other` enough GPUs for the job."""
        self.set_gpus(0, other)
        self.set_gpus(2, node)
        self.wait_until_gpus_are_known()
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        before = self.wait_for_replicas("job", 2)
        self.assertEqual(before["allocation"], [node, node])
        self.set_gpus(2, other)
        return before

    def assert_moved_without_a_repeated_step(self, node, before):
        after = self.wait_for_replicas("job", 2)
        self.assertEqual(after["allocation"], [node, node])
        self.assertEqual(after["group"], before["group"] + 1)
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job")

    def test_jobs_are_checkpointed_and_moved_off_a_node_that_is_about_to_be_reclaimed(self):
        taint = "aws-node-termination-handler/spot-itn"
        before = self.start_on("node1", "node0")
        self.addCleanup(self.kubectl_in, "default", "taint", "node", "node1", f"{taint}-")
        self.kubectl_in("default", "taint", "node", "node1", f"{taint}=1:NoSchedule")
        self.wait_for_status("moved", "job", lambda status: status.get("allocation") == ["node0", "node0"])
        self.assert_moved_without_a_repeated_step("node0", before)
        messages = [event["message"] for event in self.get("events") if event["reason"] == "Reallocated"]
        self.assertEqual(len(messages), 1, messages)
        self.assertTrue(messages[0].endswith(f"; node 'node1' is about to be removed (taint {taint})"), messages)

    def test_jobs_do_not_return_to_a_drained_node(self):
        before = self.start_on("node1", "node0")
        self.addCleanup(self.kubectl_in, "default", "uncordon", "node1")
        self.kubectl_in("default", "drain", "node1", "--delete-emptydir-data", "--pod-selector=adaptdl=true", timeout=120)
        self.wait_for_status("moved", "job", lambda status: status.get("allocation") == ["node0", "node0"])
        self.assert_moved_without_a_repeated_step("node0", before)


if __name__ == "__main__":
    cluster_support.main()
