"""Tests the commands that act on runs by name: logs, checkpoint save, resize and delete."""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from local_network import leave_network
from run_support import ADAPTDL, PATIENCE, REPLICA_PROGRAM, eventually, interrupt, is_alive, replicas_of
from run_verbs_support import FOREVER, VerbsTest


class LogsTest(VerbsTest):
    def without_headers(self, text):
        return [line for line in text.splitlines() if "=== " not in line]

    def test_logs_are_kept_after_the_run_with_lines_in_order(self):
        # Each rank prints its next line as soon as the log of the other rank contains the line before it.
        program = self.python(
            "turns",
            f"import os, time\nrank = int(os.environ['ADAPTDL_REPLICA_RANK'])\n"
            f"log = f'{self.runs}/job/logs/rank-{{1 - rank}}.log'\n"
            "while not os.path.exists(log):\n    time.sleep(0.01)\n"  # the other one may not have started yet
            "for turn in range(rank, 10, 2):\n"
            "    while turn > 0 and f'turn {turn - 1}\\n' not in open(log).read():\n        time.sleep(0.01)\n"
            "    print('turn', turn)\n",
        )
        self.run_to_end("-n", 2, "--name", "job", program)
        lines = [f"[{turn % 2}] turn {turn}" for turn in range(10)]
        self.assertEqual(self.without_headers(self.adaptdl("logs", "job")), lines)
        self.assertEqual(
            self.without_headers(self.adaptdl("logs", "job", "--rank", 1)), [f"turn {turn}" for turn in range(1, 10, 2)]
        )

    def test_the_logs_command_with_the_option_follow_ends_when_the_run_ends(self):
        run = self.start_counting(
            "job", program=["sh", "-c", "echo begins at step; while [ ! -e end ]; do sleep 0.05; done; echo over"]
        )
        follow = subprocess.Popen(
            [ADAPTDL, "logs", "job", "--rank", "0", "--follow"],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(follow.stdout.close)
        self.addCleanup(follow.wait)
        self.addCleanup(follow.kill)
        self.assertTrue(follow.stdout.readline().startswith("=== local/job rank 0, start 0, "))
        self.assertEqual(follow.stdout.readline(), "begins at step\n")
        (self.directory / "end").touch()
        self.assertEqual(follow.stdout.read(), "over\n")
        self.assertEqual(follow.wait(PATIENCE), 0)
        self.assertEqual(run.finish(), 0, run.text())

    def test_logs_are_read_from_the_directory_that_the_run_received_with_the_option_logs(self):
        self.run_to_end("-n", 1, "--name", "job", "--logs", "there", "echo", "text")
        self.assertEqual(self.without_headers(self.adaptdl("logs", "job")), ["[0] text"])
        self.assertTrue((self.directory / "there" / "rank-0.log").exists())

    def test_an_unknown_rank_is_rejected_with_the_available_ranks(self):
        self.run_to_end("-n", 2, "--name", "job", "true")
        self.assertEqual(
            self.refusal("logs", "job", "--rank", 2, code=2),
            f"run 'job' has no log of rank 2 in '{self.runs}/job/logs'; available ranks: 0, 1",
        )
        self.assertEqual(
            self.refusal("logs", "job", "--rank", "x", code=2), "logs: --rank must be an integer of at least 0, not 'x'"
        )

    def test_a_reused_name_starts_new_logs(self):
        for text in ("first", "second"):
            self.run_to_end("-n", 1, "--name", "job", "echo", text)
        self.assertEqual(self.without_headers(self.adaptdl("logs", "job")), ["[0] second"])


class CheckpointSaveTest(VerbsTest):
    def test_checkpoint_save_saves_a_checkpoint_at_once_and_training_continues(self):
        run = self.start_counting("job", "--checkpoint", "c")
        for number in range(2):
            path = pathlib.Path(self.adaptdl("checkpoint", "save", "job").strip())
            self.assertEqual(path, self.directory / "c" / f"checkpoint-{number}")
            self.assertTrue((path / "manifest.json").exists())
        step = lambda: self.listed()["job"]["progress"].get("step", 0)
        before = step()
        self.assertTrue(eventually(lambda: step() > before))
        self.assertEqual(len(replicas_of(run.pid)), 2)
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())

    def test_one_request_saves_one_checkpoint_even_if_a_replica_is_late(self):
        run = self.start_counting("job", "--checkpoint", "c")
        late = replicas_of(run.pid)[1]
        os.kill(late, signal.SIGSTOP)
        command = [ADAPTDL, "checkpoint", "save", "job"]
        with subprocess.Popen(command, env=self.environment, cwd=self.directory, stdout=subprocess.PIPE) as save:
            time.sleep(0.5)  # the other replica waits for the late one, before or while handling the request
            os.kill(late, signal.SIGCONT)
            save.communicate(timeout=PATIENCE)
        self.assertEqual(save.returncode, 0)
        step = lambda: self.listed()["job"]["progress"].get("step", 0)
        before = step()
        self.assertTrue(eventually(lambda: step() > before + 10))
        self.assertEqual([path.name for path in (self.directory / "c").glob("checkpoint-*")], ["checkpoint-0"])

    def test_checkpoint_save_is_rejected_if_the_program_does_not_support_it(self):
        run = self.start_counting("job", program=["sh", "-c", "echo begins at step; exec sleep 1000"])
        self.assertEqual(
            self.refusal("checkpoint", "save", "job"),
            "run 'job': its program does not save checkpoints on request: it does not handle SIGUSR1",
        )
        self.assertEqual(len(replicas_of(run.pid)), 2)

    def test_checkpoint_save_is_rejected_for_runs_that_have_ended_or_save_no_checkpoints(self):
        self.start_counting("job", "--no-checkpoint")
        self.assertEqual(self.refusal("checkpoint", "save", "job"), "run 'job': it was started with --no-checkpoint")
        self.run_to_end("-n", 1, "--name", "over", "true")
        self.assertEqual(self.refusal("checkpoint", "save", "over"), "run 'over' is not running (state: done)")


