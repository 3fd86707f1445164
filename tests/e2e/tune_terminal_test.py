"""Tests what `adaptdl tune` shows while it is searching: a table on a terminal, and events as JSON in a pipe."""

import collections
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import termios
import unittest

import tune_support
from run_support import ADAPTDL, PATIENCE, eventually
from run_terminal_test import Terminal
from tune_support import DEVICES, SPACE

ENDS = ("trial_complete", "trial_pruned", "trial_failed")
ALL = ["--pruner", "none"]


def screen(text):
    """Returns the lines that a terminal of unlimited height shows after this text, without colors."""
    lines, row = [""], 0
    text = re.sub(r"\x1b(\[\d*)?\Z", "", text)  # the rest of this sequence has not arrived yet
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|\n|\r|[^\x1b\n\r]+", text):
        if up := re.fullmatch(r"\x1b\[(\d+)A", part):
            row = max(0, row - int(up[1]))
        elif part == "\x1b[J":
            lines[row:] = [""]
        elif part == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif part[0] not in "\x1b\r":
            lines[row] += part
    return lines


def table(lines):
    """Returns the lines of a screen that belong to the table: all that are neither empty nor notices."""
    return [line for line in lines if line and not line.startswith("adaptdl: ")]


def rows(lines):
    """Returns the rows of the trials in the table, by state."""
    found = collections.defaultdict(list)
    for line in table(lines):
        if row := re.match(r" *\d+  (\w+) ", line):
            found[row[1]].append(line)
    return found


