"""Helpers for the end-to-end tests of the registry client, which push and pull images with registry_program and
skopeo."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from local_network import Line
from registry_support import RegistryServer, digest_of, run

MEGABYTE = 1 << 20


class Journey(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-registry-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    def registry(self, name="registry", **options):
        server = RegistryServer(self.root / name, **options)
        self.addCleanup(lambda: server.kill())
        return server

    def line(self, server, after):
        line = Line(server.port, after)
        self.addCleanup(line.close)
        return line

    def file(self, size, name="file"):
        path = self.root / name
        with open(path, "wb") as file:  # in pieces, so that a large file does not fill this process's memory
            for at in range(0, size, MEGABYTE):
                file.write(os.urandom(min(MEGABYTE, size - at)))
        return path

    def auth_file(self, content, name="auth.json"):
        path = self.root / name
        path.write_text(json.dumps(content))
        return path

    def succeed(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def fail_with(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr.strip()

    def pull(self, *arguments, directory="pulled"):
        """Pulls an image, checks its blobs against their digests, and returns the manifest."""
        target = self.root / directory
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        manifest = json.loads(self.succeed(*arguments[:-1], "pull", arguments[-1], target))
        for blob in [manifest["config"], *manifest["layers"]]:
            data = (target / blob["digest"].split(":")[1]).read_bytes()
            self.assertEqual(digest_of(data), blob["digest"])
        return manifest

    def skopeo(self, *arguments):
        result = subprocess.run(["skopeo", "--insecure-policy", *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout
