"""Tests changes of a run's replicas: on a user's request, after a replica dies, and during a stop, which must lose
nothing."""

import os
import pathlib
import re
import signal
import unittest

from local_network import leave_network
from run_support import REPLICA_PROGRAM, RunTest, eventually, interrupt, is_alive, replicas_of

PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")
FOREVER = 1_000_000  # steps
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")


class ElasticTest(RunTest):
    def start_elastic(self, replicas, *program, devices=4, options=()):
        self.name = f"e{os.getpid()}"
        return self.start(
            "-n", replicas, "--devices", devices, "--device-kind", "cpu", "--name", self.name, "--checkpoint", "c",
            *options, PROGRAM, *program,
        )  # fmt: skip

    def resize(self, bounds):
        self.adaptdl("resize", self.name, bounds)

    def wait_for_generation(self, run, generation, size):
        """Waits until all `size` replicas of that generation are training, and returns their process IDs by rank."""
        lines = run.wait_for(f"generation {generation} rank ", size)
        found = {}
        for line in lines:
            rank, of, pid = re.search(r"rank (\d+) of (\d+) at step \d+ in (\d+)", line).groups()
            self.assertEqual(int(of), size, run.text())
            found[int(rank)] = int(pid)
        self.assertEqual(sorted(found), list(range(size)), run.text())
        return [found[rank] for rank in range(size)]

    def wait_for_group(self, run, condition):
        """Waits until the condition holds for the process IDs, by rank, of a generation that is training, and returns them.
        The number of the generation does not matter: a replica that is not scheduled for as long as --hang-timeout is lost as
        well, and is replaced in a later generation."""

        def groups():
            found = {}
            for line in list(run.out):
                if match := re.search(r"generation (\d+) rank (\d+) of (\d+) at step \d+ in (\d+)", line):
                    number, rank, size, pid = map(int, match.groups())
                    found.setdefault((number, size), {})[rank] = pid
            return [[ranks[rank] for rank in range(size)] for (_, size), ranks in found.items() if len(ranks) == size]

        found = eventually(lambda: next(filter(condition, groups()), None))
        self.assertTrue(found, run.text())
        return found

    def assert_steps_go_on(self, run):
        """Asserts that no generation began at an earlier step than its predecessors."""
        steps = {}
        for line in run.out:
            if match := re.search(r"generation (\d+) rank \d+ of \d+ at step (\d+)", line):
                steps.setdefault(int(match[1]), set()).add(int(match[2]))
        self.assertTrue(all(len(found) == 1 for found in steps.values()), steps)
        ordered = [steps[generation].pop() for generation in sorted(steps)]
        self.assertEqual(ordered, sorted(ordered), run.text())

    def stop(self, run):
        """Interrupts the run, as a user does with Ctrl-C, so that it saves a checkpoint and stops."""
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        run.wait_for("saved step")
        self.assert_steps_go_on(run)


