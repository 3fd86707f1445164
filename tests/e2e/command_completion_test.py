"""Tests completion in bash, zsh and fish. The scripts run in the real shells, which complete as if TAB had been
pressed."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
SCRIPTS = pathlib.Path(os.environ["SOURCE_ROOT"]) / "completions"
PATIENCE = 60


def described():
    return json.loads(
        subprocess.run([ADAPTDL, "help", "--dump-json"], capture_output=True, text=True, check=True).stdout
    )


def verbs(commands=None):
    """Yields every command, each followed by its verbs, in one flat sequence."""
    for command in described() if commands is None else commands:
        yield command
        yield from verbs(command["commands"])


class Shell(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-e2e-"))
        self.addCleanup(shutil.rmtree, self.directory)
        (self.directory / "folder-one").mkdir()
        (self.directory / "file-one").touch()
        (self.directory / "tool-one").touch(mode=0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{pathlib.Path(ADAPTDL).parent}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "XDG_STATE_HOME": str(self.directory / "state"),
            "TERM": "xterm",
        }
        for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
            self.environment.pop(name, None)
        for name in ("digits-one", "digits-two", "lm"):
            record = self.directory / "state" / "adaptdl" / "runs" / name
            record.mkdir(parents=True)
            (record / "run.json").write_text(json.dumps({"name": name, "state": "done"}))

    def check_what_users_type(self, complete):
        """Checks typical command lines. `complete` returns the set of words that the shell offers for a line."""
        self.assertEqual(complete("adaptdl ru"), {"run"})
        self.assertEqual(complete("adaptdl run --ch"), {"--checkpoint", "--checkpoint-every", "--checkpoint-keep"})
        self.assertEqual(complete("adaptdl checkpoint ve"), {"verify"})
        self.assertEqual(complete("adaptdl help ch"), {"checkpoint"})
        self.assertEqual(complete("adaptdl run --backend "), {"gloo", "nccl"})
        self.assertEqual({word.rstrip("/") for word in complete("adaptdl run --checkpoint fo")}, {"folder-one"})
        self.assertEqual({word.rstrip("/") for word in complete("adaptdl checkpoint ls fo")}, {"folder-one"})
        self.assertEqual(complete("adaptdl checkpoint export -o fi"), {"file-one"})
        self.assertEqual(complete("adaptdl nothing "), set())
        self.assertEqual(complete("adaptdl logs "), {"digits-one", "digits-two", "lm"})
        self.assertEqual(complete("adaptdl logs --rank 0 di"), {"digits-one", "digits-two"})
        self.assertEqual(complete("adaptdl resize l"), {"lm"})
        self.assertEqual(complete("adaptdl resize lm "), set())
        self.assertEqual(complete("adaptdl checkpoint save l"), {"lm"})
        self.assertEqual(complete("adaptdl suspend "), set())  # runs cannot be suspended

    def check_every_option(self, complete):
        for verb in verbs():
            words = {name for option in verb["options"] for name in option["names"] if name.startswith("--")}
            self.assertEqual(complete(f"adaptdl {verb['path']} --"), words, verb["path"])


@unittest.skipUnless(shutil.which("bash"), "no bash")
class BashTest(Shell):
    def complete(self, line):
        # This does what readline does: it splits the line at COMP_WORDBREAKS, sets the COMP_ variables and calls the
        # function.
        words = [word for word in re.split(r"(=)|\s+", line) if word]
        if line.endswith(" "):
            words.append("")
        assignment = " ".join(f"'{word}'" for word in words)
        script = (
            f"source '{SCRIPTS / 'adaptdl.bash'}'; COMP_WORDS=({assignment}); "
            f"COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; "
            f"COMP_POINT={len(line)}; _adaptdl adaptdl; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_common_command_lines_are_completed(self):
        self.check_what_users_type(self.complete)
        self.assertEqual(self.complete("adaptdl run --backend=g"), {"gloo"})
        self.assertEqual(self.complete("adaptdl run --checkpoint=fo"), {"folder-one"})

    def test_every_option_is_completed(self):
        self.check_every_option(self.complete)

    def test_programs_and_their_arguments_are_completed(self):
        self.assertEqual(self.complete("adaptdl run ./to"), {"./tool-one"})
        self.assertIn("printenv", self.complete("adaptdl run -n 2 printen"))
        self.assertEqual(self.complete("adaptdl run -n 2 -- cat fi"), {"file-one"})

    def test_tab_completes_the_line_in_an_interactive_shell(self):
        """Checks once with a terminal that TAB completes the line in place."""
        leader, follower = pty.openpty()
        bash = subprocess.Popen(
            ["bash", "--norc", "-i"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=self.directory,
            env={**self.environment, "PS1": "$ "},
            start_new_session=True,
        )
        os.close(follower)
        self.addCleanup(os.close, leader)
        self.addCleanup(bash.wait)
        self.addCleanup(bash.kill)
        os.write(leader, f"source '{SCRIPTS / 'adaptdl.bash'}'; echo loa''ded\n".encode())
        self.wait_for(leader, "loaded")
        os.write(leader, b"adaptdl checkpoint ver\t")
        self.wait_for(leader, "adaptdl checkpoint verify ")

    def wait_for(self, leader, text):
        seen = ""
        deadline = time.monotonic() + PATIENCE
        while text not in seen:
            self.assertLess(time.monotonic(), deadline, seen)
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 65536).decode(errors="replace")


@unittest.skipUnless(shutil.which("zsh"), "no zsh")
class ZshTest(Shell):
    def complete(self, line):
        # The completion script runs in a completion widget, and a wrapper around `compadd` records what it offers.
        script = f"""
