"""Support for tests of jobs that the operator runs: creates them, waits for them, watches their pods, and checks which
samples jobs with modelled step times have trained on."""

import collections
import json
import secrets
import threading

import cluster_support
from cluster_jobs_support import ClusterJobsTest
from kube_api import Watch

IMAGE = "localhost/adaptdl-operator-test:1"  # the image of the operator and of jobs
GPU = "nvidia.com/gpu"
ONE_GPU = {"limits": {GPU: 1}}
CHECKPOINT_SECONDS = 5  # seconds between checkpoints, and thus of work that may be repeated after a crash
ENDED = ("Succeeded", "Failed")


class PodWatch:
    """Records all events of jobs' pods, and checks that no job ever has live pods of two groups."""

    def __init__(self, api, namespace):
        self.lock = threading.Lock()
        self.live = collections.defaultdict(dict)  # job -> pod -> group
        self.groups = collections.defaultdict(list)  # job -> groups, in the order of their first pods
        self.allocations = collections.defaultdict(dict)  # job -> group -> number -> node
        self.problems = []
        self.watch = Watch(api, f"/api/v1/namespaces/{namespace}/pods?labelSelector=adaptdl%3Dtrue", self.take)

    def take(self, kind, pod):
        with self.lock:
            try:
                self._take(kind, pod)
            except (KeyError, ValueError) as error:
                self.problems.append(f"cannot read {pod['metadata']}: {error!r}")

    def _take(self, kind, pod):
        metadata = pod["metadata"]
        job, name = metadata["labels"]["adaptdl/job"], metadata["name"]
        # The name never changes. A replica that joins later has a number above the ranks of those that began its group.
        group, rank = map(int, name.rsplit("-", 2)[1:])
        if group not in self.groups[job]:
            if self.groups[job] and group < self.groups[job][-1]:
                self.problems.append(f"{job}: pods of group {group} after those of group {self.groups[job][-1]}")
            self.groups[job].append(group)
        self.allocations[job].setdefault(group, {})[rank] = metadata["annotations"]["adaptdl/node"]
        if kind == "DELETED" or pod.get("status", {}).get("phase") in ENDED:
            self.live[job].pop(name, None)
        else:
            self.live[job][name] = group
        alive = sorted(set(self.live[job].values()))
        if len(alive) > 1:
            self.problems.append(f"{job}: live pods of the groups {alive} at once: {sorted(self.live[job])}")

    def sizes(self, job):
        """Returns the number of replicas of each group so far, in order."""
        with self.lock:
            return [len(self.allocations[job][group]) for group in self.groups[job]]

    def stop(self):
        """Stops watching. Returns the problems without duplicates."""
        try:
            self.watch.stop()
        except AssertionError as error:
            self.problems.append(f"{error}: {error.__cause__!r}")
        return list(dict.fromkeys(self.problems))


