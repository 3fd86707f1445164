"""Tests hyperparameter searches with `adaptdl tune` on this machine."""

import json
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

import tune_support
from run_support import ADAPTDL, PATIENCE, eventually
from tune_support import DEVICES, PROGRAM, SPACE


class TuneTest(tune_support.TuneTest):
    def reported(self, study):
        """Returns the stored steps and values of each trial, in the order in which they were stored."""
        values = {trial["number"]: [] for trial in self.trials(study)}
        for line in (self.studies / study / "journal.log").read_text().splitlines():
            operation = json.loads(line)
            if "intermediate_value" in operation:
                values[operation["trial_id"]].append((operation["step"], operation["intermediate_value"]))
        return values

    def test_a_search_prunes_trials_and_reports_the_best_one(self):
        printed = self.tune("--study", "s", "--trials", 16, *SPACE, *DEVICES, *self.program("--results", "--hold-at-rungs"))
        trials = self.trials("s")
        self.assertEqual(len(trials), 16)
        self.assertEqual({trial["state"] for trial in trials}, {"complete", "pruned"})
        complete = [trial for trial in trials if trial["state"] == "complete"]
        # Whatever the order of the reports, three of the trials at a rung stay there: four are needed before the first can continue.
        self.assertLessEqual(len(complete), 10)
        for trial in trials:
            epochs = self.trained("s", trial["number"])
            self.assertEqual(epochs, list(range(1, len(epochs) + 1)), trial)
            self.assertIn(len(epochs), [16] if trial in complete else [1, 4], trial)
        best = min(trials, key=lambda trial: abs(trial["parameters"]["lr"] / 0.01 - 1) if trial["parameters"]["lr"] > 0.01
                   else abs(0.01 / trial["parameters"]["lr"] - 1))
        self.assertIn(best["number"], [trial["number"] for trial in complete])
        self.assertIn(f"best: trial {best['number']}, accuracy", printed)
        shown = json.loads(self.adaptdl("tune", "best", "s", "--json"))
        self.assertEqual(shown["number"], best["number"])
        log = self.studies / "s" / "trials" / str(best["number"]) / "run.log"
        self.assertEqual(self.trained("s", best["number"]), list(range(1, 17)), log.read_text())
        [study] = json.loads(self.adaptdl("tune", "ls", "--json"))
        self.assertEqual((study["name"], study["state"], study["metric"]), ("s", "done", "accuracy"))
        self.assertEqual(self.adaptdl("tune", "importance", "s").split(), ["PARAMETER", "IMPORTANCE", "lr", "1.000"])
        importance = json.loads(self.adaptdl("tune", "importance", "s", "--json"))
        self.assertEqual(importance, {"study": "s", "metric": "accuracy", "trials": 16, "best_trials": 2,
                                      "parameters": [{"name": "lr", "importance": 1}]})
        self.assert_nothing_runs()

    def kill_and_resume(self, trials, kills, source):
        """Kills the search and the agent at random times, and checks that each epoch of a trial is trained once and no trial is lost."""
        generator = random.Random(int.from_bytes(os.urandom(4), "big"))
        command = ["--study", "s", "--trials", trials, *SPACE, *DEVICES, *self.program(source, "--pause", "0.1")]
        for kill in range(kills):
            search = self.start_tune(*command)
            time.sleep(generator.uniform(0.05, 3))
            search.kill()
            search.wait()
            if kill % 2 and (agent := self.agent()):
                os.kill(agent, signal.SIGKILL)
            if (self.studies / "s" / "journal.log").exists() and b"adaptdl:settings" in (
                self.studies / "s" / "journal.log").read_bytes():
                command = ["--resume", "--study", "s"]
        # There may be no study yet: a search that was killed while it held the journal's lock prevents the next ones from creating it.
        before = {trial["number"]: trial for trial in self.trials("s")} if "--resume" in command else {}
        self.tune(*command)
        self.assertEqual(len(self.trials("s")), trials)
        # Which trials are pruned depends on the order of their reports: if there are only a few trials, sometimes none is pruned.
        self.assertLessEqual({trial["state"] for trial in self.trials("s")}, {"complete", "pruned"})
        for trial in self.trials("s"):
            if before.get(trial["number"], {}).get("state") in ("complete", "failed"):
                self.assertEqual(trial, before[trial["number"]])
            epochs = self.trained("s", trial["number"])
            self.assertEqual(epochs, list(range(1, len(epochs) + 1)), trial)
            self.assertEqual(len(epochs) == 16, trial["state"] == "complete", trial)

    def test_a_killed_search_resumes_without_repeating_epochs(self):
        self.kill_and_resume(12, 8, "--results")
        self.assert_nothing_runs()

    def test_a_killed_search_reports_each_tensorboard_event_once(self):
        self.kill_and_resume(6, 4, "--events")
        reported = self.reported("s")
        for trial in self.trials("s"):
            number, epochs = trial["number"], self.trained("s", trial["number"])
            if trial["state"] == "pruned":  # a killed search misses what a paused trial reports before the trial ends
                epochs = epochs[: len(reported[number])]
            self.assertEqual([step for step, _ in reported[number]], epochs)
            expected = [1 - abs(math.log10(trial["parameters"]["lr"]) + 2) / 10 - 0.5 / epoch for epoch in epochs]
            for (_, value), accuracy in zip(reported[number], expected, strict=True):
                self.assertAlmostEqual(value, accuracy, 6)
            self.assertEqual((self.studies / "s" / "trials" / str(number) / "source").read_text(), "events\n")

    def test_an_interrupt_makes_all_trials_save_checkpoints_and_prints_how_to_resume(self):
        search = self.start_tune("--study", "s", "--trials", 4, *SPACE, *DEVICES, "--pruner", "none",
                                 *self.program("--hold-after", 2), stderr=subprocess.PIPE)
        self.assertTrue(eventually(lambda: all(len(self.trained_so_far(number)) == 2 for number in range(3))))
        search.send_signal(signal.SIGINT)
        printed = search.stderr.read()
        self.assertEqual(search.wait(PATIENCE), 143, printed)
        self.assertIn("to continue: adaptdl tune --resume --study s", printed)
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["running"] * 3)
        self.assertEqual(json.loads(self.adaptdl("tune", "ls", "--json"))[0]["state"], "stopped")
        self.release()
        self.tune("--resume", "--study", "s")
        for number in range(4):
            self.assertEqual(self.trained("s", number), list(range(1, 17)))

    def test_a_failed_trial_shows_the_reason_and_the_others_continue(self):
        self.tune("--study", "s", "--trials", 10, "--pruner", "none", *SPACE, *DEVICES,
                  *self.program("--fail-above", "0.01", "--epochs", 2))
        trials = self.trials("s")
        failed = [trial for trial in trials if trial["parameters"]["lr"] > 0.01]
        self.assertTrue(failed)
        for trial in trials:
            self.assertEqual(trial["state"], "failed" if trial in failed else "complete")
        self.assertRegex(failed[0]["why"], r"exited with code 1; see '.*/trials/\d+/run.log'")
        log = pathlib.Path(failed[0]["why"].split("see ")[1].strip("'"))
        self.assertIn("is too high", log.read_text())

    def test_a_search_stops_if_its_first_trials_all_fail(self):
        printed = self.tune("--study", "s", *SPACE, *DEVICES, *self.program("--fail-above", "0"), code=1)
        self.assertRegex(printed, "the first [5-7] trials failed without a result")
        self.assertLess(len(self.trials("s")), 16)
        self.assert_nothing_runs()

    def test_a_trial_fails_if_its_metric_is_missing_or_not_a_number(self):
        self.tune("--study", "a", "--trials", 2, *SPACE, *DEVICES, *self.program("--silent", "--epochs", 2), code=1)
        self.assertEqual({trial["why"] for trial in self.trials("a")}, {"metric 'accuracy' was never reported"})
        self.tune("--study", "b", "--trials", 2, "--pruner", "none", *SPACE, *DEVICES, *self.program("--nan", "--epochs", 2),
                  code=1)
        self.assertEqual({trial["why"] for trial in self.trials("b")}, {"the last value of metric 'accuracy' is NaN"})

    def test_an_unreadable_event_file_is_reported_once(self):
        script = self.script("trial.sh", """#!/bin/sh
mkdir "$ADAPTDL_TENSORBOARD_LOGDIR"
head -c 100 /dev/zero > "$ADAPTDL_TENSORBOARD_LOGDIR/a.tfevents"
echo '{"accuracy": 1}'
""")
        printed = self.tune("--study", "s", "--trials", 1, *SPACE, *DEVICES, "--", script)
        file = self.studies / "s" / "trials" / "0" / "tensorboard" / "a.tfevents"
        self.assertEqual(printed.count(f"trial 0: cannot read file '{file}' from byte 0: damaged record"), 1, printed)
        self.assertEqual(self.trials("s")[0]["value"], 1)

    def interrupted(self, *program):
        """Creates a study whose trials were all interrupted after their first epoch, with checkpoints."""
        search = self.start_tune("--study", "s", "--trials", 3, "--pruner", "none", *SPACE, *DEVICES, *program, "--hold-after", 1)
        self.assertTrue(eventually(lambda: all(self.trained_so_far(number) for number in range(3))))
        search.send_signal(signal.SIGTERM)
        self.assertEqual(search.wait(PATIENCE), 143)
        self.release()

    def settings(self):
        lines = [json.loads(line) for line in (self.studies / "s" / "journal.log").read_text().splitlines()]
        return [line["user_attr"]["adaptdl:settings"] for line in lines if "adaptdl:settings" in line.get("user_attr", {})][-1]

    def test_runs_that_do_not_belong_to_the_study_are_kept(self):
        checkpoint = self.runs / "s-1" / "checkpoints" / "checkpoint-1"
        checkpoint.mkdir(parents=True)
        (self.runs / "s-1" / "run.json").write_text(json.dumps({"name": "s-1", "state": "done", "checkpoints": str(checkpoint.parent)}))
        printed = self.tune("--study", "s", *SPACE, *DEVICES, *self.program(), code=2)
        self.assertIn("run 's-1' has the name of trial 1 but does not belong to study 's'", printed)
        self.assertTrue(checkpoint.exists())
        self.assertFalse((self.studies / "s").exists())
        self.tune("--study", "t", "--trials", 2, *SPACE, *DEVICES, *self.program())
        self.assertTrue(checkpoint.exists())

    def test_a_study_that_cannot_resume_keeps_its_trials(self):
        program = self.directory / "program.py"
        program.write_text("#!/bin/sh\nexec " + f'"{sys.executable}" "{PROGRAM}" "$@"\n')
        program.chmod(0o755)
        self.interrupted("--", "./program.py", "--lr", "{lr}")
        program.rename(self.directory / "moved.py")
        self.assertIn("program.py", self.tune("--resume", "--study", "s", code=2))
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["running"] * 3)
        (self.directory / "moved.py").rename(program)
        self.assertIn("nothing was started", self.tune("--resume", "--study", "s", "--dry-run"))
        self.assertIn("cannot change --sampler", self.tune("--resume", "--study", "s", "--sampler", "tpe", code=2))
        self.tune("--resume", "--study", "s", "--trials", 4, "--parallel", 2, "--share", "equal")
        self.assertEqual([self.settings()[name] for name in ("trials", "parallel", "share")], [4, 2, "equal"])
        for number in range(4):
            self.assertEqual(self.trained("s", number), list(range(1, 17)))
        self.assert_nothing_runs()

    def test_a_trial_that_ended_while_no_search_was_running_is_not_trained_again(self):
        self.interrupted(*self.program())
        # This is what the launcher leaves behind if it ends by itself just after the search was killed.
        directory = self.studies / "s" / "trials" / "0"
        (self.runs / "s-0").mkdir(parents=True)
        (self.runs / "s-0" / "run.json").write_text(
            json.dumps({"name": "s-0", "state": "done", "exit_code": 0, "checkpoints": str(directory / "checkpoints")}))
        before = self.trained("s", 0)
        # Since then, more runs have ended than are kept, and the last one removes old records.
        for number in range(60):
            (self.runs / f"other-{number}").mkdir()
            (self.runs / f"other-{number}" / "run.json").write_text(json.dumps({"state": "done", "ended": "2026-01-01T00:00:00.000Z"}))
        self.run_to_end("--name", "last", "--", "true")
        others = [run for run in self.runs.iterdir() if run.name != "s-0"]
        self.assertLess(len(others), 60)
        for run in others:
            shutil.rmtree(run)
        self.tune("--resume", "--study", "s")
        self.assertEqual(self.trained("s", 0), before)
        self.assertEqual(self.trials("s")[0]["state"], "complete")
        self.assert_nothing_runs()

    def test_a_second_interrupt_kills_the_trials(self):
        script = self.directory / "stubborn.sh"
        script.write_text("#!/bin/sh\ntrap '' TERM INT\necho '{\"accuracy\": 1, \"epoch\": 1}'\ntouch started\nwhile :; do sleep 1; done\n")
        script.chmod(0o755)
        run_log = self.studies / "s" / "trials" / "0" / "run.log"
        # There is no pruner, because it could ask the trial to stop, too: only the first interrupt may do so.
        search = self.start_tune("--study", "s", "--parallel", 1, "--pruner", "none", *SPACE, *DEVICES, "--", "./stubborn.sh", "{lr}")
        self.assertTrue(eventually((self.directory / "started").exists))
        search.send_signal(signal.SIGINT)
        self.assertTrue(eventually(lambda: "received SIGTERM" in run_log.read_text()))
        search.send_signal(signal.SIGINT)
        self.assertEqual(search.wait(PATIENCE), 143)
        self.assertIn("interrupted again: killing all replicas", run_log.read_text())
        self.assert_nothing_runs()

    def test_a_study_with_an_empty_journal_can_be_created(self):
        (self.studies / "s").mkdir(parents=True)
        (self.studies / "s" / "journal.log").touch()
        self.tune("--study", "s", "--trials", 2, *SPACE, *DEVICES, *self.program("--epochs", 2))
        self.assertEqual(len(self.trials("s")), 2)
        self.assertEqual(self.adaptdl("tune", "importance", "s", code=1),
                         "adaptdl: error: importances require at least 10 trials with a value, but study 's' has 2\n")

    def test_an_optuna_sampler_requires_optuna(self):
        packages = self.directory / "packages"
        packages.mkdir()
        # This module hides Optuna where it is installed.
        (packages / "optuna.py").write_text("raise ModuleNotFoundError('no optuna', name='optuna')\n")
        self.environment.update(PYTHONPATH=str(packages), ADAPTDL_PYTHON=sys.executable)
        for sampler, needed in [("TPESampler", "optuna"), ("GPSampler", "optuna scipy torch"), ("CmaEsSampler", "optuna cmaes")]:
            printed = self.tune("--sampler", f"optuna:{sampler}", *SPACE, *DEVICES, *self.program(), code=2)
            self.assertEqual(printed, f"adaptdl: error: tune: cannot use sampler 'optuna:{sampler}': Python package 'optuna' not found by "
                             f"{sys.executable}; pip install {needed}, or set ADAPTDL_PYTHON to a Python that has it\n")
        self.environment["ADAPTDL_PYTHON"] = "no-such-python"
        printed = self.tune("--sampler", "optuna:TPESampler", *SPACE, *DEVICES, *self.program(), code=2)
        self.assertIn("cannot find 'no-such-python' in PATH", printed)
        self.assertFalse(self.studies.exists())

    def test_an_interrupt_while_optuna_is_imported_stops_the_search(self):
        self.interrupted(*self.program("--pause", "0.3"))
        packages = self.directory / "packages"
        packages.mkdir()
        (packages / "optuna.py").write_text("import pathlib, time\npathlib.Path('imported').touch()\ntime.sleep(600)\n")
        self.environment.update(PYTHONPATH=str(packages), ADAPTDL_PYTHON=sys.executable)
        # This makes the study look as if it had been created with this sampler.
        with (self.studies / "s" / "journal.log").open("a") as journal:
            journal.write(json.dumps({"op_code": 2, "worker_id": "w", "study_id": 0,
                                      "user_attr": {"adaptdl:settings": {**self.settings(), "sampler": "optuna:TPESampler"}}}) + "\n")
        for number in (signal.SIGTERM, signal.SIGINT):
            search = self.start_tune("--resume", "--study", "s", stderr=subprocess.PIPE)
            self.assertTrue(eventually((self.directory / "imported").exists))
            search.send_signal(number)
            printed = search.stderr.read()
            self.assertEqual(search.wait(PATIENCE), 143, printed)
            self.assertIn("to continue: adaptdl tune --resume --study s", printed)
            (self.directory / "imported").unlink()

    def test_trials_of_a_study_without_a_journal_are_kept(self):
        checkpoint = self.studies / "s" / "trials" / "0" / "checkpoints" / "checkpoint-1"
        checkpoint.mkdir(parents=True)
        self.assertIn("study 's' already exists", self.tune("--study", "s", *SPACE, *DEVICES, *self.program(), code=2))
        self.assertTrue(checkpoint.exists())

    def test_a_stopped_trial_keeps_its_value(self):
        self.interrupted(*self.program())
        self.adaptdl("tune", "stop", "s", "1")
        trial = self.trials("s")[1]
        self.assertEqual(trial["state"], "pruned")
        self.assertIsNotNone(trial["value"])

    def test_a_study_is_searched_by_one_process_at_a_time(self):
        search = self.start_tune("--study", "s", "--pruner", "none", *SPACE, *DEVICES, *self.program("--hold-after", 1))
        self.assertTrue(eventually(lambda: self.trained_so_far(0)))
        self.assertIn("study 's' is in use by another process", self.tune("--resume", "--study", "s", code=2))
        self.assertEqual(json.loads(self.adaptdl("tune", "ls", "--json"))[0]["state"], "searching")
        search.send_signal(signal.SIGTERM)
        self.assertEqual(search.wait(PATIENCE), 143)

    def test_invalid_arguments_fail_with_one_line_and_exit_code_2(self):
        for arguments, error in [
            ([], "no program given"),
            (["--metric", "accuracy", "--", "true"], "invalid --metric 'accuracy': expected NAME:max or NAME:min"),
            (["--metric", "a:max", "--", "true"], "no parameters to search; add some with -P or --space"),
            ([*SPACE, "--", "true", "{rate}"], "unknown parameter 'rate' in the argument '{rate}'; the search space has lr"),
            ([*SPACE, "-P", "x=2..1", "--", "true"], "invalid parameter 'x': the lower bound 2 is above the upper bound 1"),
            ([*SPACE, "--sampler", "best", "--", "true"], "invalid sampler 'best'"),
            ([*SPACE, "--pruner", "best", "--", "true"], "invalid pruner 'best'"),
            ([*SPACE, "--share", "best", "--", "true"], "invalid --share 'best': expected goodput, promise or equal"),
            ([*SPACE, "--", "./no-such-program"], "no-such-program"),
            ([*SPACE, "--devices", "0,,1", "--", "true"], "tune: --devices must be a comma-separated list of different devices"),
            (["--resume", "--study", "none"], "study 'none' not found"),
            (["show", "none"], "study 'none' not found"),
            (["ls", "none"], "tune ls: unexpected argument 'none'"),
            (["shwo", "s"], "tune: no such verb: 'shwo'; did you mean 'show'?"),
            (["./train.py"], "no --metric given"),
            (["--", "shwo"], "no --metric given"),
            ([*SPACE, "shwo"], "cannot find 'shwo' in PATH"),
            ([*SPACE, "--sampler", "grid", "--", "true"], "lr"),
            (["-P", b"lr=a|\xff".decode(errors="surrogateescape"), "--metric", "a:max", "--", "true"], "must be valid UTF-8"),
            (["-P", "lr=0.1..1", "--metric", "epoch:max", "--", "true"], "invalid --metric 'epoch:max'"),
            ([*SPACE, "--study", "a/b", "--", "true"], "invalid study name 'a/b'"),
        ]:
            with self.subTest(arguments=arguments):
                done = subprocess.run([ADAPTDL, "tune", *map(str, arguments)], capture_output=True, text=True, cwd=self.directory,
                                      env=self.environment, timeout=PATIENCE)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(error, done.stderr)
        self.assertFalse(self.studies.exists())

    def test_errors_in_a_search_space_file_name_the_line(self):
        space = self.directory / "space.yaml"
        space.write_text("parameters:\n  lr: {low: 1e-5, high: 1e-1, log: true}\n  opt: {low: 1}\n")
        done = subprocess.run([ADAPTDL, "tune", "--space", space, "--metric", "a:max", "--", "true"], capture_output=True, text=True,
                              cwd=self.directory, env=self.environment, timeout=PATIENCE)
        self.assertIn(f"{space}:3: invalid parameter 'opt': expected low and high, or choices", done.stderr)


if __name__ == "__main__":
    unittest.main()
