"""Kills and restarts the API server while commands follow a cluster. They must continue without losing or repeating anything."""

import itertools
import json
import re
import subprocess
import time
import unittest

import cluster_support
from cluster_jobs_support import ClusterJobsTest
from cluster_support import cluster_keeper, kubectl

# Prints 50 numbered lines per second until the test has seen enough of them.
COUNTING = (
    'i=0; until [ -e $ADAPTDL_SHARE_PATH/end ]; do echo "rank $ADAPTDL_REPLICA_RANK line $i"; i=$((i+1)); sleep 0.02; done; '
    'echo "rank $ADAPTDL_REPLICA_RANK has $i lines"'
)


def kube_cluster(*arguments):
    subprocess.run([cluster_keeper.KUBE_CLUSTER, *arguments], check=True, timeout=120)


class RestartTest(ClusterJobsTest):
    @classmethod
    def setUpClass(cls):
        if not cluster_support.OWN:
            raise unittest.SkipTest("only the tests' own cluster is killed")
        super().setUpClass()
        cls.addClassCleanup(cls.start_server)

    @staticmethod
    def is_up():
        return kubectl("get", "--raw", "/readyz", check=False).returncode == 0

    @classmethod
    def start_server(cls):
        if not cls.is_up():
            kube_cluster("start", "apiserver")
            if not cluster_support.eventually(cls.is_up):
                raise AssertionError("the API server does not respond after its restart")

    def restart(self, away):
        """Kills the API server, and starts it again after `away` seconds."""
        kube_cluster("kill", "apiserver")
        self.assertFalse(self.is_up())
        time.sleep(away)
        self.start_server()

    def test_followed_logs_neither_lose_nor_repeat_lines_across_api_server_restarts(self):
        self.make_job("counting", COUNTING, replicas=2, volume=True)
        (share,) = (self.directory / "volumes").glob("*/adaptdl/share")
        follow = self.start("logs", "--cluster", "--follow", "counting")
        for away in (0, 5):
            seen = len(follow.out)
            self.wait_for("more lines arrive", lambda seen=seen: len(follow.out) > seen + 100)
            self.restart(away)
            self.assertIsNone(follow.process.poll(), follow.text())
        (share / "end").touch()
        self.wait_for_pods("counting", "Succeeded")
        self.set_status("counting", phase="Succeeded", readyReplicas=0)
        self.assertEqual(follow.finish(), 0, follow.err)
        for rank in range(2):
            numbers = [int(match[1]) for line in follow.out if (match := re.search(rf"rank {rank} line (\d+)$", line))]
            (count,) = (int(match[1]) for line in follow.out if (match := re.search(rf"rank {rank} has (\d+) lines$", line)))
            self.assertEqual(numbers, list(range(count)), follow.err)

    def test_a_watched_list_reports_each_change_once_across_api_server_restarts(self):
        self.make_job("watched", replicas=1)
        watch = self.start("ls", "--cluster", "--watch", "--json")

        def states(name):
            """Returns the successive states of a job in the command's output."""
            reported = [job["state"] for line in list(watch.out) for job in json.loads(line) if job["name"] == name]
            return [state for state, _ in itertools.groupby(reported)]

        self.wait_for("the job is reported", lambda: states("watched") == ["Running"])
        self.restart(5)
        self.assertIsNone(watch.process.poll(), watch.text())
        self.set_status("watched", phase="Stopping", readyReplicas=0)
        self.wait_for("a change after the restart is reported", lambda: states("watched") == ["Running", "Stopping"])
        kube_cluster("kill", "apiserver")
        self.start_server()
        self.make_job("newcomer", replicas=0)
        self.set_status("watched", phase="Succeeded")
        self.wait_for("both changes are reported", lambda: states("watched")[-1] == "Succeeded" and states("newcomer"))
        self.assertEqual(states("watched"), ["Running", "Stopping", "Succeeded"], watch.text())
        self.assertIn(states("newcomer"), (["Pending"], ["", "Pending"]), watch.text())
        for line, following in itertools.pairwise(watch.out):
            self.assertNotEqual(line, following)
        self.assertEqual(watch.stop(), 0, watch.err)


if __name__ == "__main__":
    cluster_support.main()
