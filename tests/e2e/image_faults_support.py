"""Helpers for the end-to-end tests of builds with faulty registries: a project, a real registry with a base image, and a
check of what was pushed."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

import registry_support
from registry_support import RegistryServer, digest_of

ADAPTDL = os.environ["ADAPTDL_BIN"]
BUSYBOX = shutil.which("busybox", path="/bin:/usr/bin")
PATIENCE = 240
MEGABYTE = 1 << 20
BASE = """FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
COPY ballast /ballast
"""


def missing_tools():
    return registry_support.missing_tools() + ([] if BUSYBOX else ["busybox"])


class Journey(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-faults-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.project = self.root / "project"
        self.project.mkdir()
        self.cache = self.root / "cache"
        self.mounts = self.mounted()
        self.addCleanup(lambda: self.assertEqual(self.mounted(), self.mounts))

    def mounted(self):
        return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(self.root) in line]

    def registry(self, name="registry", **options):
        server = RegistryServer(self.root / name, **options)
        self.addCleanup(lambda: server.kill())
        return server

    def line(self, line):
        self.addCleanup(line.close)
        return line

    def write(self, dockerfile, **sizes):
        (self.project / "Dockerfile").write_text(dockerfile)
        for name, size in sizes.items():
            (self.project / name).write_bytes(random.Random(name).randbytes(size))

    def command(self, *arguments, cache=None, **variables):
        environment = {**os.environ, "ADAPTDL_BUILD_CACHE": str(cache or self.cache), "NO_COLOR": "1", "DOCKER_CONFIG": "/nonexistent",
                       "XDG_RUNTIME_DIR": "/nonexistent", "SOURCE_DATE_EPOCH": "1000000000", **variables}
        if "REGISTRY_AUTH_FILE" not in variables:
            environment.pop("REGISTRY_AUTH_FILE", None)
        return {"args": [ADAPTDL, "build", str(self.project), *map(str, arguments)], "env": environment}

    def run_build(self, *arguments, **options):
        return subprocess.run(**self.command(*arguments, **options), capture_output=True, text=True, timeout=PATIENCE)

    def build(self, *arguments, **options):
        done = self.run_build("--json", *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["digest"]

    def fails(self, *arguments, code=1, **options):
        done = self.run_build("--quiet", *arguments, **options)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual((done.stderr.startswith("adaptdl: error: "), done.stderr.count("\n")), (True, 1), done.stderr)
        return done.stderr

    def base(self, server, ballast=8 * MEGABYTE, **options):
        """Pushes a base image with a shell to the registry, and returns its name."""
        context = self.root / "base"
        context.mkdir()
        (context / "Dockerfile").write_text(BASE)
        (context / "ballast").write_bytes(random.Random(1).randbytes(ballast))
        shutil.copy(BUSYBOX, context / "busybox")
        project, self.project = self.project, context
        self.build("-t", f"{server.host}/base:1", "--push", cache=self.root / "base-cache", **options)
        self.project = project
        return "base:1"

    def check_image(self, server, name, digest, *credentials):
        """Checks, by copying the image with skopeo, that it is complete and that its content matches its digests."""
        copy = self.root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        done = subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "--src-tls-verify=false", *credentials, f"docker://{server.host}/{name}",
                               f"dir:{copy}"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        manifest = (copy / "manifest.json").read_bytes()
        self.assertEqual(digest_of(manifest), digest)
        for blob in json.loads(manifest)["layers"]:
            self.assertEqual(digest_of((copy / blob["digest"][7:]).read_bytes()), blob["digest"])
