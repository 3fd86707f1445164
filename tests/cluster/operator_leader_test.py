"""Kills the leader of the operators repeatedly, and checks in the audit log of the API server that another operator takes over in time
and that two operators never act at the same time.

$ADAPTDL_OPERATOR_KILLS is the number of kills (default: 20), and $ADAPTDL_OPERATOR_SEED is the seed of their times
(default: random).
"""

import datetime
import json
import os
import random
import secrets
import signal
import threading
import time

import cluster_keeper
import cluster_support
from operator_support import DEPLOYMENT, INTERVAL, OperatorTest

KILLS = int(os.environ.get("ADAPTDL_OPERATOR_KILLS", "20"))
SEED = int(os.environ.get("ADAPTDL_OPERATOR_SEED", secrets.randbelow(1 << 32)))
LATE = 20  # seconds by which a cycle may be late
LEASE = "adaptdl-operator"
LEASE_SECONDS = 10


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class CycleWatch:
    """Records when scheduling cycles began, according to the lease."""

    def __init__(self, lease):
        self.cycles = []
        self.lease = lease
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._follow)
        self.thread.start()

    def _follow(self):
        while not self.ends.wait(0.5):
            began = self.lease()
            if began and (not self.cycles or self.cycles[-1] != seconds(began)):
                self.cycles.append(seconds(began))

    def stop(self):
        self.ends.set()
        self.thread.join()
        return self.cycles


class LeaderTest(OperatorTest):
    def last_cycle(self):
        done = self.kubectl_in(self.operator_namespace, "get", "lease", LEASE, "-o", "json", check=False)
        if done.returncode:
            return None
        return json.loads(done.stdout)["metadata"].get("annotations", {}).get("adaptdl/last-cycle")

    def audit(self):
        """Returns the operators' writes since the start of the test class, in order. Each is a tuple of time, address, resource, and
        whether it was accepted."""
        user = f"system:serviceaccount:{self.operator_namespace}:{DEPLOYMENT}"
        writes = []
        for line in (cluster_keeper.STATE / "audit.log").read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # the line is still being written
            event = json.loads(line)
            if event["user"]["username"] != user or event["stage"] != "ResponseComplete":
                continue
            reference = event["objectRef"]
            if reference["resource"] == "pods" and reference.get("namespace") == self.operator_namespace:
                continue  # an operator labels its own pod
            if "dryRun=" in event["requestURI"]:
                continue  # the validator of any operator may do this
            accepted = event["responseStatus"]["code"] < 300
            writes.append((seconds(event["stageTimestamp"]), event["sourceIPs"][0], reference["resource"], accepted))
        return sorted(writes)

    def test_a_killed_leader_is_replaced_in_time_and_two_operators_never_act_at_once(self):
        print(f"{KILLS} kills, ADAPTDL_OPERATOR_SEED={SEED}", flush=True)
        choice = random.Random(SEED)
        self.create_modelled_job("first", samples=1_000_000, until="finish")
        self.create_modelled_job("second", samples=1_000_000, until="finish")
        for name in ("first", "second"):
            self.wait_for_replicas(name, 1)
        watch = CycleWatch(self.last_cycle)
        began = time.monotonic()
        for kill in range(KILLS):
            time.sleep(choice.uniform(0, INTERVAL))
            how = (self.kill_operator_pod, self.kill_operator_process, self.pause_operator_process)[kill % 3]
            self.wait_for("an operator acts", how)
        self.wait_for("two operators are ready", self.two_are_ready)
        time.sleep(2 * INTERVAL)
        cycles = watch.stop()
        # Both jobs must be asked to finish before the test waits, because the policy may by now let one of them wait
        # for the other.
        for name in ("first", "second"):
            self.finish(name)
        for name in ("first", "second"):
            self.wait_for_phase(name, "Succeeded")
            self.assert_trained_once(name)

        late = max(after - before for before, after in zip(cycles, cycles[1:])) - INTERVAL
        print(f"{len(cycles)} cycles in {time.monotonic() - began:.0f} s; the latest was {late:.1f} s late", flush=True)
        self.assertLess(late, LATE)
        holder, writes, holders = None, 0, 0
        for when, address, resource, accepted in self.audit():
            if resource == "leases":
                holders += accepted and address != holder
                holder = address if accepted else holder
            elif accepted:  # an operator that was paused during a request may still send the rest, which must be rejected
                writes += 1
                self.assertEqual(address, holder, f"{resource} written at {when} by who did not hold the lease")
        print(f"{writes} writes by {holders} holders", flush=True)
        self.assertGreater(holders, 1)
        self.assertGreater(writes, 0)

    def pause_operator_process(self):
        """Pauses the leader's process until another operator must have taken the lease. Returns False if no leader is running."""
        processes = self.signal_operator_process(signal.SIGSTOP)
        if processes:
            time.sleep(LEASE_SECONDS + 5)
            # The process must exit rather than continue.
            self.signal_operator_process(signal.SIGCONT, processes)
        return bool(processes)

    def two_are_ready(self):
        deployment = json.loads(self.kubectl_in(self.operator_namespace, "get", "deployment", DEPLOYMENT, "-o", "json"))
        return deployment["status"].get("readyReplicas") == 2


if __name__ == "__main__":
    cluster_support.main()
