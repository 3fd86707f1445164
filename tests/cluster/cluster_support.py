"""Support for tests in a cluster: a real Kubernetes, a namespace for each test class, and the adaptdl and kubectl
commands.

If $KUBECONFIG is set, the tests use that cluster, in which pods run $ADAPTDL_TEST_IMAGE (default: busybox). Otherwise,
all tests share one cluster of their own, which has its own network namespaces. The test process enters the API server's
namespace, so all connections that the process and its children, including a browser, open are inside that network.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import cluster_keeper

ADAPTDL = os.environ.get("ADAPTDL_BIN", "adaptdl")
SOURCE_ROOT = pathlib.Path(os.environ.get("SOURCE_ROOT", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE_ROOT / "tests/e2e"))  # modules that all journeys use
CRD = SOURCE_ROOT / "share/adaptdl/crd/adaptdljob.yaml"
JOBS = "/apis/adaptdl.petuum.com/v1/namespaces/{}/adaptdljobs"
# In seconds. This is generous, because test machines are slow at times. A test that passes does not wait that long.
PATIENCE = 120
# Runs out of memory in a container with a low limit. The shell starts before the program and outlives it: containerd
# begins to monitor a container's memory only after the container has started, and could otherwise notice that it has
# ended before learning why.
OUT_OF_MEMORY = "sleep 2; tail /dev/zero; sleep 5; exit 1"

KUBECONFIG = None  # path of the cluster's kubeconfig; set by use_cluster()
OWN = False  # whether the cluster is the tests' own
IMAGE = os.environ.get("ADAPTDL_TEST_IMAGE", "localhost/adaptdl-test:1")


def _enter_network(path):
    with open(path, "rb") as namespace:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")


def use_cluster():
    """Connects to a cluster and installs the CustomResourceDefinition of AdaptDLJobs. Raises cluster_keeper.Unavailable."""
    global KUBECONFIG, OWN, IMAGE
    if os.environ.get("KUBECONFIG"):
        KUBECONFIG = os.environ["KUBECONFIG"]
        IMAGE = os.environ.get("ADAPTDL_TEST_IMAGE", "busybox:1.36")
    else:
        path, network = cluster_keeper.borrow()
        KUBECONFIG, OWN = str(path), True
        _enter_network(network)
    # Several tests start at the same time. If two of them created the definition, one would fail.
    with open(CRD, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kubectl("apply", "-f", CRD)
    kubectl("wait", "--for=condition=Established", "crd/adaptdljobs.adaptdl.petuum.com", "--timeout=60s")
    # Clients can use the new resource only a moment later.
    if not eventually(lambda: kubectl("get", "adaptdljobs", check=False).returncode == 0):
        raise AssertionError("the API server does not announce AdaptDLJobs")


def main():
    """Replaces unittest.main(): skips the tests if there is no cluster, and prints the path of its log if a test fails."""
    try:
        use_cluster()
    except cluster_keeper.Unavailable as reason:
        print(f"skipped: no cluster is available: {reason}")
        sys.exit(77)
    program = unittest.main(exit=False, verbosity=2)
    if not program.result.wasSuccessful() and OWN:
        print(f"the API server's log is {cluster_keeper.CACHE / 'log' / cluster_keeper.STATE.name / 'apiserver.log'}", file=sys.stderr)
    sys.exit(not program.result.wasSuccessful())


def eventually(condition, patience=PATIENCE):
    """Waits until the condition holds or the time is up. Returns its last value."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.1)


def clean_environment(**more):
    """Returns the environment without the variables of an outer run, a proxy or a terminal. `more` adds variables; the
    value None removes one."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ADAPTDL_") and name.upper() not in ("NO_COLOR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    }
    environment.update(more)
    return {name: str(value) for name, value in environment.items() if value is not None}


def kubectl(*arguments, text=None, check=True, kubeconfig=None, timeout=PATIENCE):
    """Runs kubectl with `text` as standard input. Returns its standard output or, with check=False, the completed process."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig or KUBECONFIG), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout, env=clean_environment())
    if not check:
        return done
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} failed: {done.stderr or done.stdout}")
    return done.stdout


