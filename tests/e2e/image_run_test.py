"""Tests RUN in `adaptdl build`: its mounts, network and privileges, as root and as unprivileged users."""

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
import tarfile
import tempfile
import time
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
AS_USER = os.environ["AS_USER"]  # tests/unit/cli/as_user.py
BUSYBOX = "/usr/bin/busybox"
PATIENCE = 120
# A base image that needs no registry, since it consists of a static shell.
BASE = """FROM scratch
COPY busybox /bin/busybox
COPY etc /etc/
RUN ["/bin/busybox", "--install", "-s", "/bin"]
"""


# The image must depend only on the Dockerfile and the context, although these instructions store whatever they can find out
# about the machine.
ALL_OF_IT = """RUN env | sort > /environment; hostname > /host; id > /id; umask > /umask; pwd > /pwd; date +%Z > /zone; cat /proc/sys/kernel/domainname > /domain
RUN find / -xdev > /dev/shm/all; sort /dev/shm/all > /all; stat -c '%n %a %u:%g' / /etc /etc/group /bin /environment > /modes; ls -a /root /home /tmp > /homes 2>&1 || true
COPY source /source
COPY --chown=maker:makers --chmod=u=rwX,go=rX source/d? /chosen/
COPY <<EOF /written/here
of the Dockerfile
EOF
ADD source/*.tar /unpacked/
RUN cd /source && chown -R maker:makers d1 && chmod 4755 program && chmod 1777 d2 && ln large hard && mv d3 moved && rm -r d4 && mkdir d4 && mkfifo pipe && cp -a link copy && rm d5/*
RUN --mount=type=cache,target=/cache --mount=type=bind,source=source,target=/mnt --mount=type=secret,id=word --mount=type=tmpfs,target=/t \\
    sort /mnt/program /run/secrets/word | md5sum > /sum; touch /cache/x /t/x; find /mnt | sort > /bound
RUN dd if=/dev/zero of=/holes bs=1M seek=4 count=1 2> /dev/null; touch -d '2030-01-01 00:00:00' /future; touch -d '2001-01-01 00:00:00' /past; \\
    find / -xdev -newer /past > /dev/shm/newer; sort /dev/shm/newer > /newer
USER maker
WORKDIR /home/maker/work
RUN id > id; echo ~ > home; touch mine && chmod 600 mine
FROM base
COPY --from=0 / /whole/
USER root
RUN --network=none ls /sys/class/net > /devices; cat /etc/hosts > /hosts; find /whole -type f -exec md5sum {} + | sort > /sums
CMD ["program"]
"""