fpath=('{SCRIPTS}' $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {{
  local -a offered
  builtin compadd -O offered "$@"
  print -rl -- "<"${{^offered}}">" >>'{self.directory}/offered'
}}
finish() {{ print done >>'{self.directory}/offered' }}
comppostfuncs=(finish)
PS1='prompt> '
print rea''dy
"""
        (self.directory / ".zshrc").write_text(script)
        offered = self.directory / "offered"
        offered.write_text("")
        leader, follower = pty.openpty()
        zsh = subprocess.Popen(
            ["zsh", "-i"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=self.directory,
            env={**self.environment, "ZDOTDIR": str(self.directory)},
            start_new_session=True,
        )
        os.close(follower)
        try:
            self.wait(leader, lambda seen: "ready" in seen and "prompt> " in seen.split("ready")[-1])
            os.write(leader, line.encode() + b"\t")
            self.wait(leader, lambda _: "done" in offered.read_text())
        finally:
            zsh.kill()
            zsh.wait()
            os.close(leader)
        return {
            line[1:-1].rstrip("/") for line in offered.read_text().split("\n") if line.startswith("<") and line != "<>"
        }

    def wait(self, leader, condition):
        seen = ""
        deadline = time.monotonic() + PATIENCE
        while not condition(seen):
            self.assertLess(time.monotonic(), deadline, seen)
            if select.select([leader], [], [], 0.05)[0]:
                seen += os.read(leader, 65536).decode(errors="replace")

    def test_common_command_lines_are_completed(self):
        self.check_what_users_type(self.complete)

    def test_every_option_is_completed(self):
        self.check_every_option(self.complete)

    def test_programs_and_their_arguments_are_completed(self):
        self.assertIn("printenv", self.complete("adaptdl run -n 2 printen"))
        self.assertIn("file-one", self.complete("adaptdl run -n 2 -- cat fi"))


@unittest.skipUnless(shutil.which("fish"), "no fish")
class FishTest(Shell):
    def complete(self, line):
        script = f"source '{SCRIPTS / 'adaptdl.fish'}'; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return {line.split("\t")[0] for line in done.stdout.splitlines()}

    def test_common_command_lines_are_completed(self):
        self.check_what_users_type(self.complete)

    def test_every_option_is_completed(self):
        self.check_every_option(self.complete)

    def test_programs_and_their_arguments_are_completed(self):
        self.assertIn("./tool-one", self.complete("adaptdl run ./to"))
        self.assertIn("printenv", self.complete("adaptdl run -n 2 printen"))
        self.assertIn("file-one", self.complete("adaptdl run -n 2 -- cat fi"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
