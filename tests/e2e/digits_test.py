"""Tests the digits program as users run it: with `adaptdl run`, alone, and started manually as if on several hosts."""
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from checkpoints import parameters, read_tensors
from local_network import free_port, leave_network

ADAPTDL = os.environ["ADAPTDL_BIN"]
DIGITS = os.environ["DIGITS"]
LINEAR = os.environ["LINEAR_REGRESSION"]
RUNTIME_DIRECTORY = tempfile.TemporaryDirectory()  # for all runs
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": RUNTIME_DIRECTORY.name}


def by_hand(rank, replicas, port, checkpoints, *arguments):
    """Starts one replica with the variables that the manual describes, as if on a separate host."""
    variables = {"ADAPTDL_MASTER_ADDR": "127.0.0.1", "ADAPTDL_MASTER_PORT": str(port), "ADAPTDL_NUM_REPLICAS": str(replicas),
                 "ADAPTDL_REPLICA_RANK": str(rank), "ADAPTDL_CHECKPOINT_PATH": str(checkpoints)}
    return subprocess.Popen([DIGITS, *arguments], env={**ENVIRONMENT, **variables}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class DigitsTest(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.log = self.directory / "log.json"

    def epochs(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def test_two_replicas_reach_an_accuracy_of_95_percent(self):
        run = subprocess.run([ADAPTDL, "run", "-n", "2", "--no-checkpoint", "--", DIGITS, "--log-json", self.log], capture_output=True, text=True,
                             env=ENVIRONMENT, timeout=300)
        self.assertEqual(run.returncode, 0, run.stderr)
        last = self.epochs()[-1]
        self.assertGreaterEqual(last["accuracy"], 0.95)
        self.assertEqual(set(last), {"epoch", "replicas", "batch_size", "loss", "accuracy", "samples", "seconds", "gain", "progress", "elapsed"})
        self.assertEqual((last["replicas"], last["epoch"] + 1), (2, len(self.epochs())))

    def test_a_single_replica_trains_without_the_launcher(self):
        run = subprocess.run([DIGITS, "--epochs", "1", "--log-json", self.log], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.epochs()[0]["replicas"], 1)

    def test_an_interrupted_single_replica_saves_a_checkpoint_and_resumes_from_it(self):
        checkpoints = self.directory / "checkpoints"
        process = by_hand(0, 1, 0, checkpoints, "--epochs", "1000", "--log-json", self.log)
        while not process.stdout.readline().startswith("epoch 1"):
            pass
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 143, output)
        epochs = len(self.epochs()) + 3
        again = by_hand(0, 1, 0, checkpoints, "--epochs", str(epochs), "--log-json", self.log)
        self.assertIn("continuing from", again.communicate(timeout=60)[0])
        self.assertEqual([epoch["epoch"] for epoch in self.epochs()], list(range(epochs)))
        exported = self.directory / "model.safetensors"
        subprocess.run([ADAPTDL, "checkpoint", "export", checkpoints, "--model", "-o", exported], check=True, capture_output=True)
        saved = parameters(checkpoints)
        self.assertIn("model/conv1.weight", saved)
        self.assertEqual(read_tensors(exported), {name.removeprefix("model/"): tensor for name, tensor in saved.items()})

    def test_interrupting_one_manually_started_replica_makes_all_replicas_save_a_checkpoint(self):
        port, checkpoints = free_port(), self.directory / "checkpoints"
        replicas = [by_hand(rank, 3, port, checkpoints, "--epochs", "1000") for rank in range(3)]
        try:
            while not replicas[0].stdout.readline().startswith("epoch 0"):
                pass
            replicas[2].send_signal(signal.SIGINT)
            outputs = [replica.communicate(timeout=60)[0] for replica in replicas]
        finally:
            for replica in replicas:
                replica.kill()
        self.assertEqual([replica.returncode for replica in replicas], [143] * 3, outputs)
        self.assertEqual(len(list(checkpoints.glob("checkpoint-*"))), 1)

    def test_an_interrupt_without_a_checkpoint_path_reports_that_the_path_is_not_set(self):
        process = subprocess.Popen([DIGITS, "--epochs", "1000"], env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130)
        self.assertIn("ADAPTDL_CHECKPOINT_PATH is not set", output)

    def test_a_killed_replica_is_reported_and_ends_the_run(self):
        process = subprocess.Popen([ADAPTDL, "run", "-n", "3", "--no-checkpoint", "--", DIGITS, "--epochs", "1000"], env=ENVIRONMENT, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        replicas = [int(pid) for pid in children if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(DIGITS)]
        self.assertEqual(len(replicas), 3)
        os.kill(replicas[1], signal.SIGKILL)
        begin = time.monotonic()
        errors = process.communicate(timeout=60)[1]
        self.assertLess(time.monotonic() - begin, 25)  # less than 5 on an otherwise idle machine
        self.assertEqual(process.returncode, 128 + signal.SIGKILL)
        self.assertRegex(errors, r"replica 1 .*SIGKILL")

    def test_after_a_replica_is_killed_the_others_save_a_checkpoint_before_the_run_ends(self):
        checkpoints = self.directory / "checkpoints"
        command = [ADAPTDL, "run", "-n", "3", "--checkpoint", checkpoints, "--", DIGITS, "--epochs"]
        process = subprocess.Popen([*command, "1000"], env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = "".join(process.stdout.readline() for _ in range(3))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        replicas = [int(pid) for pid in children if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(DIGITS)]
        os.kill(replicas[0], signal.SIGKILL)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, errors)
        self.assertRegex(errors, r"stopping: waiting up to \S+ for replicas 1, 2 to checkpoint")
        self.assertRegex(errors, r"replica 0 failed first: it was killed by SIGKILL")
        self.assertRegex(errors, r"the newest checkpoint is '\S+/checkpoint-0'")
        epoch = max(int(line.split("epoch ")[1].split()[0]) for line in (before + output).splitlines() if " epoch " in line)
        again = subprocess.run([*command, str(epoch + 3)], env=ENVIRONMENT, text=True, capture_output=True, timeout=120)
        self.assertEqual(again.returncode, 0, again.stderr)
        start = int(again.stderr.split("starting at epoch ")[1].split()[0])
        self.assertIn(start, (epoch + 1, epoch + 2))

    def test_invalid_arguments_fail_with_an_error_that_names_them(self):
        for arguments, code, text in ((["--data", "/nowhere"], 1, "/nowhere"), (["--epochs", "x"], 2, "--epochs"), (["--epochs", "0"], 2, "--epochs"),
                                      (["--log-json", "/nowhere/log"], 2, "--log-json"), (["--wrong"], 2, "--wrong")):
            with self.subTest(arguments):
                run = subprocess.run([DIGITS, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
                self.assertEqual(run.returncode, code)
                self.assertIn(text, run.stderr)

    def test_linear_regression_fits_a_line_to_points_from_a_file(self):
        points = self.directory / "points.csv"
        points.write_text("".join(f"{x},{3 * x + 1}\n" for x in (i / 50 - 1 for i in range(100))))
        run = subprocess.run([ADAPTDL, "run", "-n", "2", "--no-checkpoint", "--", LINEAR, "--data", points, "--lr", "0.1", "--batch-size", "10",
                              "--epochs", "40", "--log-json", self.log], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertGreater(self.epochs()[-1]["accuracy"], 0.9999)


if __name__ == "__main__":
    leave_network()  # otherwise, a process of another test could take a replica's port first
    unittest.main()
