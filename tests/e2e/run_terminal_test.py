"""Tests what `adaptdl run` prints to a terminal, which is simulated by a pseudo-terminal, and to a pipe."""

import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest

from local_network import leave_network
from run_support import ADAPTDL, PATIENCE, REPLICA_PROGRAM, RunTest, eventually

CLEAR = "\r\x1b[K"
WAIT = "until [ -e go ]; do sleep 0.02; done"  # in a shell


class Terminal:
    """A run, or another command, that is the foreground job of its own terminal: Ctrl-C typed there reaches it."""

    def __init__(self, arguments, cwd, environment, columns=100, pipe=None, command="run", rows=30):
        self.leader, follower = pty.openpty()
        self.name = os.ttyname(follower)
        self.resize(columns, rows)
        out = subprocess.PIPE if pipe == "out" else follower
        err = subprocess.PIPE if pipe == "err" else follower

        def own_terminal():
            os.setsid()
            fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [ADAPTDL, command, *map(str, arguments)],
            stdin=follower,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env={"TERM": "xterm", **environment},
            preexec_fn=own_terminal,
        )
        os.close(follower)
        self.text = ""
        self.piped = b""
        self._thread = threading.Thread(target=self._collect)
        self._thread.start()

    def resize(self, columns, rows=30):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _collect(self):
        pipe = self.process.stdout or self.process.stderr
        sources = [self.leader] + ([pipe.fileno()] if pipe else [])
        while sources:
            for source in select.select(sources, [], [])[0]:
                try:
                    data = os.read(source, 65536)
                except OSError:  # the terminal's other end was closed
                    data = b""
                if not data:
                    sources.remove(source)
                elif source == self.leader:
                    self.text += data.decode(errors="replace").replace("\r\n", "\n")
                else:
                    self.piped += data
        if pipe:
            pipe.close()

    def type(self, keys):
        os.write(self.leader, keys)

    def show(self, text):
        """Writes directly to the terminal, after everything that the command has written so far."""
        with open(self.name, "w", opener=lambda path, flags: os.open(path, flags | os.O_NOCTTY)) as follower:
            follower.write(text)

    def wait_for(self, condition):
        if not eventually(lambda: condition(self.text)):
            raise AssertionError(f"the expected text did not appear: {self.text!r}")

    def finish(self):
        code = self.process.wait(PATIENCE)
        self._thread.join(PATIENCE)
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.finish()
        os.close(self.leader)

    def status_lines(self):
        """Returns all status lines that were drawn, without colors."""
        drawn = [re.sub(r"\x1b\[\d+m", "", part.split("\n")[0].split("\r")[0]) for part in self.text.split(CLEAR)[1:]]
        return [line for line in drawn if re.match(r"epoch |step |\d+ replica", line)]

    def screen(self):
        """Returns the lines that the terminal shows at the end."""
        return [
            re.sub(r"\x1b\[\d*[mK]", "", re.sub(r".*" + re.escape(CLEAR), "", line)) for line in self.text.split("\n")
        ]


