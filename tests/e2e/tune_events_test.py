"""Tests trials that log their metric with TensorBoard's own writers. Needs the Python Package Index on the first run."""

import json
import math
import pathlib
import subprocess

import python_peer
import run_support
from run_support import ADAPTDL

PROGRAM = pathlib.Path(__file__).with_name("tune_events_program.py")
EPOCHS = 4
PATIENCE = 600  # TensorBoard's modules are large


class TuneEventsTest(run_support.RunTest):
    @classmethod
    def setUpClass(cls):
        cls.python = python_peer.venv("tensorboard", ["tensorboard==2.21.0", "setuptools==80.10.2"])

    def search(self, metric, form):
        """Runs a search with three trials, and returns the trials and, by trial, the stored steps and values."""
        options = ["--study", "s", "--trials", 3, "--pruner", "none", "--seed", 1, "-P", "lr=log:1e-5..1e-1", "--metric", f"{metric}:max"]
        options += ["--device-kind", "cpu", "--devices", 2, "--max-replicas", 1]
        done = subprocess.run([ADAPTDL, "tune", *map(str, options), "--", self.python, PROGRAM, form, "{lr}"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, cwd=self.directory, env=self.environment, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        trials = json.loads(self.adaptdl("tune", "show", "s", "--json"))["trials"]
        self.assertEqual([trial["state"] for trial in trials], ["complete"] * 3)
        journal = self.home / ".local" / "state" / "adaptdl" / "studies" / "s" / "journal.log"
        reports = {trial["number"]: [] for trial in trials}
        for operation in map(json.loads, journal.read_text().splitlines()):
            if "intermediate_value" in operation:
                reports[operation["trial_id"]].append((operation["step"], operation["intermediate_value"]))
        return trials, reports

    def check(self, metric, form):
        trials, reports = self.search(metric, form)
        for trial in trials:
            values = [1 - abs(math.log10(trial["parameters"]["lr"]) + 2) / 10 - 0.5 / epoch for epoch in range(1, EPOCHS + 1)]
            logged = reports[trial["number"]]
            self.assertEqual([step for step, _ in logged], [100 * epoch for epoch in range(1, EPOCHS + 1)])
            for (_, value), expected in zip(logged, values, strict=True):
                self.assertAlmostEqual(value, expected, 6)
            self.assertEqual(trial["value"], logged[-1][1])

    def test_values_in_the_pytorch_event_format_are_reported(self):
        self.check("accuracy", "simple")

    def test_values_in_the_tensorflow_event_format_are_reported(self):
        self.check("accuracy", "tensor")

    def test_the_directory_in_the_metric_name_selects_the_writer(self):
        self.check("validation/accuracy", "keras")


if __name__ == "__main__":
    python_peer.main()