def processes_with(text):
    """Returns the IDs of all processes on the machine whose command lines contain the text."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def soon(holds, patience=60):
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@unittest.skipUnless(os.path.exists(BUSYBOX), "requires busybox-static")
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
        """Returns the mounts of this test only, since others can come and go meanwhile."""
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
        """Builds as a user with or without subordinate IDs. Returns the output, and the image's digest or None if the build failed."""
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
            self.skipTest("requires root, newuidmap and /etc/subuid")
        printed = result.stdout + result.stderr
        return printed, self.digest(output) if result.returncode == 0 else None

    def digest(self, output=None):
        index = json.loads(((output or self.output) / "index.json").read_text())
        return index["manifests"][0]["digest"]

    def holds(self, secret):
        """Returns a file of the output or the cache that contains the secret, compressed or not, or None if no file does."""
        for path in self.root.rglob("*"):
            if not path.is_file() or path.is_symlink() or self.context in path.parents or path.name == "key":
                continue
            data = path.read_bytes()
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            if secret in data:
                return path
        return None

    def test_the_output_and_exit_status_of_run_are_reported(self):
        printed = self.build("RUN echo first-$((20 + 3)); echo second >&2\n")
        self.assertIn("first-23", printed)
        self.assertIn("second", printed)
        printed = self.build("RUN exit 7\n", code=1)
        self.assertIn("exit code 7", printed)
        self.assertIn("Dockerfile:5", printed)
        printed = self.build("RUN kill -9 $$\n", code=1)
        self.assertIn("killed by signal 9", printed)

    def test_a_cache_mount_is_kept_for_the_next_build_and_is_in_no_layer(self):
        run = "RUN --mount=type=cache,target=/root/.cache echo x >> /root/.cache/list; cat /root/.cache/list | wc -l > /{}\n"
        printed = self.build(run.format("one") + "RUN echo there-are-$(cat /one)\n")
        self.assertIn("there-are-1", printed)
        printed = self.build(run.format("two") + "RUN echo there-are-$(cat /two); ls -a /root 2>&1 || true\n")
        self.assertIn("there-are-2", printed)
        self.assertNotIn(".cache", printed.split("there-are-2")[1])

    def prune(self, *options):
        return subprocess.Popen([ADAPTDL, "build", "prune", "--json", *options], env=dict(os.environ, ADAPTDL_BUILD_CACHE=str(self.root / "cache")),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_prune_waits_for_a_run_that_uses_a_cache_mount(self):
        (self.context / "Dockerfile").write_text(BASE + "RUN --mount=type=cache,target=/c echo kept > /c/file; until [ -e /c/go ]; do sleep 0.05; done; cat /c/file > /seen\n")
        mounts = self.root / "cache/mounts"
        command, environment = self.command()
        build = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(build.kill)
        self.assertTrue(soon(lambda: list(mounts.glob("*/file"))))
        prune = self.prune("--all")
        self.addCleanup(prune.kill)
        # A build that ends in the meantime, with the cache over its limit, does not remove the mount, either.
        (self.root / "other").mkdir()
        (self.root / "other/Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
        subprocess.run([ADAPTDL, "build", "--quiet", "--cache-limit", "1", str(self.root / "other")], env=environment, check=True, timeout=PATIENCE)
        self.assertFalse(soon(lambda: prune.poll() is not None, 1))
        (file,) = mounts.glob("*/file")
        (file.parent / "go").touch()
        printed, _ = build.communicate(timeout=PATIENCE)
        self.assertEqual(build.returncode, 0, printed)
        result, trouble = prune.communicate(timeout=PATIENCE)
        self.assertEqual(prune.returncode, 0, trouble)
        self.assertEqual(json.loads(result)["after"], 0)
        self.assertEqual(list(mounts.iterdir()), [])

    def test_a_recently_used_cache_mount_is_pruned_last(self):
        (self.context / "ballast").write_bytes(random.Random(1).randbytes(4 << 20))
        run = "RUN --mount=type=cache,target=/c mkdir -p /c/d; [ -e /c/d/file ] || dd if=/dev/urandom of=/c/d/file bs=1M count=8\nRUN echo {} > /number\n"
        self.build("COPY ballast /ballast\n" + run.format(1))
        (mount,) = (file.parent.parent for file in (self.root / "cache/mounts").glob("*/d/file"))
        for path in [mount, *(self.root / "cache").glob("*/*"), *(self.root / "cache/blobs").glob("*/*")]:
            os.utime(path, (1_000_000_000 - (path == mount),) * 2)
        self.build("COPY ballast /ballast\n" + run.format(2), "--no-cache")
        for path in [*(self.root / "cache").glob("*/*"), *(self.root / "cache/blobs").glob("*/*")]:
            if path != mount and path.suffix != ".lock":
                os.utime(path, (1_700_000_000,) * 2)
        result, trouble = self.prune("--keep-storage", "9m").communicate(timeout=PATIENCE)
        self.assertGreater(json.loads(result)["before"], 9 << 20, trouble)
        self.assertTrue((mount / "d/file").exists())

    def test_changes_to_the_root_directory_itself_are_in_no_layer(self):
        dockerfile = "RUN chmod 700 / && chown 0:7 / && touch /x && stat -c 'within %a:%g' /\nRUN stat -c 'after %a:%g' / && touch /y\n"
        for date in "1000000000", "":
            printed = self.build(dockerfile, "--no-cache", SOURCE_DATE_EPOCH=date)
            self.assertIn("within 700:7", printed)
            self.assertIn("after 755:0", printed)
            blobs = self.output / "blobs/sha256"
            layers = json.loads((blobs / self.digest()[7:]).read_text())["layers"]
            names = {member.name for layer in layers for member in tarfile.open(blobs / layer["digest"][7:])}
            self.assertLessEqual({"x", "y"}, names)
            self.assertEqual(names & {"", ".", "/", "./"}, set())

    def test_bind_mounts_of_the_context_and_of_stages_are_readable_and_not_kept(self):
        (self.context / "data").mkdir()
        (self.context / "data/file").write_text("from-the-context")
        (self.context / "data/left-out").write_text("x")
        (self.context / ".dockerignore").write_text("**/left-out\n")
        stage = BASE.replace("scratch", "scratch AS first") + "RUN mkdir /made && echo from-a-stage > /made/file\n"
        printed = self.build(
            "RUN --mount=type=bind,source=data,target=/in,rw cat /in/file; echo; ls /in | tr '\\n' ,; touch /in/x\n"
            "RUN ls -d /in 2>&1 || echo gone-again\n"
            "RUN --mount=type=bind,from=first,source=/made,target=/in cat /in/file; touch /in/x || echo read-only\n", before=stage)
        self.assertIn("from-a-stage", printed)
        self.assertIn("read-only", printed)
        self.assertIn("from-the-context", printed)
        self.assertIn("file,", printed)
        self.assertNotIn("left-out", printed)
        self.assertIn("gone-again", printed)
        self.assertEqual(sorted(path.name for path in (self.context / "data").iterdir()), ["file", "left-out"])

    def test_a_secret_is_visible_only_to_the_run_that_mounts_it(self):
        secret = "s3cret-" + hashlib.sha256(str(self.root).encode()).hexdigest()[:20]
        key = self.root / "key"
        key.write_text(secret)
        printed = self.build(
            "RUN --mount=type=secret,id=key sha256sum < /run/secrets/key > /sum\n"
            "RUN --mount=type=secret,id=word,env=WORD [ -n \"$WORD\" ] && echo ${#WORD} > /length\n"
            "RUN ls /run/secrets 2>&1 || true; echo sum $(cat /sum) length $(cat /length)\n",
            "--secret", f"id=key,src={key}", "--secret", "id=word,env=THE_WORD", THE_WORD=secret)
        self.assertIn(hashlib.sha256(secret.encode()).hexdigest(), printed)
        self.assertIn(f"length {len(secret)}", printed)
        self.assertNotIn(secret, printed)
        self.assertIsNone(self.holds(secret.encode()))
        printed = self.build("RUN --mount=type=secret,id=none,required true\n", code=1)
        self.assertIn("--secret id=none", printed)

    def test_a_proxy_is_passed_to_run_but_not_stored_and_does_not_invalidate_the_cache(self):
        run = "RUN echo by-$http_proxy\n"
        self.assertIn("by-http://me:word@one", self.build(run, "--build-arg", "http_proxy=http://me:word@one"))
        self.assertNotIn("by-http", self.build(run, "--build-arg", "HTTP_PROXY=http://me:word@two"))
        self.assertIsNone(self.holds(b"me:word"))
        self.assertIn("by-http://me:word@two", self.build("ARG http_proxy\n" + run, "--build-arg", "http_proxy=http://me:word@two"))

    def test_run_with_network_none_has_only_a_loopback_interface(self):
        printed = self.build("RUN --network=none ip -o link | cut -d: -f2 | tr '\\n' ,; ping -c 1 -W 1 127.0.0.1 > /dev/null; echo end\n")
        self.assertIn(" lo,", printed)
        self.assertNotIn("eth", printed)

    def test_a_build_with_network_none_isolates_run_and_rejects_network_host(self):
        run = "RUN echo devices-$(ls /sys/class/net | tr '\\n' ,)\n"
        self.assertIn("devices-lo,\n", self.build(run, "--network", "none"))
        self.assertNotRegex(self.build(run, "--network", "none"), r"devices-\w")
        self.assertRegex(self.build(run, "--network", "host"), r"devices-\w")  # not the cached step of --network none
        printed = self.build("RUN --network=host true\n", "--network", "none", code=1)
        self.assertIn("RUN: --network=host is not allowed: the build was started with --network none", printed)
        self.assertIn("--network must be none or host, not 'bridge'", self.build(run, "--network", "bridge", code=2))

    def test_root_and_an_unprivileged_user_build_the_same_image(self):
        dockerfile = (
            "RUN mkdir -p /srv/data && cd /srv/data && echo x > file && chown maker:makers file && chmod 4755 file && ln file hard\n"
            "RUN rm /etc/group && mkdir /bin/dir && mv /srv/data /srv/moved\n"
            "USER maker\n"
            "WORKDIR /home/maker\n"
            "RUN echo mine > file; id -u > id\n"
            "COPY --chown=7:8 etc/passwd /copied\n")
        printed, user = self.build_as("with-ids", dockerfile)
        self.assertIsNotNone(user, printed)
        self.build(dockerfile)
        self.assertEqual(user, self.digest())
        self.build(dockerfile, "--no-cache", cache="another")
        self.assertEqual(user, self.digest())

    def machine(self, name, place, wrapper=(), umask=0o022, changed=0, backwards=False, **variables):
        """Builds ALL_OF_IT in the directory `place`, with a separate context, cache and home, and returns the output directory."""
        context, cache, home = (place / part for part in ("context", "cache", "home"))
        for directory in place, cache, home:
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o777)
        # The copies have different owners and times, and a different order on file systems that list files in the order
        # of creation.
        for path in sorted(self.context.rglob("*"), reverse=backwards):
            copy = context / path.relative_to(self.context)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                copy.mkdir(exist_ok=True)
            else:
                shutil.copy(path, copy, follow_symlinks=False)
        for copy in context.rglob("*"):
            os.chown(copy, changed, changed, follow_symlinks=False)
            os.utime(copy, (1_600_000_000 + changed,) * 2, follow_symlinks=False)
        output = place / "output"
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "ADAPTDL_BUILD_CACHE": str(cache), "SOURCE_DATE_EPOCH": "1500000000", "WORD": "secret", **variables}
        done = subprocess.run([*wrapper, ADAPTDL, "build", "--secret", "id=word,env=WORD", "--output", f"oci:{output}", str(context)], env=environment, cwd=place, umask=umask,
                              capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 77:
            self.skipTest("requires root, newuidmap and /etc/subuid")
        self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}{done.stderr}")
        return output

    @unittest.skipUnless(os.geteuid() == 0, "requires root, to act as another user and on another machine")
    def test_different_machines_and_users_build_the_same_image_byte_for_byte(self):
        source = self.context / "source"
        for number in range(40):
            (source / f"d{number % 7}").mkdir(parents=True, exist_ok=True)
            (source / f"d{number % 7}/file{number}").write_bytes(random.Random(number).randbytes(number * 3000))
        (source / "large").write_bytes(random.Random(0).randbytes(5 << 20) + bytes(3 << 20))
        (source / "program").write_text("#!/bin/sh\n")
        (source / "program").chmod(0o755)
        (source / "link").symlink_to("d1/file1")
        for name, day in ("old", 1_000_000_000), ("new", 1_900_000_000):
            with tarfile.open(source / f"{name}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
                entry = tarfile.TarInfo(f"of-{name}")
                entry.mtime, entry.uid = day + 0.5, 500
                tar.addfile(entry)
        (self.context / "etc/group").chmod(0o640)
        (self.context / "Dockerfile").write_text(BASE.replace("scratch", "scratch AS base") + ALL_OF_IT)
        shared = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl machine-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, shared, ignore_errors=True)
        shared.chmod(0o755)
        one = self.machine("root's", self.root / "one", TZ="UTC", LC_ALL="C", USER="root")
        time.sleep(1.1)  # so that a time from the clock would differ
        elsewhere = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && ulimit -n 512 && exec taskset -c 0 "$@"', "sh"]
        other = self.machine("another's", shared / "with a space/and more", elsewhere, 0o077, 1234, True, TZ="Asia/Tokyo", LC_ALL="tr_TR.UTF-8", USER="someone", EDITOR="vi",
                             TMPDIR="/dev/shm")
        third = self.machine("a user's", self.root / "third", [sys.executable, AS_USER, "with-ids"], 0o002, 61234, TZ="America/St_Johns", LANG="de_DE.UTF-8")
        for output in other, third:
            self.assertEqual(self.digest(output), self.digest(one))
            self.assertEqual(subprocess.run(["diff", "-r", one, output], capture_output=True, text=True).stdout, "")

    def test_without_subordinate_ids_a_build_fails_only_if_it_needs_another_user(self):
        printed, digest = self.build_as("without-ids", "RUN mkdir /a && echo x > /a/b\n")
        self.assertIsNotNone(digest, printed)
        self.build("RUN mkdir /a && echo x > /a/b\n")
        self.assertEqual(digest, self.digest())
        printed, digest = self.build_as("without-ids", "USER maker\nRUN id\n")
        self.assertIsNone(digest)
        self.assertIn("usermod --add-subgids 100000-165535 adaptdl-test" if "subgid" in printed else "usermod --add-subuids", printed)

    def test_an_interrupted_build_leaves_no_processes_or_mounts(self):
        number = str(2000000000 + os.getpid())
        (self.context / "Dockerfile").write_text(BASE + f"RUN setsid sleep {number} & echo up; sleep {number}\n")
        command, environment = self.command()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.assertTrue(soon(lambda: len(processes_with("sleep\0" + number)) == 2))
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(processes_with("sleep\0" + number), [])
        self.assertEqual(self.mounts(), [])

    def test_a_killed_build_leaves_a_usable_cache_and_no_processes(self):
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
