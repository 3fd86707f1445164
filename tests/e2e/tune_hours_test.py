"""Tests the device-hours of runs, trials and studies, and `adaptdl tune --gpu-hours`."""

import json
import os
import signal
import time
import unittest

import tune_support
from run_support import PATIENCE, eventually

STUDY = ["--study", "s", "-P", "lr=log:1e-5..1e-1", "--metric", "accuracy:max", "--seed", 1, "--pruner", "none", "--device-kind", "cpu",
         "--devices", 2]


class TuneHoursTest(tune_support.TuneTest):
    def total(self):
        [study] = json.loads(self.adaptdl("tune", "ls", "--json"))
        return study["device_seconds"]

    def epochs(self):
        """Returns for how many epochs each of the first two trials has been trained so far."""
        return [len(self.trained_so_far(number)) for number in range(2)]

    def record(self, run):
        """Returns the record of a run, which is empty if it does not exist."""
        try:
            return json.loads((self.runs / run / "run.json").read_text())
        except FileNotFoundError:
            return {}

    def attributes(self, key, trial=None):
        """Returns all stored values of a user attribute of the trial, or of the study if `trial` is None. The last one is in effect."""
        # A search may be writing the last line.
        complete = (self.studies / "s" / "journal.log").read_text().rpartition("\n")[0]
        lines = [json.loads(line) for line in complete.splitlines()]
        return [line["user_attr"][key] for line in lines if line.get("trial_id") == trial and key in line.get("user_attr", {})]

    def test_device_hours_of_a_study_are_the_sum_of_its_trials(self):
        began = time.monotonic()
        printed = self.tune(*STUDY, "--trials", 4, "--max-replicas", 1, *self.program("--epochs", 10, "--pause", "0.2"))
        took = time.monotonic() - began
        trials = self.trials("s")
        self.assertEqual(len(trials), 4)
        for trial in trials:
            self.assertGreater(trial["device_seconds"], 2)
            self.assertLess(trial["device_seconds"], took)
        total = sum(trial["device_seconds"] for trial in trials)
        self.assertLess(total, 2 * took)
        self.assertAlmostEqual(self.total(), total)
        self.assertIn(f"device-hours: {total / 3600:.4f}\n", printed)
        self.assertIn("DEVICE-H", self.adaptdl("tune", "show", "s"))
        self.assertIn(f"{total / 3600:.4f}", self.adaptdl("tune", "ls"))

    def test_device_hours_of_a_trial_with_two_replicas_count_both_devices(self):
        began = time.monotonic()
        self.tune(*STUDY, "--trials", 1, "--min-replicas", 2, "--max-replicas", 2, *self.program("--epochs", 10, "--pause", "0.2"))
        took = time.monotonic() - began
        self.assertGreater(self.total(), 2 * 2)
        self.assertLess(self.total(), 2 * took)

    def test_device_hours_of_a_run_count_its_devices_or_its_replicas_if_it_has_no_devices(self):
        for name, options in [("shared", ["--replicas", "2:2", "--devices", 2, "--device-kind", "cpu"]), ("plain", ["--replicas", 2])]:
            with self.subTest(name):
                began = time.monotonic()
                self.run_to_end("--name", name, *options, "--", "sleep", 1)
                took = time.monotonic() - began
                used = self.listed()[name]["device_seconds"]
                self.assertGreater(used, 2 * 1)
                self.assertLess(used, 2 * took)
                self.assertIn("device-hours", self.adaptdl("describe", name))

    def test_a_run_with_a_killed_launcher_keeps_its_published_device_hours(self):
        run = self.start("--name", "r", "--replicas", 1, "--", "sleep", 2 * PATIENCE)
        self.assertTrue(eventually(lambda: self.record("r").get("device_seconds", 0) > 1))
        self.assertGreater(self.listed()["r"]["device_seconds"], 1)
        run.send(signal.SIGKILL)
        run.finish()
        lost = self.listed()["r"]
        self.assertEqual(lost["state"], "lost")
        self.assertGreater(lost["device_seconds"], 1)

    def test_a_search_stops_at_its_device_hour_limit_and_resumes_with_a_higher_one(self):
        printed = self.tune(*STUDY, "--trials", 3, "--max-replicas", 1, "--gpu-hours", "0.003",
                            *self.program("--epochs", 1000, "--pause", "0.3"), code=143)
        self.assertIn("device-hour limit reached: stopping", printed)
        self.assertRegex(printed, r"study 's' has used 0\.\d+ of its 0\.003 device-hours; to continue: adaptdl tune --resume --study s "
                                  r"--gpu-hours MORE")
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["running"] * 2)
        used, epochs = self.total(), self.epochs()
        self.assertGreaterEqual(used, 0.003 * 3600)
        refused = r"tune: study 's' has used 0\.\d+ of its 0\.003 device-hours; raise --gpu-hours"
        self.assertRegex(self.tune("--resume", "--study", "s", code=2), refused)
        self.assertRegex(self.tune("--resume", "--study", "s", "--dry-run", code=2), refused)
        self.assertEqual((self.total(), self.epochs()), (used, epochs))
        search = self.start_tune("--resume", "--study", "s", "--gpu-hours", 100)
        self.assertTrue(eventually(lambda: all(now > then for now, then in zip(self.epochs(), epochs))))
        self.assertEqual(self.attributes("adaptdl:settings")[-1]["gpu_hours"], 100)
        # The trial's run ends later than the trial.
        self.adaptdl("tune", "stop", "s", 1)
        self.assertTrue(eventually(lambda: self.attributes("adaptdl:device_seconds:1")))
        tune_support.end_search(search)
        self.assertEqual(search.returncode, 143)
        self.assertEqual(self.trials("s")[1]["device_seconds"], self.attributes("adaptdl:device_seconds:1")[-1])
        self.assertGreater(self.trials("s")[1]["device_seconds"], 0.3 * len(self.trained_so_far(1)))
        self.assertGreater(self.trials("s")[0]["device_seconds"], 0.3 * len(self.trained_so_far(0)))

    def test_a_study_whose_trials_are_complete_is_done_even_if_it_exceeds_its_limit(self):
        self.tune(*STUDY, "--trials", 1, *self.program("--epochs", 3))
        self.tune("--resume", "--study", "s", "--gpu-hours", "1e-5")
        self.assertIn("has used", self.tune("--resume", "--study", "s", "--trials", 2, code=2))
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["complete"])
        self.tune("--resume", "--study", "s", "--gpu-hours", 1)
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["complete"] * 2)

    def test_device_hours_are_counted_once_if_search_and_launcher_are_killed(self):
        search = self.start_tune(*STUDY, "--trials", 2, "--max-replicas", 1,
                                 *self.program("--epochs", 24, "--pause", "0.25", "--hold-after", 4))
        self.assertTrue(eventually(lambda: len(self.trained_so_far(0)) == 4 and self.trained_so_far(1)))
        self.assertTrue(eventually(lambda: all(trial["device_seconds"] > 0 for trial in self.trials("s"))))
        killed = self.record("s-1")
        os.kill(killed["pid"], signal.SIGKILL)
        self.assertTrue(eventually(lambda: (run := self.record("s-1")).get("state") == "running" and run["pid"] != killed["pid"]))
        search.kill()
        search.wait()
        self.assertTrue(eventually(lambda: not tune_support.processes_of(self.directory)))
        first = self.record("s-0")
        self.assertEqual(first["state"], "stopped")
        self.assertGreater(first["device_seconds"], self.trials("s")[0]["device_seconds"])
        second = self.record("s-1")
        # Trial 0 has saved a checkpoint after the epoch at which it was held, while trial 1 may be held again.
        self.release(1)
        self.tune("--resume", "--study", "s")
        trials = self.trials("s")
        self.assertAlmostEqual(self.attributes("adaptdl:counted_run", 0)[-1]["before"], first["device_seconds"])
        self.assertGreater(trials[0]["device_seconds"], first["device_seconds"] + 0.25 * (24 - 4))
        before = [counted["before"] for counted in self.attributes("adaptdl:counted_run", 1)]
        self.assertEqual((len(before), before[0]), (3, 0))
        self.assertGreaterEqual(before[1], killed["device_seconds"])
        self.assertAlmostEqual(before[2], before[1] + second["device_seconds"])
        self.assertAlmostEqual(self.total(), sum(trial["device_seconds"] for trial in trials))

    def test_a_device_hour_limit_that_is_not_a_positive_number_is_rejected(self):
        for limit in ["0", "-1", "nan", "inf", "1e999", "4h", "two"]:
            with self.subTest(limit):
                printed = self.tune(*STUDY, "--gpu-hours", limit, *self.program(), code=2)
                self.assertEqual(printed, f"adaptdl: error: tune: invalid --gpu-hours '{limit}': expected a number greater than 0, such as 40\n")
        self.assertFalse(self.studies.exists())


if __name__ == "__main__":
    unittest.main()