class ResizeTest(VerbsTest):
    def test_resize_rejects_invalid_sizes_and_ended_runs(self):
        self.run_to_end("-n", 1, "--name", "job", "true")
        for size in ("0", "x", "1:", ":2", "1:2:3", "-1", "2000", "1.5"):
            self.assertEqual(
                self.refusal("resize", "--", "job", size, code=2),
                f"resize: REPLICAS must be N or MIN:MAX, from 1 to 1024, not '{size}'",
            )
        self.assertEqual(self.refusal("resize", "job", "3:2", code=2), "resize: MIN must not be greater than MAX in '3:2'")
        self.assertEqual(self.refusal("resize", "job", "2"), "run 'job' is not running (state: done)")

    def test_a_fixed_size_run_is_resized_by_a_restart(self):
        run = self.start_counting("job")
        self.adaptdl("resize", "job", "3")
        run.wait_for("of start 1", 3)
        run.wait_for("restarting with 3 replicas from checkpoint-")
        self.assertTrue(eventually(lambda: self.listed()["job"]["replicas"] == 3))


class DeleteTest(VerbsTest):
    def test_delete_stops_a_run_and_removes_it(self):
        run = self.start_counting("job", "--checkpoint", "c")
        replicas = replicas_of(run.pid)
        self.assertEqual(
            self.adaptdl("delete", "job"), f"deleted job; its checkpoints are in '{self.directory}/c'\n"
        )
        self.assertFalse(any(map(is_alive, replicas)))
        self.assertEqual(run.finish(), 143, run.text())
        run.wait_for("stop requested by `adaptdl delete`: waiting up to 30s for replicas 0, 1")
        self.assertTrue((self.directory / "c" / "checkpoint-0").exists())
        self.assertEqual(self.adaptdl("ls", "--all"), "no runs\n")
        self.assertEqual(list(self.runs.iterdir()), [])
        self.assertEqual(list((self.directory / "runtime" / "adaptdl").iterdir()), [])

    def test_delete_removes_checkpoints_of_the_run_unless_keep_checkpoints_is_given(self):
        for name, options in {"gone": [], "kept": ["--keep-checkpoints"]}.items():
            self.start_counting(name)
            printed = self.adaptdl("delete", name, *options)
            self.assertEqual(f"its checkpoints are in '{self.runs}/{name}/checkpoints'" in printed, bool(options), printed)
            self.assertEqual(self.adaptdl("ls", "--all"), "no runs\n")
        self.assertEqual(list(self.runs.glob("*/*/*")), [self.runs / "kept" / "checkpoints" / "checkpoint-0"])

    def test_delete_with_the_option_now_kills_the_run_at_once(self):
        run = self.start("-n", 2, "--name", "job", REPLICA_PROGRAM, "--steps", FOREVER, "--hang")
        run.wait_for("begins at step", 2)
        self.adaptdl("delete", "job", "--now")
        self.assertEqual(run.finish(), 130, run.text())

    def test_delete_is_rejected_while_another_run_uses_the_checkpoints_through_a_symbolic_link(self):
        run = self.start_counting("first")
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        (self.directory / "link").symlink_to(self.runs)
        self.start_counting("second", "--checkpoint", self.directory / "link" / "first" / "checkpoints")
        self.assertIn("run 'second' saves its checkpoints in", self.refusal("delete", "first"))
        self.adaptdl("delete", "second")
        self.adaptdl("delete", "first")
        self.assertEqual(list(self.runs.iterdir()), [])

    def test_an_abbreviated_name_that_may_be_a_job_is_rejected_while_the_cluster_is_unreachable(self):
        self.run_to_end("--name", "job-1", "-n", 1, "true")
        config = self.directory / "kubeconfig"
        config.write_text(json.dumps({
            "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:1"}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ada"}}],
            "users": [{"name": "ada", "user": {}}],
            "current-context": "lab",
        }))  # fmt: skip
        self.environment["KUBECONFIG"] = str(config)
        self.assertRegex(self.refusal("delete", "job", code=2), "'job' .*'lab'.*--local.*'job-1'")
        self.assertRegex(self.refusal("delete", "other"), "connection refused")
        self.assertEqual(self.adaptdl("delete", "job-1"), "deleted job-1\n")
        self.assertEqual(list(self.runs.iterdir()), [])


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
