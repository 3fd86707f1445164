"""Measures the operator with many jobs and nodes: operator_scale.py [NODES [SECONDS]]

A real API server and a real Kubernetes scheduler manage NODES node objects (default: 500) with 8 GPUs each, and four times as many
jobs, which can use nine tenths of the GPUs. stand_in_nodes.py stands in for the kubelets and for the replicas, which
report new hints every 30 s. Three cycles after all jobs are running, measures for SECONDS seconds (default: 240):

cycle      the longest scheduling cycle
memory     the operator's largest resident set since its start, which is also printed after each cycle
requests   the mean number of requests to the API server per second, minus that without an operator
first pod  the longest time from the creation of one of NEW_JOBS further jobs until its first pod exists

Prints a table in Markdown, and exits with 1 if a bound is not met.
"""

import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

os.environ["KUBE_CLUSTER_STATE"] = "/run/adaptdl-scale"
os.environ["KUBE_CLUSTER_NODES"] = "0"

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "cluster"))
import cluster_keeper  # noqa: E402
import cluster_support  # noqa: E402
from cluster_support import ADAPTDL, clean_environment, kubectl  # noqa: E402
from kube_api import MERGE, KubeApi, Watch  # noqa: E402
from stand_in_nodes import HINTS_EVERY  # noqa: E402

NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 500
SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 240
JOBS = 4 * NODES
MAX_REPLICAS = (1, 1, 2, 2, 3)  # maxReplicas of successive jobs
NAMESPACES = [f"team-{number}" for number in range(20)]
NEW_JOBS = 20
INTERVAL = 60  # seconds between scheduling cycles
IDLE_SECONDS = 30  # seconds for which requests are counted without an operator
WORKERS = 8
PATIENCE = 1200
PORT, METRICS_PORT = 8080, 9090
BOUNDS = {"cycle": 2, "memory": 300, "requests": 20, "first pod": 3}
UNITS = {"cycle": "s", "memory": "MB", "requests": "per second", "first pod": "s"}


def node(number):
    name = f"node{number}"
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
    }  # fmt: skip


def node_status(number):
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8", "ephemeral-storage": "1Ti"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "capacity": resources, "allocatable": resources, "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": f"10.90.{number // 250}.{number % 250 + 1}"}],
    }  # fmt: skip


def job(number):
    container = {
        "name": "main", "image": "registry.example/train:1", "command": ["/usr/bin/train", "--epochs", "90"],
        "env": [{"name": f"SETTING_{each}", "value": "a value"} for each in range(10)],
        "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "2", "memory": "8Gi"}},
    }  # fmt: skip
    return {
        "apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "metadata": {"name": f"job-{number}"},
        "spec": {"maxReplicas": MAX_REPLICAS[number % len(MAX_REPLICAS)], "template": {"spec": {"containers": [container]}}},
    }  # fmt: skip


def path_of(number):
    return cluster_support.JOBS.format(NAMESPACES[number % len(NAMESPACES)])


