"""The project of a user in C++, from its sources to its results: digits is compiled in the builder against Debian's
LibTorch, pushed, pulled by both nodes' containerd, and trained by two replicas.

The base images are made by mmdebstrap, under their official names. They and the build cache are kept in
$ADAPTDL_TEST_CACHE/digits, so that only the first run installs and compiles all; delete that to have it done again.
"""

import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

import cluster_support
import submit_test
from cluster_support import SOURCE_ROOT

sys.path.append(str(SOURCE_ROOT / "tests/e2e"))
from python_peer import cache_directory  # noqa: E402

SUPERVISOR = os.environ["SUPERVISOR_PROGRAM"]
KEPT = cache_directory() / "digits"
EXAMPLE = SOURCE_ROOT / "share/adaptdl/examples/digits"
SLOW = 3600  # to install and compile it all on a machine that does other things, too
EPOCHS = 20
# As the official ones are: dpkg does not wait for the disk, and the one with slim in its name has no documentation.
BASES = {
    "debian:bookworm": [],
    "debian:bookworm-slim": [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")],
}
# They keep no packages that were installed, either.
APT = 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\n'
DOCKERFILE = """FROM scratch
ADD base.tar /
COPY docker-clean /etc/apt/apt.conf.d/
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["bash"]
"""


class Proxy:
    """An HTTP proxy in the cluster's network, which has no way out: it is served by threads that never entered it."""

    def __init__(self):
        """Before the cluster's network is entered."""
        self._listeners = queue.SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self):
        """Once it is entered. Returns the proxy's URL."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listeners.put(listener)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def _accept(self):
        listener = self._listeners.get()
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        """A connection is to one host, as apt's are; it is asked as a proxy is."""
        with client:
            request = b""
            while b"\r\n" not in request:
                piece = client.recv(65536)
                if not piece:
                    return
                request += piece
            asked = os.environ.get("http_proxy") or request.split()[1].decode()
            host = urllib.parse.urlsplit(asked)
            with socket.create_connection((host.hostname, host.port or 80), timeout=60) as server:
                server.settimeout(None)
                server.sendall(request)
                back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
                back.start()
                self._pass(client, server)
                back.join()

    @staticmethod
    def _pass(source, sink):
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


PROXY = Proxy()


def make_bases():
    """Archives of the base images' files, before the cluster's network is entered."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, options in BASES.items():
        kept = KEPT / name.replace(":", "-") / "base.tar"
        if kept.exists():
            continue
        kept.parent.mkdir(exist_ok=True)
        draft = kept.with_suffix(f".{os.getpid()}.tar")
        try:
            command = ["mmdebstrap", "--variant=minbase", "--dpkgopt=force-unsafe-io", *options, "bookworm", draft, "http://deb.debian.org/debian"]
            made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SLOW)
            if made.returncode:
                raise unittest.SkipTest(f"no {name}: {made.stderr.strip().splitlines()[-1]}")
            draft.rename(kept)
        except FileNotFoundError:
            raise unittest.SkipTest("mmdebstrap is missing; ./bootstrap packages full installs it") from None
        finally:
            draft.unlink(missing_ok=True)


class SubmitDigitsTest(submit_test.WithRegistry):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cache = {"ADAPTDL_BUILD_CACHE": KEPT / "cache"}
        for name in BASES:
            project = KEPT / name.replace(":", "-")
            (project / "docker-clean").write_text(APT, encoding="utf-8")
            (project / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
            cls.push(project, name)
        cls.proxy = PROXY.open()
        cls.began = time.monotonic()

    def setUp(self):
        super().setUp()
        self.project = SOURCE_ROOT

    def told(self, what):
        """Says how long it took since the last time."""
        now = time.monotonic()
        print(f"{what}: {now - self.began:.0f} s", flush=True)
        SubmitDigitsTest.began = now

    def submit(self, *arguments, **more):
        example = ("-d", EXAMPLE / "Dockerfile", "-f", EXAMPLE / "adaptdljob.yaml", "--build-arg", f"http_proxy={self.proxy}")
        return json.loads(super().submit(*example, "--json", *arguments, timeout=SLOW, **more).stdout)

    def start_supervisor(self, job):
        """For one job, where the pods' environment says it is. Returns the process and the pods' entry of hosts."""
        name = f"{self.namespace}/{job['metadata']['name']}"
        server = self.kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
        address = urllib.parse.urlsplit(server).hostname
        supervisor = subprocess.Popen([SUPERVISOR, address, "8080", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(supervisor.wait)
        self.addCleanup(supervisor.kill)
        return supervisor, {"ip": address, "hostnames": ["adaptdl-supervisor"]}

    def test_digits_is_built_pushed_pulled_by_both_nodes_and_trained_by_two_replicas(self):
        self.add_storage()
        said = self.submit("--", "--epochs", EPOCHS)
        self.told("built, pushed and submitted")
        name = said["name"]
        self.assertRegex(said["image"], r"\Alocalhost:32000/adaptdl-submit@sha256:[0-9a-f]{64}\Z")
        job = self.get("adaptdljob", name)
        supervisor, hosts = self.start_supervisor(job)
        job["spec"]["template"]["spec"]["hostAliases"] = [hosts]
        self.make_pods(job, 2)

        def addresses():
            found = [pod["status"].get("podIP") for pod in self.pods_of(name)]
            return all(found) and found

        found = self.wait_for("the pods have addresses", addresses, 600)
        supervisor.stdin.write(f"0 {' '.join(found)}\n")
        supervisor.stdin.flush()
        self.wait_for("it trains", lambda: "epoch 0" in self.adaptdl("logs", name).stdout, 600)
        self.told("pulled and begun")
        pods = self.pods_of(name)
        self.assertEqual({pod["spec"]["nodeName"] for pod in pods}, {"node0", "node1"})
        self.set_status(name, phase="Running", readyReplicas=2)
        self.assertRegex(self.adaptdl("ls").stdout, rf"(?m)^{name} .* running .* 2/2")

        self.wait_for_pods(name, "Succeeded", 600)
        self.set_status(name, phase="Succeeded", readyReplicas=0)
        self.told("trained")
        lines = re.findall(r"epoch (\d+)  replicas 2 .* accuracy (0\.\d+)", self.adaptdl("logs", name).stdout)
        self.assertEqual([int(epoch) for epoch, _ in lines], list(range(EPOCHS)))
        self.assertGreater(float(lines[-1][1]), 0.9)
        hints = json.loads(supervisor.communicate(timeout=30)[0])
        self.assertEqual(hints["initBatchSize"], 32)

        for path in ("share/epochs.json", "checkpoint"):
            done = self.adaptdl("cp", f"{name}:/adaptdl/{path}", ".")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.told("copied")
        epochs = [json.loads(line) for line in (self.directory / "epochs.json").read_text().splitlines()]
        self.assertEqual([f"{epoch['accuracy']:.4f}" for epoch in epochs], [accuracy for _, accuracy in lines])
        done = self.adaptdl("checkpoint", "verify", "checkpoint")
        self.assertEqual(done.returncode, 0, done.stderr)

        again = self.submit()
        self.told("submitted again")
        self.assertEqual(again["image"], said["image"])


if __name__ == "__main__":
    try:
        make_bases()
    except unittest.SkipTest as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    cluster_support.main()
