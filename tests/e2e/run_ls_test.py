"""Tests how `adaptdl ls` lists runs, which names runs may have, and how long the records of ended runs are kept."""

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import time
import unittest

from local_network import leave_network
from run_support import ADAPTDL, PATIENCE, REPLICA_PROGRAM, eventually, interrupt, is_alive, replicas_of
from run_verbs_support import FOREVER, VerbsTest


class LsTest(VerbsTest):
    def rows(self, *options):
        """Returns the rows of the table as dictionaries. WHY contains the remainder of the line."""
        header, *lines = self.adaptdl("ls", *options).splitlines()
        return [dict(zip(header.split(), line.split(None, len(header.split()) - 1))) for line in lines]

    def on_terminal(self, *words, columns):
        """Returns what a command shows on a terminal with that number of columns."""
        seen, code = self.shown_on_terminal(*words, columns=columns)
        self.assertEqual(code, 0)
        return seen.decode()

    def test_ls_without_runs_prints_no_runs(self):
        self.assertEqual(self.adaptdl("ls"), "no runs\n")
        self.assertEqual(self.adaptdl("ls", "--json"), "[]\n")

    def test_ls_shows_the_progress_and_end_of_a_run(self):
        run = self.start_counting("job")
        # If a launcher does not answer at once, its run is shown as it was last recorded.
        row = eventually(lambda: next((row for row in self.rows() if row["EPOCH"].isdigit() and row["EPOCH"] != "0"), None))
        self.assertEqual(
            (row["NAME"], row["WHERE"], row["STATE"], row["REPLICAS"], row["RESTARTS"]), ("job", "local", "running", "2/2", "0")
        )
        self.assertRegex(row["EPOCH"], r"^\d+$")
        self.assertRegex(row["LOSS"], r"^0\.\d+$")
        self.assertRegex(row["RUNTIME"], r"^\d+:\d\d$")
        shown = self.listed()["job"]
        self.assertEqual(
            (shown["pid"], shown["min"], shown["max"], shown["ended"], shown["exit_code"]), (run.pid, 2, 2, None, None)
        )
        self.assertEqual(shown["command"], [REPLICA_PROGRAM, "--steps", str(FOREVER)])
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())
        shown = self.listed()["job"]
        self.assertEqual((shown["state"], shown["why"], shown["exit_code"]), ("stopped", "saved checkpoint-0", 143))
        self.assertEqual(shlex.split(shown["resume"])[1:4], ["run", "--checkpoint", str(self.runs / "job/checkpoints")])

    def test_ended_runs_are_listed_by_start_time_with_their_outcome(self):
        self.run_to_end("--name", "z-first", "-n", 1, "true")
        self.run_to_end("--name", "a-second", "-n", 2, "sh", "-c", "[ $ADAPTDL_REPLICA_RANK = 0 ] || exit 7", code=7)
        first, second = self.rows()
        self.assertEqual((first["NAME"], first["STATE"], first.get("WHY", "")), ("z-first", "done", ""))
        self.assertEqual(
            (second["NAME"], second["STATE"], second["WHY"]), ("a-second", "failed", "replica 1 exited with code 7")
        )

    def test_ls_shows_the_number_of_restarts_of_a_run(self):
        self.run_to_end(
            *("--name", "job", "-n", 1, "--max-restarts", 1),
            *(REPLICA_PROGRAM, "--steps", 9, "--at-step", 3, "--exit", 5),
        )
        self.assertEqual(self.listed()["job"]["restarts"], 1)

    def test_runs_that_ended_long_ago_are_listed_only_with_the_option_all(self):
        self.run_to_end("--name", "job", "-n", 1, "true")
        record = self.runs / "job" / "run.json"
        old = json.loads(record.read_text())
        old["started"] = old["ended"] = "2024-01-31T12:00:00.000Z"
        record.write_text(json.dumps(old))
        self.assertEqual(self.adaptdl("ls"), "no active or recent runs; --all shows 1 more\n")
        self.assertEqual(list(self.listed("--all")), ["job"])

    def test_a_run_with_a_killed_launcher_is_lost_and_shows_how_to_resume(self):
        run = self.start_counting("job", "--checkpoint", "c", program=(REPLICA_PROGRAM, "--steps", FOREVER))
        self.adaptdl("checkpoint", "save", "job")
        replicas = replicas_of(run.pid)
        run.send(signal.SIGKILL)
        run.finish()
        self.assertTrue(eventually(lambda: not any(map(is_alive, replicas))))
        shown = self.listed()["job"]
        self.assertEqual(shown["state"], "lost")
        # The reason is shown in full even on a narrow terminal.
        self.assertIn(f"\njob: {shown['why']}\n", self.on_terminal("ls", columns=40))
        before, command = shown["why"].split("; to continue: ")
        self.assertEqual(before, "its launcher was killed")
        words = [word if word != str(FOREVER) else "1" for word in shlex.split(command)]
        again = self.start(*words[2:])
        self.assertEqual(again.finish(), 0, again.text())
        again.wait_for(f"continuing from '{self.directory}/c/checkpoint-0'")
        self.assertEqual(self.listed()["job"]["state"], "done")

    def test_repeating_the_command_of_a_killed_run_with_a_name_resumes_that_run(self):
        run = self.start_counting("job")
        saved = self.adaptdl("checkpoint", "save", "job").strip()
        step = int(run.wait_for("saved step")[0].split()[-1])
        run.send(signal.SIGKILL)
        run.finish()
        again = self.start("-n", 1, "--name", "job", REPLICA_PROGRAM, "--steps", step + 3)
        again.wait_for(f"adaptdl: 1 replica of '{REPLICA_PROGRAM}', continuing from '{saved}'")
        again.wait_for(f"[0] begins at step {step} of start 0")
        self.assertEqual(again.finish(), 0, again.text())
        # The logs are continued, too.
        self.assertEqual(self.adaptdl("logs", "job", "--rank", 0).count("=== local/job rank 0, start 0, "), 2)

    def test_a_run_with_finished_replicas_is_still_running(self):
        run = self.start("-n", 2, "--name", "job", "sh", "-c", "[ $ADAPTDL_REPLICA_RANK = 0 ] || until [ -e end ]; do sleep 0.05; done")
        run.wait_for("2 replicas of 'sh'")
        self.assertTrue(eventually(lambda: self.listed()["job"]["replicas"] == 1))
        self.assertEqual(self.listed()["job"]["state"], "running")
        (self.directory / "end").touch()
        self.assertEqual(run.finish(), 0, run.text())

    def test_watch_shows_changes_until_ctrl_c(self):
        run = self.start_counting(
            "job", program=["sh", "-c", "echo begins at step; while [ ! -e end ]; do sleep 0.05; done"]
        )
        watch = subprocess.Popen(
            [ADAPTDL, "ls", "--watch", "--json"], env=self.environment, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        state = lambda: json.loads(watch.stdout.readline())[0]["state"]
        # If a launcher does not answer at once, its run is shown as it was last recorded.
        self.assertEqual(next(other for other in iter(state, None) if other != "starting"), "running")
        (self.directory / "end").touch()
        # Further lines with the state 'running' are possible, because the device-hours change every 5 s.
        self.assertEqual(next(other for other in iter(state, None) if other != "running"), "done")
        self.assertEqual(run.finish(), 0, run.text())
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(PATIENCE), 0)
        self.assertEqual(watch.stdout.read(), "")  # nothing else changed

    def test_watch_redraws_the_table_in_place_on_a_terminal(self):
        self.run_to_end("--name", "job", "-n", 1, "true")
        leader, follower = pty.openpty()
        watch = subprocess.Popen(
            [ADAPTDL, "ls", "--watch"], env=self.environment, stdin=follower, stdout=follower, start_new_session=True
        )
        os.close(follower)
        self.addCleanup(os.close, leader)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        seen = ""
        deadline = time.monotonic() + PATIENCE
        while seen.count("\x1b[2A\r\x1b[J") < 2:
            self.assertLess(time.monotonic(), deadline, seen)
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 65536).decode()
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(PATIENCE), 0)


