"""Stands in for the kubelets of many nodes and for the replicas of jobs: stand_in_nodes.py KUBECONFIG

Pods that are bound to a node get the status of running pods at once, and deleted pods disappear at once. The replicas of a running
job send hints every 30 s and ask for generations, as the trainer's replicas do; all members of a new generation start
training as soon as their pods are running. Ends when its standard input ends, and prints how many hints were accepted.
"""

import asyncio
import concurrent.futures
import json
import pathlib
import random
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))
from kube_api import MERGE, PATIENCE, KubeApi, Watch  # noqa: E402

WORKERS = 8
HINTS_EVERY = 30  # seconds
POLL = 30  # seconds


def running_status(pod, address):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]
    containers = [
        {"name": container["name"], "image": container["image"], "imageID": "", "ready": True, "started": True, "restartCount": 0,
         "state": {"running": {"startedAt": now}}}
        for container in pod["spec"]["containers"]
    ]  # fmt: skip
    return {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now, "conditions": ready, "containerStatuses": containers
    }  # fmt: skip


class Kubelets:
    def __init__(self, api, replicas):
        self.api, self.replicas = api, replicas
        self.pool = concurrent.futures.ThreadPoolExecutor(WORKERS)
        self.started, self.ended = set(), set()  # uids

    def follow(self):
        Watch(self.api, "/api/v1/pods?labelSelector=adaptdl%3Dtrue", self.take)

    def take(self, kind, pod):
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if kind == "DELETED":
            self.replicas.end(pod)
        elif "deletionTimestamp" in metadata:
            self.replicas.end(pod)
            if uid not in self.ended:
                self.ended.add(uid)
                self.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        elif pod["status"].get("phase") == "Running":
            self.replicas.start(pod)
        elif pod["spec"].get("nodeName") and uid not in self.started:
            self.started.add(uid)
            number = len(self.started)
            address = f"10.{128 + number // 62500 % 128}.{number // 250 % 250}.{number % 250 + 1}"
            self.call("PATCH", path + "/status", {"metadata": {"uid": uid}, "status": running_status(pod, address)}, MERGE)

    def call(self, *request):
        def make():
            try:
                self.api.request(*request, missing=True)
            except Exception as error:
                print(f"stand-in for kubelets: {error}", file=sys.stderr, flush=True)

        self.pool.submit(make)


class Job:
    def __init__(self, job_id, environment):
        self.id, self.url, self.token = job_id, environment["ADAPTDL_SUPERVISOR_URL"], environment["ADAPTDL_SUPERVISOR_TOKEN"]
        self.group = int(environment["ADAPTDL_NUM_RESTARTS"])
        self.pods = {}  # ADAPTDL_REPLICA_ID -> uid
        self.tasks = []
        choice = random.Random(job_id)
        # The share of communication varies from small to large, and communication between nodes takes twice as long as within a node.
        step = choice.uniform(0.05, 0.5)
        sync = step * choice.uniform(0.01, 0.3)
        self.hints = {
            "initBatchSize": 128, "localBszBounds": [32, 512], "maxBatchSize": 4096, "globalBatchSize": 128,
            "maxProfiledReplicas": 2, "gradientAccumulation": False, "liveRescale": True, "progress": 0.0,
            "gradParams": {"norm": 0.01 * choice.uniform(0.5, 2), "var": choice.uniform(0.1, 10)},
            "perfParams": {"alpha_c": step, "beta_c": step / 128, "alpha_n": 2 * sync, "beta_n": 0.01 * sync, "alpha_r": sync,
                           "beta_r": 0.01 * sync, "gamma": 2.0},
        }  # fmt: skip


class Replicas:
    """The replicas of all jobs. They do all their work on the thread of `loop`."""

    def __init__(self):
        self.jobs = {}
        self.accepted = 0  # number of accepted hints
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def start(self, pod):
        self.loop.call_soon_threadsafe(self._start, pod)

    def end(self, pod):
        self.loop.call_soon_threadsafe(self._end, pod)

    @staticmethod
    def _environment(pod):
        return {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0]["env"]}

    def _start(self, pod):
        environment = self._environment(pod)
        job_id, replica = environment["ADAPTDL_JOB_ID"], environment["ADAPTDL_REPLICA_ID"]
        job = self.jobs.get(job_id)
        if job is None or int(environment["ADAPTDL_NUM_RESTARTS"]) > job.group:
            if job is not None:
                self._stop(job)
            job = self.jobs[job_id] = Job(job_id, environment)
            job.tasks = [self.loop.create_task(self._send_hints(job)), self.loop.create_task(self._follow(job))]
        if replica in job.pods:
            return
        job.pods[replica] = pod["metadata"]["uid"]
        first = int(environment["ADAPTDL_GENERATION"])
        if first > 0:
            job.tasks.append(self.loop.create_task(self._join(job, replica, first - 1)))

    def _end(self, pod):
        environment = self._environment(pod)
        job = self.jobs.get(environment["ADAPTDL_JOB_ID"])
        replica = environment["ADAPTDL_REPLICA_ID"]
        if job is None or job.pods.get(replica) != pod["metadata"]["uid"]:
            return
        del job.pods[replica]
        if not job.pods:
            self._stop(job)
            del self.jobs[job.id]

    @staticmethod
    def _stop(job):
        for task in job.tasks:
            task.cancel()

    async def _request(self, job, method, path, body=""):
        """Sends a request, and returns the status and the body of the response. Status 0 means that there was no response."""
        where = urllib.parse.urlsplit(job.url)
        try:
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            try:
                writer.write(
                    f"{method} {path} HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {job.token}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
                )
                answer = (await asyncio.wait_for(reader.read(), POLL + PATIENCE)).decode()
            finally:
                writer.close()
            return int(answer.split(" ", 2)[1]), answer.partition("\r\n\r\n")[2]
        except (OSError, IndexError, asyncio.TimeoutError):
            return 0, ""

    async def _send_hints(self, job):
        await asyncio.sleep(random.uniform(0, HINTS_EVERY))
        while True:
            job.hints["progress"] += HINTS_EVERY
            drifted = {
                **job.hints, **{part: {name: value * random.uniform(0.97, 1.03) for name, value in job.hints[part].items() if name != "gamma"}
                                for part in ("gradParams", "perfParams")},
            }  # fmt: skip
            drifted["perfParams"]["gamma"] = job.hints["perfParams"]["gamma"]
            status, _ = await self._request(job, "PUT", f"/hints/{job.id}", json.dumps(drifted))
            self.accepted += status == 200
            await asyncio.sleep(HINTS_EVERY)

    async def _poll(self, job, query):
        """Asks for a generation until there is one, and returns it."""
        while True:
            status, body = await self._request(job, "GET", f"/generation/{job.id}?{query}&timeout={POLL}")
            if status == 200:
                return json.loads(body)
            if status != 408:
                await asyncio.sleep(1)

    async def _follow(self, job):
        """Follows the generations of a job, as rank 0 does."""
        number = 0
        while True:
            generation = await self._poll(job, f"after={number}&trains=1")
            while not {member["id"] for member in generation["replicas"]} <= job.pods.keys():
                await asyncio.sleep(0.1)
            number = generation["generation"]

    async def _join(self, job, replica, after):
        await self._poll(job, f"replica={replica}&after={after}")


def main():
    replicas = Replicas()
    Kubelets(KubeApi(sys.argv[1]), replicas).follow()
    sys.stdin.read()
    print(replicas.accepted, flush=True)


if __name__ == "__main__":
    main()