class ResizeTest(ElasticTest):
    def test_a_run_below_its_maximum_size_uses_all_available_devices(self):
        run = self.start_elastic("1:3", devices=2)
        self.wait_for_generation(run, 0, 2)
        self.stop(run)

    def test_a_run_grows_and_shrinks_while_remaining_replicas_keep_running(self):
        run = self.start_elastic("1")
        [first] = self.wait_for_generation(run, 0, 1)
        self.resize("3")
        three = self.wait_for_generation(run, 1, 3)
        self.assertEqual(three[0], first)
        self.resize("1:2")
        two = self.wait_for_generation(run, 2, 2)
        self.assertEqual(two, three[:2])
        run.wait_for("leaves at step")
        self.assertTrue(eventually(lambda: not is_alive(three[2])))
        self.resize("4:4")
        self.assertEqual(self.wait_for_generation(run, 3, 4)[:2], two)
        self.stop(run)
        run.wait_for("from 2 to 4 replicas")
        self.assertNotIn("restart", "\n".join(run.err))

    def test_a_run_that_finishes_while_growing_succeeds(self):
        run = self.start_elastic("1", "--until", "done")
        self.wait_for_generation(run, 0, 1)
        self.resize("4")
        self.assertTrue(eventually(lambda: len(replicas_of(run.pid)) > 1))
        (self.directory / "done").touch()
        self.assertEqual(run.finish(), 0, run.text())
        self.assert_steps_go_on(run)

    def test_a_resize_beyond_the_available_devices_is_rejected(self):
        run = self.start_elastic("1:2", devices=2)
        self.wait_for_generation(run, 0, 2)
        refusal = self.adaptdl("resize", self.name, "3", code=1)
        self.assertIn("3 replicas need 3 devices, but only 2 may be used: 0, 1", refusal)
        self.stop(run)

    def test_an_interrupt_while_growing_leaves_no_replicas_behind(self):
        run = self.start_elastic("1")
        self.wait_for_generation(run, 0, 1)
        self.resize("4")
        eventually(lambda: len(replicas_of(run.pid)) > 1)
        replicas = replicas_of(run.pid)
        self.stop(run)
        self.assertEqual([pid for pid in replicas if is_alive(pid)], [])

    def test_the_prefix_and_log_file_of_a_replica_whose_rank_changes_are_those_of_its_new_rank(self):
        run = self.start_elastic("1:2", devices=2, options=["--logs", "l"])
        first, second = self.wait_for_generation(run, 0, 2)
        os.kill(first, signal.SIGKILL)
        self.wait_for_generation(run, 2, 2)
        self.stop(run)
        saved = run.wait_for("saved step")
        self.assertTrue(saved[0].startswith("[0] "), saved)
        self.assertIn("saved step", (self.directory / "l" / "rank-0.log").read_text())