class TuneTerminalTest(tune_support.TuneTest):
    def start_on_terminal(self, *arguments, columns=120, rows=30):
        terminal = Terminal(["--study", "s", *SPACE, *DEVICES, *arguments], self.directory, self.environment, columns, command="tune",
                            rows=rows)
        self.addCleanup(terminal.end)
        self.addCleanup(tune_support.end_search, terminal.process)
        return terminal

    def wait_for_screen(self, terminal, condition):
        """Waits until the condition holds for the lines on the terminal, and returns these lines. The terminal may be in the middle of
        an update."""
        lines = []

        def look():
            lines[:] = screen(terminal.text)
            return condition(lines)

        self.assertTrue(eventually(look), lines)
        return lines

    def wait_for_running(self, terminal, count=3):
        return self.wait_for_screen(terminal, lambda lines: len(rows(lines)["running"]) == count)

    def test_a_table_shows_the_trials_and_notices_scroll_above_it(self):
        # The trials are so slow that none ends before it is released.
        terminal = self.start_on_terminal("--trials", 5, *ALL, *self.program("--pause", "0.4", "--progress", "--epochs", 250))
        lines = self.wait_for_running(terminal)
        first = next(number for number, line in enumerate(lines) if line.startswith("s: "))
        self.assertRegex(lines[first], r"^s: \d of 5 trials, 3 running, 0 paused, 0 complete, 0 pruned, 0 failed  0:\d\d  0\.\d+ device-hours$")
        self.assertRegex(lines[first + 2], r"^TRIAL  STATE +PARAMETERS +ACCURACY  RUNG  REPLICAS  GOODPUT +ETA$")
        self.assertTrue(all(line.startswith("adaptdl: ") for line in lines[:first]), lines)
        self.assertTrue(any(line.startswith("adaptdl: trial 0: lr=") for line in lines[:first]), lines)
        # The row of a running trial shows what the trial reports.
        running = re.compile(r" *\d  running +lr=\S+ +0\.\d+ +- +1 +1,234 +\d+:\d\d")
        self.wait_for_screen(terminal, lambda lines: any(map(running.fullmatch, lines)))
        self.wait_for_screen(terminal, lambda lines: any(line.startswith("best: trial ") for line in lines))
        self.release(0)
        self.wait_for_screen(terminal, lambda lines: rows(lines)["complete"])
        self.release()
        self.assertEqual(terminal.finish(), 0)
        # Nothing of the table is left, and each notice appears once.
        lines = screen(terminal.text)
        self.assertEqual(table(lines), [])
        for number in range(5):
            self.assertEqual(len([line for line in lines if re.match(rf"adaptdl: trial {number}: lr=", line)]), 1, lines)
            self.assertEqual(len([line for line in lines if re.match(rf"adaptdl: trial {number}: complete", line)]), 1, lines)
        self.assertRegex(lines[-3], r"^adaptdl: best: trial \d, accuracy 0\.\d+: lr=")

    def test_the_table_fits_a_resized_terminal(self):
        terminal = self.start_on_terminal("--trials", 6, *ALL, *self.program("--hold-after", 1), columns=30)
        lines = self.wait_for_running(terminal)
        self.assertLessEqual(max(map(len, table(lines))), 29)
        terminal.resize(120, rows=6)
        lines = self.wait_for_screen(terminal, lambda lines: lines[-2:-1] == ["... and 2 more"])
        self.assertLessEqual(len(table(lines)), 5)
        self.assertRegex(table(lines)[2], "  ETA$")
        terminal.type(b"\x03")
        self.assertEqual(terminal.finish(), 143)

    def test_ctrl_c_is_acknowledged_above_the_table(self):
        terminal = self.start_on_terminal("--trials", 4, *ALL, *self.program("--hold-after", 1))
        self.wait_for_running(terminal)
        terminal.type(b"\x03")
        self.assertEqual(terminal.finish(), 143)
        lines = screen(terminal.text)
        self.assertEqual(table(lines), [])
        self.assertTrue(any("interrupted: waiting for the trials to save checkpoints (Ctrl-C kills them)" in line for line in lines))
        self.assertEqual(lines[-2], "adaptdl: to continue: adaptdl tune --resume --study s")

    def test_a_stopped_and_continued_search_redraws_the_table_below_other_output(self):
        terminal = self.start_on_terminal("--trials", 3, *ALL, *self.program("--hold-after", 1))
        self.wait_for_running(terminal)
        terminal.process.send_signal(signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{terminal.process.pid}/stat")
        self.assertTrue(eventually(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T"))
        # All earlier output comes before this mark.
        mark = "<stopped>"
        terminal.show(mark)
        terminal.wait_for(lambda text: mark in text)
        before = terminal.text.index(mark) + len(mark)
        terminal.process.send_signal(signal.SIGCONT)
        # The table is drawn once without moving up to the old one. This need not be the first time, because the command may have been
        # about to draw when it was stopped.
        terminal.wait_for(lambda text: text.count("TRIAL", before) > len(re.findall(r"\x1b\[\d+A", text[before:])))
        terminal.type(b"\x03")
        self.assertEqual(terminal.finish(), 143)

    def test_waiting_for_the_journal_lock_is_reported_above_the_table(self):
        # The trials are held, so that the search has results to write while the lock is taken, however late that happens.
        terminal = self.start_on_terminal("--trials", 3, *ALL, *self.program("--hold-after", 1))
        self.wait_for_running(terminal)
        lock = self.studies / "s" / "journal.log.lock"

        def hold():
            try:
                lock.symlink_to("journal.log")
                return True
            except FileExistsError:
                return False  # the search holds it

        self.assertTrue(eventually(hold))
        self.release()
        notice = f"adaptdl: waiting for the lock '{lock}'; it will be taken over if it does not change for 30s"
        lines = self.wait_for_screen(terminal, lambda lines: notice in lines and table(lines))
        self.assertGreater(lines.index(table(lines)[0]), lines.index(notice))
        lock.unlink()
        self.assertEqual(terminal.finish(), 0)

    def test_a_stopped_terminal_does_not_block_the_search(self):
        terminal = self.start_on_terminal("--trials", 5, *ALL, *self.program("--hold-after", 1))
        self.wait_for_screen(terminal, lambda lines: rows(lines)["running"])
        terminal.type(b"\x13")
        self.release()
        states = {}
        self.assertTrue(eventually(lambda: states.update(json.loads(self.adaptdl("tune", "ls", "--json"))[0]["trials"])
                                   or states["complete"] == 5), states)
        terminal.type(b"\x11")
        self.assertEqual(terminal.finish(), 0)
        self.assertIn("adaptdl: best: trial", terminal.text)

    def test_a_closed_terminal_does_not_end_a_search_that_ignores_sighup(self):
        leader, follower = pty.openpty()

        def as_under_nohup():
            os.setsid()
            fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        search = subprocess.Popen([ADAPTDL, "tune", "--study", "s", "--trials", "4", *map(str, [*SPACE, *DEVICES, *ALL,
                                   *self.program("--pause", "0.1")])], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=follower,
                                  cwd=self.directory, env=self.environment, preexec_fn=as_under_nohup)
        self.addCleanup(tune_support.end_search, search)
        os.close(follower)
        self.assertTrue(eventually(lambda: self.trained_so_far(0)))
        os.close(leader)
        self.assertEqual(search.wait(5 * PATIENCE), 0)
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["complete"] * 4)

    def test_a_full_pipe_does_not_block_the_search(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"." * size)
        search = self.start_tune("--study", "s", "--trials", 5, *SPACE, *DEVICES, *ALL, *self.program("--pause", "0.1"), stderr=writer)
        os.close(writer)
        self.assertTrue(eventually(lambda: self.trained_so_far(0)))
        states = {}
        self.assertTrue(eventually(lambda: states.update(json.loads(self.adaptdl("tune", "ls", "--json"))[0]["trials"])
                                   or states["complete"] == 5), states)
        printed = b""
        while data := os.read(reader, 65536):
            printed += data
        self.assertEqual(search.wait(PATIENCE), 0)
        lines = printed[size:].decode().splitlines()
        self.assertTrue(all(line.startswith("adaptdl: ") for line in lines), lines)
        self.assertEqual(len([line for line in lines if ": complete, accuracy" in line]), 5, lines)
        self.assertTrue(lines[-2].startswith("adaptdl: best: trial "), lines)

    def test_a_dumb_terminal_shows_no_table(self):
        self.environment["TERM"] = "dumb"
        terminal = self.start_on_terminal("--trials", 2, *ALL, *self.program("--epochs", 2))
        self.assertEqual(terminal.finish(), 0)
        self.assertNotIn("\x1b", terminal.text)
        self.assertEqual(table(terminal.text.split("\n")), [])


class TuneEventsTest(tune_support.TuneTest):
    def events(self, *arguments, code=0):
        """Runs a search to completion, and returns its events."""
        done = subprocess.run([ADAPTDL, "tune", "--json", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd=self.directory, env=self.environment, timeout=5 * PATIENCE)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        return self.parsed(done.stdout)

    def parsed(self, text):
        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        events = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
        for event in events:
            self.assertRegex(event["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ$")
            if "trial" in event:
                self.assertEqual(list(event), ["event", "trial", "parameters", "value", "step", "reason", "time"])
        return events

    def of(self, events, trial):
        return [event["event"] for event in events if event.get("trial") == trial]

    def test_the_events_report_one_start_and_one_end_of_every_trial(self):
        events = self.events("--study", "s", "--trials", 12, *SPACE, *DEVICES, *self.program("--results", "--pause", "0.1"))
        self.assertEqual(list(events[0]), ["event", "study", "directory", "metric", "direction", "trials", "parallel", "states", "time"])
        self.assertEqual(events[0]["event"], "search_started")
        self.assertEqual((events[0]["trials"], events[0]["parallel"], events[0]["direction"]), (12, 3, "max"))
        trials = self.trials("s")
        for number, trial in enumerate(trials):
            names = self.of(events, number)
            self.assertEqual((names[0], names.count("trial_started")), ("trial_started", 1), names)
            self.assertEqual(names[-1], "trial_" + trial["state"], names)
            self.assertEqual(sum(names.count(end) for end in ENDS), 1, names)
            self.assertEqual(names.count("trial_result"), len(set(self.trained("s", number))))
            changes = [name for name in names if name in ("trial_paused", "trial_continued")]
            self.assertTrue(all(pair == ("trial_paused", "trial_continued") for pair in zip(changes[::2], changes[1::2])), names)
            last = [event for event in events if event.get("trial") == number][-1]
            self.assertEqual((last["parameters"], last["value"], last["step"]), (trial["parameters"], trial["value"], trial["step"]))
        self.assertEqual(list(events[-1]), ["event", "study", "states", "best", "device_seconds", "reason", "exit_code", "time"])
        self.assertEqual((events[-1]["event"], events[-1]["exit_code"], events[-1]["reason"]), ("search_done", 0, None))
        self.assertEqual(events[-1]["best"], json.loads(self.adaptdl("tune", "best", "s", "--json")))
        self.assertEqual(sum(events[-1]["states"].values()), 12)

    def test_a_stopped_and_resumed_search_reports_each_event_once(self):
        search = self.start_tune("--json", "--study", "s", "--trials", 4, *ALL, *SPACE, *DEVICES, *self.program("--hold-after", 1),
                                 stdout=subprocess.PIPE)
        self.assertTrue(eventually(lambda: all(self.trained_so_far(number) for number in range(3))))
        self.adaptdl("tune", "stop", "s", "1")
        self.assertTrue(eventually(lambda: self.trained_so_far(3)))
        self.adaptdl("tune", "stop", "s")
        first = self.parsed(search.stdout.read())
        self.assertEqual(search.wait(PATIENCE), 143)
        self.assertEqual((first[-1]["event"], first[-1]["exit_code"], first[-1]["reason"]),
                         ("search_stopped", 143, "interrupted by SIGTERM"))
        self.assertEqual(self.of(first, 1)[-1], "trial_pruned")
        stopped = [event for event in first if event["event"] == "trial_pruned"]
        self.assertEqual([event["reason"] for event in stopped], ["stopped by `adaptdl tune stop`"])
        self.release()
        second = self.events("--resume", "--study", "s")
        self.assertEqual(self.of(second, 1), [])
        for number in (0, 2, 3):
            self.assertEqual(self.of(second, number)[0], "trial_continued")
            names = self.of(first, number) + self.of(second, number)
            self.assertEqual(names.count("trial_started"), 1)
            self.assertEqual(names.count("trial_complete"), 1)
            self.assertEqual(names.count("trial_result"), 16)

    def test_events_contain_null_for_values_that_are_not_numbers(self):
        events = self.events("--study", "s", "--trials", 1, *ALL, *SPACE, *DEVICES, *self.program("--nan", "--epochs", 2), code=1)
        self.assertEqual([event["value"] for event in events if event["event"] == "trial_result"], [None, None])
        self.assertEqual(events[-2]["event"], "trial_failed")
        self.assertEqual(events[-2]["reason"], "the last value of metric 'accuracy' is NaN")
        self.assertEqual((events[-1]["best"], events[-1]["exit_code"]), (None, 1))

    def test_a_failed_search_writes_a_final_event(self):
        done = subprocess.run([ADAPTDL, "tune", "--json", "--study", "s", *map(str, [*SPACE, *DEVICES, *self.program("--fail-above", "0")])],
                              capture_output=True, text=True, cwd=self.directory, env=self.environment, timeout=5 * PATIENCE)
        self.assertEqual(done.returncode, 1)
        last = self.parsed(done.stdout)[-1]
        self.assertEqual((last["event"], last["exit_code"]), ("search_stopped", 1))
        self.assertIn(last["reason"], done.stderr)

    def test_a_closed_event_pipe_does_not_end_the_search(self):
        search = self.start_tune("--json", "--study", "s", "--trials", 4, *ALL, *SPACE, *DEVICES, *self.program("--pause", "0.1"),
                                 stdout=subprocess.PIPE)
        self.assertIn("search_started", search.stdout.readline())
        search.stdout.close()
        self.assertEqual(search.wait(5 * PATIENCE), 0)
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["complete"] * 4)

    def test_events_are_not_written_to_the_journal_if_standard_output_is_closed(self):
        search = subprocess.Popen(["sh", "-c", 'exec "$@" >&-', "sh", ADAPTDL, "tune", "--json", "--study", "s", "--trials", "2",
                                   *map(str, [*ALL, *SPACE, *DEVICES, *self.program("--epochs", 2)])], stdin=subprocess.DEVNULL,
                                  cwd=self.directory, env=self.environment)
        self.addCleanup(tune_support.end_search, search)
        self.assertEqual(search.wait(5 * PATIENCE), 0)
        for line in (self.studies / "s" / "journal.log").read_text().splitlines():
            self.assertIn("op_code", json.loads(line))


if __name__ == "__main__":
    unittest.main()
