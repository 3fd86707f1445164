"""Repeatedly kills parts of a cluster while jobs are training: mostly the operator, but also kubelets, the API server, etcd and
whole nodes. No job may be lost, duplicated or stuck, and each must end with the correct result.

$SOAK_EVENTS is the number of kills (default: 200), and $SOAK_SEED is the seed of the random choices (default: random). The
kills are done in rounds of 20 jobs. If $SOAK_STATE names a file, the test writes its seed and its progress there after each
round, and continues from what an earlier test has written there.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import secrets
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))
import cluster_keeper  # noqa: E402
import cluster_support  # noqa: E402
from kube_api import Watch  # noqa: E402
from operator_jobs_support import ENDED, PodWatch  # noqa: E402
from operator_support import GPUS, INTERVAL, NODES, OperatorTest  # noqa: E402

KILLS = int(os.environ.get("SOAK_EVENTS", "200"))
STATE = os.environ.get("SOAK_STATE")
JOBS = 20  # per round
ROUND_PATIENCE = 3600  # seconds
PAUSE = 2 * INTERVAL  # maximum number of seconds between two kills
AWAY = 20  # maximum number of seconds until a program is restarted
OFF = (60, 90)  # seconds without power: longer than Kubernetes needs to notice


def kill_shims(node):
    """Kills the containerd shims of the pods on the node."""
    directory = f"{cluster_keeper.STATE}/{node}/".encode()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if b"containerd-shim" in command.split(b"\0")[0] and directory in command:
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended


class CapacityWatch(PodWatch):
    """Also checks that no node ever has more replicas than GPUs: the pods of a starting job wait for those of other jobs to end."""

    def __init__(self, api, namespace):
        self.nodes = {}  # the node of each live pod that is bound to one, by the pod's uid
        super().__init__(api, namespace)

    def _take(self, kind, pod):
        super()._take(kind, pod)
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if kind == "DELETED" or pod.get("status", {}).get("phase") in ENDED:
            self.nodes.pop(uid, None)
        elif node:
            self.nodes[uid] = node
        for node, count in collections.Counter(self.nodes.values()).items():
            if count > GPUS:
                self.problems.append(f"{node} has {count} replicas for {GPUS} GPUs after {kind} {pod['metadata']['name']}")


class JobWatch:
    """Records the jobs' phases, and checks that no specification changes and that no job does anything after its end."""

    def __init__(self, api, namespace):
        self.statuses = {}  # by job
        self.problems = []
        self.watch = Watch(api, cluster_support.JOBS.format(namespace), self._take)

    def _take(self, kind, job):
        name, status = job["metadata"]["name"], job.get("status", {})
        before = self.statuses.get(name, {})
        if kind == "DELETED":
            if before.get("phase") not in ENDED:
                self.problems.append(f"{name} was deleted in the phase {before.get('phase')}")
            return
        self.statuses[name] = status
        if job["metadata"]["generation"] != 1:
            self.problems.append(f"the specification of {name} was changed")
        if before.get("phase") in ENDED and status.get("phase") != before["phase"]:
            self.problems.append(f"{name} was {before['phase']} and is {status.get('phase')}")
        if status.get("group", -1) < before.get("group", -1):
            self.problems.append(f"{name} was in group {before['group']} and is in group {status.get('group')}")



