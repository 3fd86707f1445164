"""Support for tests of the operator: an image of this build, and the operator installed from its manifests.

The operator manages the jobs of all namespaces, so these tests must run alone in their cluster.
"""

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
import unittest

import cluster_keeper
import cluster_support
import image_archive
from cluster_support import ADAPTDL, clean_environment
from kube_api import KubeApi
from operator_jobs_support import GPU, IMAGE, OperatorJobsTest, PodWatch

MODELLED_JOB = os.environ.get("MODELLED_JOB")
LIBCURL = "libcurl.so.4"  # loaded on demand, so ldd does not list it
NODES = ("node0", "node1")
GPUS = 4  # per node
INTERVAL = 10  # seconds between scheduling cycles
# With this restart cost, the policy gives two equal jobs half of the GPUs each, and a single job all of them.
SETTINGS = {"interval": f"{INTERVAL}s", "restartCost": "10s"}
DEPLOYMENT = "adaptdl-operator"
OPERATOR_LABEL = "app.kubernetes.io/name=adaptdl-operator"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


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


class OperatorTest(OperatorJobsTest):
    """Base class of tests with the operator of this build, installed from its manifests. The nodes have virtual GPUs."""

    settings = {}  # values of a test class in addition to SETTINGS
    programs = ()  # additional programs in /usr/bin of the image
    own_pods = ("--all",)  # selects the pods that are deleted after each test
    image = IMAGE  # the operator's image; None: the class installs the operator itself, with another image

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
            raise AssertionError(f"no operator holds the lease\n{cls.operator_report()}")

    @classmethod
    def uninstall(cls):
        """Deletes the operator and waits until it is gone, so that the next installation is the only scheduler."""
        # Otherwise, the namespace would be deleted while its pods are ending, and the kubelet of Kubernetes 1.20 may then
        # take a minute to end them.
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
        """Sends a signal to `processes` or, if it is None, to those of the leading operator. Returns the process ids."""
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

    # The methods below prepare and end each test.

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
