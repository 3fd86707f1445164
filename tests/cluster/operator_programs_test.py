"""Runs users' programs as the README describes: `adaptdl build` and `adaptdl submit` build and push the images of the operator,
hello_world, digits and a program that uses the published Python package. The nodes pull the images, and the operator runs the jobs.

mmdebstrap creates the base images, which are pushed under their official names. They and the build cache are kept in
$ADAPTDL_TEST_CACHE/digits, so that only the first run installs and compiles everything; delete the directory to repeat that.
"""

import collections
import json
import os
import pathlib
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

import cluster_support
import submit_support
from cluster_support import ADAPTDL, SOURCE_ROOT
from operator_jobs_support import ONE_GPU
from operator_support import OperatorTest

sys.path.append(str(SOURCE_ROOT / "tests/e2e"))
import python_peer  # noqa: E402

KEPT = python_peer.cache_directory() / "digits"
EXAMPLE = SOURCE_ROOT / "share/adaptdl/examples/digits"
SLOW = 3600  # seconds; enough to install and compile everything on a busy machine
EPOCHS, PYTHON_EPOCHS = 20, 40
PYTHON_DOCKERFILE = """FROM debian:bookworm
RUN apt-get update && apt-get install -y --no-install-recommends python3-torch
COPY packages /opt/packages
COPY program.py /root/
ENV PYTHONPATH=/opt/packages PYTHONUNBUFFERED=true
"""
# As in the official images, dpkg does not wait for the disk, and the slim image has no documentation.
BASES = {
    "debian:bookworm": [],
    "debian:bookworm-slim": [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")],
}
# Like the official images, these do not keep the archives of installed packages.
APT = 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\n'
DOCKERFILE = """FROM scratch
ADD base.tar /
COPY docker-clean /etc/apt/apt.conf.d/
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["bash"]
"""


class Proxy:
    """An HTTP proxy in the cluster's network, which has no route to the outside. Its threads remain in the original
    network."""

    def __init__(self):
        """Must be called before the process enters the cluster's network."""
        self._listeners = queue.SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self):
        """Must be called after the process has entered the cluster's network. Returns the proxy's URL."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listeners.put(listener)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def _accept(self):
        listener = self._listeners.get()
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        """Serves a connection whose requests are all for the same host, as apt's are. The server must accept proxy requests."""
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
    """Creates archives of the base images' files. Must be called before the process enters the cluster's network."""
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


