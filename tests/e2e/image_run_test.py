"""RUN in `adaptdl build`: its mounts, its network and its privileges, as root and as users of the test's own."""

import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
AS_USER = os.environ["AS_USER"]  # tests/unit/cli/as_user.py
BUSYBOX = "/usr/bin/busybox"
PATIENCE = 120
# A base without a registry: a static shell.
BASE = """FROM scratch
COPY busybox /bin/busybox
COPY etc /etc/
RUN ["/bin/busybox", "--install", "-s", "/bin"]
"""


def processes_with(text):
    """Numbers of the machine's processes that have the text in their command lines."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def soon(holds, patience=3):
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@unittest.skipUnless(os.path.exists(BUSYBOX), "takes busybox-static")
class Journey(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-run-"))
        self.root.chmod(0o755)
        self.addCleanup(self.remove)
        self.context = self.root / "context"
        (self.context / "etc").mkdir(parents=True)
        shutil.copy(BUSYBOX, self.context / "busybox")
        (self.context / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nmaker:x:500:501::/home/maker:/bin/sh\n")
        (self.context / "etc/group").write_text("root:x:0:\nmakers:x:501:\n")
        self.outputs = 0

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)
        self.assertFalse(self.root.exists())

    def mounts(self):
        """Those of this test: others come and go meanwhile."""
        return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(self.root) in line]

    def command(self, *options, cache="cache"):
        self.outputs += 1
        self.output = self.root / f"output{self.outputs}"
        environment = dict(os.environ, ADAPTDL_BUILD_CACHE=str(self.root / cache), SOURCE_DATE_EPOCH="1000000000")
        return [ADAPTDL, "build", *options, "--output", f"oci:{self.output}", str(self.context)], environment

    def build(self, dockerfile, *options, cache="cache", code=0, before="", **variables):
        (self.context / "Dockerfile").write_text(before + BASE + dockerfile)
        command, environment = self.command(*options, cache=cache)
        result = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def build_as(self, kind, dockerfile):
        """As a user with or without subordinate ids: what it printed, and the image's digest or None."""
        (self.context / "Dockerfile").write_text(BASE + dockerfile)
        place = self.root / kind
        place.mkdir(mode=0o777, exist_ok=True)
        place.chmod(0o777)
        output = place / "output"
        environment = dict(os.environ, ADAPTDL_BUILD_CACHE=str(place / "cache"), SOURCE_DATE_EPOCH="1000000000")
        result = subprocess.run(
            [sys.executable, AS_USER, kind, ADAPTDL, "build", "--output", f"oci:{output}", str(self.context)],
            env=environment, capture_output=True, text=True, timeout=PATIENCE)
        if result.returncode == 77:
            self.skipTest("takes root, and newuidmap")
        said = result.stdout + result.stderr
        return said, self.digest(output) if result.returncode == 0 else None

    def digest(self, output=None):
        index = json.loads(((output or self.output) / "index.json").read_text())
        return index["manifests"][0]["digest"]

    def holds(self, secret):
        """Whether a file of the output or the cache has it, compressed or not."""
        for path in self.root.rglob("*"):
            if not path.is_file() or path.is_symlink() or self.context in path.parents or path.name == "key":
                continue
            data = path.read_bytes()
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            if secret in data:
                return path
        return None

    def test_what_a_run_prints_and_how_it_ends_is_told(self):
        said = self.build("RUN echo first-$((20 + 3)); echo second >&2\n")
        self.assertIn("first-23", said)
        self.assertIn("second", said)
        said = self.build("RUN exit 7\n", code=1)
        self.assertIn("exit code 7", said)
        self.assertIn("Dockerfile:5", said)
        said = self.build("RUN kill -9 $$\n", code=1)
        self.assertIn("killed by signal 9", said)

    def test_a_cache_is_there_for_the_next_build_and_in_no_layer(self):
        run = "RUN --mount=type=cache,target=/root/.cache echo x >> /root/.cache/list; cat /root/.cache/list | wc -l > /{}\n"
        said = self.build(run.format("one") + "RUN echo there-are-$(cat /one)\n")
        self.assertIn("there-are-1", said)
        said = self.build(run.format("two") + "RUN echo there-are-$(cat /two); ls -a /root 2>&1 || true\n")
        self.assertIn("there-are-2", said)
        self.assertNotIn(".cache", said.split("there-are-2")[1])

    def test_binds_of_the_context_and_of_stages_are_read_and_not_kept(self):
        (self.context / "data").mkdir()
        (self.context / "data/file").write_text("from-the-context")
        (self.context / "data/left-out").write_text("x")
        (self.context / ".dockerignore").write_text("**/left-out\n")
        stage = BASE.replace("scratch", "scratch AS first") + "RUN mkdir /made && echo from-a-stage > /made/file\n"
        said = self.build(
            "RUN --mount=type=bind,source=data,target=/in,rw cat /in/file; echo; ls /in | tr '\\n' ,; touch /in/x\n"
            "RUN ls -d /in 2>&1 || echo gone-again\n"
            "RUN --mount=type=bind,from=first,source=/made,target=/in cat /in/file; touch /in/x || echo read-only\n", before=stage)
        self.assertIn("from-a-stage", said)
        self.assertIn("read-only", said)
        self.assertIn("from-the-context", said)
        self.assertIn("file,", said)
        self.assertNotIn("left-out", said)
        self.assertIn("gone-again", said)
        self.assertEqual(sorted(path.name for path in (self.context / "data").iterdir()), ["file", "left-out"])

    def test_a_secret_is_seen_by_its_run_alone(self):
        secret = "s3cret-" + hashlib.sha256(str(self.root).encode()).hexdigest()[:20]
        key = self.root / "key"
        key.write_text(secret)
        said = self.build(
            "RUN --mount=type=secret,id=key sha256sum < /run/secrets/key > /sum\n"
            "RUN --mount=type=secret,id=word,env=WORD [ -n \"$WORD\" ] && echo ${#WORD} > /length\n"
            "RUN ls /run/secrets 2>&1 || true; echo sum $(cat /sum) length $(cat /length)\n",
            "--secret", f"id=key,src={key}", "--secret", "id=word,env=THE_WORD", THE_WORD=secret)
        self.assertIn(hashlib.sha256(secret.encode()).hexdigest(), said)
        self.assertIn(f"length {len(secret)}", said)
        self.assertNotIn(secret, said)
        self.assertIsNone(self.holds(secret.encode()))
        said = self.build("RUN --mount=type=secret,id=none,required true\n", code=1)
        self.assertIn("--secret id=none", said)

    def test_a_proxy_is_told_to_a_run_and_kept_nowhere_and_another_one_makes_no_step_anew(self):
        run = "RUN echo by-$http_proxy\n"
        self.assertIn("by-http://me:word@one", self.build(run, "--build-arg", "http_proxy=http://me:word@one"))
        self.assertNotIn("by-http", self.build(run, "--build-arg", "HTTP_PROXY=http://me:word@two"))
        self.assertIsNone(self.holds(b"me:word"))
        self.assertIn("by-http://me:word@two", self.build("ARG http_proxy\n" + run, "--build-arg", "http_proxy=http://me:word@two"))

    def test_without_a_network_nothing_is_reached(self):
        said = self.build("RUN --network=none ip -o link | cut -d: -f2 | tr '\\n' ,; ping -c 1 -W 1 127.0.0.1 > /dev/null; echo end\n")
        self.assertIn(" lo,", said)
        self.assertNotIn("eth", said)

    def test_root_and_another_user_make_one_image(self):
        dockerfile = (
            "RUN mkdir -p /srv/data && cd /srv/data && echo x > file && chown maker:makers file && chmod 4755 file && ln file hard\n"
            "RUN rm /etc/group && mkdir /bin/dir && mv /srv/data /srv/moved\n"
            "USER maker\n"
            "WORKDIR /home/maker\n"
            "RUN echo mine > file; id -u > id\n"
            "COPY --chown=7:8 etc/passwd /copied\n")
        said, user = self.build_as("with-ids", dockerfile)
        self.assertIsNotNone(user, said)
        self.build(dockerfile)
        self.assertEqual(user, self.digest())
        self.build(dockerfile, "--no-cache", cache="another")
        self.assertEqual(user, self.digest())

    def test_with_one_id_a_build_works_until_it_needs_another_user(self):
        said, digest = self.build_as("without-ids", "RUN mkdir /a && echo x > /a/b\n")
        self.assertIsNotNone(digest, said)
        self.build("RUN mkdir /a && echo x > /a/b\n")
        self.assertEqual(digest, self.digest())
        said, digest = self.build_as("without-ids", "USER maker\nRUN id\n")
        self.assertIsNone(digest)
        self.assertIn("usermod --add-subgids 100000-165535 adaptdl-test" if "subgid" in said else "usermod --add-subuids", said)

    def test_stopped_it_ends_at_once_and_leaves_nothing(self):
        number = str(2000000000 + os.getpid())
        (self.context / "Dockerfile").write_text(BASE + f"RUN setsid sleep {number} & echo up; sleep {number}\n")
        command, environment = self.command()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.assertTrue(soon(lambda: len(processes_with("sleep\0" + number)) == 2, 30))
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        self.assertLess(time.monotonic() - asked, 2)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(processes_with("sleep\0" + number), [])
        self.assertEqual(self.mounts(), [])

    def test_killed_anywhere_it_leaves_a_usable_cache_and_no_process(self):
        dockerfile = BASE + "".join(f"RUN echo {step} > /file{step}; sleep 0.05\n" for step in range(6))
        (self.context / "Dockerfile").write_text(dockerfile)
        for delay in sorted(random.Random(1).uniform(0, 1.5) for _ in range(10)):
            command, environment = self.command(cache="killed")
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.kill()
            process.wait()
            self.assertTrue(soon(lambda: processes_with(str(self.context)) == []))
        self.assertEqual(self.mounts(), [])
        self.build(dockerfile[len(BASE):], cache="killed")
        after = self.digest()
        self.build(dockerfile[len(BASE):], cache="fresh")
        self.assertEqual(after, self.digest())


if __name__ == "__main__":
    unittest.main()