class SoakTest(OperatorTest):
    def setUp(self):
        super().setUp()
        self.watch.stop()
        self.watch = CapacityWatch(self.api, self.namespace)
        self.jobs = JobWatch(self.api, self.namespace)
        self.addCleanup(self.jobs.watch.ends.set)
        self.kills = collections.Counter()

    # Each of the following methods returns whether there was something to kill.

    def kill_program(self, name, away):
        self.kube_cluster("kill", name)
        time.sleep(away)
        self.kube_cluster("start", name)
        return True

    def kill_kubelet(self):
        return self.kill_program(f"kubelet{self.choice.randrange(len(NODES))}", self.choice.uniform(0, AWAY))

    def kill_server(self, name):
        self.kill_program(name, self.choice.uniform(0, AWAY))
        self.wait_for("the API server answers", lambda: cluster_support.kubectl("get", "--raw", "/readyz", check=False).returncode == 0)
        return True

    def kill_node(self):
        node = self.choice.choice(NODES)
        runtime = node.replace("node", "containerd")
        # If containerd or a shim survived, the node would later know how its containers ended.
        self.kube_cluster("kill", runtime)
        kill_shims(node)
        self.power_off(node)
        time.sleep(self.choice.uniform(*OFF))
        self.kube_cluster("start", runtime)
        self.power_on(node)
        self.wait_for(f"{node} is ready", lambda: self.is_ready(node))
        return True

    def kill_something(self):
        ways = {
            "operator's pod": (10, self.kill_operator_pod), "operator's process": (5, self.kill_operator_process),
            "kubelet": (3, self.kill_kubelet), "API server": (2, lambda: self.kill_server("apiserver")),
            "etcd": (1, lambda: self.kill_server("etcd")), "node": (1, self.kill_node),
        }  # fmt: skip
        what = self.choice.choices(list(ways), [weight for weight, _ in ways.values()])[0]
        if ways[what][1]():
            self.kills[what] += 1

    def create_jobs(self, round_number):
        """Creates the jobs of a round, and returns the number of samples of each job, by name."""
        names = [f"job-{round_number}-{number}" for number in range(JOBS)]
        samples = [self.choice.randrange(5_000, 40_000) for _ in names]
        live = [self.choice.random() < 0.5 for _ in names]
        replicas = [self.choice.choice((1, 2, 4, 8)) for _ in names]

        def create(name, count, follows, most):
            self.create_modelled_job(name, count, live=follows, maxReplicas=most)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # each call waits until Kubernetes has bound the job's volume
            list(pool.map(create, names, samples, live, replicas))
        return dict(zip(names, samples))

    def run_round(self, seed, round_number, before):
        """Kills parts of the cluster until all jobs of this round have ended. `before` is the number of kills in earlier rounds."""
        self.choice = random.Random(f"{seed} {round_number}")
        jobs = self.create_jobs(round_number)
        deadline = time.monotonic() + ROUND_PATIENCE
        while True:
            phases = {name: self.jobs.statuses.get(name, {}).get("phase") for name in jobs}
            ended = [name for name in jobs if phases[name] in ENDED]
            self.assertNotIn("Failed", phases.values(), [self.jobs.statuses.get(name) for name in jobs if phases[name] == "Failed"])
            self.assertEqual(self.watch.problems + self.jobs.problems, [])
            if len(ended) == len(jobs):
                break
            self.assertLess(time.monotonic(), deadline, {name: self.jobs.statuses.get(name) for name in jobs if name not in ended})
            if before + self.kills.total() < KILLS:
                time.sleep(self.choice.uniform(0, PAUSE))
                self.kill_something()
                print(f"{before + self.kills.total()} kills, {len(ended)} of {len(jobs)} jobs have ended", flush=True)
            else:
                time.sleep(1)
        for name, samples in jobs.items():
            self.assert_trained_once(name, samples, crashed=True)
        self.wait_for("no pod of a job is left running", lambda: not any(self.watch.live.values()))
        self.kubectl("delete", "adaptdljobs", "--all", "--wait=true")

    def test_no_job_is_lost_duplicated_or_stuck_when_parts_of_the_cluster_are_killed(self):
        state = {"seed": int(os.environ.get("SOAK_SEED", secrets.randbelow(1 << 32))), "rounds": 0, "kills": 0}
        file = pathlib.Path(STATE) if STATE else None
        if file and file.exists():
            state = json.loads(file.read_text(encoding="utf-8"))
        print(f"SOAK_SEED={state['seed']}, round {state['rounds']}, {state['kills']} kills before", flush=True)
        while state["kills"] < KILLS:
            self.kills.clear()
            began = time.monotonic()
            self.run_round(state["seed"], state["rounds"], state["kills"])
            groups = sum(len(groups) for name, groups in self.watch.groups.items() if name.startswith(f"job-{state['rounds']}-"))
            print(f"round {state['rounds']}: {time.monotonic() - began:.0f} s, {groups} starts, kills: {dict(self.kills)}", flush=True)
            state = {**state, "rounds": state["rounds"] + 1, "kills": state["kills"] + self.kills.total()}
            if file:
                file.write_text(json.dumps(state), encoding="utf-8")
        self.jobs.watch.stop()
        self.assertEqual(self.jobs.problems, [])


if __name__ == "__main__":
    cluster_support.main()