class Running:
    """A running adaptdl command whose output is collected line by line."""

    def __init__(self, arguments, environment, directory):
        self.process = subprocess.Popen(
            [ADAPTDL, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment, cwd=directory,
        )  # fmt: skip
        self.out, self.err = [], []
        self.readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(stream, lines):
        with stream:
            for line in stream:
                lines.append(line.rstrip("\n"))

    def text(self):
        return "\n".join([*self.out, *self.err])

    def wait_for(self, pattern, patience=PATIENCE):
        """Waits for a line on either stream that matches the pattern. Returns the match."""

        def found():
            return next((match for line in [*self.out, *self.err] if (match := re.search(pattern, line))), None)

        match = eventually(lambda: found() or self.process.poll() is not None, patience)
        if not isinstance(match, re.Match):
            if self.process.poll() is not None:
                self.finish()  # its last lines may not have been read yet
            match = found()
        if not match:
            raise AssertionError(f"no line matches {pattern!r}:\n{self.text()}")
        return match

    def finish(self, patience=PATIENCE):
        """Waits until the command ends by itself. Returns its exit code."""
        code = self.process.wait(patience)
        for reader in self.readers:
            reader.join(10)
        return code

    def stop(self, number=signal.SIGINT):
        """Sends a signal to the command and waits until it ends. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.finish(30)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.finish(30)


class ClusterTest(unittest.TestCase):
    """Base class of tests with their own namespace, which commands use by default. It is deleted after the tests of the class."""

    @classmethod
    def setUpClass(cls):
        words = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
        cls.namespace = f"{words[:40]}-{secrets.token_hex(3)}"
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-cluster-"))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.volumes = []
        cls.kubectl_in("default", "create", "namespace", cls.namespace)
        cls.addClassCleanup(cls._remove_namespace)
        cls.kubeconfig = cls.directory / "kubeconfig"
        cls.kubeconfig.write_text(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"), encoding="utf-8")
        kubectl("config", "set-context", "--current", "--namespace", cls.namespace, kubeconfig=cls.kubeconfig)
        if not eventually(cls._takes_pods):
            raise AssertionError(f"namespace {cls.namespace} has no service account")

    @classmethod
    def _takes_pods(cls):
        """Returns whether pods can be created. They are rejected until the namespace has a service account and, in the
        tests' own cluster, until the account has a token."""
        done = cls.kubectl_in(cls.namespace, "get", "serviceaccount", "default", "-o", "json", check=False)
        return done.returncode == 0 and (not OWN or json.loads(done.stdout).get("secrets"))

    @classmethod
    def _remove_namespace(cls):
        cls.kubectl_in("default", "delete", "namespace", cls.namespace, "--wait=false")
        cls.kubectl_in(cls.namespace, "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        for volume in cls.volumes:
            cls.kubectl_in("default", "delete", "persistentvolume", volume, "--wait=false")

    @staticmethod
    def kubectl_in(namespace, *arguments, **more):
        return kubectl("-n", namespace, *arguments, **more)

    def kubectl(self, *arguments, **more):
        return self.kubectl_in(self.namespace, *arguments, **more)

    def apply(self, *objects):
        """Applies the objects with kubectl."""
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind, name=None, *arguments):
        """Returns the object with this name or, without a name, a list of all objects of the kind."""
        found = json.loads(self.kubectl("get", kind, *([name] if name else []), *arguments, "-o", "json"))
        return found if name else found["items"]

    def wait_for(self, what, condition, patience=PATIENCE):
        """Waits until the condition holds. Returns its value."""
        value = eventually(condition, patience)
        self.assertTrue(value, f"not true within {patience} s: {what}")
        return value

    def wait_for_right(self, user, verb, resource, subresource=None):
        """Waits until the API server grants the user this permission in the namespace."""
        question = ("auth", "can-i", verb, resource, *(["--subresource", subresource] if subresource else []), "--as", user)
        self.wait_for(f"{user} may {verb} {resource}", lambda: self.kubectl(*question, check=False).returncode == 0)

    @staticmethod
    def offer_gpus(count, node):
        """Sets the number of virtual GPUs that a node offers."""
        path = f"/api/v1/nodes/{node}/status"
        for _ in range(10):
            changed = json.loads(kubectl("get", "--raw", path.removesuffix("/status")))
            for part in ("capacity", "allocatable"):
                changed["status"][part]["nvidia.com/gpu"] = str(count)
            if kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(changed), check=False).returncode == 0:
                return
        raise AssertionError(f"{node} did not accept virtual GPUs")

    def set_gpus(self, count, node):
        """Sets the number of virtual GPUs that a node offers until the end of the test."""
        self.offer_gpus(count, node)
        self.addCleanup(self.offer_gpus, 0, node)

    # The methods below run the command.

    def environment(self, **more):
        return clean_environment(**{"KUBECONFIG": self.kubeconfig, "XDG_STATE_HOME": self.directory / "state",
                                    "XDG_RUNTIME_DIR": self.directory, **more})

    def adaptdl(self, *arguments, timeout=PATIENCE, text=True, stdin=None, **more):
        """Runs the command in the test's own directory until it ends. `more` contains additional environment variables."""
        return subprocess.run(
            [ADAPTDL, *map(str, arguments)], input=stdin, capture_output=True, text=text, timeout=timeout,
            env=self.environment(**more), cwd=self.directory,
        )  # fmt: skip

    def start(self, *arguments, **more):
        """Starts the command, which is killed at the end of the test if it is still running."""
        running = Running(arguments, self.environment(**more), self.directory)
        self.addCleanup(running.kill)
        return running