class Scale:
    def __init__(self, directory):
        self.api = KubeApi(cluster_support.KUBECONFIG)
        self.log = open(directory / "operator.log", "w+", encoding="utf-8")
        self.first_pods = {}  # when each job's first pod appeared, by namespace/name
        self.phases = {}  # by namespace/name
        self.processes = []

    def each(self, numbers, work):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for _ in pool.map(work, numbers):
                pass

    def make_nodes(self):
        for name in NAMESPACES:
            kubectl("create", "namespace", name)
        for name in NAMESPACES:
            cluster_support.eventually(lambda: "default" in kubectl("get", "serviceaccounts", "-n", name, "-o", "jsonpath={..metadata.name}"))
        # The controller manager would consider the nodes lost, because they send no heartbeats.
        subprocess.run([cluster_keeper.KUBE_CLUSTER, "kill", "controller-manager"], check=True)

        def make(number):
            self.api.request("POST", "/api/v1/nodes", node(number))
            path = f"/api/v1/nodes/node{number}"
            self.api.request("PATCH", path + "/status", {"status": node_status(number)}, MERGE)
            self.api.request("PATCH", path, {"spec": {"taints": None}}, MERGE)

        self.each(range(NODES), make)

    def start(self, *command, **options):
        process = subprocess.Popen(command, start_new_session=True, **options)
        self.processes.append(process)
        return process

    def start_operator(self):
        environment = clean_environment(KUBECONFIG=cluster_support.KUBECONFIG)
        self.operator = self.start(
            ADAPTDL, "operator", "run", "--address", "127.0.0.1", "--port", str(PORT), "--metrics-port", str(METRICS_PORT),
            "--interval", f"{INTERVAL}s", "--lease", "default/adaptdl-operator", "--usage", "default/adaptdl-usage", "--live-rescale",
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment,
        )  # fmt: skip

    def watch(self):
        def take_job(_kind, each):
            metadata = each["metadata"]
            self.phases[f"{metadata['namespace']}/{metadata['name']}"] = each.get("status", {}).get("phase", "")

        def take_pod(_kind, each):
            key = f"{each['metadata']['namespace']}/{each['metadata']['labels']['adaptdl/job']}"
            self.first_pods.setdefault(key, time.monotonic())

        Watch(self.api, "/apis/adaptdl.petuum.com/v1/adaptdljobs", take_job)
        Watch(self.api, "/api/v1/pods?labelSelector=adaptdl%3Dtrue", take_pod)

    def running(self):
        return sum(phase == "Running" for phase in list(self.phases.values()))

    def create(self, number):
        self.api.request("POST", path_of(number), job(number))

    def metrics(self):
        """Returns the operator's metrics without labels."""
        done = subprocess.run(["curl", "-sS", "--fail", f"http://127.0.0.1:{METRICS_PORT}/metrics"], capture_output=True, text=True, check=True)
        return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", done.stdout, re.MULTILINE)}

    def requests(self):
        """Returns how many requests the API server has received."""
        text = self.api.request("GET", "/metrics")
        return sum(float(value) for value in re.findall(r"^apiserver_request_total\{.*\} (\S+)$", text, re.MULTILINE))

    def memory(self):
        """Returns the operator's largest resident set so far, in MB."""
        status = pathlib.Path(f"/proc/{self.operator.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) * 1024 / 1e6

    def expect_operator(self):
        if self.operator.poll() is None:
            return
        self.log.seek(0)
        sys.exit(f"the operator has ended with {self.operator.returncode}:\n{self.log.read()[-4000:]}")

    def wait_until_all_run(self, count):
        deadline, printed = time.monotonic() + PATIENCE, 0
        while self.running() < count:
            self.expect_operator()
            if time.monotonic() > deadline:
                sys.exit(f"only {self.running()} of {count} jobs run after {PATIENCE} s")
            if time.monotonic() > printed + 10:
                printed = time.monotonic()
                print(f"{self.running()} of {count} jobs run", file=sys.stderr, flush=True)
            time.sleep(0.2)

    def steady_state(self):
        """Creates further jobs, and returns the longest cycle and the longest time until a new job's first pod, in seconds."""
        cycles, asked = [], {}
        before = self.metrics()
        end = time.monotonic() + SECONDS
        next_job = time.monotonic() + SECONDS / NEW_JOBS / 2
        created = 0
        while time.monotonic() < end:
            self.expect_operator()
            if created < NEW_JOBS and time.monotonic() > next_job:
                number = JOBS + created
                asked[f"{NAMESPACES[number % len(NAMESPACES)]}/job-{number}"] = time.monotonic()
                self.create(number)
                created += 1
                next_job += SECONDS / NEW_JOBS
            now = self.metrics()
            if now["adaptdl_cycle_seconds_count"] > before["adaptdl_cycle_seconds_count"]:
                count = now["adaptdl_cycle_seconds_count"] - before["adaptdl_cycle_seconds_count"]
                cycles.append((now["adaptdl_cycle_seconds_sum"] - before["adaptdl_cycle_seconds_sum"]) / count)
                print(f"a cycle took {cycles[-1]:.3f} s; {self.running()} jobs run; {self.memory():.0f} MB", file=sys.stderr, flush=True)
                before = now
            time.sleep(2)
        if missing := asked.keys() - self.first_pods.keys():
            sys.exit(f"no pods of {', '.join(missing)}")
        first = [self.first_pods[key] - when for key, when in asked.items()]
        print(f"first pods after {', '.join(f'{each:.2f}' for each in sorted(first))} s", file=sys.stderr, flush=True)
        return max(cycles), max(first)

    def rate(self, seconds):
        before = self.requests()
        time.sleep(seconds)
        return (self.requests() - before) / seconds

    def measure(self):
        self.make_nodes()
        stand_in = self.start(
            sys.executable, HERE / "stand_in_nodes.py", cluster_support.KUBECONFIG, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.watch()
        time.sleep(5)
        idle = self.rate(IDLE_SECONDS)
        self.start_operator()
        cluster_support.eventually(lambda: subprocess.run(["curl", "-sf", f"http://127.0.0.1:{METRICS_PORT}/metrics"], capture_output=True).returncode == 0)
        began = time.monotonic()
        self.each(range(JOBS), self.create)
        created = time.monotonic() - began
        self.wait_until_all_run(JOBS)
        print(f"{JOBS} jobs created in {created:.0f} s, running after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        running = time.monotonic()
        # The first cycles give the jobs more replicas.
        time.sleep(3 * INTERVAL)
        before, start = self.requests(), time.monotonic()
        cycle, first = self.steady_state()
        requests = (self.requests() - before) / (time.monotonic() - start) - idle
        measured = {"cycle": cycle, "memory": self.memory(), "requests": requests, "first pod": first}
        accepted, seconds = int(stand_in.communicate(timeout=60)[0]), time.monotonic() - running
        print(f"hints accepted {accepted / seconds:.0f} times per second", file=sys.stderr, flush=True)
        if accepted < 0.8 * JOBS * (seconds / HINTS_EVERY - 1):
            sys.exit("the jobs could not report their hints")
        return measured

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        self.log.close()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        cluster_support.use_cluster()
    except cluster_keeper.Unavailable as reason:
        print(f"skipped: no cluster is available: {reason}")
        return 77
    with tempfile.TemporaryDirectory(prefix="adaptdl-bench-") as directory:
        scale = Scale(pathlib.Path(directory))
        try:
            measured = scale.measure()
        finally:
            scale.close()
    print(f"{JOBS} jobs, {NODES} nodes\n\n| | measured | bound |\n| --- | --- | --- |")
    for name, value in measured.items():
        print(f"| {name} | {value:.3g} {UNITS[name]} | {BOUNDS[name]} {UNITS[name]} |")
    return 0 if all(value <= BOUNDS[name] for name, value in measured.items()) else 1


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    finally:
        # No other test uses this cluster.
        cluster_keeper.give_back()
        cluster_keeper.end()
    sys.exit(code)