class FailureTest(ElasticTest):
    def test_after_a_replica_is_killed_the_others_continue_at_once_and_a_replacement_joins(self):
        for victim in (0, 2):
            with self.subTest(rank=victim):
                run = self.start_elastic("1:3", devices=3)
                before = self.wait_for_generation(run, 0, 3)
                os.kill(before[victim], signal.SIGKILL)
                survivors = before[:victim] + before[victim + 1 :]
                self.assertEqual(self.wait_for_generation(run, 1, 2), survivors)
                self.assertEqual(self.wait_for_generation(run, 2, 3)[:2], survivors)
                run.wait_for(f"replica {victim} was killed by SIGKILL")
                run.wait_for("continuing with 2 replicas")
                self.stop(run)

    def test_replicas_below_the_minimum_wait_for_replacements_of_killed_ones(self):
        run = self.start_elastic("3", devices=3, options=["--max-restarts", 1])
        before = self.wait_for_generation(run, 0, 3)
        os.kill(before[1], signal.SIGKILL)
        after = self.wait_for_generation(run, 1, 3)
        self.assertEqual(after[:2], [before[0], before[2]])
        self.stop(run)

    def test_a_run_survives_repeated_kills_without_using_restarts(self):
        run = self.start_elastic("1:2", devices=2, options=["--max-restarts", 0])
        generation, members = 0, self.wait_for_generation(run, 0, 2)
        for round in range(3):
            os.kill(members[round % 2], signal.SIGKILL)
            generation += 2
            members = self.wait_for_generation(run, generation, 2)
        self.stop(run)

    def test_a_killed_replica_fails_a_fixed_size_run_without_restarts(self):
        run = self.start_elastic("2", devices=2)
        members = self.wait_for_generation(run, 0, 2)
        os.kill(members[1], signal.SIGKILL)
        self.assertEqual(run.finish(), 137, run.text())
        run.wait_for("adaptdl: error: replica 1 failed first: it was killed by SIGKILL")

    def test_a_job_restarts_from_its_checkpoint_if_all_replicas_are_killed(self):
        run = self.start_elastic("1:2", "--save-every", 5, devices=2)
        members = self.wait_for_generation(run, 0, 2)
        eventually(lambda: list((self.directory / "c").glob("checkpoint-*")))
        for pid in members:
            os.kill(pid, signal.SIGSTOP)  # so that neither is observed to survive the other
        for pid in members:
            os.kill(pid, signal.SIGKILL)
        run.wait_for("restarting all replicas from checkpoint-")
        lines = run.wait_for("generation 0 rank ", 4)
        self.assertTrue(all(int(re.search(r"at step (\d+)", line)[1]) > 0 for line in lines[2:]), lines)
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())

    def test_a_hung_replica_is_reported_by_the_others_and_replaced(self):
        run = self.start_elastic("1:3", devices=3, options=["--hang-timeout", "1s"])
        before = self.wait_for_group(run, lambda members: len(members) == 3)
        os.kill(before[1], signal.SIGSTOP)
        left = [before[0], before[2]]
        self.wait_for_group(run, lambda members: members == left)
        run.wait_for("killing replica 1: it hung: the others lost contact with it")
        run.wait_for("replica 1 hung and was killed")
        self.wait_for_group(run, lambda members: len(members) == 3 and members[:2] == left)
        self.stop(run)

    def test_the_others_save_a_checkpoint_if_a_replica_hangs_or_dies_during_a_stop(self):
        for dies in (False, True):
            with self.subTest(dies=dies):
                run = self.start_elastic("2:3", devices=3, options=["--hang-timeout", "1s"])
                members = self.wait_for_group(run, lambda members: len(members) == 3)
                # While all of them are suspended, none can notice the loss of another before the run stops.
                for pid in members:
                    os.kill(pid, signal.SIGSTOP)
                interrupt(run)
                run.wait_for("waiting up to")
                if dies:
                    os.kill(members[0], signal.SIGKILL)
                for pid in members[1:]:
                    os.kill(pid, signal.SIGCONT)
                self.assertEqual(run.finish(), 143, run.text())
                run.wait_for("continuing with 2 replicas to save a checkpoint")
                run.wait_for("saved step")
                self.assert_steps_go_on(run)

    @unittest.skipUnless(os.access(FREEZER, os.W_OK), "a process that SIGKILL does not end requires the freezer of cgroup v1, and root")
    def test_the_others_continue_and_save_a_checkpoint_if_a_hung_replica_cannot_be_killed(self):
        run = self.start_elastic("1:3", devices=3, options=["--hang-timeout", "1s"])
        before = self.wait_for_group(run, lambda members: len(members) == 3)
        group = FREEZER / f"adaptdl-{os.getpid()}"
        group.mkdir()
        self.addCleanup(lambda: eventually(lambda: not (group / "tasks").read_text()) and group.rmdir())
        self.addCleanup((group / "freezer.state").write_text, "THAWED")
        (group / "cgroup.procs").write_text(str(before[1]))
        (group / "freezer.state").write_text("FROZEN")
        self.wait_for_group(run, lambda members: members == [before[0], before[2]])
        run.wait_for("replica 1 did not end after SIGKILL; it is blocked in the kernel")
        self.assertTrue(is_alive(before[1]))
        self.stop(run)
        run.wait_for("warning: replica 1 still running 10s after SIGKILL")

    def test_new_replicas_that_fail_do_not_affect_the_running_ones(self):
        run = self.start_elastic("1", "--newcomers-exit", 9)
        self.wait_for_generation(run, 0, 1)
        self.resize("1:2")
        run.wait_for("the new replica 1 exited with code 9", 3)
        run.wait_for("new replicas failed 3 times in a row: staying at 1 replica")
        self.stop(run)

    def test_no_replica_outlives_a_launcher_killed_while_growing(self):
        run = self.start_elastic("1")
        self.wait_for_generation(run, 0, 1)
        self.resize("3")
        self.assertTrue(eventually(lambda: len(replicas_of(run.pid)) == 3))
        replicas = replicas_of(run.pid)
        run.send(signal.SIGKILL)
        self.assertEqual(run.finish(), -signal.SIGKILL)
        self.assertTrue(eventually(lambda: not any(map(is_alive, replicas))))

    def test_a_program_that_fails_before_its_first_step_is_restarted_only_once(self):
        for meets in (False, True):
            with self.subTest(meets_the_others=meets):
                program = self.python(
                    "wrong",
                    "import json, os, sys\n"
                    "met = {'event': 'generation', 'generation': 0, 'rank': 0, 'replicas': 2}\n"
                    f"{meets} and os.write(int(os.environ['ADAPTDL_STATUS_FD']), json.dumps(met).encode() + b'\\n')\n"
                    "print('no such data set', file=sys.stderr)\n"
                    "sys.exit(4)\n",
                )
                run = self.run_to_end("-n", "1:2", "--devices", 2, "--device-kind", "cpu", program, code=4)
                run.wait_for("restarting all replicas from the beginning, as there is no checkpoint (restart 1 of 3)")
                run.wait_for("failed twice in the same way before its first step; not restarting")
                self.assertNotIn("restart 2 of 3", run.text())


