"""Kills a search, its launchers and the agent at random times: no trial is lost, and Optuna can always open the study.

$ADAPTDL_TUNE_KILLS is the number of kills (default: 20), and $ADAPTDL_TUNE_SEED is the seed for the choice of kills (default:
random).
"""

import collections
import html
import json
import os
import pathlib
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import python_peer
import tune_support
from run_support import PATIENCE, clean_environment, eventually
from tune_support import DEVICES, SPACE

KILLS = int(os.environ.get("ADAPTDL_TUNE_KILLS", "20"))
SEED = int(os.environ.get("ADAPTDL_TUNE_SEED", secrets.randbelow(1 << 32)))
PEER = pathlib.Path(__file__).with_name("journal_peer.py")
EPOCHS, PERIOD = 64, 4  # epochs of a trial, and epochs between its checkpoints
TRIALS = 16
MAX_LAUNCHER_KILLS = 3  # launcher kills per trial that a search notices; one more makes the trial fail
DASHBOARD = ["bottle==0.13.4", "optuna-dashboard==0.21.0"]
STATES = {"running": 0, "paused": 0, "complete": 1, "pruned": 2, "failed": 3, "waiting": 4}  # Optuna's numbers
SHOWN = {"running": "Running", "paused": "Running", "complete": "Complete", "pruned": "Pruned", "failed": "Fail", "waiting": "Waiting"}


SERVE = """
import sys
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna_dashboard import run_server
run_server(JournalStorage(JournalFileBackend(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]))
"""