class NameTest(VerbsTest):
    def test_the_name_of_an_active_run_is_rejected_and_that_of_an_ended_run_is_reused(self):
        run = self.start_counting("job")
        self.assertEqual(
            self.refused("-n", 1, "--name", "job", "true"),
            "a run named 'job' is already running; choose another name, or end it with `adaptdl delete job`",
        )
        self.assertEqual(self.listed()["job"]["state"], "running")
        interrupt(run)
        run.finish()
        self.run_to_end("-n", 1, "--name", "job", "true")

    def test_names_can_be_abbreviated_and_an_unknown_name_lists_existing_runs(self):
        for name in ("digits-a", "digits-b", "lm"):
            self.run_to_end("-n", 1, "--name", name, "echo", "I am", name)
        self.assertIn("[0] I am lm\n", self.adaptdl("logs", "l"))
        self.assertEqual(
            self.refusal("logs", "digits", code=2),
            "run name 'digits' is ambiguous: it matches digits-b, digits-a",
        )
        self.assertEqual(self.refusal("delete", "x", code=2), "run 'x' not found; existing runs: lm, digits-b, digits-a")

    def test_a_name_cannot_escape_the_directory_of_runs(self):
        self.assertEqual(self.refused("--name", "..", "true"), "run: invalid --name '..': must not begin with '.'")

    def test_a_program_that_cannot_be_executed_leaves_no_record(self):
        program = self.script("broken", "no program")
        program.write_bytes(b"\x7fELF broken")
        run = self.run_to_end("-n", 1, "--name", "job", program, code=2)
        run.wait_for("not a program that this machine can run")
        self.assertEqual(self.adaptdl("ls", "--all"), "no runs\n")

    def test_only_the_50_newest_ended_runs_are_kept(self):
        self.run_to_end("-n", 1, "--name", "template", "true")
        template = json.loads((self.runs / "template" / "run.json").read_text())
        for i in range(60):
            record = self.runs / f"old-{i:02}"
            record.mkdir()
            template["started"] = template["ended"] = f"2024-01-31T12:00:{i:02}.000Z"
            (record / "run.json").write_text(json.dumps(template))
        self.run_to_end("-n", 1, "--name", "new", "true")
        names = list(self.listed("--all"))
        self.assertEqual(names, [f"old-{i:02}" for i in range(11, 60)] + ["template", "new"])


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
