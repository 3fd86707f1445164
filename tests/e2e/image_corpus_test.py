"""Builds a corpus of Dockerfiles and compares the configurations and files with those of the images that buildah builds. Also
checks that broken Dockerfiles fail with an error that names the line."""

import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

os.environ.setdefault("REGISTRY_PROGRAM", "")
import image_corpus_support as support
from image_corpus_broken import BROKEN
from image_corpus_cases import CASES
from image_corpus_projects import PROJECTS
from registry_support import RegistryServer

WORKERS = 4
MISSING = [tool for tool in ("buildah", "docker-registry", "skopeo", "busybox") if not shutil.which(tool)]
# The mount points that buildah's chroot isolation leaves in an image.
LEFT_BY_BUILDAH = {"dev", "proc", "sys", "run", "etc", "etc/hosts", "etc/hostname", "etc/resolv.conf", "run/secrets", "run/.containerenv", "tmp"}


@unittest.skipIf(MISSING or os.geteuid() != 0, f"requires {', '.join(['root', *MISSING])}")
class Corpus(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-corpus-"))
        cls.addClassCleanup(cls.remove)
        cls.server = RegistryServer(cls.root / "registry")
        cls.addClassCleanup(cls.server.kill)
        cls.debian = support.debian() if shutil.which("mmdebstrap") else None
        support.push_bases(cls.root, cls.server, cls.debian)
        (cls.root / "registries.conf").write_text('unqualified-search-registries = ["docker.io"]\nshort-name-mode = "permissive"\n[[registry]]\nprefix = "docker.io"\n'
                                                  f'location = "{cls.server.host}"\ninsecure = true\n')
        (cls.root / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    @classmethod
    def remove(cls):
        for mount in [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if str(cls.root) in line]:
            subprocess.run(["umount", "-l", mount], capture_output=True)
        shutil.rmtree(cls.root, ignore_errors=True)

    def context(self, case, kind=""):
        context = self.root / f"contexts{kind}" / case.name
        context.mkdir(parents=True)
        support.write_context(context, dataclasses.replace(case, dockerfile=case.dockerfile.replace("{server}", self.server.host)))
        return context

    def ours(self, case, context):
        output = self.root / "ours" / case.name
        options = [option.format(context=context) for option in case.options]
        done = subprocess.run([support.ADAPTDL, "build", "--quiet", "--mirror", f"docker.io=http://{self.server.host}", "--output", f"oci:{output}", *options, context],
                              capture_output=True, text=True, timeout=support.PATIENCE,
                              env={**os.environ, "ADAPTDL_BUILD_CACHE": str(self.root / "cache"), **case.environment})
        return done, output

    def buildahs(self, case, context):
        output = self.root / "buildahs" / case.name
        options = [option.format(context=context) for option in case.options]
        output.parent.mkdir(exist_ok=True)
        storage = self.root / "storage"
        done = subprocess.run(["buildah", "--root", storage, "--runroot", self.root / "run", "--storage-driver", "overlay", "--registries-conf", self.root / "registries.conf", "bud",
                               "--quiet", "--isolation", "chroot", "--signature-policy", self.root / "policy.json", "--format", "docker" if case.docker_format else "oci",
                               "--identity-label=false", *options, "-t", f"dir:{output}", context],
                              capture_output=True, text=True, timeout=support.PATIENCE, env={**os.environ, **case.environment})
        return done, output

    def check(self, case):
        """Builds a case, and returns what is wrong with the image, one line per fault."""
        context = self.context(case)
        done, output = self.ours(case, context)
        if done.returncode != 0:
            return [f"adaptdl build: {done.stderr.strip()}"]
        config, tree = support.merged(output)
        wrong = [f"{path}: {tree.get(path)} instead of {wanted}" for path, wanted in case.tree.items() if not self.is_as(tree.get(path), wanted)]
        wrong += [f"{key}: {config.get(key)} instead of {wanted}" for key, wanted in case.config.items() if config.get(key) != wanted]
        if not case.buildah:
            return wrong + ["it expects nothing"][: not case.tree and not case.config]
        done, output = self.buildahs(case, context)
        if done.returncode != 0:
            return [*wrong, f"buildah: {done.stderr.strip()[-500:]}"]
        their_config, their_tree = support.merged(output)
        for key in support.CONFIG_KEYS:
            mine, theirs = config.get(key) or None, their_config.get(key) or None
            if key == "Env":  # Docker keeps the position of a changed variable, and buildah moves it to the end
                mine, theirs = sorted(mine or []), sorted(theirs or [])
            if mine != theirs and key not in case.differs:
                wrong.append(f"{key}: {mine}, buildah has {theirs}")
        for path in sorted(tree.keys() | their_tree.keys()):
            mine, theirs = tree.get(path), their_tree.get(path)
            if mine != theirs and path not in case.differs and not (path in LEFT_BY_BUILDAH and (mine is None or mine[0] == tarfile.DIRTYPE or b"\n" not in (mine[4] or b""))):
                wrong.append(f"/{path}: {mine}, buildah has {theirs}")
        return wrong

    def is_as(self, found, wanted):
        if wanted is None or found is None:
            return found is wanted
        if isinstance(wanted, tuple):
            return found[1:4] == wanted
        if wanted.startswith("-> "):
            return found[0] == tarfile.SYMTYPE and found[4] == wanted[3:]
        return found[4] == wanted.encode()

    def run_all(self, cases, check):
        self.assertEqual(len({case.name for case in cases}), len(cases))
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for case, wrong in zip(cases, pool.map(check, cases)):
                with self.subTest(case.name):
                    self.assertEqual(wrong, [], "\n" + "\n".join(map(str, wrong[:12])))

    def test_a_corpus_of_dockerfiles_produces_the_expected_images(self):
        cases = [case for case in CASES + PROJECTS if self.debian or "FROM debian" not in case.dockerfile]
        self.assertGreaterEqual(len(cases), 60)
        self.run_all(cases, self.check)

    def check_broken(self, case):
        context = self.context(case, "-broken")
        done, output = self.ours(case, context)
        lines = done.stderr.splitlines()
        wanted = f"adaptdl: error: {context}/Dockerfile:{case.line}: "
        wrong = []
        if done.returncode != 1:
            wrong.append(f"it ends with {done.returncode}")
        if not lines or not lines[-1].startswith(wanted) or case.reason not in lines[-1]:
            wrong.append(f"{done.stderr.strip()!r} instead of line {case.line} with {case.reason!r}")
        if output.exists():
            wrong.append("there is an image")
        return wrong

    def test_broken_dockerfiles_fail_with_their_line_and_reason(self):
        self.assertGreaterEqual(len(BROKEN), 40)
        self.run_all(BROKEN, self.check_broken)


if __name__ == "__main__":
    unittest.main(verbosity=2)
