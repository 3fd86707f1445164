"""Tests how the trials of `adaptdl tune` share the devices of this machine."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

import run_support
from run_support import ADAPTDL, PATIENCE, eventually

PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")


class TuneShareTest(run_support.RunTest):
    def search(self, *options):
        """Starts `adaptdl tune` in the background; it is ended at the end of the test."""
        search = subprocess.Popen([ADAPTDL, "tune", *map(str, options)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, cwd=self.directory, env=self.environment)
        self.addCleanup(self.end, search)
        return search

    def search_new(self, share, *options):
        """Starts a search on four devices with two trials, which report the accuracies 0.9 and 0.1 and train until they are stopped."""
        return self.search("--study", "s", "-P", "accuracy=0.9|0.1", "--metric", "accuracy:max", "--sampler", "grid", "--pruner", "none",
                           "--trials", 2, "--parallel", 2, "--devices", 4, "--device-kind", "cpu", "--share", share, "--",
                           sys.executable, PROGRAM, "--pause", "0.05", "--accuracy", "{accuracy}", *options)

    def end(self, search):
        """Ends the search, and waits until its runs are gone."""
        if search.poll() is None:
            search.send_signal(signal.SIGTERM)
            search.wait(PATIENCE)
        self.assertTrue(eventually(lambda: not self.processes()), self.processes())

    def processes(self):
        """Returns the processes that have the test's directory in their arguments."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.fsencode(self.directory) in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def wait_for_replicas(self, **wanted):
        """Waits until exactly the given trials are running, with that many replicas each."""
        wanted = {f"s-{name.removeprefix('trial')}": (count, "running") for name, count in wanted.items()}

        def reached():
            runs = self.listed()
            return {name: (run["replicas"], run["state"]) for name, run in runs.items() if run["ended"] is None} == wanted

        self.assertTrue(eventually(reached), self.listed())

    def log_with(self, text, trial):
        """Waits until the log of rank 0 contains the text, and returns the log. A run is listed with its new replicas slightly before
        their lines are logged."""
        file = self.home / ".local/state/adaptdl/studies/s/trials" / str(trial) / "logs/rank-0.log"
        self.assertTrue(eventually(lambda: text in file.read_text()), file.read_text())
        return file.read_text()

    def test_equal_shares_adapt_to_the_number_of_trials(self):
        # If goodput decided, each trial would have one replica.
        search = self.search_new("equal", "--scales-badly")
        self.wait_for_replicas(trial0=2, trial1=2)
        for trial in range(2):
            # The trial started with one replica, and was not restarted to grow.
            self.assertIn("generation 0 rank 0 of 1 ", self.log_with(" rank 0 of 2 ", trial))
        self.adaptdl("tune", "stop", "s", 0)
        self.wait_for_replicas(trial1=4)
        self.assertEqual(self.log_with(" rank 0 of 4 ", 1).count("generation 0 "), 1)
        self.end(search)
        self.assertEqual(search.returncode, 143)
        # The new run of the trial is sent its share again.
        search = self.search("--resume", "--study", "s")
        self.wait_for_replicas(trial1=4)
        self.end(search)

    def test_equal_shares_leave_room_for_another_run(self):
        self.search_new("equal", "--scales-badly")
        self.wait_for_replicas(trial0=2, trial1=2)
        other = self.start("--name", "other", "--replicas", "1:4", "--devices", 4, "--device-kind", "cpu", "--", sys.executable, PROGRAM,
                           "--pause", "0.05", "--scales-badly")

        def shared():
            runs = self.listed().values()
            return all(run["state"] == "running" for run in runs) and sorted(run["replicas"] for run in runs) == [1, 1, 2]

        self.assertTrue(eventually(shared), self.listed())
        other.send(signal.SIGTERM)
        other.finish()
        self.wait_for_replicas(trial0=2, trial1=2)

    def test_share_by_promise_gives_the_better_trial_more_devices(self):
        self.search_new("promise")
        self.assertTrue(eventually(lambda: len(self.trials()) == 2))
        [good] = [trial["number"] for trial in self.trials() if trial["parameters"]["accuracy"] == 0.9]
        self.wait_for_replicas(**{f"trial{good}": 3, f"trial{1 - good}": 1})

    def test_share_by_goodput_gives_each_trial_that_scales_poorly_one_device(self):
        self.search_new("goodput", "--scales-badly")

        def measured():
            runs = self.listed().values()
            return len(runs) == 2 and all("goodput" in run["why"] and run["state"] == "running" for run in runs)

        self.assertTrue(eventually(measured), self.listed())
        self.assertEqual([run["replicas"] for run in self.listed().values()], [1, 1])

    def trials(self):
        try:
            trials = json.loads(self.adaptdl("tune", "show", "s", "--json"))["trials"]
        except (AssertionError, ValueError):
            return []  # the study does not exist yet
        return [trial for trial in trials if trial["parameters"]]


if __name__ == "__main__":
    unittest.main()
