"""Tests that what a run leaves behind is private: the modes of its files, and that they contain no values of --env."""

import json
import os
import shlex
import stat
import subprocess
import unittest

from local_network import leave_network
from run_support import PATIENCE, REPLICA_PROGRAM, RunTest, eventually, interrupt

FOREVER = 1_000_000  # steps
SECRET = "s3cr3t"


class PrivateTest(RunTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0o022))

    def assert_private(self, top):
        """Asserts that all directories in `top` have mode 0700 and all files 0600. Returns the names of all of them."""
        names = set()
        for path in [top, *top.rglob("*")]:
            try:
                mode = path.stat().st_mode
            except FileNotFoundError:
                continue  # a record that was being written when it was listed
            self.assertEqual(oct(stat.S_IMODE(mode)), "0o700" if stat.S_ISDIR(mode) else "0o600", path)
            names.add(path.name)
        return names

    def saved_run(self, *options):
        """Starts a run, interrupts it so that it saves a checkpoint, waits for its end, and returns it."""
        run = self.start("-n", 2, *options, REPLICA_PROGRAM, "--steps", FOREVER)
        run.wait_for("begins at step", 2)
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        return run

    def test_files_of_a_run_are_private_regardless_of_the_umask(self):
        for mask in (0o000, 0o022):
            with self.subTest(oct(mask)):
                os.umask(mask)
                name = f"job{mask}"
                self.saved_run("--name", name)
                names = self.assert_private(self.runs)
                self.assertTrue({"run.json", "rank-0.log", "rank-1.log", "checkpoint-0", "manifest.json"} <= names, names)
                self.adaptdl("run", "--detach", "--name", name, "-n", 1, REPLICA_PROGRAM, "--steps", FOREVER)
                self.assertTrue(eventually(lambda: "begins at step" in self.adaptdl("logs", name)))
                self.assertIn("run.log", self.assert_private(self.runs))
                self.adaptdl("delete", name)

    def test_resuming_a_run_makes_its_existing_files_private(self):
        self.saved_run("--name", "job")
        os.chmod(self.runs, 0o755)
        for path in self.runs.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.saved_run("--name", "job")
        self.assert_private(self.runs)

    def test_given_directories_keep_their_mode_and_new_ones_are_private(self):
        os.umask(0)
        mine = self.directory / "mine"
        mine.mkdir(mode=0o755)
        self.saved_run("--checkpoint", mine, "--logs", "new/logs")
        self.assertEqual(stat.S_IMODE(mine.stat().st_mode), 0o755)
        self.assert_private(mine / "checkpoint-0")
        self.assert_private(self.directory / "new")
        self.saved_run("--checkpoint", "other/checkpoints")
        self.assert_private(self.directory / "other")

    def test_env_values_are_not_stored_and_a_resumed_run_uses_the_callers_values(self):
        run = self.saved_run("--name", "job", "--env", f"TOKEN={SECRET}", "--env", "TOKEN=x", "--env", "A=1")
        everything = run.text() + "".join(path.read_text() for path in self.runs.rglob("*.json"))
        self.assertNotIn(SECRET, everything)
        resume = json.loads((self.runs / "job" / "run.json").read_text())["resume"]
        self.assertEqual(resume.count(" --env TOKEN "), 1)
        self.assertIn(f"  {resume}", run.err)
        words = shlex.split(resume)
        program = words.index("--") + 1
        words[program:] = ["sh", "-c", "echo $TOKEN $A; ls $ADAPTDL_CHECKPOINT_PATH"]

        def resumed(**more):
            return subprocess.run(
                words, cwd=self.directory, env={**self.environment, **more}, capture_output=True, text=True, timeout=PATIENCE
            )

        before = (self.runs / "job" / "run.json").read_text()
        done = resumed(A="2")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(
            done.stderr,
            "adaptdl: error: run: --env TOKEN: the variable is not set; export it, or use --env TOKEN=VALUE\n",
        )
        self.assertEqual((self.runs / "job" / "run.json").read_text(), before)
        done = resumed(A="2", TOKEN=SECRET)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(2):
            self.assertIn(f"[{rank}] {SECRET} 2\n", done.stdout)
            self.assertIn(f"[{rank}] checkpoint-0\n", done.stdout)


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
