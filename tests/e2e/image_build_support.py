"""Helpers for the end-to-end tests of `adaptdl build`, which build a project and read the resulting image."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
PATIENCE = 240


class Journey(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-build-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.project = self.root / "project"
        self.project.mkdir()
        self.cache = self.root / "cache"

    def write(self, files, directory=None):
        for name, content in files.items():
            path = (directory or self.project) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
            os.utime(path, (1_700_000_000, 1_700_000_000))

    def run_build(self, *arguments, cache=None, directory=None, stdin="", **variables):
        environment = {**os.environ, "ADAPTDL_BUILD_CACHE": str(cache or self.cache), "NO_COLOR": "1", **variables}
        environment.pop("REGISTRY_AUTH_FILE", None)
        return subprocess.run([ADAPTDL, "build", str(directory or self.project), *map(str, arguments)], capture_output=True, text=True,
                              input=stdin, env=environment, timeout=PATIENCE)

    def build(self, *arguments, **options):
        done = self.run_build("--json", *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def fails(self, *arguments, code=1, **options):
        done = self.run_build("--quiet", *arguments, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertTrue(done.stderr.splitlines()[-1].startswith("adaptdl: error: "), done.stderr)
        return done.stderr

    def layout(self, name="out"):
        """Returns the manifest, the configuration and the layers of an OCI directory. A layer is {name: (member, content)}."""
        blobs = self.root / name / "blobs/sha256"
        index = json.loads((self.root / name / "index.json").read_text())
        manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
        config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
        layers = []
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
            data = (blobs / layer["digest"][7:]).read_bytes()
            self.assertEqual(hashlib.sha256(data).hexdigest(), layer["digest"][7:])
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                layers.append({member.name: (member, tar.extractfile(member).read() if member.isfile() else None) for member in tar})
        return manifest, config, layers

    def files(self, name="out"):
        """Returns {name: (member, content)} of all files of an image, which must have no whiteouts."""
        whole = {}
        for layer in self.layout(name)[2]:
            whole.update(layer)
        return whole
