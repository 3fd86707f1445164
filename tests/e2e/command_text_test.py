"""Tests that untrusted text in names, messages, records and Dockerfiles is escaped and cannot control the terminal."""

import json
import os
import pathlib
import re
import subprocess
import unittest

from run_support import ADAPTDL, PATIENCE, RunTest

SOURCE = pathlib.Path(os.environ["SOURCE_ROOT"])
# Matches control characters other than newline, characters that change the text direction, and line separators.
UNPRINTABLE = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
HOSTILE = "x\x1b[2J\x1b]0;t\x07\x7f\u009b31m\u202e\u2028\u2069\nadaptdl: done ü"
SHOWN = r"x\x1b[2J\x1b]0;t\x07\x7f\u009b31m\u202e\u2028\u2069\x0aadaptdl: done ü"
# A file name can also contain bytes that are not valid UTF-8.
HOSTILE_NAME = HOSTILE.encode() + b"\xff\xc2"
SHOWN_NAME = SHOWN + r"\xff\xc2"
RECORD = {"state": "failed", "why": HOSTILE, "started": "2026-01-31T12:00:00.000Z", "ended": "2026-01-31T12:00:01.000Z",
          "devices": [HOSTILE], "progress": {HOSTILE: HOSTILE}, "host": HOSTILE, "checkpoints": HOSTILE, "logs": HOSTILE,
          "command": [HOSTILE], "resume": HOSTILE}


class TextTest(RunTest):
    def check(self, text):
        """Removes the command's own colors from its output, checks that the rest is printable, and returns it as
        text."""
        text = re.sub(rb"\x1b\[(?:0|1|2|3[1-6])m", b"", text).decode()
        self.assertNotRegex(text, UNPRINTABLE)
        return text

    def output(self, *words, code=0):
        """Runs a command with its output in pipes, and returns its standard output and standard error."""
        done = subprocess.run([ADAPTDL, *words], stdin=subprocess.DEVNULL, capture_output=True, cwd=self.directory, env=self.environment,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn(b"\x1b", done.stdout + done.stderr)
        return self.check(done.stdout), self.check(done.stderr)

    def on_terminal(self, *words):
        """Runs a command on a terminal, and returns its output."""
        return self.check(self.shown_on_terminal(*words)[0])

    def record(self, name, **fields):
        directory = os.path.join(os.fsencode(self.runs), name)
        os.makedirs(directory)
        with open(os.path.join(directory, b"run.json"), "w") as file:
            json.dump({**RECORD, **fields}, file)

    def test_control_characters_in_run_records_are_escaped(self):
        self.record(HOSTILE_NAME)
        for words in (["ls", "--all"], ["ls", "--all", "-o", "wide"], ["describe", HOSTILE_NAME]):
            self.assertIn(SHOWN_NAME, self.output(*words)[0])
            self.on_terminal(*words)
        self.assertEqual(self.output("ls", "--all", "-o", "name")[0], SHOWN_NAME + "\n")
        for field in ("Why", "Command", "Logs", "To continue"):
            self.assertRegex(self.output("describe", HOSTILE_NAME)[0], rf"(?m)^{field}: +{re.escape(SHOWN)}$")
        text = self.output("ls", "--all", "-o", "yaml")[0]
        self.assertIn(r"\u202e", text)

    def test_the_name_and_reason_of_a_lost_run_are_on_one_line(self):
        self.record(HOSTILE_NAME, state="running", checkpoints="", ended=None)
        self.assertRegex(self.on_terminal("ls", "--all"), rf"(?m)^{re.escape(SHOWN_NAME)} .* its launcher was killed")

    def test_json_is_printable_and_preserves_values(self):
        self.record(HOSTILE_NAME)
        out, _ = self.output("ls", "--all", "--json")
        (run,) = json.loads(out)
        self.assertEqual(run["name"], HOSTILE_NAME.decode(errors="replace"))
        for field in ("why", "devices", "progress", "command", "resume"):
            self.assertEqual(run[field], RECORD[field])
        self.assertIn("ü", out)

    def test_errors_with_control_characters_are_printable_and_one_line(self):
        self.record(HOSTILE_NAME)
        (self.directory / "project").mkdir()
        (self.directory / "project" / "Dockerfile").write_bytes(b"FROM scratch\n" + HOSTILE.split("\n")[0].encode() + b" y\n")
        words = [[HOSTILE], ["--" + HOSTILE], ["ls", "--" + HOSTILE], ["describe", "unknown"],
                 ["checkpoint", "show", HOSTILE_NAME], ["simulate", HOSTILE_NAME], ["build", HOSTILE_NAME], ["build", "project"],
                 ["logs", HOSTILE_NAME, "--rank", "7"], ["run", HOSTILE_NAME], ["submit", HOSTILE_NAME]]
        for each in words:
            with self.subTest(words=each):
                done = subprocess.run([ADAPTDL, *each], stdin=subprocess.DEVNULL, capture_output=True, cwd=self.directory,
                                      env=self.environment, timeout=PATIENCE)
                self.assertIn(done.returncode, (1, 2), done.stderr)
                self.assertRegex(self.check(done.stderr), r"(?:\A|\n)adaptdl: error: [^\n]+\n\Z")
                self.assertNotIn("\nadaptdl: done", self.check(done.stderr))
                self.on_terminal(*each)

    def test_only_allowed_source_files_write_output_directly(self):
        """Only terminal/print.cc writes to standard output and standard error, and only programs' output and files bypass escaping."""
        rules = {
            r"fmt::v?print\(|\b(?:f?puts|fputc|putchar|putc|fwrite|v?f?printf|perror)\(|std::(?:cout|cerr|clog)\b|\bwrite\(STD":
                {"terminal/print.cc", "simulation/cycle_log.cc"},  # the latter writes to a file
            r"\bprint_raw\(": {"terminal/print.h", "terminal/print.cc", "command/help.cc", "command/jobs/logs.cc", "command/jobs/ray_jobs.cc",
                                 "command/simulate/simulate_plot.cc", "command/submit/submit_ray.cc", "command/submit/submit_wait.cc"},
            r"\bOutputQueue\b": {"terminal/output_queue.h", "terminal/output_queue.cc", "view/run_screen.h", "view/search_screen.h",
                                  "view/search_screen.cc", "terminal/json_lines.h", "terminal/notice_lines.h"},
            # All JSON that is printed goes through dump_json(). The other sources write JSON to a pipe, a template, YAML or a file.
            r"\.dump\(": {"terminal/dump_json.cc", "command/run/run_detach.cc", "command/operator/chart.cc", "terminal/yaml.cc", "simulation/cycle_json.cc"},
            r"\\x1b|\\033|\\e\[": {"terminal/print.cc", "terminal/terminal.cc", "view/run_screen.cc", "view/search_screen.cc"},
        }
        image = SOURCE / "cli" / "image"  # this code prints nothing itself, and its processes have no terminal
        for path in sorted((SOURCE / "cli").rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            name = str(path.relative_to(SOURCE / "cli"))
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for pattern, allowed in rules.items():
                    if image in path.parents and pattern.startswith(r"\.dump"):
                        continue
                    if name not in allowed:
                        self.assertNotRegex(line.split("//")[0], pattern, f"cli/{name}:{number}")


if __name__ == "__main__":
    unittest.main()