class ProgramsTest(submit_support.WithRegistry, OperatorTest):
    image = None
    own_pods = ("-l", "adaptdl=true")  # all except the registry's

    def setUp(self):
        OperatorTest.setUp(self)
        super().setUp()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cache = {"ADAPTDL_BUILD_CACHE": KEPT / "cache"}
        for name in BASES:
            project = KEPT / name.replace(":", "-")
            (project / "docker-clean").write_text(APT, encoding="utf-8")
            (project / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
            cls.push(project, name)
        cls.push_python()
        cls.proxy = ("--build-arg", f"http_proxy={PROXY.open()}")
        cls.began = time.monotonic()
        cls.build_operator("localhost:32000/adaptdl-operator:test")
        cls.report("the operator is built and pushed")
        # Each node has two CPUs, and an operator requests a fraction of them. With one operator, three replicas of digits fit.
        cls.install("localhost:32000/adaptdl-operator:test", replicas=1)
        cls.report("the operator runs")

    @classmethod
    def build_operator(cls, name):
        dockerfile = SOURCE_ROOT / "share/adaptdl/dockerfiles/operator.Dockerfile"
        done = subprocess.run(
            [ADAPTDL, "build", SOURCE_ROOT, "-f", dockerfile, "-t", name, "--push", *cls.mirror, *cls.proxy], capture_output=True,
            text=True, timeout=SLOW, env=cluster_support.clean_environment(**cls.cache), check=False,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(done.stderr)

    @classmethod
    def report(cls, what):
        """Prints the time since the last call."""
        now = time.monotonic()
        print(f"{what}: {now - cls.began:.0f} s", flush=True)
        cls.began = now

    def submitted(self, *arguments):
        return json.loads(self.submit("--json", *arguments, timeout=SLOW).stdout)

    def copied(self, name, path):
        done = self.adaptdl("cp", f"{name}:/adaptdl/{path}", ".")
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.directory / pathlib.PurePath(path).name

    def test_hello_world_runs_to_completion_and_its_file_is_copied(self):
        shutil.copytree(submit_support.HELLO, self.project, dirs_exist_ok=True)
        self.add_storage()
        name = self.submitted()["name"]
        self.wait_for_phase(name, "Running")
        self.wait_for("the greeting is logged", lambda: "Hello, world!" in self.adaptdl("logs", name).stdout)
        # The program writes its file a moment after the greeting.
        self.wait_for("its file is copied", lambda: self.adaptdl("cp", f"{name}:/adaptdl/share/foo.txt", "-").stdout == "Hello, world!")
        self.assertEqual(self.copied(name, "share/foo.txt").read_text(encoding="utf-8"), "Hello, world!")
        self.wait_for_phase(name, "Succeeded", patience=300)

    def test_digits_is_trained_on_two_nodes_and_its_results_are_copied(self):
        self.project = SOURCE_ROOT
        self.add_storage()
        digits = ("-d", EXAMPLE / "Dockerfile", "-f", EXAMPLE / "adaptdljob.yaml", *self.proxy)
        submitted = self.submitted(*digits, "--min-replicas", 3, "--max-replicas", 3, "--", "--epochs", EPOCHS)
        ProgramsTest.report("digits is built, pushed and submitted")
        name = submitted["name"]
        self.assertRegex(submitted["image"], r"\Alocalhost:32000/adaptdl-submit@sha256:[0-9a-f]{64}\Z")
        follow = self.start("logs", name, "--follow")
        status = self.wait_for_phase(name, "Running", patience=600)
        self.assertEqual(set(status["allocation"]), {"node0", "node1"})
        # `ls` accepts cached objects from the API server, which may be slightly out of date.
        self.wait_for("it is listed as running", lambda: re.search(rf"(?m)^{name} .* running .* 3/3", self.adaptdl("ls").stdout))
        self.wait_for_phase(name, "Succeeded", patience=900)
        ProgramsTest.report("digits is trained")
        self.assertEqual(follow.finish(), 0, follow.text())
        lines = re.findall(r"epoch (\d+)  replicas 3 .* accuracy (0\.\d+)", "\n".join(follow.out))
        self.assertEqual([int(epoch) for epoch, _ in lines], list(range(EPOCHS)))
        self.assertGreater(float(lines[-1][1]), 0.9)
        self.assertEqual(self.status(name)["train"]["initBatchSize"], 32)
        epochs = [json.loads(line) for line in self.copied(name, "share/epochs.json").read_text(encoding="utf-8").splitlines()]
        self.assertEqual([f"{epoch['accuracy']:.4f}" for epoch in epochs], [accuracy for _, accuracy in lines])
        done = self.adaptdl("checkpoint", "verify", self.copied(name, "checkpoint"))
        self.assertEqual(done.returncode, 0, done.stderr)
        # The second submission finds the image in the cache.
        self.assertEqual(self.submitted(*digits)["image"], submitted["image"])
        ProgramsTest.report("digits is submitted again")

    def test_a_program_that_uses_the_python_package_is_rescaled_by_a_restart_and_finishes(self):
        shutil.copytree(PYTHON_PACKAGES, self.project / "packages", ignore=shutil.ignore_patterns("__pycache__", "pip*"))
        shutil.copy(SOURCE_ROOT / "tests/e2e/python_elastic_program.py", self.project / "program.py")
        (self.project / "Dockerfile").write_text(PYTHON_DOCKERFILE, encoding="utf-8")
        job = self.job(spec={"maxReplicas": 2}, resources={**ONE_GPU, "requests": {"cpu": "500m"}})
        self.set_gpus(1, "node0")
        self.set_gpus(0, "node1")
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 30
        job["spec"]["template"]["spec"]["containers"][0]["command"] = [
            "python3", "/root/program.py", "--epochs", str(PYTHON_EPOCHS), "--pause", "0.2",
        ]  # fmt: skip
        self.make_file(job)
        self.add_storage()
        name = self.submitted(*self.proxy)["name"]
        ProgramsTest.report("the Python program is built, pushed and submitted")
        follow = self.start("logs", name, "--follow")
        follow.wait_for(r"rank 0 of 1 begins after step 0", 600)
        self.wait_for_status("measured", name, lambda status: (status.get("train") or {}).get("perfParams"), 300)
        self.set_gpus(2, "node0")
        steps = int(follow.wait_for(r"rank 1 of 2 begins after step (\d+)", 600)[1])
        self.assertGreater(steps, 0)
        status = self.wait_for_phase(name, "Succeeded", patience=600)
        ProgramsTest.report("the Python program is trained")
        self.assertGreater(status["group"], 0)
        self.assertEqual(follow.finish(), 0, follow.text())
        trained = collections.defaultdict(set)
        for line in follow.out:
            if match := re.search(r"epoch (\d+): ([\d ]+)$", line):
                trained[int(match[1])].update(map(int, match[2].split()))
        self.assertEqual({epoch: len(samples) for epoch, samples in trained.items()}, dict.fromkeys(range(PYTHON_EPOCHS), 256))


if __name__ == "__main__":
    try:
        make_bases()
        PYTHON_PACKAGES = next(pathlib.Path(python_peer.adaptdl_torch()).parents[1].glob("lib/python*/site-packages"))
    except unittest.SkipTest as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    cluster_support.main()
