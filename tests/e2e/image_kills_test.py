"""Tests builds that are killed, that run concurrently with one cache, and that run out of disk space."""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import unittest

from extent import FULL
from image_faults_support import MEGABYTE, PATIENCE, Journey, missing_tools

IN_NAMESPACE = "ADAPTDL_TEST_IN_NAMESPACE"


class CompleteBuilds(Journey):
    """Tests builds that perform every kind of step: pull, unpack, run, copy and push."""

    def write_all(self, server):
        # processes() recognizes the processes of these builds by this variable.
        self.write(f"FROM {server.host}/{self.base(server)}\nENV OF={self.root}\nRUN head -c 4000000 /ballast > /run-made; rm -r /bin/vi; mkdir /dir\n"
                   "COPY f /f\nRUN cat /f /run-made > /dir/both; md5sum /dir/both > /sum\n", f=4 * MEGABYTE)

    def processes(self):
        """Returns the IDs and command lines of builds that are still running, and of the processes that they started."""
        found, marks = [], {f"ADAPTDL_BUILD_CACHE={self.cache}".encode(), f"OF={self.root}".encode()}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and set((entry / "environ").read_bytes().split(b"\0")) & marks:
                    found.append((entry.name, (entry / "cmdline").read_bytes()))
            except OSError:
                pass
        return found

    def test_a_build_after_killed_ones_produces_the_same_image_as_an_undisturbed_one(self):
        server = self.registry()
        self.write_all(server)
        began = time.monotonic()
        undisturbed = self.build("-t", f"{server.host}/undisturbed:1", "--push", cache=self.root / "other")
        took = time.monotonic() - began
        dice = random.Random(7)
        for number in range(20 if FULL else 7):
            process = subprocess.Popen(**self.command("-t", f"{server.host}/killed{number}:1", "--push"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(dice.uniform(0, took))
            process.kill()
            process.wait()
            deadline = time.monotonic() + PATIENCE
            while (left := self.processes()) and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(left, [])
            self.assertEqual(self.mounted(), self.mounts)
            if number % 7 == 6:  # otherwise, the builds would soon have nothing left to do
                self.assertEqual(self.build("-t", f"{server.host}/killed{number}:1", "--push"), undisturbed)
                self.check_image(server, f"killed{number}:1", undisturbed)
                shutil.rmtree(self.cache)
        self.assertEqual(self.build("-t", f"{server.host}/killed:1", "--push"), undisturbed)
        self.check_image(server, "killed:1", undisturbed)
        self.assertEqual(list((self.cache / "work").iterdir()), [])

    def test_concurrent_builds_with_one_cache_produce_the_same_image(self):
        server = self.registry()
        self.write_all(server)
        processes = [subprocess.Popen(**self.command("--quiet", "-t", f"{server.host}/x{number}:1", "--push"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True) for number in range(2)]
        ends = [process.communicate(timeout=PATIENCE) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0], ends)
        digests = {out.strip().split("@")[1] for out, _ in ends}
        self.assertEqual(digests, {self.build(cache=self.root / "other")})
        for number in range(2):
            self.check_image(server, f"x{number}:1", *digests)

    @unittest.skipUnless(IN_NAMESPACE in os.environ, "mounting a small disk requires root")
    def test_builds_on_a_full_disk_fail_with_one_error_and_succeed_after_the_disk_grows(self):
        server = self.registry()
        self.write_all(server)
        undisturbed = self.build(cache=self.root / "other")
        self.cache.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.cache], check=True)
        self.addCleanup(subprocess.run, ["umount", self.cache], check=True)
        self.mounts = self.mounted()
        self.addCleanup(setattr, self, "mounts", [])
        failed = 0
        for size in range(1, 69, 4 if FULL else 8):
            subprocess.run(["mount", "-o", f"remount,size={size}m", self.cache], check=True)
            done = self.run_build("--quiet", "--cache-limit", "0")
            if done.returncode == 0:
                break
            failed += 1
            last = done.stderr.splitlines()[-1]
            self.assertEqual((done.returncode, last.startswith("adaptdl: error: ")), (1, True), done.stderr)
            self.assertIn("no space left", done.stderr.lower())
            self.assertLessEqual(sum("adaptdl: " in line for line in done.stderr.splitlines()), 1, done.stderr)
        self.assertGreater(failed, 3 if FULL else 1)
        self.assertEqual(done.stdout.strip(), undisturbed)


if __name__ == "__main__":
    if missing := missing_tools():
        print("skipped: these are not installed:", *missing)
        sys.exit(77)
    # The small disk is mounted in a private mount namespace, so that no other process sees it.
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if IN_NAMESPACE not in os.environ and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
        os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], {**os.environ, IN_NAMESPACE: "1"})
    unittest.main(verbosity=2)
