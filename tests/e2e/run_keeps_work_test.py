"""Tests that no run deletes checkpoints that are still needed, and that a stop saves a checkpoint even if the output is stalled."""

import signal
import subprocess
import unittest

from run_support import ADAPTDL, REPLICA_PROGRAM, eventually, interrupt
from run_verbs_support import VerbsTest


class KeptCheckpointsTest(VerbsTest):
    @property
    def checkpoints(self):
        return self.runs / "job" / "checkpoints"

    def stop_with_checkpoint(self):
        """Trains until it is interrupted, and returns the number of steps."""
        run = self.start_counting("job")
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        self.assertTrue((self.checkpoints / "checkpoint-0").exists())
        return int(run.wait_for("saved step")[0].split()[-1])

    def test_a_run_that_cannot_start_keeps_the_checkpoints_that_a_deleted_run_left(self):
        self.stop_with_checkpoint()
        self.adaptdl("delete", "job", "--keep-checkpoints")
        broken = self.script("broken", "")
        broken.write_bytes(b"\x7fELF broken")
        run = self.run_to_end("--name", "job", "-n", 1, broken, code=2)
        self.assertIn("cannot run", run.text())
        self.assertEqual(list(self.runs.glob("job/*/*")), [self.checkpoints / "checkpoint-0"])

    def test_a_run_that_does_not_train_keeps_the_checkpoints_of_an_earlier_run(self):
        step = self.stop_with_checkpoint()
        run = self.run_to_end("--name", "job", "-n", 1, "true")
        self.assertIn(f"adaptdl: kept '{self.checkpoints}', because the run reported no training; to remove it: adaptdl delete job", run.err)
        self.assertTrue((self.checkpoints / "checkpoint-0").exists())
        self.run_to_end("--name", "job", "-n", 1, REPLICA_PROGRAM, "--steps", step + 3)
        self.assertFalse(self.checkpoints.exists())  # nothing is left to continue

    def test_a_program_that_exits_with_0_when_it_is_stopped_keeps_what_it_saved(self):
        script = self.script("own", """#!/bin/sh
trap 'echo state > "$ADAPTDL_CHECKPOINT_PATH/state"; exit 0' TERM
echo ready
while :; do sleep 0.05; done
""")
        run = self.start("--name", "job", "-n", 1, script)
        run.wait_for("ready")
        interrupt(run)
        self.assertEqual(run.finish(), 0, run.text())
        self.assertEqual((self.checkpoints / "state").read_text(), "state\n")
        self.assertIn(f"adaptdl: kept '{self.checkpoints}', because the run was asked to stop; to remove it: adaptdl delete job", run.err)


class StalledOutputTest(VerbsTest):
    def test_a_stop_reaches_a_replica_that_is_blocked_on_its_output(self):
        program = self.python("chatter", """
import os, pathlib, signal, sys
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
while not asked:
    os.write(1, b"x" * 4095 + b"\\n")  # continues after the signal until the pipe has accepted it
checkpoint = pathlib.Path(os.environ["ADAPTDL_CHECKPOINT_PATH"], "checkpoint-0")
checkpoint.mkdir()
(checkpoint / "state").write_text("state")
sys.exit(143)
""")
        run = subprocess.Popen([ADAPTDL, "run", "--name", "job", "--checkpoint", "c", "-n", "1", program], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.directory, env=self.environment)
        self.addCleanup(run.kill)
        log = self.runs / "job" / "logs" / "rank-0.log"
        sizes = [0]

        def stalled():
            sizes.append(log.stat().st_size if log.exists() else 0)
            return len(sizes) > 100 and sizes[-100] == sizes[-1] > 4 << 20

        self.assertTrue(eventually(stalled), sizes[-1])
        run.send_signal(signal.SIGTERM)
        # The launcher itself ends only when its output has been read.
        self.assertTrue(eventually(lambda: (self.directory / "c" / "checkpoint-0" / "state").exists()))
        out, err = run.communicate()
        self.assertEqual(run.returncode, 143, err.decode()[-1000:])
        self.assertGreater(len(out), 4 << 20)


if __name__ == "__main__":
    unittest.main()
