"""Tests replicas that fail and a launcher that is killed: the run ends soon, reports the reason, and leaves nothing behind."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

from local_network import leave_network
from run_support import REPLICA_PROGRAM, RunTest, eventually, guardian_of, interrupt, is_alive, name_of, replicas_of, targets_of

FOREVER = 1_000_000  # steps
# In seconds. A run ends within 5 s on an idle machine, and the grace period of a stop is 30 s.
SOON = 25


class FailureTest(RunTest):
    def start_counting(self, *arguments, replicas=3, **more):
        run = self.start("-n", replicas, *arguments, REPLICA_PROGRAM, "--steps", FOREVER, **more)
        run.wait_for("begins at step", replicas)
        return run

    def test_a_replica_killed_by_sigkill_ends_the_run_promptly(self):
        run = self.start_counting("--checkpoint", "c")
        victim = replicas_of(run.pid)[1]
        rank = (
            pathlib.Path(f"/proc/{victim}/environ")
            .read_bytes()
            .split(b"ADAPTDL_REPLICA_RANK=")[1]
            .split(b"\0")[0]
            .decode()
        )
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(run.finish(), 137, run.text())
        self.assertLess(time.monotonic() - began, SOON)
        run.wait_for(f"adaptdl: error: replica {rank} failed first: it was killed by SIGKILL")

    def test_a_killed_replica_ends_the_run_even_if_the_others_ignore_signals(self):
        program = self.script("deaf", "#!/bin/sh\ntrap '' TERM INT\necho ready\nwhile :; do sleep 1; done\n")
        run = self.start("-n", 3, program)
        run.wait_for("ready", 3)
        began = time.monotonic()
        os.kill(replicas_of(run.pid)[2], signal.SIGKILL)
        self.assertEqual(run.finish(), 137, run.text())
        self.assertLess(time.monotonic() - began, SOON)

    def test_the_error_names_the_replica_that_failed_first(self):
        run = self.start(
            "-n", 4, "--checkpoint", "c", REPLICA_PROGRAM, "--steps", FOREVER, "--at-step", 5, "--rank", 2, "--exit", 7
        )
        self.assertEqual(run.finish(), 7, run.text())
        [_, last] = [index for index, line in enumerate(run.err) if "exiting with 7 on purpose" in line]
        self.assertEqual(run.err[last], "  | exiting with 7 on purpose")
        self.assertEqual(run.err[last + 1], "adaptdl: error: replica 2 failed first: it exited with code 7")
        # The other replicas lost their peer, and their messages about that come before the launcher's error.
        consequences = [index for index, line in enumerate(run.err) if "error: " in line and line.startswith("[")]
        self.assertTrue(all(index < last for index in consequences))
        self.assertRegex(run.err[last + 2], r"^adaptdl: other replicas: replica \d ")

    def test_fatal_signals_are_named_and_set_the_exit_code(self):
        for number, name in (
            (signal.SIGSEGV, "SIGSEGV (segmentation fault)"),
            (signal.SIGABRT, "SIGABRT (aborted)"),
            (signal.SIGTERM, "SIGTERM"),
        ):
            with self.subTest(name):
                run = self.start("-n", 1, "--no-checkpoint", "sh", "-c", f"kill -{int(number)} $$")
                # 143 would mean that a checkpoint was saved.
                self.assertEqual(run.finish(), 1 if number == signal.SIGTERM else 128 + number, run.text())
                run.wait_for(f"replica 0 failed first: it was killed by {name}")

    def test_the_last_20_lines_of_the_failed_replica_are_repeated(self):
        # The two streams are read in turn, so the order of their lines is certain only if one line arrives before the next is
        # written.
        program = self.script("talk", "#!/bin/sh\nseq 1 100\nuntil [ -e go ]; do sleep 0.01; done\necho the reason >&2\nexit 3\n")
        run = self.start("-n", 1, program)
        run.wait_for("[0] 100")
        (self.directory / "go").touch()
        self.assertEqual(run.finish(), 3, run.text())
        again = [line[4:] for line in run.err if line.startswith("  | ")]
        self.assertEqual(len(again), 20)
        self.assertIn("the reason", again)
        self.assertIn("100", again)

    def test_a_run_exits_with_the_exit_code_of_the_failed_replica(self):
        for code in (1, 2, 42, 127, 255):
            with self.subTest(code):
                self.run_to_end("-n", 2, "sh", "-c", f"exit {code}", code=code)

    def test_a_finished_replica_does_not_end_the_others(self):
        run = self.run_to_end("-n", 2, "sh", "-c", "[ $ADAPTDL_REPLICA_RANK = 0 ] && exit 0; sleep 1; echo still here")
        self.assertEqual(run.out, ["[1] still here"])

    def test_a_replica_that_runs_out_of_memory_is_reported(self):
        program = self.python(
            "hungry",
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\nx = bytearray(1 << 30)\n",
        )
        run = self.run_to_end("-n", 1, program, code=1)
        run.wait_for("adaptdl: error: replica 0 failed first: it ran OUT OF MEMORY and exited with code 1")

    def test_a_failed_run_keeps_its_checkpoints_and_prints_how_to_resume(self):
        run = self.start(
            "-n", 2, REPLICA_PROGRAM, "--steps", FOREVER, "--checkpoint-at", 3, "--at-step", 6, "--exit", 9
        )
        self.assertEqual(run.finish(), 9, run.text())
        [directory] = self.own_checkpoints()
        run.wait_for(f"the newest checkpoint is '{directory}/checkpoint-0'")
        self.assertIn(f"--checkpoint {directory} ", run.err[-1])
        self.run_to_end("-n", 1, "false", code=1)
        self.assertEqual(self.own_checkpoints(), [directory])  # an empty directory is not kept

    def test_a_replica_that_fails_while_stopping_fails_the_run(self):
        run = self.start(
            "-n",
            2,
            "sh",
            "-c",
            "trap 'exit $((3 + ADAPTDL_REPLICA_RANK * 140))' TERM; echo ready; while :; do sleep 0.05; done",
        )
        run.wait_for("ready", 2)
        interrupt(run)
        self.assertEqual(run.finish(), 3, run.text())
        run.wait_for("replica 0 failed first: it exited with code 3")


class RestartTest(RunTest):
    def test_all_replicas_restart_from_the_newest_checkpoint(self):
        run = self.start(
            "-n",
            2,
            "--checkpoint",
            "c",
            "--max-restarts",
            2,
            "--logs",
            "l",
            REPLICA_PROGRAM,
            "--steps",
            12,
            "--checkpoint-at",
            4,
            "--at-step",
            8,
            "--rank",
            1,
            "--signal",
            int(signal.SIGSEGV),
        )
        self.assertEqual(run.finish(), 0, run.text())
        run.wait_for(
            "adaptdl: replica 1 was killed by SIGSEGV (segmentation fault): "
            "restarting all replicas from checkpoint-0 (restart 1 of 2)"
        )
        for rank in range(2):
            self.assertIn(f"[{rank}] begins at step 4 of start 1", run.out)
            self.assertIn(f"[{rank}] done at step 12", run.out)
            self.assertIn("start 1, ", (self.directory / "l" / f"rank-{rank}.log").read_text())

    def test_a_run_fails_after_its_last_restart(self):
        run = self.run_to_end(
            "-n",
            1,
            "--max-restarts",
            2,
            "sh",
            "-c",
            "echo start $ADAPTDL_NUM_RESTARTS $ADAPTDL_MASTER_PORT; exit 4",
            code=4,
        )
        starts = [line.split() for line in run.out]
        self.assertEqual([start[2] for start in starts], ["0", "1", "2"])
        self.assertGreater(len({start[3] for start in starts}), 1)  # each start chooses a new port, which may be the same by chance
        run.wait_for("restarting all replicas from the beginning, as there is no checkpoint (restart 2 of 2)")
        run.wait_for("replica 0 failed first: it exited with code 4")

    def test_an_interrupt_between_two_starts_ends_the_run(self):
        run = self.start("-n", 1, "--max-restarts", 100, "sh", "-c", "exit 4")
        run.wait_for("(restart 2 of 100)")
        interrupt(run)
        self.assertEqual(run.finish(), 4, run.text())
        self.assertLess(len(run.wait_for("restarting all replicas")), 10)


class OrphanTest(RunTest):
    # A replica with one child in its own process group and one in a separate group. All of them ignore SIGTERM.
    FAMILY = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
same = subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; sleep 1000 & wait"])
other = subprocess.Popen(["sleep", "1000"], preexec_fn=os.setpgrp)
print("family", os.getpid(), same.pid, other.pid, flush=True)
time.sleep(1000)
"""

    def family(self, run, replicas):
        """Returns all processes below the launcher, including the guardian."""
        run.wait_for("] family ", replicas)
        sessions = {int(line.split()[2]) for line in run.out}

        def members():
            found = []
            for entry in pathlib.Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        if os.getsid(int(entry.name)) in sessions:
                            found.append(int(entry.name))
                    except ProcessLookupError:
                        pass
            return found

        eventually(lambda: len(members()) >= 4 * replicas)
        return members() + [guardian_of(run.pid)]

    def assert_all_gone(self, pids):
        self.assertTrue(eventually(lambda: not any(map(is_alive, pids))), [pid for pid in pids if is_alive(pid)])

    def test_no_process_outlives_a_launcher_killed_by_sigkill(self):
        run = self.start("-n", 3, self.python("family", self.FAMILY))
        pids = self.family(run, 3)
        self.assertGreaterEqual(len(pids), 13)
        run.send(signal.SIGKILL)
        self.assert_all_gone(pids)
        self.assertEqual(run.finish(), -signal.SIGKILL)  # no process holds its output open

    def test_no_replica_outlives_the_launcher_if_the_guardian_was_killed_before(self):
        run = self.start("-n", 2, REPLICA_PROGRAM, "--steps", FOREVER)
        run.wait_for("begins at step", 2)
        pids = replicas_of(run.pid)
        os.kill(guardian_of(run.pid), signal.SIGKILL)
        run.send(signal.SIGKILL)
        self.assert_all_gone(pids)

    def test_the_guardian_is_not_found_by_the_command_line_of_the_run(self):
        run = self.start("-n", 1, "--name", f"unique-{os.getpid()}", "sleep", 1000)
        # Until they call exec, the launcher's children have its command line and its descriptors.
        self.assertTrue(eventually(lambda: [name_of(pid) for pid in replicas_of(run.pid)] == ["sleep"]))

        def found():
            return subprocess.run(["pgrep", "-f", f"unique-{os.getpid()}"], capture_output=True, text=True).stdout.split()

        def kinds():
            return [target.split(":")[0] for target in targets_of(guardian_of(run.pid))]

        self.assertTrue(eventually(lambda: found() == [str(run.pid)]), found())
        self.assertTrue(eventually(lambda: kinds() == ["pipe"]), kinds())

    def test_processes_left_by_a_finished_replica_are_killed(self):
        run = self.run_to_end("-n", 2, "sh", "-c", "sleep 1000 & echo child $!")
        pids = [int(line.split()[-1]) for line in run.out]
        self.assertEqual(len(pids), 2)
        self.assertEqual([pid for pid in pids if is_alive(pid)], [])

    def test_finished_replicas_leave_no_zombies_during_the_run(self):
        run = self.start("-n", 3, "sh", "-c", "[ $ADAPTDL_REPLICA_RANK = 2 ] || exit 0; echo last; sleep 1000")
        run.wait_for("last")
        states = lambda: [
            line.split()
            for line in subprocess.run(
                ["ps", "--ppid", str(run.pid), "-o", "stat="], capture_output=True, text=True
            ).stdout.splitlines()
        ]
        self.assertTrue(
            eventually(lambda: len(states()) == 2 and all(state[0][0] != "Z" for state in states())), states()
        )


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
