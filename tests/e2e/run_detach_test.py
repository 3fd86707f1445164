"""Tests `adaptdl run --detach`: the run outlives the terminal, the shell and the command that started it."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest
import unittest.mock

from local_network import leave_network
from run_support import (
    ADAPTDL,
    PATIENCE,
    PRINT_DESCRIPTORS,
    REPLICA_PROGRAM,
    RunTest,
    eventually,
    guardian_of,
    is_alive,
    name_of,
    replicas_of,
    stray_pipe,
    targets_of,
)

FOREVER = 1_000_000  # steps


class DetachTest(RunTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_runs)

    def end_runs(self):
        """Kills the launchers that a failed test has left running. They are not children of this process, so their IDs come from
        the list of runs."""
        for run in self.listed("--all").values():
            if run["ended"] is None and is_alive(run["pid"]):
                os.kill(run["pid"], signal.SIGKILL)
                eventually(lambda pid=run["pid"]: not is_alive(pid))

    def detach(self, *arguments, code=0):
        return self.adaptdl("run", "--detach", *arguments, code=code)

    def ended(self, name):
        """Waits for the end of a run and of its launcher, which writes its last notices after the record. Returns the record."""
        run = eventually(lambda: self.listed()[name]["ended"] and self.listed()[name])
        self.assertTrue(eventually(lambda: not is_alive(run["pid"])))
        return run

    def test_run_detach_prints_the_name_of_the_run_which_continues_in_the_background(self):
        name = self.detach("-n", 2, REPLICA_PROGRAM, "--steps", FOREVER).rstrip("\n")
        self.assertRegex(name, r"^replica_program-20[0-9-]+$")
        # If a launcher does not answer at once, its run is listed as it was last recorded.
        run = eventually(lambda: next((run for run in self.listed().values() if run["state"] == "running"), None))
        self.assertEqual((run["name"], run["replicas"]), (name, 2))
        self.assertEqual(os.getsid(run["pid"]), run["pid"])
        for fd in range(3):
            self.assertEqual(os.readlink(f"/proc/{run['pid']}/fd/{fd}"), "/dev/null")
        self.assertTrue(eventually(lambda: self.adaptdl("logs", name).count("begins at step 0") == 2))
        path = self.adaptdl("checkpoint", "save", name).strip()
        self.assertTrue(os.path.isdir(path))
        self.adaptdl("delete", name)
        self.assertTrue(eventually(lambda: not is_alive(run["pid"])))
        self.assertEqual(self.adaptdl("ls", "--all"), "no runs\n")

    def test_a_detached_run_survives_its_terminal(self):
        leader, follower = pty.openpty()
        shell = subprocess.Popen(
            ["sh", "-i"], stdin=follower, stdout=follower, stderr=follower, cwd=self.directory, env=self.environment,
            start_new_session=True,
        )
        os.close(follower)
        self.addCleanup(shell.wait)
        self.addCleanup(shell.kill)
        command = f"{ADAPTDL} run --detach --name job -n 1 {REPLICA_PROGRAM} --steps {FOREVER}"
        os.write(leader, f"{command}; echo co''de $?\n".encode())
        seen = ""
        deadline = time.monotonic() + PATIENCE
        while not re.search(r"code \d+\r\n", seen):
            self.assertLess(time.monotonic(), deadline, seen)
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 65536).decode(errors="replace")
        self.assertRegex(seen, r"job\r\ncode 0")
        pid = self.listed()["job"]["pid"]
        os.close(leader)  # this hangs up the terminal
        shell.wait(PATIENCE)
        os.kill(pid, signal.SIGHUP)
        step = lambda: self.listed()["job"]["progress"].get("step", 0)
        before = step()
        self.assertTrue(eventually(lambda: step() > before))
        self.assertEqual(self.listed()["job"]["state"], "running")
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(self.ended("job")["exit_code"], 143)

    def test_a_startup_error_is_printed_and_sets_the_exit_code(self):
        self.assertIn("cannot find 'no-such-program' in PATH", self.detach("no-such-program", code=2))
        broken = self.script("broken", "")
        broken.write_bytes(b"\x7fELF broken")
        self.assertIn(f"cannot run '{broken}'", self.detach("-n", 1, broken, code=2))
        self.detach("-n", 1, "--name", "job", REPLICA_PROGRAM, "--steps", FOREVER)
        self.assertIn("a run named 'job' is already running", self.detach("-n", 1, "--name", "job", "true", code=2))
        (self.directory / "file").touch()
        with unittest.mock.patch.dict(self.environment, XDG_STATE_HOME=str(self.directory / "file")):
            self.assertIn("cannot create", self.detach("-n", 1, "true", code=1))
        self.adaptdl("delete", "job")
        self.assertEqual(self.adaptdl("ls", "--all"), "no runs\n")

    def test_a_detached_run_does_not_hold_the_output_of_the_command_open(self):
        done = subprocess.run(
            ["sh", "-c", f"{ADAPTDL} run --detach --name job -n 1 sleep 1000 | cat; echo end"],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=PATIENCE,
        )
        self.assertEqual(done.stdout, "job\nend\n")
        self.adaptdl("delete", "job", "--now")

    def test_a_detached_run_inherits_no_descriptors_of_the_caller(self):
        program = self.python("show", PRINT_DESCRIPTORS + "import time\ntime.sleep(1000)\n")
        with stray_pipe() as read:
            target = os.readlink("/proc/self/fd/251")
            done = subprocess.run(
                [ADAPTDL, "run", "--detach", "--name", "job", "-n", "1", "--device-kind", "cpu", "--devices", "1", program],
                cwd=self.directory, env=self.environment, capture_output=True, text=True, close_fds=False, timeout=PATIENCE,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            launcher = self.listed()["job"]["pid"]
            for pid in (launcher, self.agent(), guardian_of(launcher), *replicas_of(launcher)):
                self.assertNotIn(target, targets_of(pid), name_of(pid))
        self.assertTrue(eventually(lambda: "targets" in self.adaptdl("logs", "job")))
        [line] = [line for line in self.adaptdl("logs", "job").splitlines() if "targets" in line]
        self.assert_own_descriptors(json.loads(line[line.index("{") :]))
        self.adaptdl("delete", "job", "--now")

    def test_the_outcome_is_in_the_record_and_the_logs(self):
        self.detach("-n", 1, "--name", "job", "sh", "-c", "echo the reason >&2; exit 7")
        run = self.ended("job")
        self.assertEqual(
            (run["state"], run["why"], run["exit_code"]), ("failed", "replica 0 exited with code 7", 7)
        )
        self.assertIn("[0] the reason\n", self.adaptdl("logs", "job"))
        notices = self.adaptdl("logs", "job", "--notices")
        self.assertRegex(notices, r"\A20\d\d-\d\d-\d\d \d\d:\d\d:\d\d 1 replica of 'sh', ")
        self.assertIn("adaptdl: error: replica 0 failed first: it exited with code 7\n", notices)

    def test_the_suggested_command_resumes_a_stopped_run_in_the_background(self):
        self.detach("-n", 1, "--name", "job", REPLICA_PROGRAM, "--steps", FOREVER)
        self.assertTrue(eventually(lambda: "begins at step" in self.adaptdl("logs", "job")))
        pid = self.listed()["job"]["pid"]
        os.kill(pid, signal.SIGTERM)
        run = self.ended("job")
        self.assertEqual((run["state"], run["why"]), ("stopped", "saved checkpoint-0"))
        self.assertIn(" --detach -- ", run["resume"])
        self.assertIn(run["resume"], self.adaptdl("logs", "job", "--notices"))
        step = int(re.search(r"saved step (\d+)", self.adaptdl("logs", "job"))[1])
        again = run["resume"].replace(str(FOREVER), str(step + 2))
        done = subprocess.run(
            again,
            shell=True,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "job\n"), done.stderr)
        self.assertEqual(self.ended("job")["state"], "done")
        self.assertIn(f"[0] begins at step {step} of start 0\n", self.adaptdl("logs", "job"))


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
