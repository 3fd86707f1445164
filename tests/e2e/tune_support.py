"""Helpers for the end-to-end tests of `adaptdl tune`, which start searches and end them with all processes that they started."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import run_support
from run_support import ADAPTDL, PATIENCE

PROGRAM = pathlib.Path(__file__).with_name("tune_program.py")
SPACE = ["-P", "lr=log:1e-5..1e-1", "--metric", "accuracy:max", "--seed", 1]
DEVICES = ["--device-kind", "cpu", "--devices", 3, "--max-replicas", 1]


def end_search(search, patience=PATIENCE):
    """Ends a search as Ctrl-C does, so that its trials save checkpoints and end first, and waits for it. Kills it if it has not ended
    after `patience` seconds."""
    if search.poll() is None:
        search.send_signal(signal.SIGTERM)
        try:
            search.wait(patience)
        except subprocess.TimeoutExpired:
            search.kill()
            search.wait()


def processes_of(directory):
    """Returns the processes with that directory in their arguments or environment, such as the launchers and replicas of a test. The
    agent is omitted, because it stays for a while after its last run."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes()
            named = os.fsencode(directory) in arguments or os.fsencode(directory) in (entry / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or belongs to another user
        if named and not arguments.startswith(b"adaptdl-agent\0") and run_support.is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found


def wait_for_runs(directory, patience=PATIENCE):
    """Waits until the processes of a test have ended, and kills those that do not. Returns whether all ended by themselves.

    A launcher that outlives its test restarts the agent, and does so in /tmp once the test's directory is removed."""
    deadline = time.monotonic() + patience
    while (left := processes_of(directory)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return not left


class TuneTest(run_support.RunTest):
    def setUp(self):
        super().setUp()
        self.studies = self.home / ".local" / "state" / "adaptdl" / "studies"
        # This must happen before the agent is ended, because a launcher would start another one.
        self.addCleanup(lambda: self.assertTrue(wait_for_runs(self.directory), "processes of the test did not end"))

    def program(self, *options):
        return ["--", sys.executable, PROGRAM, "--lr", "{lr}", *options]

    def release(self, trial=None):
        """Releases the trials that tune_program.py is holding, or only the given trial."""
        (self.directory / ("release" if trial is None else f"release-{trial}")).touch()

    def tune(self, *arguments, code=0, patience=5 * PATIENCE):
        """Runs `adaptdl tune` to completion and returns what it writes to standard error."""
        done = subprocess.run([ADAPTDL, "tune", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd=self.directory, env=self.environment, timeout=patience)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def start_tune(self, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        search = subprocess.Popen([ADAPTDL, "tune", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                  text=True, cwd=self.directory, env=self.environment)
        for stream in filter(None, (search.stdout, search.stderr)):
            self.addCleanup(stream.close)
        self.addCleanup(end_search, search)
        return search

    def trials(self, study):
        return json.loads(self.adaptdl("tune", "show", study, "--json"))["trials"]

    def trained(self, study, number):
        """Returns the epochs for which a trial was trained, in order."""
        file = self.studies / study / "trials" / str(number) / "trained.jsonl"
        return [json.loads(line)["epoch"] for line in file.read_text().splitlines()]

    def trained_so_far(self, number, study="s"):
        try:
            return self.trained(study, number)
        except FileNotFoundError:
            return []

    def assert_nothing_runs(self):
        """Asserts that no records of runs are left. If there are any, the failure shows them."""
        shown = ("run.json", "run.log")
        left = {str(path): path.read_text() if path.name in shown else "" for path in self.runs.rglob("*")}
        self.assertEqual(left, {})
