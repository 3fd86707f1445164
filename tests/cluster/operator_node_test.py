"""Simulates a power loss of a node, and checks that a job with a replica there moves to the remaining node."""

import cluster_support
from cluster_support import kubectl
from operator_support import OperatorTest

NODE = "node1"
NOTICED = 120  # seconds; longer than Kubernetes needs to mark a node without heartbeats as not ready


class NodeTest(OperatorTest):
    settings = {r"nodeSelector.kubernetes\.io/hostname": "node0"}

    def test_a_job_leaves_a_node_that_loses_power_and_continues_from_its_checkpoint(self):
        for node in ("node0", NODE):
            self.set_gpus(1, node)
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        before = self.wait_for_replicas("job", 2)
        self.assertEqual(sorted(before["allocation"]), ["node0", NODE])
        self.wait_for("it has saved a checkpoint", lambda: any((self.shares["job"].parent / "checkpoint").glob("checkpoint-*")))

        self.power_off(NODE)
        self.addCleanup(lambda: self.wait_for(f"{NODE} is ready", lambda: self.is_ready(NODE)))
        self.addCleanup(self.power_on, NODE)
        # The replica on the other node fails because it loses its peer. This must not fail the job.
        stopped = self.wait_for_status("stopped", "job", lambda status: status.get("phase") != "Running", NOTICED)
        self.assertEqual(stopped["phase"], "Stopping", stopped)
        self.assertEqual(stopped["reason"], "NodeLost", stopped)
        # The node's pods may still be running until its object is deleted.
        self.set_gpus(2, "node0")
        kubectl("delete", "node", NODE)
        after = self.wait_for_replicas("job", 2)
        self.assertEqual(after["allocation"], ["node0", "node0"])
        self.assertGreater(after["group"], before["group"])
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job", crashed=True)


if __name__ == "__main__":
    cluster_support.main()
