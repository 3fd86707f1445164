"""Support for tests of the operator: an image of this build, the operator installed from its manifests, and jobs with modelled
step times that record which samples they train.

The operator manages the jobs of all namespaces, so these tests must run alone in their cluster.
"""

import collections
import errno
import itertools
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import threading
import unittest

import cluster_keeper
import cluster_support
import image_archive
from cluster_support import ADAPTDL, ClusterTest, clean_environment
from kube_api import KubeApi, Watch

IMAGE = "localhost/adaptdl-operator-test:1"
MODELLED_JOB = os.environ.get("MODELLED_JOB")
LIBCURL = "libcurl.so.4"  # loaded on demand, so ldd does not list it
NODES = ("node0", "node1")
GPUS = 4  # per node
INTERVAL = 10  # seconds between scheduling cycles
# With this restart cost, the policy gives two equal jobs half of the GPUs each, and a single job all of them.
SETTINGS = {"interval": f"{INTERVAL}s", "restartCost": "10s"}
DEPLOYMENT = "adaptdl-operator"
OPERATOR_LABEL = "app.kubernetes.io/name=adaptdl-operator"
GPU = "nvidia.com/gpu"
ONE_GPU = {"limits": {GPU: 1}}
CGROUPS = pathlib.Path("/sys/fs/cgroup")
CHECKPOINT_SECONDS = 5  # interval between checkpoints, and so the work that a crash may repeat
ENDED = ("Succeeded", "Failed")


def shared_libraries(*programs):
    """Returns the absolute paths of the files that the dynamic loader maps for the programs or libraries, including the loader."""
    found = set()
    for program in programs:
        done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=60, env=clean_environment())
        found.update(re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", done.stdout, re.MULTILINE))
    return sorted(found)


def library_path(name):
    done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True, timeout=60)
    paths = re.findall(rf"^\s*{re.escape(name)} .* => (\S+)$", done.stdout, re.MULTILINE)
    if not paths:
        raise AssertionError(f"{name} not found; ./bootstrap installs it")
    return paths[0]


def write_image(archive, *programs, name=IMAGE):
    """Writes an image with busybox, this build's command as its entry point, and modelled_job and the given programs in /usr/bin."""
    libcurl = library_path(LIBCURL)
    files = {"usr/bin/adaptdl": ADAPTDL, libcurl: libcurl}
    files.update({f"usr/bin/{pathlib.Path(program).name}": program for program in (MODELLED_JOB, *programs)})
    files.update({path: path for path in shared_libraries(ADAPTDL, MODELLED_JOB, libcurl, *programs)})
    image_archive.write(archive, name, files, entrypoint=["/usr/bin/adaptdl"])


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
    """Checks what modelled_job trained, using the files that each job writes to its share (`self.shares`, by job name)."""

    def journal(self, name, event=None):
        path = self.shares[name] / "journal.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if event in (None, line["event"])]

    def assert_trained_once(self, name, samples=None, crashed=False):
        """Checks that the completed job trained every sample once, and that no two groups trained at the same time. Unless the
        job crashed, no step may have been repeated either."""
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


