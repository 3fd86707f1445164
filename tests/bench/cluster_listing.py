"""Compares how long `adaptdl ls` and `kubectl get adaptdljobs` take for many jobs: cluster_listing.py [JOBS] [ROUNDS]

The jobs are in a separate namespace on a real cluster, and every other job has hints as large as those of a running
job. The two commands are run alternately, with their output going to a pipe; the median times from start to exit are
compared.
"""

import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))
import cluster_support  # noqa: E402
from cluster_jobs_support import ClusterJobsTest  # noqa: E402
from cluster_support import ADAPTDL, kubectl  # noqa: E402

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 11
WORKERS = 8
HINTS = {
    "initBatchSize": 128, "localBszBounds": [32, 256], "maxBatchSize": 1280, "maxProfiledReplicas": 4,
    "gradientAccumulation": True, "gradParams": {"norm": 0.0123, "var": 0.0456},
    "perfParams": {"alpha_c": 0.1, "beta_c": 0.01, "alpha_n": 0.2, "beta_n": 0.02, "alpha_r": 0.3, "beta_r": 0.03, "gamma": 1.5},
}  # fmt: skip


class Listing(ClusterJobsTest):
    @classmethod
    def fill(cls):
        template = cls().make_template("train", volume="adaptdl-pvc-shared")

        def make(first):
            jobs = [
                {"apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "metadata": {"name": f"job-{i:05}"},
                 "spec": {"template": template, "maxReplicas": 8}} for i in range(first, JOBS, WORKERS)
            ]  # fmt: skip
            made = kubectl("-n", cls.namespace, "create", "-f", "-", "-o", "json", timeout=1200,
                           text=json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))  # fmt: skip
            for number, job in enumerate(_documents(made)):
                job["status"] = (
                    {"phase": "Running", "group": 2, "replicas": 4, "readyReplicas": 4, "allocation": ["node0"] * 4, "train": HINTS}
                    if number % 2
                    else {"phase": "Pending"}
                )
                path = f"{cluster_support.JOBS.format(cls.namespace)}/{job['metadata']['name']}/status"
                kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(job))

        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(make, range(WORKERS)))


def _documents(text):
    """Parses the output of kubectl, which is a list or one object after another, depending on the version of kubectl."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found += value["items"] if value["kind"].endswith("List") else [value]
    return found


def measure(command, environment, lines):
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    seconds = time.monotonic() - began
    assert len(done.stdout.splitlines()) >= lines, done.stdout[:500]
    return seconds


def main():
    cluster_support.use_cluster()
    Listing.setUpClass()
    try:
        Listing.fill()
        environment = Listing().environment()
        commands = {
            "kubectl get adaptdljobs": ["kubectl", "get", "adaptdljobs"],
            "adaptdl ls --cluster": [ADAPTDL, "ls", "--cluster"],
        }
        times = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(measure(command, environment, JOBS))
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, values in times.items():
            print(f"{name:<24} {JOBS} jobs: median {medians[name]:.3f} s, from {min(values):.3f} to {max(values):.3f} s")
        theirs, ours = medians.values()
        print(f"{ours / theirs:.2f} of kubectl's time")
        return 0 if ours <= theirs / 2 else 1
    finally:
        Listing.doClassCleanups()


if __name__ == "__main__":
    sys.exit(main())
