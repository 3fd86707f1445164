"""Tests the training programs as users run them: interrupted and resumed on a different number of replicas, with
adaptive batch sizes, with data sets in the original formats, and with invalid options."""
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from extent import FULL  # in this directory
from local_network import leave_network

ADAPTDL = os.environ["ADAPTDL_BIN"]
PROGRAMS = {name: os.environ[name.upper()] for name in ("bert", "cifar", "dcgan", "digits", "linear_regression", "ncf", "transformer")}
RUNTIME_DIRECTORY = tempfile.TemporaryDirectory()  # for all runs
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if not name.startswith("ADAPTDL_")}, "OMP_NUM_THREADS": "1",
               "XDG_RUNTIME_DIR": RUNTIME_DIRECTORY.name}
STOPPED = 143

# The options that make each program small, and the metric that training must reduce.
SMALL = {
    "bert": (["--hidden", "32"], "test_loss"),
    "cifar": (["--samples", "1500", "--batch-size", "16"], "test_loss"),
    "dcgan": (["--size", "8", "--width", "16"], "g_loss"),
    "ncf": (["--batch-size", "512"], "loss"),
    "transformer": (["--width", "32", "--hidden", "64"], "test_loss"),
}


class ProgramsTest(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.log = self.directory / "log.json"

    def epochs(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def command(self, name, *arguments, replicas=2, checkpoint=None):
        where = ["--checkpoint", checkpoint] if checkpoint else ["--no-checkpoint"]
        return [str(part) for part in (ADAPTDL, "run", "-n", replicas, *where, "--", PROGRAMS[name], "--log-json", self.log, *arguments)]

    def train(self, name, *arguments, code=0, **more):
        run = subprocess.run(self.command(name, *arguments, **more), capture_output=True, text=True, env=ENVIRONMENT, cwd=self.directory, timeout=120)
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def refused(self, name, *arguments, code=2):
        """Runs a program that must reject its options, and returns its error message, which must be one line."""
        run = subprocess.run([PROGRAMS[name], *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
        self.assertEqual((run.returncode, run.stdout), (code, ""), run.stderr)
        self.assertRegex(run.stderr, r"\Aerror: [^\n]+\n\Z")
        return run.stderr

    def interrupted_and_resumed(self, name, first, second):
        """Trains on `first` replicas until it is interrupted in the second epoch or later, then to completion on
        `second` replicas. Returns the metric of each epoch."""
        arguments, figure = SMALL[name]
        checkpoint = self.directory / "checkpoints"
        # The program cannot finish this many epochs before it is interrupted.
        with subprocess.Popen(self.command(name, *arguments, "--epochs", 100000, replicas=first, checkpoint=checkpoint), text=True, env=ENVIRONMENT, cwd=self.directory,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            output = ""
            for line in process.stdout:
                output += line
                if "epoch 1" in line:
                    process.send_signal(signal.SIGINT)
                    break
            output += process.stdout.read()
        self.assertEqual(process.returncode, STOPPED, output)
        finished = len(self.epochs())
        self.train(name, *arguments, "--epochs", finished + 2, replicas=second, checkpoint=checkpoint)
        epochs = self.epochs()
        self.assertEqual([epoch["epoch"] for epoch in epochs], list(range(finished + 2)))
        self.assertEqual([epochs[0]["replicas"], epochs[-1]["replicas"]], [first, second])
        return [epoch[figure] for epoch in epochs]

    def test_programs_interrupted_on_one_replica_resume_on_two_and_learn(self):
        for name in ("ncf", "bert", "transformer", "cifar") if FULL else ("ncf", "bert"):
            with self.subTest(name):
                self.setUp()
                figures = self.interrupted_and_resumed(name, 1, 2)
                self.assertLess(figures[-1], 0.99 * figures[0])

    def test_programs_interrupted_on_two_replicas_resume_on_one_and_learn(self):
        for name in ("cifar", "transformer") if FULL else ("transformer",):
            with self.subTest(name):
                self.setUp()
                figures = self.interrupted_and_resumed(name, 2, 1)
                self.assertLess(figures[-1], 0.99 * figures[0])

    def test_dcgan_resumes_both_networks_and_writes_a_sample_sheet(self):
        self.interrupted_and_resumed("dcgan", 1, 2)
        newest = max((self.directory / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        for state in ("generator", "discriminator"):
            self.assertTrue((newest / f"{state}.safetensors").exists())
        header, pixels = (self.directory / "dcgan-samples.pgm").read_bytes().split(b"\n255\n", 1)
        self.assertEqual((header, len(pixels)), (b"P5\n64 64", 64 * 64))
        self.assertGreater(len(set(pixels)), 20)

    def test_programs_learn_with_a_chosen_optimizer(self):
        all_chosen = (("transformer", "sgd"), ("digits", "adam"), ("ncf", "adamw"), ("bert", "sgd"), ("cifar", "adam"), ("linear_regression", "adam"))
        for name, optimizer in all_chosen if FULL else all_chosen[:3]:
            with self.subTest(name, optimizer=optimizer):
                self.setUp()
                arguments, figure = SMALL.get(name, ([], "loss"))
                rate = ["--lr", "0.5"] if (name, optimizer) == ("transformer", "sgd") else []
                rate = ["--lr", "0.1"] if name in ("bert", "linear_regression") else rate
                self.train(name, *arguments, "--optimizer", optimizer, "--epochs", "3", *rate)
                epochs = self.epochs()
                self.assertLess(epochs[-1][figure], epochs[0][figure])

    def test_sparse_embeddings_reach_the_same_loss_as_dense_ones(self):
        losses = []
        for sparse in ([], ["--sparse"]):
            self.setUp()
            self.train("ncf", "--optimizer", "sgd", "--lr", "0.5", "--epochs", "2", *sparse)
            losses.append(self.epochs()[-1]["loss"])
        self.assertAlmostEqual(losses[0], losses[1], places=3)

    def test_an_adaptive_batch_size_stays_within_its_bounds_and_epochs_end_at_their_target_progress(self):
        self.train("cifar", "--samples", "3000", "--epochs", "12", "--batch-size", "16", "--autoscale-bsz", "--max-batch-size", "96", "--local-bsz-bounds", "16:64")
        epochs = self.epochs()
        for epoch in epochs:
            self.assertTrue(32 <= epoch["batch_size"] <= 96, epoch)
            self.assertTrue(1 <= epoch["gain"] <= epoch["batch_size"] / 16 + 1e-9, epoch)
        # An epoch ends after as much statistical progress as one pass over the data set makes with batch size 16.
        self.assertAlmostEqual(epochs[-1]["progress"] / (12 * 3000 / 16), 1, delta=0.05)
        self.assertLess(epochs[-1]["test_loss"], epochs[0]["test_loss"])

    def test_status_reports_contain_progress_and_target_progress(self):
        reader, writer = os.pipe()
        options = ["--epochs", "1000000", "--batch-size", "32", "--autoscale-bsz", "--max-batch-size", "256"]
        program = subprocess.Popen([PROGRAMS["digits"], *options], env={**ENVIRONMENT, "ADAPTDL_STATUS_FD": str(writer)}, pass_fds=[writer],
                                   cwd=self.directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(writer)
        try:
            with os.fdopen(reader) as lines:
                reports = (report for report in map(json.loads, lines) if "progress" in report)
                first, second = next(reports), next(reports)
        finally:
            program.kill()
            program.wait()
        self.assertTrue(0 < first["progress"] < second["progress"], (first, second))
        # With batch size 32, a million passes over 1,437 images take this many steps.
        self.assertEqual([first["targetProgress"], second["targetProgress"]], [1e6 * 1437 / 32] * 2)

    def test_tensorboard_events_are_written_unless_disabled(self):
        logs = self.directory / "logs"
        environment = {**ENVIRONMENT, "ADAPTDL_TENSORBOARD_LOGDIR": str(logs)}
        for option, expected in (([], 1), (["--no-tensorboard"], 1)):
            subprocess.run(self.command("ncf", "--epochs", "1", "--batch-size", "2048", *option), check=True, capture_output=True, env=environment, timeout=60)
            self.assertEqual(len(list(logs.rglob("events.out.tfevents.*"))), expected)
        (events,) = logs.rglob("events.out.tfevents.*")
        content = events.read_bytes()
        for tag in (b"Epoch/hit_rate", b"Data/Total_Batch_Size", b"Model/Gain"):
            self.assertIn(tag, content)

    def test_programs_read_data_sets_in_their_original_formats(self):
        cifar = self.directory / "cifar-10"
        cifar.mkdir()
        images = [struct.pack("B", label) + bytes([25 * label] * 3072) for label in range(10)] * 20
        (cifar / "data_batch_1.bin").write_bytes(b"".join(images))
        (cifar / "test_batch.bin").write_bytes(b"".join(images[:50]))
        self.train("cifar", "--data", cifar, "--epochs", "2", "--batch-size", "20")
        self.train("dcgan", "--data", cifar, "--epochs", "1", "--batch-size", "20", "--size", "8", "--sheet", "colours.ppm")
        self.assertEqual((self.directory / "colours.ppm").read_bytes()[:2], b"P6")
        ratings = self.directory / "ratings.dat"
        ratings.write_text("".join(f"{user}::{(user * step) % 61}::4::{step}\n" for user in range(1, 50) for step in range(1, 9)))
        self.train("ncf", "--data", ratings, "--epochs", "1")
        text = self.directory / "text"
        text.write_text("the quick brown fox jumps over the lazy dog . " * 200)
        self.train("transformer", "--data", text, "--level", "char", "--epochs", "1")
        vocabulary = self.directory / "words"
        vocabulary.write_text("the\nfox\ndog\n")
        self.train("bert", "--data", text, "--vocab", vocabulary, "--amp", "bf16", "--epochs", "1")

    def test_invalid_batch_size_bounds_are_rejected_with_the_option_named(self):
        for arguments, printed in ((["--max-batch-size", "32"], "--max-batch-size 32 is smaller than --batch-size 64"),
                                   (["--local-bsz-bounds", "64:32"], "lower bound is above"), (["--local-bsz-bounds", "128:256"], "excludes --batch-size 64"),
                                   (["--local-bsz-bounds", "8:32"], "excludes --batch-size 64"), (["--local-bsz-bounds", "8-32"], "MIN:MAX"),
                                   (["--local-bsz-bounds", "0:"], "MIN:MAX"), (["--max-batch-size", "0"], "--max-batch-size")):
            # All programs share the code that checks these options, so most cases are tested with one program only.
            for name in PROGRAMS if FULL or arguments[0] == "--max-batch-size" else ["digits"]:
                with self.subTest(name, arguments=arguments):
                    self.assertIn(printed, self.refused(name, "--batch-size", "64", "--autoscale-bsz", *arguments))
        self.assertIn("--autoscale-bsz", self.refused("digits", "--max-batch-size", "128"))

    def test_missing_data_is_rejected_with_the_option_and_file_named(self):
        for name in ("transformer", "bert", "cifar", "ncf"):
            with self.subTest(name):
                self.assertRegex(self.refused(name, "--data", "/nowhere/data"), r"(--data|/nowhere/data).*(--data|/nowhere/data)")
        self.assertRegex(self.refused("bert", "--vocab", "/nowhere/words"), r"'/nowhere/words' \(--vocab\)")

    def test_other_invalid_options_are_rejected_by_name(self):
        for name, arguments in (("cifar", ["--model", "alexnet"]), ("ncf", ["--sparse"]), ("transformer", ["--level", "line"]),
                                ("transformer", ["--heads", "3"]), ("bert", ["--heads", "5"]), ("bert", ["--amp", "fp8"]), ("dcgan", ["--size", "20"]),
                                ("digits", ["--optimizer", "lbfgs"]), ("digits", ["--lr", "0"]), ("digits", ["--tensorboard"])):
            with self.subTest(name, arguments=arguments):
                self.assertIn(arguments[0], self.refused(name, *arguments))


if __name__ == "__main__":
    leave_network()
    unittest.main()
