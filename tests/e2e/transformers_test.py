"""Tests an unmodified program that uses Hugging Face's Trainer under `adaptdl run`: its Kubeflow callback reports to the run. Needs
the Python Package Index on the first run."""

import math
import pathlib

import python_peer
from run_support import RunTest, eventually

PROGRAM = pathlib.Path(__file__).with_name("transformers_program.py")
PATIENCE = 300  # importing takes a while


class TransformersTest(RunTest):
    @classmethod
    def setUpClass(cls):
        cls.python, cls.path = python_peer.transformers()

    def progress(self):
        return self.listed("job")["job"]["progress"]

    def test_a_run_shows_the_progress_of_the_hugging_face_trainer(self):
        go_on = self.directory / "go"
        run = self.start(
            "--name", "job", "--", self.python, PROGRAM, self.directory / "output", go_on,
            PYTHONPATH=self.path, HF_HUB_OFFLINE="1", TMPDIR=str(self.directory),
        )  # fmt: skip
        run.wait_for("[0] starts")
        eventually(lambda: self.progress().get("step") or run.process.poll() is not None, PATIENCE)
        report = self.progress()
        self.assertEqual(report.get("steps"), 100, run.text())
        self.assertTrue(0 < report["step"] < 100, report)
        self.assertIn(report["progress"], (report["step"], report["step"] - 1))  # the callback rounds down, even 28.99
        self.assertEqual(report["targetProgress"], 100)
        self.assertAlmostEqual(report["epoch"], report["step"] / 50, delta=0.03)
        # Each step takes slightly more than 0.2 s.
        self.assertTrue(0.2 * (100 - report["step"]) - 1 <= report["remaining_s"] < PATIENCE, report)
        loss = report["loss"]
        self.assertTrue(0 < loss < 2 * math.log(32), report)
        self.assertGreater(report["learning_rate"], 0)
        go_on.touch()
        self.assertEqual(run.finish(PATIENCE), 0, run.text())
        run.wait_for("[0] trained 5.24.0")
        report = self.progress()
        self.assertEqual((report["progress"], report["remaining_s"], report["epoch"]), (100, 0, 2))
        self.assertLess(report["loss"], loss)
        self.assertGreater(report["train_loss"], report["loss"])


if __name__ == "__main__":
    python_peer.main()
