"""Kills the operator at random times while jobs share the GPUs: no work may be lost or repeated, and no job may hang.

$ADAPTDL_OPERATOR_KILLS is the number of kills (default: 3), and $ADAPTDL_OPERATOR_SEED is the seed of their times
(default: random).
"""

import itertools
import os
import random
import secrets
import time

import cluster_support
from operator_jobs_support import ENDED
from operator_support import GPUS, INTERVAL, NODES, OperatorTest

KILLS = int(os.environ.get("ADAPTDL_OPERATOR_KILLS", "3"))
SEED = int(os.environ.get("ADAPTDL_OPERATOR_SEED", secrets.randbelow(1 << 32)))
ALL_GPUS = GPUS * len(NODES)
SAMPLES = 6_000  # per job, except for the first; training on them takes 20 s on half of the GPUs


class KillsTest(OperatorTest):
    def kill_operator(self, count):
        """Alternately kills the operator's pod, which the deployment replaces, and its process, which is restarted in
        its pod."""
        return self.kill_operator_process() if count % 2 else self.kill_operator_pod()

    def test_no_work_is_lost_or_repeated_when_the_operator_is_killed_at_random_times(self):
        print(f"{KILLS} kills, ADAPTDL_OPERATOR_SEED={SEED}", flush=True)
        choice = random.Random(SEED)
        # The first job runs all the time; other jobs start and end alongside it.
        self.create_modelled_job("first", samples=1_000_000, until="finish")
        names = (f"other-{number}" for number in itertools.count())
        others = []
        killed = 0
        while killed < KILLS:
            if not others or self.status(others[-1]).get("phase") in ENDED:
                others.append(next(names))
                self.create_modelled_job(others[-1], samples=SAMPLES)
            moment = choice.uniform(0, 1.5 * INTERVAL)
            time.sleep(moment)
            if self.kill_operator(killed):
                killed += 1
                phases = {name: self.status(name).get("phase") for name in ("first", others[-1])}
                print(f"kill {killed} after another {moment:.1f} s, at {phases}", flush=True)
            failed = [name for name in ("first", *others) if self.status(name).get("phase") == "Failed"]
            self.assertEqual(failed, [], f"ADAPTDL_OPERATOR_SEED={SEED}")

        self.wait_for_operator()
        for name in others:
            self.wait_for_status("ended", name, lambda status: status.get("phase") in ENDED, 2 * cluster_support.PATIENCE)
        # The operator still schedules: the remaining job gets all GPUs.
        self.wait_for_replicas("first", ALL_GPUS, patience=2 * cluster_support.PATIENCE)
        self.finish("first")
        self.wait_for_status("ended", "first", lambda status: status.get("phase") in ENDED)
        for name in ("first", *others):
            self.assertEqual(self.status(name)["phase"], "Succeeded", self.status(name))
            self.assert_trained_once(name, samples=None if name == "first" else SAMPLES)
        self.wait_for("no pod of a job is left running", lambda: not self.running_pods())

    def running_pods(self):
        pods = self.get("pods", None, "-l", "adaptdl=true")
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") not in ENDED]


if __name__ == "__main__":
    cluster_support.main()
