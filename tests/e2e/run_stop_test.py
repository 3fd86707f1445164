"""Tests Ctrl-C and SIGTERM: a run saves a checkpoint and shows how to continue, or states that there is no checkpoint."""

import json
import os
import random
import shlex
import signal
import subprocess
import time
import unittest

from local_network import leave_network
from run_support import ADAPTDL, PATIENCE, REPLICA_PROGRAM, RunTest, eventually, interrupt, is_alive, replicas_of

FOREVER = 1_000_000  # steps


class GracefulStopTest(RunTest):
    def start_counting(self, *arguments, replicas=2, program=(REPLICA_PROGRAM, "--steps", FOREVER), **more):
        run = self.start("-n", replicas, *arguments, *program, **more)
        run.wait_for("begins at step", replicas)
        return run

    def resume_command(self, run):
        """Returns the command at the end of the summary."""
        self.assertIn("to continue", run.err[-2])
        return shlex.split(run.err[-1])

    def test_an_interrupt_saves_a_checkpoint_and_prints_how_to_resume(self):
        run = self.start_counting()
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        [directory] = self.own_checkpoints()
        [checkpoint] = directory.glob("checkpoint-*")
        step = int(run.wait_for("saved step")[0].split()[-1])
        self.assertIn(f"adaptdl: stopped with checkpoint '{checkpoint}' (epoch {step // 10})", run.err)

        command = self.resume_command(run)
        self.assertEqual(
            command,
            [
                ADAPTDL,
                "run",
                "--checkpoint",
                str(directory),
                "--replicas",
                "2",
                "--",
                REPLICA_PROGRAM,
                "--steps",
                str(FOREVER),
            ],
        )
        again = self.start(*[str(step + 3) if word == str(FOREVER) else word for word in command[2:]])
        self.assertEqual(again.finish(), 0, again.text())
        self.assertIn(f"[0] begins at step {step} of start 0", again.out)
        self.assertIn(f"[1] done at step {step + 3}", again.out)
        self.assertTrue(checkpoint.exists())  # a directory that the user has named is kept

    def test_a_run_that_is_stopped_while_it_starts_leaves_no_incomplete_record(self):
        def launch():
            return subprocess.Popen([ADAPTDL, "run", "-n", "1", "--device-kind", "cpu", "--no-checkpoint", "--", "sleep", "0.2"],
                                    cwd=self.directory, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)

        def records():
            return list(self.runs.glob("*"))

        began = time.monotonic()
        launcher = launch()
        self.assertTrue(eventually(records))
        first = time.monotonic() - began
        for _ in range(40):
            launcher.send_signal(signal.SIGTERM)
            launcher.wait(PATIENCE)
            for directory in records():
                status = json.loads((directory / "run.json").read_text())
                self.assertIn(status["state"], ("stopped", "failed", "done"))
            launcher = launch()
            time.sleep(first * random.uniform(0.2, 1.5))
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(PATIENCE)

    def test_the_resume_command_keeps_the_options_and_is_quoted_for_a_shell(self):
        self.script("my program", f"#!/bin/sh\nexec {REPLICA_PROGRAM} --steps {FOREVER}\n")
        run = self.start_counting(
            "--checkpoint",
            "it's here",
            "--env",
            "A=1 2",
            "--env",
            "B=$X",
            "--max-restarts",
            2,
            "-n",
            3,
            replicas=3,
            program=["--", "./my program", "--", "$HOME", "-n"],
        )
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        self.assertEqual(
            self.resume_command(run),
            [
                ADAPTDL,
                "run",
                "--checkpoint",
                str(self.directory / "it's here"),
                "--replicas",
                "3",
                "--env",
                "A",
                "--env",
                "B",
                "--max-restarts",
                "2",
                "--",
                "./my program",
                "--",
                "$HOME",
                "-n",
            ],
        )

    def test_sigterm_and_sighup_make_a_run_save_a_checkpoint_and_stop(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                run = self.start_counting("--checkpoint", f"c{number}")
                run.send(number)
                self.assertEqual(run.finish(), 143, run.text())

    def test_sighup_does_not_stop_a_run_that_nohup_started(self):
        process = subprocess.Popen(
            ["nohup", ADAPTDL, "run", "-n", "1", "--no-checkpoint", "sh", "-c", "echo ready; sleep 1; echo done"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.assertEqual(process.stdout.readline(), "[0] ready\n")
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual((out, process.returncode), ("[0] done\n", 0))

    def test_a_run_in_the_background_of_a_script_can_be_interrupted(self):
        # Such a process starts with SIGINT ignored, which its replicas would inherit.
        process = subprocess.Popen(
            ["sh", "-c", f"{ADAPTDL} run -n 1 --checkpoint c {REPLICA_PROGRAM} --steps {FOREVER} & echo $!; wait $!"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # The run's line may appear before the shell's.
        pid, begins = sorted(process.stdout.readline() for _ in range(2))
        self.assertIn("begins at step", begins)
        pid = int(pid)
        os.kill(pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 143)

    def test_a_starting_program_is_stopped_once_it_handles_the_signal(self):
        run = self.start(
            "-n",
            2,
            "--checkpoint",
            "c",
            "sh",
            "-c",
            # The program must handle the signal within 5 s, however late the interrupt comes.
            f"echo starting; sleep 1; exec {REPLICA_PROGRAM} --steps {FOREVER}",
        )
        run.wait_for("starting", 2)
        interrupt(run)
        run.wait_for("interrupted: waiting up to")
        self.assertEqual(run.finish(), 143, run.text())

    def test_a_program_that_never_handles_the_signal_is_still_stopped(self):
        for grace, patience in (("60s", 50), ("2s", 30)):
            with self.subTest(grace):
                run = self.start("-n", 1, "--no-checkpoint", "--grace", grace, "sleep", 1000)
                run.wait_for("1 replica of 'sleep'")
                began = time.monotonic()
                interrupt(run)
                self.assertEqual(run.finish(), 1, run.text())
                self.assertLess(time.monotonic() - began, patience)
                self.assertEqual(run.err[-1], "adaptdl: stopped; no checkpoint was saved because of --no-checkpoint")

    def test_repeated_sigterms_have_the_effect_of_one(self):
        run = self.start_counting("--checkpoint", "c")
        deadline = time.monotonic() + PATIENCE
        while run.process.poll() is None and time.monotonic() < deadline:  # until the process has ended
            run.send(signal.SIGTERM)
            time.sleep(0.0005)
        self.assertEqual(run.finish(), 143, run.text())

    def test_sigterm_to_one_replica_stops_all_replicas(self):
        run = self.start_counting("--checkpoint", "c")
        os.kill(replicas_of(run.pid)[1], signal.SIGTERM)
        self.assertEqual(run.finish(), 143, run.text())

    def test_a_program_that_exits_with_0_on_sigterm_succeeds(self):
        run = self.start("-n", 1, "sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        run.wait_for("ready")
        interrupt(run)
        self.assertEqual(run.finish(), 0, run.text())
        self.assertEqual(self.own_checkpoints(), [])

    def test_a_program_in_a_script_that_does_not_forward_signals_saves_a_checkpoint(self):
        program = self.script("wrapper", f"#!/bin/sh\n{REPLICA_PROGRAM} --steps {FOREVER}\necho after\n")
        run = self.start_counting("--checkpoint", "c", program=[program])
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        run.wait_for("saved step", 2)

    def test_a_stopped_run_does_not_restart(self):
        run = self.start_counting("--checkpoint", "c", "--max-restarts", 5)
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        self.assertEqual(len(run.wait_for("begins at step")), 2)


class NothingSavedTest(RunTest):
    def test_exit_code_143_without_a_new_checkpoint_is_a_failure(self):
        run = self.start(
            "-n", 2, "--checkpoint", "c", REPLICA_PROGRAM, "--steps", FOREVER, "--forget", "--checkpoint-at", 2
        )
        run.wait_for("saved step 2", 2)  # an older checkpoint is not enough
        interrupt(run)
        self.assertEqual(run.finish(), 1, run.text())
        run.wait_for("error: the replicas stopped without saving a checkpoint")
        run.wait_for(f"the newest checkpoint is '{self.directory}/c/checkpoint-0'")

    def test_a_program_that_does_not_handle_sigterm_is_reported(self):
        run = self.start("-n", 1, "sh", "-c", "echo ready; exec sleep 1000")
        run.wait_for("ready")
        interrupt(run)
        self.assertEqual(run.finish(), 1, run.text())
        run.wait_for("the program does not handle SIGTERM")
        self.assertEqual(self.own_checkpoints(), [])  # the empty directory was removed

    def test_a_run_with_the_option_no_checkpoint_reports_that_no_checkpoint_was_saved(self):
        run = self.start("-n", 1, "--no-checkpoint", REPLICA_PROGRAM, "--steps", FOREVER)
        run.wait_for("begins at step")
        interrupt(run)
        self.assertEqual(run.finish(), 1, run.text())
        self.assertEqual(run.err[-1], "adaptdl: stopped; no checkpoint was saved because of --no-checkpoint")


class ForcedStopTest(RunTest):
    def test_a_second_ctrl_c_kills_the_replicas_at_once(self):
        run = self.start("-n", 2, "--checkpoint", "c", REPLICA_PROGRAM, "--steps", FOREVER, "--hang")
        run.wait_for("begins at step", 2)
        replicas = replicas_of(run.pid)
        interrupt(run)
        run.wait_for("interrupted: waiting up to 30s for replicas 0, 1")
        interrupt(run)
        began = time.monotonic()
        self.assertEqual(run.finish(), 130, run.text())
        self.assertLess(time.monotonic() - began, 25)  # before the end of the grace period
        run.wait_for("interrupted again: killing all replicas")
        self.assertEqual([pid for pid in replicas if is_alive(pid)], [])

    def test_replicas_that_hang_are_killed_after_the_grace_period(self):
        run = self.start("-n", 2, "--checkpoint", "c", "--grace", "1s", REPLICA_PROGRAM, "--steps", FOREVER, "--hang")
        run.wait_for("begins at step", 2)
        began = time.monotonic()
        interrupt(run)
        self.assertEqual(run.finish(), 1, run.text())
        self.assertTrue(1 <= time.monotonic() - began < 25)
        run.wait_for("grace period of 1s expired: killing replicas 0, 1")
        run.wait_for("raise --grace")

    def test_a_run_with_a_grace_period_of_0_is_killed_at_once(self):
        run = self.start("-n", 1, "--grace", 0, REPLICA_PROGRAM, "--steps", FOREVER)
        run.wait_for("begins at step")
        interrupt(run)
        self.assertEqual(run.finish(PATIENCE), 1, run.text())


class ForeignCheckpointTest(RunTest):
    """Tests a Python program that names its checkpoints as AdaptDL's package does: checkpoint-<number of restarts>, never twice."""

    PROGRAM = """
import os, signal, sys, time
directory, restarts = os.environ["ADAPTDL_CHECKPOINT_PATH"], int(os.environ["ADAPTDL_NUM_RESTARTS"])
numbers = [int(name.split("-")[1]) for name in os.listdir(directory) if name.startswith("checkpoint-")]
def stop(*_):
    os.makedirs(os.path.join(directory, "_checkpoint"))
    open(os.path.join(directory, "_checkpoint", "state"), "w").write("x")
    os.rename(os.path.join(directory, "_checkpoint"), os.path.join(directory, f"checkpoint-{restarts}"))
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("found", sorted(numbers))
while True:
    time.sleep(0.01)
"""

    def test_a_python_program_with_its_own_checkpoints_stops_and_resumes(self):
        program = self.python("foreign", self.PROGRAM)
        for restarts in range(3):
            run = self.start("-n", 1, "--checkpoint", "c", program)
            run.wait_for("found")
            interrupt(run)
            self.assertEqual(run.finish(), 143, run.text())
            self.assertEqual(run.out, [f"[0] found {list(range(restarts))}"])
            run.wait_for(f"stopped with checkpoint '{self.directory}/c/checkpoint-{restarts}'")


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
