"""Tests a job on several machines, each of which is simulated by a launcher; the launchers meet on the loopback interface."""

import os
import signal
import unittest

from local_network import free_port, leave_network
from run_support import REPLICA_PROGRAM, RunTest, interrupt, replicas_of

FOREVER = 1_000_000  # steps


class NodesTest(RunTest):
    def start_nodes(self, nodes, replicas, *arguments, program=(REPLICA_PROGRAM,)):
        master = f"127.0.0.1:{free_port()}"
        return [
            self.start(
                "--nodes",
                nodes,
                "--node-rank",
                rank,
                "--master",
                master,
                "-n",
                replicas,
                "--checkpoint",
                "shared",
                *arguments[:-1],
                *program,
                *arguments[-1],
            )
            for rank in range(nodes)
        ]

    def test_ranks_are_numbered_across_machines(self):
        show = [
            "sh",
            "-c",
            "echo $ADAPTDL_REPLICA_RANK of $ADAPTDL_NUM_REPLICAS on $ADAPTDL_NUM_NODES at $ADAPTDL_MASTER_ADDR "
            "job $ADAPTDL_JOB_ID",
        ]
        runs = self.start_nodes(2, 2, "--name", "job", [], program=show)
        for node, run in enumerate(runs):
            self.assertEqual(run.finish(), 0, run.text())
            self.assertEqual(
                sorted(run.out),
                [f"[{rank}] {rank} of 4 on 2 at 127.0.0.1 job local/job" for rank in (2 * node, 2 * node + 1)],
            )

    def test_all_machines_finish_the_job(self):
        for run in self.start_nodes(3, 2, ["--steps", 5]):
            self.assertEqual(run.finish(), 0, run.text())
            self.assertEqual(len(run.wait_for("done at step 5")), 2)

    def test_machines_need_the_same_token_to_form_a_job(self):
        def token(name, text):
            path = self.directory / name
            path.write_text(text + "\n")
            path.chmod(0o600)
            return path

        right = token("right", 32 * "a")
        for run in self.start_nodes(2, 1, "--token-file", right, ["--steps", 5]):
            self.assertEqual(run.finish(), 0, run.text())

        wrong = token("wrong", 32 * "b")
        master = f"127.0.0.1:{free_port()}"
        first, second = (
            self.start(
                "--nodes", 2, "--node-rank", rank, "--master", master, "-n", 1, "--no-checkpoint",
                "--token-file", file, REPLICA_PROGRAM, "--steps", 5, ADAPTDL_CONNECT_TIMEOUT="8s",
            )  # fmt: skip
            for rank, file in enumerate((right, wrong))
        )
        self.assertNotEqual(first.finish(), 0)
        self.assertNotEqual(second.finish(), 0)
        self.assertIn("it does not have this job's secret", first.text())
        self.assertIn("does it have the same secret?", second.text())

    def test_an_interrupt_on_one_machine_stops_the_job_and_every_launcher_reports_the_checkpoint(self):
        runs = self.start_nodes(2, 2, ["--steps", FOREVER])
        for run in runs:
            run.wait_for("begins at step", 2)
        interrupt(runs[1])
        for run in runs:
            self.assertEqual(run.finish(), 143, run.text())
            run.wait_for(f"stopped with checkpoint '{self.directory}/shared/checkpoint-0'")

    def test_a_launcher_without_the_checkpoint_directory_reports_the_checkpoint_that_its_replica_saved(self):
        # The second machine's directory is removed during the run, so that only its replica can report the checkpoint.
        program = self.script(
            "elsewhere",
            f"#!/bin/sh\n[ $ADAPTDL_REPLICA_RANK = 0 ] || export ADAPTDL_CHECKPOINT_PATH={self.directory}/shared\n"
            f"exec {REPLICA_PROGRAM} --steps {FOREVER}\n",
        )
        master = f"127.0.0.1:{free_port()}"
        runs = [
            self.start(
                "--nodes", 2, "--node-rank", rank, "--master", master, "-n", 1, "--checkpoint", directory, program
            )
            for rank, directory in enumerate(("shared", "unseen"))
        ]
        for run in runs:
            run.wait_for("begins at step")
        (self.directory / "unseen").rmdir()
        interrupt(runs[0])
        for run in runs:
            self.assertEqual(run.finish(), 143, run.text())
        runs[1].wait_for(f"stopped with checkpoint '{self.directory}/shared/checkpoint-0'")

    def test_a_failure_on_one_machine_ends_the_job_on_all_machines(self):
        runs = self.start_nodes(2, 2, ["--steps", FOREVER])
        for run in runs:
            run.wait_for("begins at step", 2)
        os.kill(replicas_of(runs[1].pid)[0], signal.SIGKILL)
        self.assertEqual(runs[1].finish(), 137, runs[1].text())
        self.assertEqual(runs[0].finish(), 1, runs[0].text())

    def test_the_replicas_on_all_machines_restart_after_a_failure(self):
        runs = self.start_nodes(
            2, 1, "--max-restarts", 3, ["--steps", 12, "--checkpoint-at", 4, "--at-step", 8, "--rank", 1, "--exit", 9]
        )
        for rank, run in enumerate(runs):
            self.assertEqual(run.finish(), 0, run.text())
            self.assertRegex("\n".join(run.out), rf"\[{rank}\] begins at step 4 of start [123]")
            self.assertIn(f"[{rank}] done at step 12", run.out)


if __name__ == "__main__":
    leave_network()  # a process of another test could take a port before the launcher does
    unittest.main(verbosity=2)
