"""Tests that our journal and Optuna can share a study's file: each reads what the other one writes, even while both are writing."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import python_peer

JOURNAL_PROGRAM = os.environ["JOURNAL_PROGRAM"]
PEER = pathlib.Path(__file__).with_name("journal_peer.py")
PATIENCE = 300
# Optuna before version 5 writes times without a UTC offset, and all versions read them in the time zone of the process.
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}, "TZ": "America/New_York"}


def run(*command):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=PATIENCE,
                          env=ENVIRONMENT)
    if done.returncode != 0:
        raise AssertionError(f"{command[:3]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def dumps(command, files):
    """Returns the content of each file as text, in which 1 differs from 1.0, and NaN is equal to itself."""
    lines = run(*command, "dump", *files).splitlines()
    return [json.dumps(json.loads(line), sort_keys=True, indent=1) for line in lines]


class TuneJournalTest:
    """The tests for one version of Optuna."""

    maxDiff = None
    version = None

    @classmethod
    def setUpClass(cls):
        cls.optuna = [python_peer.optuna(cls.version), PEER]
        cls.ours = [JOURNAL_PROGRAM]

    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="adaptdl-e2e-")))
        self.file = self.directory / "study.journal"

    def assert_same(self, files):
        for file, ours, theirs in zip(files, dumps(self.ours, files), dumps(self.optuna, files), strict=True):
            self.assertEqual(ours, theirs, file)

    def prefixes(self, ends):
        data = self.file.read_bytes()
        files = []
        for end in ends:
            files.append(self.directory / f"{end:06}.journal")
            files[-1].write_bytes(data[:end])
        return files

    def ends_of_lines(self):
        data = self.file.read_bytes()
        return [end for end in range(len(data) + 1) if end == 0 or data[end - 1 : end] == b"\n"]

    def test_adaptdl_reads_a_journal_written_by_optuna(self):
        run(*self.optuna, "write", self.file)
        self.assert_same(self.prefixes(self.ends_of_lines()))

    def test_optuna_reads_and_continues_a_journal_truncated_after_any_line(self):
        run(*self.ours, "write", self.file)
        files = self.prefixes(self.ends_of_lines())
        self.assertGreater(len(files), 40)
        self.assert_same(files)
        run(*self.optuna, "continue", *files)
        self.assert_same(files)

    def test_a_journal_truncated_within_a_line_is_read_and_continued(self):
        run(*self.ours, "write", self.file)
        size = self.file.stat().st_size
        begin = self.ends_of_lines()[4]
        self.assert_same(self.prefixes(range(begin, size + 1, 7)))
        torn = self.prefixes(range(begin, size, 331))
        for file in torn:
            run(*self.ours, "work", file, "other", 1)
        self.assert_same(torn)
        run(*self.optuna, "continue", *torn)
        self.assert_same(torn)

    def test_parameter_importances_match_those_of_optuna(self):
        run(*self.optuna, "draw", self.file)
        ours, theirs = (json.loads(run(*command, "importance", self.file)) for command in (self.ours, self.optuna))
        self.assertEqual(len(ours), 16)
        self.assertEqual(ours.keys(), theirs.keys())
        for study, importances in theirs.items():
            self.assertEqual(importances.keys(), ours[study].keys())
            self.assertGreaterEqual(len(importances), 8)
            for parameter, fraction in importances.items():
                self.assertAlmostEqual(ours[study][parameter], fraction, delta=1e-9, msg=f"{study} {parameter}")

    def test_adaptdl_and_optuna_write_to_one_journal_concurrently(self):
        run(*self.ours, "write", self.file)
        for _ in range(3):
            run(*self.ours, "enqueue", self.file, "other")
        count = 20
        commands = [[*who, "work", self.file, "other", count] for who in (self.ours, self.optuna, self.ours, self.optuna)]
        workers = [subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) for command in commands]
        numbers = []
        for worker in workers:
            numbers += map(int, worker.communicate(timeout=PATIENCE)[0].split())
            self.assertEqual(worker.returncode, 0)
        self.assertEqual(sorted(numbers), list(range(len(workers) * count)))
        self.assert_same([self.file])
        [other, _] = json.loads(dumps(self.ours, [self.file])[0])
        for trial in other["trials"]:
            self.assertEqual((trial["state"], trial["intermediate"]), (1, {"0": 0.0, "1": 1.0, "2": 2.0}))
        self.assertEqual(sum(trial["user"]["worker"] == "ours" for trial in other["trials"]), 2 * count)
        self.assertEqual([path.name for path in self.directory.iterdir()], [self.file.name])


class Optuna400Test(TuneJournalTest, unittest.TestCase):
    version = "4.0.0"


class Optuna490Test(TuneJournalTest, unittest.TestCase):
    version = "4.9.0"


class Optuna500Test(TuneJournalTest, unittest.TestCase):
    version = "5.0.0"


class SizeTest(unittest.TestCase):
    def test_a_study_of_1000_trials_opens_in_less_than_60_ms(self):
        with tempfile.TemporaryDirectory(prefix="adaptdl-e2e-") as directory:
            file = pathlib.Path(directory) / "study.journal"
            run(JOURNAL_PROGRAM, "grow", file, 1000, 20)
            milliseconds = float(run(JOURNAL_PROGRAM, "open", file))
            print(f"{file.stat().st_size} bytes in {milliseconds} ms")
            self.assertLess(milliseconds, 60)  # 13 ms on an idle machine


if __name__ == "__main__":
    python_peer.main()