class CheckpointRestartTest(ElasticTest):
    def test_a_program_that_new_replicas_cannot_join_is_rescaled_by_a_restart(self):
        run = self.start_elastic("1", "--cannot-join")
        [before] = self.wait_for_generation(run, 0, 1)
        # Otherwise the checkpoint could be that of step 0.
        self.assertTrue(eventually(lambda: self.listed()[self.name]["progress"].get("step", 0) > 0), run.text())
        self.resize("2")
        run.wait_for("new replicas cannot join the program while it runs: it meets its peers before its first step")
        run.wait_for("restarting with 2 replicas from checkpoint-")
        lines = run.wait_for("generation 0 rank ", 3)
        self.assertTrue(all(" of 2 at step " in line for line in lines[1:]), lines)
        self.assertGreater(int(re.search(r"at step (\d+)", lines[1])[1]), 0)
        self.assertFalse(is_alive(before))
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())

    def test_a_program_that_does_not_follow_generations_is_rescaled_by_a_restart(self):
        name = f"plain{os.getpid()}"
        run = self.start(
            "-n", "1:2", "--devices", 4, "--device-kind", "cpu", "--name", name, "--checkpoint", "c",
            REPLICA_PROGRAM, "--steps", FOREVER,
        )  # fmt: skip
        run.wait_for("begins at step 0 of start 0", 2)
        self.adaptdl("resize", name, "3")
        begun = run.wait_for("of start 1", 3)
        step = int(run.wait_for("saved step")[0].split()[-1])
        self.assertEqual(
            sorted(line for line in begun if "begins" in line),
            [f"[{rank}] begins at step {step} of start 1" for rank in range(3)],
        )
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        self.assertNotIn("error", run.text())

    def test_a_run_that_saves_nothing_for_a_resize_restarts_from_an_earlier_checkpoint(self):
        name = f"forgets{os.getpid()}"
        run = self.start(
            "-n", "1:2", "--devices", 4, "--device-kind", "cpu", "--name", name, "--checkpoint", "c",
            REPLICA_PROGRAM, "--steps", FOREVER, "--forget", "--checkpoint-at", 2,
        )  # fmt: skip
        run.wait_for("saved step 2", 2)
        self.adaptdl("resize", name, "3")
        run.wait_for("no new checkpoint was found: restarting all replicas from checkpoint-0 (restart 1 of 3)")
        run.wait_for("begins at step 2 of start 1", 3)
        interrupt(run)
        self.assertEqual(run.finish(), 1, run.text())

    def test_a_resize_that_needs_a_restart_is_rejected_without_checkpoints(self):
        name = f"bare{os.getpid()}"
        run = self.start(
            "-n", "1:1", "--devices", 4, "--device-kind", "cpu", "--name", name, "--no-checkpoint",
            REPLICA_PROGRAM, "--steps", FOREVER,
        )  # fmt: skip
        run.wait_for("begins at step")
        refused = lambda: "does not support changing the number of replicas while it runs" in self.try_resize(name, 2)
        self.assertTrue(eventually(refused))
        interrupt(run)
        self.assertEqual(run.finish(), 1, run.text())

    def try_resize(self, name, bounds):
        try:
            return self.adaptdl("resize", name, bounds, code=1)
        except AssertionError:
            return ""

    def test_a_program_that_fails_while_stopping_for_a_resize_fails_the_run(self):
        name = f"bad{os.getpid()}"
        program = self.python(
            "bad",
            "import json, os, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
            "os.write(int(os.environ['ADAPTDL_STATUS_FD']), b'{\"step\": 1}\\n')\n"
            "print('ready', flush=True)\n"
            "while True:\n    time.sleep(0.1)\n",
        )
        run = self.start("-n", "1", "--max-restarts", 0, "--devices", 2, "--name", name, program)
        run.wait_for("ready")
        self.adaptdl("resize", name, "2")
        self.assertEqual(run.finish(), 5, run.text())


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