class Dashboard:
    """An optuna-dashboard server for a study, and a browser that displays its pages."""

    def __init__(self, python, journal):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen([python, "-c", SERVE, str(journal), str(self.port)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=peer_environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def shows(self, condition):
        """Waits until the condition holds for the text of the page with the trials, and returns the condition's value. The parts of
        the page are loaded one after another."""
        return eventually(lambda: condition(see(f"http://127.0.0.1:{self.port}/dashboard/studies/0/trials")), 3 * PATIENCE)


def peer_environment():
    return {name: value for name, value in clean_environment().items() if not name.startswith("PYTHON")}


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def see(url):
    """Returns the text that a browser shows for a page."""
    with tempfile.TemporaryDirectory(prefix="adaptdl-browser-", ignore_cleanup_errors=True) as home:
        done = subprocess.run(
            [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={home}/profile", "--window-size=1600,4000", "--virtual-time-budget=20000", "--dump-dom", url],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3 * PATIENCE, env=clean_environment(HOME=home),
        )  # fmt: skip
    body = re.sub(r"<(script|style)\b.*?</\1>", "", done.stdout, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


class TuneKillsTest(tune_support.TuneTest):
    @classmethod
    def setUpClass(cls):
        cls.optuna = {version: python_peer.optuna(version) for version in python_peer.OPTUNA_VERSIONS}
        cls.dashboard = python_peer.venv("optuna-dashboard", [*python_peer.OPTUNA, "optuna==5.0.0", *DASHBOARD])
        if not browser():
            raise AssertionError("chromium not found; `./bootstrap test` installs it")

    def setUp(self):
        super().setUp()
        self.journal = self.studies / "s" / "journal.log"
        self.choice = random.Random(SEED)
        self.ended = {}  # trials that have ended, with the epochs for which they were trained
        self.launcher_kills = collections.Counter()  # kills that a search notices, by the name of the trial's run
        self.killed = set()  # names of all runs whose launchers have been killed

    def size(self):
        return self.journal.stat().st_size if self.journal.exists() else 0

    def launchers(self):
        """Returns the names of the runs of trials, by the process ID of the launcher."""
        found = {}
        for pid in tune_support.processes_of(self.directory):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[:3] == ["adaptdl", "run", "--name"]:
                found[pid] = words[3]
        return found

    def kill(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill_launchers(self, counted):
        """Kills some of the launchers. If `counted` is true, a running search notices the kills; it continues a trial after at most
        MAX_LAUNCHER_KILLS of them."""
        for pid, name in self.launchers().items():
            if self.choice.random() < 0.5 and not (counted and self.launcher_kills[name] >= MAX_LAUNCHER_KILLS):
                self.launcher_kills[name] += counted
                self.killed.add(name)
                self.kill(pid)

    def kill_some(self, search):
        """Kills the search, and possibly launchers and the agent before or after it."""
        what = [search.kill]
        if self.choice.random() < 0.6:
            before = self.choice.random() < 0.5
            what.insert(0 if before else 1, lambda: self.kill_launchers(counted=before))
        if self.choice.random() < 0.4 and (agent := self.agent()):
            what.insert(self.choice.randrange(len(what) + 1), lambda: self.kill(agent))
        for each in what:
            each()
            time.sleep(self.choice.choice([0, 0, 0.02, 0.1]))
        search.wait()

    def dumped(self, version):
        done = subprocess.run([self.optuna[version], PEER, "dump", self.journal], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=3 * PATIENCE, env=peer_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        [study] = json.loads(done.stdout)
        return study["trials"]

    def check(self):
        """Checks what a killed search has left behind: all versions of Optuna can open the study, and the
        trials that have ended are unchanged."""
        trials = self.trials("s")
        for number, (trial, trained) in self.ended.items():
            self.assertEqual(trials[number], trial)
            self.assertEqual(self.trained("s", number), trained)
        for trial in trials:
            if trial["state"] in ("complete", "pruned", "failed"):
                self.ended.setdefault(trial["number"], (trial, self.trained("s", trial["number"])))
        for version in self.optuna:
            theirs = self.dumped(version)
            self.assertEqual([STATES[trial["state"]] for trial in trials], [trial["state"] for trial in theirs], version)
            for ours, other in zip(trials, theirs, strict=True):
                self.assertEqual(ours["parameters"], other["parameters"], version)
                if other["values"]:
                    self.assertEqual([ours["value"]], other["values"], version)

    def check_dashboard(self):
        """Checks that a browser shows the number of trials and their states; it renders only a part of a long list."""
        states = {f"{trial['number']}": SHOWN[trial["state"]] for trial in self.trials("s")}
        shown = {}

        def look(text):
            shown.clear()
            shown.update(re.findall(rf"Trial (\d+) ({'|'.join(SHOWN.values())})\b", text))
            return shown and re.search(rf"\b{len(states)} Trials?\b", text)

        with Dashboard(self.dashboard, self.journal) as dashboard:
            self.assertTrue(dashboard.shows(look), shown)
        self.assertGreaterEqual(len(shown), min(5, len(states)))
        for number, state in shown.items():
            self.assertEqual(state, states[number], number)

    def check_trained(self, number):
        """Checks that a process that continues a trial repeats only the epochs since its predecessor's last checkpoint. Returns the
        last epoch for which the trial was trained."""
        file = self.studies / "s" / "trials" / str(number) / "trained.jsonl"
        furthest, start, last = 0, None, 0
        for line in map(json.loads, file.read_text().splitlines()):
            if line["start"] != start:
                self.assertLessEqual(line["epoch"], furthest + 1, f"trial {number} skips epochs")
                self.assertLessEqual(furthest - line["epoch"] + 1, PERIOD, f"trial {number} repeats epochs")
            else:
                self.assertEqual(line["epoch"], last + 1)
            start, last = line["start"], line["epoch"]
            furthest = max(furthest, last)
        return furthest

    def test_a_search_killed_at_random_moments_resumes_without_losing_trials(self):
        print(f"{KILLS} kills, ADAPTDL_TUNE_SEED={SEED}", flush=True)
        trials = TRIALS
        command = ["--study", "s", "--trials", trials, "--factor", 2, *SPACE, *DEVICES,
                   *self.program("--results", "--pause", "0.1", "--epochs", EPOCHS, "--save-every", PERIOD)]
        for number in range(KILLS):
            size = self.size()
            search = self.start_tune(*command)
            # A search that was killed while it was appending to the journal leaves a lock, which the next search takes over after
            # 30 s, but the test does not always give it that much time.
            if number == 0 or self.choice.random() < 0.8:
                self.assertTrue(eventually(lambda: self.size() > size + 1000 or search.poll() is not None, 3 * PATIENCE))
            moment = self.choice.uniform(0, 4)
            time.sleep(moment)
            if search.poll() is not None:
                self.assertEqual(search.returncode, 0)
                trials += TRIALS  # so that there is something to kill again
            self.kill_some(search)
            self.check()
            states = collections.Counter(trial["state"] for trial in self.trials("s"))
            locked = ", locked" if os.path.lexists(f"{self.journal}.lock") else ""
            print(f"kill {number + 1} after {moment:.2f} s: {dict(states)}, {self.size()} bytes{locked}", flush=True)
            if number in (KILLS // 4, KILLS // 2, 3 * KILLS // 4):
                self.check_dashboard()
            command = ["--resume", "--study", "s", "--trials", trials]
        self.tune(*command, patience=20 * PATIENCE)
        self.check()
        self.check_dashboard()
        final = self.trials("s")
        self.assertEqual([trial["number"] for trial in final], list(range(trials)))
        self.assertEqual({trial["state"] for trial in final}, {"complete", "pruned"})
        for trial in final:
            furthest = self.check_trained(trial["number"])
            # If a program is killed between its last report and its end, its trial has been trained for all epochs, but is not complete.
            if trial["state"] == "complete" or f"s-{trial['number']}" not in self.killed:
                self.assertEqual(furthest == EPOCHS, trial["state"] == "complete", trial)
        self.assert_nothing_runs()


if __name__ == "__main__":
    python_peer.main()
