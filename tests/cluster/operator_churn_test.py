"""Tests jobs while nodes come and go at random: a node is removed after a spot notice, or loses power. All jobs must
succeed and train on every sample once.

The nodes are real, as in the other tests, but belong to a separate cluster. $ADAPTDL_CHURN_SECONDS is how long nodes are added and
removed (default: 600), and $ADAPTDL_CHURN_SEED is the seed of the random choices (default: random).
"""

import concurrent.futures
import heapq
import itertools
import os
import random
import secrets
import time

NODES = 20  # in addition to the operators' node
os.environ["KUBE_CLUSTER_STATE"] = "/run/adaptdl-churn"
os.environ["KUBE_CLUSTER_NODES"] = str(NODES + 1)

import cluster_keeper  # noqa: E402
import cluster_support  # noqa: E402
from cluster_support import kubectl  # noqa: E402
from operator_jobs_support import ENDED  # noqa: E402
from operator_support import OperatorTest  # noqa: E402

SECONDS = int(os.environ.get("ADAPTDL_CHURN_SECONDS", "600"))
SEED = int(os.environ.get("ADAPTDL_CHURN_SEED", secrets.randbelow(1 << 32)))
MIN_NODES = 6
JOBS = 6  # at the same time
TAINT = "aws-node-termination-handler/spot-itn"
START_PATIENCE = 60  # seconds
GONE = 45  # seconds; longer than the operator waits for a node whose object is missing
NOTICE = 40  # seconds from a spot notice to the end of the node
PATIENCE = 600  # seconds; on a busy machine, jobs may have to start several times


class ChurnTest(OperatorTest):
    settings = {r"nodeSelector.kubernetes\.io/hostname": "node0"}

    def setUp(self):
        super().setUp()
        self.choice = random.Random(SEED)
        self.up, self.gone, self.events = [], [], []
        self.counts = dict.fromkeys(("spot notice", "power loss", "new node"), 0)
        self.order = itertools.count()
        for number in range(NODES + 1):
            self.offer_gpus(1 if number else 0, f"node{number}")
            self.up += [number] if number else []
        self.addCleanup(self.bring_back)

    def later(self, seconds, action, *arguments):
        heapq.heappush(self.events, (time.monotonic() + seconds, next(self.order), action, arguments))

    def happen(self):
        """Runs the actions that are due."""
        while self.events and self.events[0][0] <= time.monotonic():
            _, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)

    def change(self):
        """Adds or removes one node."""
        goes = len(self.up) > MIN_NODES and (not self.gone or self.choice.random() < 0.5)
        if goes:
            number = self.up.pop(self.choice.randrange(len(self.up)))
            if self.choice.random() < 0.5:
                self.counts["spot notice"] += 1
                kubectl("taint", "node", f"node{number}", f"{TAINT}=1:NoSchedule")
                self.later(NOTICE, self.end_node, number, 0)
            else:
                self.counts["power loss"] += 1
                self.end_node(number, self.choice.uniform(1, 60))
        elif self.gone:
            self.add_node(self.choice.randrange(len(self.gone)))

    def add_node(self, place):
        """Brings back one of the nodes that are gone."""
        self.counts["new node"] += 1
        number = self.gone.pop(place)
        self.power_on(f"node{number}")
        self.later(0, self.equip, number, time.monotonic())

    def end_node(self, number, seconds):
        self.power_off(f"node{number}")
        # A cloud deletes the node's object some time later.
        self.later(seconds, self.delete, number)

    def delete(self, number):
        kubectl("delete", "node", f"node{number}", "--wait=false")
        # Another node with this name may be added once the operator considers this one gone.
        self.later(GONE, self.gone.append, number)

    def equip(self, number, started):
        """Offers the node's GPU once the node is ready, as a device plugin would. Restarts a kubelet that does not become ready, as
        systemd would."""
        if self.is_ready(f"node{number}"):
            self.offer_gpus(1, f"node{number}")
            self.up.append(number)
            return
        if time.monotonic() - started > START_PATIENCE:
            self.power_off(f"node{number}")
            self.power_on(f"node{number}")
            started = time.monotonic()
        self.later(1, self.equip, number, started)

    def bring_back(self):
        """Brings back all nodes."""
        deadline = time.monotonic() + PATIENCE
        while self.events or self.gone:
            self.assertLess(time.monotonic(), deadline, f"not all nodes came back: {len(self.up)} of {NODES} did")
            while self.gone:
                self.add_node(0)
            self.happen()
            time.sleep(0.5)

    def create_jobs(self, end):
        """Creates a job whenever fewer than JOBS are active, until `end`. Returns the names of all jobs."""
        choice = random.Random(SEED + 1)
        jobs, active = [], []
        while time.monotonic() < end:
            phases = {name: self.status(name).get("phase") for name in active}
            self.assertNotIn("Failed", phases.values(), {name: self.status(name) for name in active})
            active = [name for name in active if phases[name] not in ENDED]
            if len(active) < JOBS:
                active.append(f"job-{len(jobs)}")
                jobs.append(active[-1])
                self.create_modelled_job(jobs[-1], samples=choice.randrange(3_000, 40_000), maxReplicas=4)
            time.sleep(1)
        return jobs

    def test_every_job_succeeds_while_nodes_come_and_go(self):
        print(f"ADAPTDL_CHURN_SEED={SEED}", flush=True)
        end, next_change = time.monotonic() + SECONDS, 0
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            creation = pool.submit(self.create_jobs, end)  # Kubernetes takes a while to bind each job's volume
            while time.monotonic() < end and not creation.done():
                if time.monotonic() > next_change:
                    self.change()
                    next_change = time.monotonic() + self.choice.uniform(2, 8)
                self.happen()
                time.sleep(0.5)
            jobs = creation.result()
        self.bring_back()
        for name in jobs:
            status = self.wait_for_status("ended", name, lambda status: status.get("phase") in ENDED, PATIENCE)
            self.assertEqual(status["phase"], "Succeeded", status)
            self.assert_trained_once(name, crashed=True)
        groups = sum(self.status(name)["group"] for name in jobs)
        print(f"{len(jobs)} jobs ended after {groups} restarts; {self.counts}", flush=True)
        self.assertGreater(min(self.counts.values()), 0)
        self.assertGreater(groups, 0)


if __name__ == "__main__":
    try:
        cluster_support.main()
    finally:
        # No other test uses this cluster.
        cluster_keeper.give_back()
        cluster_keeper.end()