class TerminalTest(RunTest):
    def start_on_terminal(self, *arguments, columns=100, pipe=None, **more):
        terminal = Terminal(arguments, self.directory, {**self.environment, **more}, columns, pipe)
        self.addCleanup(terminal.end)
        return terminal

    def release(self, terminal):
        """Creates the file `go`, which the program is waiting for, and waits for the end of the run."""
        go = self.directory / "go"
        go.touch()
        self.assertEqual(terminal.finish(), 0)
        go.unlink()

    def test_the_status_line_shows_reported_progress(self):
        terminal = self.start_on_terminal("-n", 2, REPLICA_PROGRAM, "--steps", 1_000_000)
        line = re.compile(r"epoch \d+  step [\d,]+/1,000,000  loss \S+  2 replicas  \d+:\d\d")
        terminal.wait_for(lambda _: any(map(line.fullmatch, terminal.status_lines())))
        terminal.type(b"\x03")
        self.assertEqual(terminal.finish(), 143)
        # Nothing of the status line is left.
        self.assertEqual([line for line in terminal.screen() if "step " in line and "/1,000,000" in line], [])
        self.assertTrue(any(re.fullmatch(r"\[0\] saved step \d+", line) for line in terminal.screen()), terminal.screen())

    def test_the_status_line_shows_progress_posted_in_the_kubeflow_format(self):
        go_on = self.directory / "go"
        program = pathlib.Path(__file__).with_name("kubeflow_program.py")
        terminal = self.start_on_terminal("-n", 1, sys.executable, program, go_on)
        line = re.compile(r"epoch 0\.29  step 29/100  loss 0\.2347  1 replica  0:\d\d  13:15 left")
        terminal.wait_for(lambda _: any(map(line.fullmatch, terminal.status_lines())))
        go_on.touch()
        self.assertEqual(terminal.finish(), 0)

    def test_the_status_line_is_redrawn_at_most_10_times_per_second(self):
        program = self.python(
            "report",
            "import os, time\nwhile not os.path.exists('go'):\n"
            "    os.write(int(os.environ['ADAPTDL_STATUS_FD']), b'{\"step\": 1}\\n')\n    time.sleep(0.002)\n",
        )
        began = time.monotonic()
        terminal = self.start_on_terminal("-n", 1, program)
        terminal.wait_for(lambda _: len(terminal.status_lines()) >= 15)
        drawn = len(terminal.status_lines())
        self.assertLessEqual(drawn, 10 * (time.monotonic() - began + 1) + 1)
        self.release(terminal)

    def test_the_status_line_shows_time_and_replicas_without_reports(self):
        terminal = self.start_on_terminal("-n", 3, "sh", "-c", WAIT)
        line = re.compile(r"3 replicas  \d+:\d\d")
        terminal.wait_for(lambda _: any(map(line.fullmatch, terminal.status_lines())))
        self.release(terminal)

    def test_the_status_line_does_not_mix_with_output_lines(self):
        program = self.python(
            "chat", "import os, time\nfor i in range(40):\n    print('line', i, flush=True)\n    time.sleep(0.02)\n"
            "while not os.path.exists('go'):\n    time.sleep(0.02)\n"
        )
        terminal = self.start_on_terminal("-n", 2, program, TERM="xterm")
        terminal.wait_for(lambda _: len(terminal.status_lines()) > 2)
        self.release(terminal)
        for rank in range(2):
            self.assertEqual(
                [line for line in terminal.screen() if line.startswith(f"[{rank}]")],
                [f"[{rank}] line {i}" for i in range(40)],
            )

    def test_the_status_line_fits_a_resized_terminal(self):
        terminal = self.start_on_terminal("-n", 2, REPLICA_PROGRAM, "--steps", 1_000_000, columns=20)
        terminal.wait_for(lambda _: len(terminal.status_lines()) > 3)
        self.assertLessEqual(max(len(line) for line in terminal.status_lines()), 19)
        terminal.resize(60)
        terminal.wait_for(lambda _: max(len(line) for line in terminal.status_lines()) > 30)
        terminal.resize(10)
        before = len(terminal.status_lines())
        terminal.wait_for(lambda _: len(terminal.status_lines()) > before + 5 and len(terminal.status_lines()[-2]) <= 9)
        terminal.type(b"\x03")
        self.assertEqual(terminal.finish(), 143)

    def test_ranks_are_colored_on_a_terminal(self):
        terminal = self.start_on_terminal("-n", 2, "echo", "text")
        self.assertEqual(terminal.finish(), 0)
        prefixes = set(re.findall(r"(\x1b\[\d+m)\[(\d)\]\x1b\[0m text", terminal.text))
        self.assertEqual({rank for _, rank in prefixes}, {"0", "1"})
        self.assertEqual(len({colour for colour, _ in prefixes}), 2)

    def test_colors_are_off_if_NO_COLOR_is_set_and_on_a_dumb_terminal(self):
        for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            with self.subTest(more):
                terminal = self.start_on_terminal("-n", 1, "sh", "-c", f"echo begin; {WAIT}; echo text", **more)
                # A dumb terminal gets no status line either.
                awaited = "\x1b" if "NO_COLOR" in more else "[0] begin"
                terminal.wait_for(lambda text: awaited in text)
                self.release(terminal)
                self.assertNotRegex(terminal.text, r"\x1b\[\d+m")
                self.assertEqual("\x1b" in terminal.text, "NO_COLOR" in more)

    def test_a_piped_stream_is_plain_text_and_the_terminal_shows_the_rest(self):
        terminal = self.start_on_terminal("-n", 1, "sh", "-c", f"echo out; {WAIT}; echo err >&2", pipe="out")
        terminal.wait_for(lambda _: terminal.status_lines())
        self.release(terminal)
        self.assertEqual(terminal.piped, b"[0] out\n")
        self.assertIn("[0] err", terminal.screen())
        terminal = self.start_on_terminal("-n", 1, "sh", "-c", f"echo out; {WAIT}; echo err >&2", pipe="err")
        terminal.wait_for(lambda text: " out" in text)
        self.release(terminal)
        self.assertTrue(terminal.piped.endswith(b"\n[0] err\n"), terminal.piped)
        self.assertNotIn(b"\x1b", terminal.piped)
        self.assertEqual(terminal.status_lines(), [])

    def test_ctrl_c_reaches_only_the_launcher_and_saves_a_checkpoint(self):
        terminal = self.start_on_terminal("-n", 2, "--checkpoint", "c", REPLICA_PROGRAM, "--steps", 1_000_000)
        terminal.wait_for(lambda text: text.count("begins at step") == 2)
        terminal.type(b"\x03")
        self.assertEqual(terminal.finish(), 143)
        self.assertNotIn("SIGINT: checkpointing", terminal.text)  # the replicas were stopped with SIGTERM
        self.assertIn(f"adaptdl: stopped with checkpoint '{self.directory}/c/checkpoint-0'", terminal.text)

    def test_a_second_ctrl_c_kills_the_replicas(self):
        terminal = self.start_on_terminal("-n", 2, "--checkpoint", "c", REPLICA_PROGRAM, "--steps", 1_000_000, "--hang")
        terminal.wait_for(lambda text: text.count("begins at step") == 2)
        terminal.type(b"\x03")
        terminal.wait_for(lambda text: "waiting up to 30s" in text)
        terminal.type(b"\x03")
        self.assertEqual(terminal.finish(), 130)

    def test_sighup_makes_the_run_save_a_checkpoint_and_stop(self):
        terminal = self.start_on_terminal("-n", 1, "--checkpoint", "c", REPLICA_PROGRAM, "--steps", 1_000_000)
        terminal.wait_for(lambda text: "begins at step" in text)
        os.kill(terminal.process.pid, signal.SIGHUP)
        self.assertEqual(terminal.finish(), 143)


class ConfirmationTest(RunTest):
    def test_delete_asks_on_a_terminal_before_it_deletes_several_runs_or_jobs(self):
        for name in ("one", "two"):
            self.run_to_end("-n", 1, "--name", name, "true")
        for options in (["--local"], ["--ray", "http://127.0.0.1:1"]):
            terminal = Terminal([*options, "one", "two"], self.directory, self.environment, command="delete")
            self.addCleanup(terminal.end)
            terminal.wait_for(lambda text: "delete one, two? [y/N]" in text)
            terminal.type(b"n\n")
            self.assertEqual(terminal.finish(), 1, terminal.text)
            self.assertIn("nothing was deleted", terminal.text)
        self.assertEqual(len(self.listed()), 2)


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
