"""Tests what the command says about itself: its version, help, suggestions and man pages."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
MAN = pathlib.Path(os.environ["BUILD_ROOT"]) / "man"
SOURCE = pathlib.Path(os.environ["SOURCE_ROOT"])


def adaptdl(*words, stdout=subprocess.PIPE):
    return subprocess.run(
        [ADAPTDL, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60
    )


def described():
    return json.loads(adaptdl("help", "--dump-json").stdout)


def verbs(commands):
    for command in commands:
        yield command
        yield from verbs(command["commands"])


class HelpTest(unittest.TestCase):
    def test_version_matches_the_project_version(self):
        version = re.search(r"version: '([^']+)'", (SOURCE / "meson.build").read_text())[1]
        for words in (["--version"], ["-V"]):
            done = adaptdl(*words)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"adaptdl {version}\n", ""))

    def test_the_command_does_not_link_libtorch_or_rarely_needed_libraries(self):
        linked = subprocess.run(["ldd", ADAPTDL], capture_output=True, text=True).stdout
        # Only the names are compared, since the load address of any library may contain "c10".
        libraries = " ".join(re.findall(r"^\s*(\S+)", linked, re.MULTILINE))
        self.assertRegex(libraries, r"libc\.so")
        self.assertNotRegex(libraries, "torch|c10|cuda|curl|Cbc|blas|qhull")

    def test_the_command_is_hardened_against_memory_errors(self):
        options = json.loads((pathlib.Path(os.environ["BUILD_ROOT"]) / "meson-info" / "intro-buildoptions.json").read_text())
        values = {option["name"]: option["value"] for option in options}
        if not values["hardening"] or values["b_sanitize"] != "none" or values["optimization"] in ("plain", "0", "g"):
            self.skipTest("this build is not hardened")

        def readelf(*words):
            return subprocess.run(["readelf", "-W", *words, ADAPTDL], capture_output=True, text=True, check=True).stdout

        self.assertRegex(readelf("-h"), r"Type: +DYN")
        self.assertIn("GNU_RELRO", readelf("-l"))
        self.assertRegex(readelf("-d"), r"FLAGS_1.* NOW\b.* PIE\b")
        symbols = readelf("--dyn-syms")
        self.assertIn("__stack_chk_fail", symbols)
        self.assertRegex(symbols, r"__\w+_chk@")

    def test_help_and_no_arguments_list_the_commands(self):
        for words in ([], ["help"], ["--help"], ["-h"]):
            done = adaptdl(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            listed = re.findall(r"^  (\w+)  ", done.stdout.split("Commands:")[1].split("Options:")[0], re.M)
            self.assertEqual(listed, [command["name"] for command in described()])

    def test_help_for_every_verb_shows_its_usage_and_options(self):
        for verb in verbs(described()):
            for words in (["help", *verb["path"].split()], [*verb["path"].split(), "--help"]):
                done = adaptdl(*words)
                self.assertEqual((done.returncode, done.stderr), (0, ""), words)
                self.assertTrue(done.stdout.startswith(f"Usage: {verb['usage']}\n"), done.stdout)
                if not verb["commands"] or verb["arguments"]:
                    for option in verb["options"]:
                        self.assertIn(
                            ", ".join(option["names"]) + (f" {option['value']}" if option["value"] else ""), done.stdout
                        )
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)

    def assert_refused(self, words, message):
        done = adaptdl(*words)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", f"adaptdl: error: {message}\n"), words)

    def test_invalid_command_lines_fail_with_one_line_and_exit_code_2(self):
        self.assert_refused(["rum"], "no such command: 'rum'; did you mean 'run'? (see `adaptdl help`)")
        self.assert_refused(
            ["chekpoint", "ls"], "no such command: 'chekpoint'; did you mean 'checkpoint'? (see `adaptdl help`)"
        )
        self.assert_refused(
            ["checkpoint", "lst", "x"],
            "checkpoint: no such verb: 'lst'; did you mean 'ls'? (see `adaptdl help checkpoint`)",
        )
        self.assert_refused(["checkpoint"], "checkpoint: a verb is required (see `adaptdl help checkpoint`)")
        self.assert_refused(["checkpoint", "ls"], "checkpoint ls: DIR is required (see `adaptdl help checkpoint ls`)")
        self.assert_refused(
            ["run", "--max-restart", "1", "x"],
            "run: unknown option '--max-restart'; did you mean '--max-restarts'? (see `adaptdl help run`)",
        )
        self.assert_refused(["help", "run", "nothing"], "help: run has no verb 'nothing'")
        self.assert_refused(["--vresion"], "unknown option '--vresion'; did you mean '--version'? (see `adaptdl help`)")

    def test_invalid_run_options_fail_with_one_line_and_exit_code_2(self):
        for words, message in {
            (): "no program given",
            ("-n", "0", "true"): "--replicas must be",
            ("-n", "1.5", "true"): "--replicas must be",
            ("-n",): "-n needs a value: N|MIN:MAX|auto",
            ("--grace", "soon", "true"): "--grace",
            ("--checkpoint-every", "5 parsecs", "true"): "--checkpoint-every",
            ("--checkpoint-keep", "0", "true"): "--checkpoint-keep",
            ("--backend", "mpi", "true"): "--backend",
            ("--nodes", "2", "true"): "--nodes requires",
            ("--nodes", "2", "--node-rank", "2", "--master", "h:1", "--no-checkpoint", "true"): "--node-rank must be",
            ("--master", "nowhere", "true"): "--master must be",
            ("--max-restarts", "-1", "true"): "--max-restarts must be",
            ("--checkpoint", "/dev/null", "true"): "cannot use --checkpoint '/dev/null'",
            ("--logs", "/proc/logs", "true"): "cannot use --logs '/proc/logs'",
            ("--share", "/dev/null/x", "true"): "cannot use --share '/dev/null/x'",
            ("--env", "=1", "true"): "--env expects NAME=VALUE or NAME",
            ("--env", "NOT_SET", "true"): "--env NOT_SET: the variable is not set",
            ("--checkpoint", "c", "--no-checkpoint", "true"): "cannot be used together",
            ("--name", "a b", "true"): "invalid --name 'a b'",
            ("no-such-program",): "cannot find 'no-such-program' in PATH",
            ("./no-such-program",): "no such file",
            ("/",): "it is a directory",
            ("--checkpoint=", "true"): "--checkpoint needs a value",
        }.items():
            done = adaptdl("run", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (words, done.stderr))
            self.assertRegex(done.stderr, r"\Aadaptdl: error: [^\n]+\n\Z")
            self.assertIn(message, done.stderr)

    def test_a_failed_write_to_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = adaptdl("help", stdout=full)
        self.assertEqual(
            (done.returncode, done.stderr),
            (1, "adaptdl: error: cannot write to standard output: No space left on device\n"),
        )


class ManPageTest(unittest.TestCase):
    @staticmethod
    def text(page):
        """Returns a page as one line of plain text, with single spaces and without hyphenation."""
        shown = subprocess.run(
            ["groff", "-t", "-man", "-Tascii", "-P-c", "-P-b", "-P-u", "-rHY=0", "-rLL=300n", str(MAN / page)],
            capture_output=True,
            text=True,
        )
        return " ".join(shown.stdout.split())

    def setUp(self):
        if not shutil.which("groff"):
            self.skipTest("no groff")

    def test_every_command_has_a_page_that_the_main_page_lists(self):
        names = {command["name"] for command in described()} - {"help"}
        self.assertEqual(
            {path.name for path in MAN.glob("*.1")}, {"adaptdl.1", *(f"adaptdl-{name}.1" for name in names)}
        )
        overview = self.text("adaptdl.1")
        for name in names:
            self.assertIn(f"adaptdl {name}", overview)
            self.assertIn(f"adaptdl-{name}(1)", overview)

    def test_pages_list_every_verb_option_and_argument_and_no_unknown_option(self):
        for command in described():
            if command["name"] == "help":
                continue
            text = self.text(f"adaptdl-{command['name']}.1")
            known = {name for verb in verbs([command]) for option in verb["options"] for name in option["names"]}
            for verb in verbs([command]):
                self.assertIn(f"adaptdl {verb['path']}", text)
                if verb["commands"] and not verb["arguments"]:
                    continue
                for option in verb["options"]:
                    term = ", ".join(option["names"]) + (f" {option['value']}" if option["value"] else "")
                    self.assertIn(f" {term} {option['help'][0].upper()}{option['help'][1:]}.", text)
                for argument in verb["arguments"]:
                    self.assertIn(f" {argument['name']} {argument['help'][0].upper()}{argument['help'][1:]}.", text)
            options_only = re.sub(r" EXAMPLES .*", "", text)
            self.assertEqual(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", options_only)) - known, set())

    def test_the_run_page_lists_the_exit_codes(self):
        text = self.text("adaptdl-run.1")
        for row in (
            "0 Every replica exited with 0.",
            "130 A second Ctrl-C",
            "143 Stopped on request, and a new checkpoint was saved.",
            "other The exit code",
        ):
            self.assertIn(row, text)

    def test_groff_formats_every_page_without_warnings(self):
        for page in MAN.glob("*.1"):
            checked = subprocess.run(["groff", "-t", "-man", "-ww", "-z", str(page)], capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), page.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