class OperatorTest(TrainedOnce, ClusterTest):
    """Base class of tests with the operator of this build, installed from its manifests. The nodes have virtual GPUs."""

    settings = {}  # values of a test class in addition to SETTINGS
    programs = ()  # additional programs in /usr/bin of the image
    own_pods = ("--all",)  # selects the pods that are deleted after each test
    image = IMAGE  # the operator's image; None: the class installs another one itself

    @classmethod
    def setUpClass(cls):
        if not cluster_support.OWN:
            raise unittest.SkipTest("only the tests' own cluster can be given the image of this build")
        super().setUpClass()
        if cls.image:
            archive = cls.directory / "image.tar"
            write_image(archive, *cls.programs)
            cluster_keeper.load(archive)
            archive.unlink()
            cls.install(cls.image, imagePullPolicy="Never")

    # The methods below install and control the operator.

    @classmethod
    def install(cls, image, **settings):
        cls.operator_namespace = f"adaptdl-operator-{secrets.token_hex(3)}"
        cls.kubectl_in("default", "create", "namespace", cls.operator_namespace)
        cls.addClassCleanup(
            cls.kubectl_in, "default", "delete", "namespace", cls.operator_namespace, "--wait=false", "--ignore-not-found"
        )
        settings = {**SETTINGS, **cls.settings, **settings}
        options = itertools.chain.from_iterable(("--set", f"{key}={value}") for key, value in settings.items())
        manifests = subprocess.run(
            [ADAPTDL, "operator", "manifests", "--image", image, "-n", cls.operator_namespace, *options],
            capture_output=True, text=True, timeout=60, env=clean_environment(KUBECONFIG=cls.kubeconfig),
        )  # fmt: skip
        if manifests.returncode:
            raise AssertionError(f"adaptdl operator manifests failed: {manifests.stderr}")
        parsed = cls.kubectl_in(cls.operator_namespace, "create", "--dry-run=client", "-o", "json", "-f", "-", text=manifests.stdout)
        # All tests share the CustomResourceDefinition.
        cls.installed = [item for item in cls._objects(parsed) if item["kind"] != "CustomResourceDefinition"]
        cls.addClassCleanup(cls.uninstall)
        cls.kubectl_in(cls.operator_namespace, "apply", "-f", "-", text=manifests.stdout)
        cls.wait_for_operator()

    @staticmethod
    def _objects(text):
        """Parses the output of kubectl, which is a sequence of objects or lists."""
        decoder = json.JSONDecoder()
        while text := text.strip():
            value, end = decoder.raw_decode(text)
            text = text[end:]
            yield from value["items"] if value["kind"].endswith("List") else [value]

    @classmethod
    def wait_for_operator(cls):
        waited = cls.kubectl_in(
            cls.operator_namespace, "wait", "--for=condition=Available", f"deployment/{DEPLOYMENT}", "--timeout=100s", check=False
        )
        if waited.returncode:
            raise AssertionError(f"the operator does not start: {waited.stderr}\n{cls.operator_report()}")
        if not cluster_support.eventually(cls.operator_pod):
            raise AssertionError(f"no operator acts\n{cls.operator_report()}")

    @classmethod
    def uninstall(cls):
        """Deletes the operator and waits until it is gone, so that the next installation is the only scheduler."""
        # Otherwise, the namespace is deleted while its pods are ending, which may take the kubelet of Kubernetes 1.20 a
        # minute.
        deployment = ("deployment", DEPLOYMENT, "--cascade=foreground", "--ignore-not-found")
        cls.kubectl_in(cls.operator_namespace, "delete", *deployment, timeout=300)
        objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": cls.installed})
        cls.kubectl_in(cls.operator_namespace, "delete", "--ignore-not-found", "--wait=true", "-f", "-", text=objects, timeout=300)

    @classmethod
    def operator_pod(cls):
        """Returns the running pod of the leading operator, or None."""
        selector = f"{OPERATOR_LABEL},adaptdl/leader=true"
        pods = json.loads(cls.kubectl_in(cls.operator_namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
        live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Running"]
        return live[0] if live else None

    @classmethod
    def containers_of_operator(cls):
        """Returns the ids and restart counts of the leading operator's containers."""
        return [(status["containerID"], status["restartCount"]) for status in cls.operator_pod()["status"]["containerStatuses"]]

    @classmethod
    def operator_report(cls):
        """Returns the operator's pods and events and the end of its logs, which help to debug a failed test."""
        report = []
        for words in (("get", "pods", "-o", "wide"), ("get", "events"), ("logs", "-l", OPERATOR_LABEL, "--tail=200"),
                      ("logs", "-l", OPERATOR_LABEL, "--tail=50", "--previous")):  # fmt: skip
            done = cls.kubectl_in(cls.operator_namespace, *words, check=False)
            report.append(f"$ kubectl {' '.join(words)}\n{done.stdout}{done.stderr}")
        return "\n".join(report)

    def metrics(self):
        """Returns the metrics of the leading operator, by name with labels."""
        pod = self.operator_pod()["metadata"]["name"]
        path = f"/api/v1/namespaces/{self.operator_namespace}/pods/{pod}:9090/proxy/metrics"
        lines = [line for line in self.kubectl("get", "--raw", path).splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def wait_until_gpus_are_known(self):
        """Waits until the operator knows the current number of GPUs of the nodes, all of which must be ready. It watches nodes and
        jobs separately, so it could otherwise start a job on GPUs that no longer exist."""

        def known():
            gpus = sum(int(node["status"]["allocatable"].get(GPU, 0)) for node in self.get("nodes"))
            return self.operator_pod() and self.metrics().get(f'adaptdl_allocatable{{resource="{GPU}"}}', 0) == gpus

        self.wait_for("the operator knows the GPUs", known)

    def kill_operator_pod(self):
        """Deletes the operator's pod without a grace period. Returns False if none is running."""
        pod = self.operator_pod()
        if not pod:
            return False
        self.kubectl_in(
            self.operator_namespace, "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--ignore-not-found"
        )
        return True

    def operator_processes(self):
        """Returns the process ids of the leading operator."""
        pod = self.operator_pod()
        statuses = pod["status"].get("containerStatuses", []) if pod else []
        containers = [status.get("containerID", "").partition("://")[2] for status in statuses]
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                cgroup, command = (process / "cgroup").read_text(), (process / "cmdline").read_bytes().split(b"\0")
                if any(container and container in cgroup for container in containers) and b"operator" in command:
                    found.append(int(process.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has exited
        return found

    def signal_operator_process(self, number, processes=None):
        """Sends a signal to the given processes or, if None, to those of the leading operator. Returns the process ids."""
        processes = self.operator_processes() if processes is None else processes
        for process in processes:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass  # it has exited
        return processes

    def kill_operator_process(self):
        """Sends SIGKILL to the operator's process. Returns False if none is running."""
        return bool(self.signal_operator_process(signal.SIGKILL))

    # The methods below control nodes.

    @staticmethod
    def kube_cluster(*arguments):
        subprocess.run([cluster_keeper.KUBE_CLUSTER, *arguments], check=True, timeout=120)

    @classmethod
    def power_off(cls, node):
        """Kills the node's kubelet, then all processes of its pods."""
        cls.kube_cluster("kill", node.replace("node", "kubelet"))
        for file in CGROUPS.glob(f"*/{cluster_keeper.STATE.name}-{node}/**/cgroup.procs"):
            try:
                processes = file.read_text().split()
            except OSError as error:
                # Once all processes have ended, the cgroup may be removed before the file is opened or while it is being read.
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise
                continue
            for process in processes:
                try:
                    os.kill(int(process), signal.SIGKILL)
                except ProcessLookupError:
                    pass

    @classmethod
    def power_on(cls, node):
        cls.kube_cluster("start", node.replace("node", "kubelet"))

    @staticmethod
    def is_ready(node):
        condition = '{.status.conditions[?(@.type=="Ready")].status}'
        done = cluster_support.kubectl("get", "node", node, "-o", f"jsonpath={condition}", check=False)
        return done.stdout == "True"

    # The methods below create and check jobs.

    def setUp(self):
        super().setUp()
        for node in NODES:
            self.set_gpus(GPUS, node)
        self.api = KubeApi(cluster_support.KUBECONFIG)
        self.watch = PodWatch(self.api, self.namespace)
        self.shares = {}

    def tearDown(self):
        problems = self.watch.stop()
        result = self._outcome.result
        if problems or any(case is self for case, _ in result.failures + result.errors):
            print(self.operator_report(), self.kubectl("get", "adaptdljobs,pods", "-o", "wide"), self.kubectl("get", "events"),
                  sep="\n", file=sys.stderr)  # fmt: skip
            for name in self.shares:
                print(f"$ adaptdl logs {name}", self.adaptdl("logs", name, "--tail", 50).stdout, sep="\n", file=sys.stderr)
        self.kubectl("delete", "adaptdljobs", "--all", "--wait=false")
        self.kubectl("delete", "pods", *self.own_pods, "--grace-period=0", "--force", "--wait=true")
        self.wait_for("all jobs are gone", lambda: not self.get("adaptdljobs"))
        self.assertEqual(problems, [])

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
        """Creates a job that runs modelled_job until it has trained all samples or the file `until` exists in its share. Returns the
        path of the share."""
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

    def wait_for_replicas(self, name, fewest, most=None, patience=cluster_support.PATIENCE):
        """Waits until `fewest` to `most` replicas are running and training. Returns the job's status."""

        def runs(status):
            ready = status.get("readyReplicas") or 0
            return status.get("phase") == "Running" and ready == status.get("replicas") and fewest <= ready <= (most or ready)

        status = self.wait_for_status(f"running on {fewest} to {most or 'any number of'} replicas", name, runs, patience)
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