class TrainedOnce:
    """Checks what modelled_job trained on, using the files that each job writes to its share (`self.shares`, by job name)."""

    def journal(self, name, event=None):
        path = self.shares[name] / "journal.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if event in (None, line["event"])]

    def assert_trained_once(self, name, samples=None, crashed=False):
        """Checks that the completed job trained on every sample once, and that no two groups trained at the same time.
        Unless the job crashed, no step may have been repeated either."""
        done = json.loads((self.shares[name] / "done.json").read_text(encoding="utf-8"))
        count = done["samples"]
        if samples is not None:
            self.assertEqual(count, samples)
        self.assertEqual(done["indices"], count * (count - 1) // 2)
        self.assertEqual(done["squares"], (count - 1) * count * (2 * count - 1) // 6)
        position = 0
        for entry in done["ranges"]:
            self.assertEqual(entry["from"], position, done["ranges"])
            self.assertGreater(entry["to"], position)
            position = entry["to"]
        self.assertEqual(position, count)
        groups = [entry["group"] for entry in done["ranges"]]
        self.assertEqual(groups, sorted(set(groups)))

        newest, ends = -1, {}
        steps = self.journal(name, "step")
        for line in self.journal(name):
            self.assertGreaterEqual(line["group"], newest, f"group {line['group']} of {name} is alive after {newest} began: {line}")
            newest = line["group"]
            if line["event"] == "step":
                self.assertEqual(ends.get(newest, line["from"]), line["from"], f"{name}: group {newest} left samples out")
                ends[newest] = line["to"]
        trained = collections.defaultdict(set)
        for line in steps:
            trained[line["group"]].add((line["from"], line["to"]))
        for entry in done["ranges"]:
            pieces = sorted(piece for piece in trained[entry["group"]] if entry["from"] <= piece[0] < entry["to"])
            self.assertTrue(pieces, f"{name}: {entry} is not in its journal")
            self.assertEqual((pieces[0][0], pieces[-1][1]), (entry["from"], entry["to"]), f"{name}: {entry} is not in its journal")
        if not crashed:
            self.assertEqual(sum(line["to"] - line["from"] for line in steps), count, f"{name} repeated steps")


class OperatorJobsTest(TrainedOnce, ClusterJobsTest):
    """Base class of tests that create jobs for the operator and check them."""

    @staticmethod
    def job_object(name, template, **spec):
        return {
            "apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "metadata": {"name": name},
            "spec": {"template": template, **spec},
        }  # fmt: skip

    def create_job(self, name, template, **spec):
        self.kubectl("create", "-f", "-", text=json.dumps(self.job_object(name, template, **spec)))

    def job_document(self, name, command, container=None, limits=None, image=IMAGE, **spec):
        """Returns a job that runs a shell command, with these additional fields in its container."""
        template = self.make_template(command, image=image, resources={"limits": {**ONE_GPU["limits"], **(limits or {})}})
        template["spec"]["containers"][0].update(container or {})
        return self.job_object(name, template, **spec)

    def apply_refused(self, job):
        """Applies the job (or its JSON), which must be refused. Returns the reason."""
        text = job if isinstance(job, str) else json.dumps(job)
        done = self.kubectl("apply", "-f", "-", text=text, check=False)
        self.assertNotEqual(done.returncode, 0, f"accepted: {job}")
        return done.stderr

    def refused(self, reason, **fields):
        """Checks that `kubectl apply` refuses a job with these fields for this reason."""
        self.assertIn(reason, self.apply_refused(self.job_document("wrong", "true", **fields)))

    def wait_for_validator(self):
        """Waits until the API server calls the validator."""
        wrong = json.dumps(self.job_document("wrong", "true", image="Wrong"))

        def refuses():
            done = self.kubectl("create", "--dry-run=server", "-f", "-", text=wrong, check=False)
            return "denied the request" in done.stderr

        self.wait_for("the validator refuses a wrong job", refuses)

    def create_program_job(self, name, command, resources=None, image=IMAGE, volume=None, **spec):
        """Creates a job that runs a shell command, with one GPU per replica."""
        self.create_job(name, self.make_template(command, image=image, volume=volume, resources=resources or ONE_GPU), **spec)

    def create_modelled_job(self, name, samples, until=None, step_ms=800, slowdown=20, live=False, **spec):
        """Creates a job that runs modelled_job until it has trained on all samples or the file `until` exists in its
        share. Returns the path of the share."""
        claim = f"adaptdl-pvc-{secrets.token_hex(8)}"
        share = self.make_volume(claim) / "adaptdl/share"
        template = self.make_template("", image=IMAGE, volume=claim, resources=ONE_GPU)
        template["spec"]["terminationGracePeriodSeconds"] = 30
        main = template["spec"]["containers"][0]
        main["command"] = ["/usr/bin/modelled_job", "--samples", str(samples), "--step-ms", str(step_ms), "--slowdown", str(slowdown)]
        if live:
            main["command"] += ["--live", "1"]
        if until:
            main["command"] += ["--until", f"/adaptdl/share/{until}"]
        main["env"] += [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "ADAPTDL_CHECKPOINT_EVERY", "value": f"{CHECKPOINT_SECONDS}s"},
        ]
        self.create_job(name, template, **spec)
        self.shares[name] = share
        return share

    def status(self, name):
        return self.get("adaptdljob", name).get("status", {})

    def listed(self, name):
        done = self.adaptdl("ls", "-o", "json", name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)[0]

    def wait_for_status(self, what, name, condition, patience=cluster_support.PATIENCE):
        """Waits until the condition holds for the job's status. Returns the status."""
        status = None

        def holds():
            nonlocal status
            status = self.status(name)
            return condition(status)

        self.assertTrue(cluster_support.eventually(holds, patience), f"after {patience} s {name} is not {what}: {status}")
        return status

    def wait_for_phase(self, name, *phases, patience=cluster_support.PATIENCE):
        """Waits until the job is in one of the phases. Fails immediately if the job ends in another phase."""
        status = self.wait_for_status(
            " or ".join(phases), name, lambda status: status.get("phase") in (*phases, *ENDED), patience
        )
        self.assertIn(status["phase"], phases, status)
        return status

    def wait_for_replicas(self, name, min_replicas, max_replicas=None, patience=cluster_support.PATIENCE):
        """Waits until `min_replicas` to `max_replicas` replicas are running and training. Returns the job's status."""

        def runs(status):
            ready = status.get("readyReplicas") or 0
            running = status.get("phase") == "Running" and ready == status.get("replicas")
            return running and min_replicas <= ready <= (max_replicas or ready)

        wanted = f"running on {min_replicas} to {max_replicas or 'any number of'} replicas"
        status = self.wait_for_status(wanted, name, runs, patience)
        self.wait_for(
            f"{name} trains in group {status['group']}",
            lambda: any(line["group"] >= status["group"] for line in self.journal(name, "step")), patience,
        )  # fmt: skip
        return status

    def assert_pods_as_agreed(self, name):
        """Checks that the job's pods comply with the contract between jobs and schedulers. Returns them by rank."""
        job, pods = self.get("adaptdljob", name), self.pods_of(name)
        uid, status = job["metadata"]["uid"], job["status"]
        group, allocation = status["group"], status["allocation"]
        pods = [pod for pod in pods if pod["metadata"]["annotations"]["adaptdl/group"] == str(group)]
        self.assertEqual(len(pods), len(allocation))
        tokens = set()
        for rank, pod in enumerate(pods):
            metadata, spec = pod["metadata"], pod["spec"]
            self.assertEqual(metadata["name"], f"{name}-{uid}-{group}-{rank}")
            self.assertEqual(spec["hostname"], f"{name}-{group}-{rank}")
            labels = {"adaptdl": "true", "adaptdl/job": name, "petuum.com/nodegroup": "all"}
            self.assertEqual(labels, {key: metadata["labels"].get(key) for key in labels})
            annotations = {
                "adaptdl/group": str(group), "adaptdl/rank": str(rank), "adaptdl/replicas": str(len(pods)),
                "adaptdl/node": allocation[rank],
            }  # fmt: skip
            self.assertEqual(annotations, {key: metadata["annotations"].get(key) for key in annotations})
            self.assertEqual(spec["nodeName"], allocation[rank])
            self.assertEqual(spec["restartPolicy"], "Never")
            (owner,) = metadata["ownerReferences"]
            self.assertEqual((owner["kind"], owner["name"], owner["uid"], owner["controller"]), ("AdaptDLJob", name, uid, True))
            variables = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
            expected = {
                "JOB_ID": f"{self.namespace}/{name}", "MASTER_PORT": str(47000 + group), "REPLICA_RANK": str(rank),
                "NUM_NODES": str(len(set(allocation))), "NUM_REPLICAS": str(len(pods)), "NUM_RESTARTS": str(group),
                "CHECKPOINT_PATH": "/adaptdl/checkpoint", "SHARE_PATH": "/adaptdl/share",
            }  # fmt: skip
            self.assertEqual(expected, {key: variables.get(f"ADAPTDL_{key}") for key in expected})
            self.assertRegex(variables["ADAPTDL_SUPERVISOR_URL"], r"^http://[^/]+$")
            self.assertRegex(variables["ADAPTDL_SCHED_VERSION"], r"^0\.\d+\.\d+")
            self.assertIn("ADAPTDL_SUPERVISOR_TOKEN", variables)
            tokens.add(variables["ADAPTDL_SUPERVISOR_TOKEN"])
            self.assertEqual(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1")
        self.assertEqual(len(tokens), 1, "the replicas of a job have one token")
        return pods

    def set_suspend(self, name, value):
        patch = json.dumps({"spec": {"suspend": value}})
        self.kubectl("patch", "adaptdljob", name, "--type=merge", "-p", patch)

    def finish(self, name):
        """Ends a job that was created with `until="finish"`."""
        (self.shares[name] / "finish").touch()
