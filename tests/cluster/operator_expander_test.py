"""Tests the cluster expander: the number of placeholder pods follows the load, and an autoscaler adds and removes nodes accordingly."""

import json
import threading
import time
import traceback

import cluster_support
from cluster_support import kubectl
from operator_support import GPUS, INTERVAL, NODES, OperatorTest

PLACEHOLDER = "adaptdl-placeholder"
MIN_NODES, MAX_NODES = 1, 3
TWO_CYCLES = 2 * INTERVAL + 40  # seconds, on a busy machine


class Autoscaler(threading.Thread):
    """Stands in for a cluster autoscaler. Uncordons one node per pending placeholder, and cordons nodes that have neither a placeholder
    nor a job's pod. The operator treats a cordoned node like one that was removed."""

    def __init__(self, namespace):
        super().__init__(daemon=True)
        self.namespace = namespace
        self.ends = threading.Event()
        self.wanted = []  # every number of placeholders so far, in order
        self.open = set(NODES)
        self.failure = None

    def run(self):
        try:
            while not self.ends.is_set():
                self.turn()
                time.sleep(0.5)
        except Exception:
            self.failure = traceback.format_exc()

    def turn(self):
        deployment = json.loads(kubectl("-n", self.namespace, "get", "deployment", PLACEHOLDER, "-o", "json"))
        replicas = deployment["spec"]["replicas"]
        if not self.wanted or self.wanted[-1] != replicas:
            self.wanted.append(replicas)
        pods = json.loads(kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"]
        pods = [pod for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]
        placeholders = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == PLACEHOLDER]
        jobs = [pod for pod in pods if pod["metadata"].get("labels", {}).get("adaptdl") == "true"]
        pending = sum(not pod["spec"].get("nodeName") for pod in placeholders)
        used = {pod["spec"].get("nodeName") for pod in placeholders + jobs}
        # The pods of jobs select their node, but are scheduled a moment later.
        used |= {pod["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname") for pod in jobs}
        for node in NODES:
            if node not in self.open and pending:
                kubectl("uncordon", node)
                self.open.add(node)
                pending -= 1
            elif node in self.open and node not in used and len(placeholders) >= replicas and not pending:
                kubectl("cordon", node)
                self.open.remove(node)

    def stop(self):
        self.ends.set()
        self.join(60)
        for node in NODES:
            kubectl("uncordon", node)


class ExpanderTest(OperatorTest):
    settings = {"minNodes": MIN_NODES, "maxNodes": MAX_NODES}

    def setUp(self):
        super().setUp()
        self.autoscaler = Autoscaler(self.operator_namespace)
        self.autoscaler.start()
        self.addCleanup(self.autoscaler.stop)

    def wait_for_wish(self, nodes):
        self.assertTrue(
            cluster_support.eventually(lambda: self.autoscaler.wanted[-1:] == [nodes], TWO_CYCLES),
            f"after {TWO_CYCLES} s, {self.autoscaler.wanted} nodes were wanted, not {nodes}; {self.autoscaler.failure}",
        )

    def wait_for_open(self, count):
        self.wait_for(f"{count} open nodes", lambda: len(self.autoscaler.open) == count)

    def test_the_node_count_follows_the_load_within_two_cycles_and_respects_its_limits(self):
        self.wait_for_wish(1)
        self.wait_for_open(1)
        # The replicas of this job need two nodes.
        self.create_modelled_job("first", samples=1_000_000, until="finish", minReplicas=5, maxReplicas=5)
        self.wait_for_wish(2)
        self.wait_for_open(2)
        first = self.wait_for_replicas("first", 5)
        self.assertEqual(set(first["allocation"]), set(NODES))

        # The first of these jobs needs one more node; the second needs more nodes than are allowed.
        self.create_program_job("large", "sleep 100000", minReplicas=GPUS, maxReplicas=GPUS)
        self.create_program_job("huge", "sleep 100000", minReplicas=13, maxReplicas=13)
        self.wait_for_wish(3)
        # The policy chooses which of the two waits.
        suffix = "; 1 new node requested"
        self.wait_for("a job's reason names what it waits for", lambda: any(self.listed(name)["why"].endswith(suffix) for name in ("first", "large")))
        self.wait_for_status("unschedulable", "huge", lambda status: status.get("reason") == "Unschedulable")
        self.kubectl("delete", "adaptdljob", "large", "huge")
        self.wait_for_wish(2)
        self.wait_for_replicas("first", 5)

        self.finish("first")
        self.wait_for_phase("first", "Succeeded")
        self.wait_for_wish(1)
        self.wait_for_open(1)
        self.assert_trained_once("first")
        self.assertIsNone(self.autoscaler.failure)
        self.assertGreaterEqual(min(self.autoscaler.wanted), MIN_NODES)
        self.assertLessEqual(max(self.autoscaler.wanted), MAX_NODES)


if __name__ == "__main__":
    cluster_support.main()
