"""Helpers for the end-to-end tests of `adaptdl run`, which start and watch runs and inspect processes."""

import contextlib
import fcntl
import ipaddress
import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
REPLICA_PROGRAM = os.environ["REPLICA_PROGRAM"]
# In seconds. The limit is generous because test machines are slow at times; a test that passes does not wait that long.
PATIENCE = 60

# Under nohup(1) SIGHUP is ignored, and all processes that are started here would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def clean_environment(**more):
    """Returns the environment without the variables that an outer run or terminal may have set, and with those in `more`. The
    value None removes a variable."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ADAPTDL_")
        and name not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED", "NO_COLOR")
        and name not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")
    }
    environment["TERM"] = "xterm-256color"  # the tests may be running on a dumb terminal
    environment.update(more)
    return {name: value for name, value in environment.items() if value is not None}


def eventually(condition, patience=PATIENCE):
    """Waits until the condition holds, but no longer than `patience` seconds, and returns its last value."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.01)


def is_alive(pid):
    """Returns whether the process exists and is not a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def children(pid):
    """Returns the living children of a process."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def descendants(pid):
    """Returns the living descendants of a process."""
    return [each for child in children(pid) for each in [child, *descendants(child)]]


def listening_addresses(pids):
    """Returns, by process, the (IP address, port) pairs on which TCP sockets of these processes are listening."""
    listeners = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A":
                continue
            host, port = fields[1].split(":")
            words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
            packed = struct.pack(f"={len(words)}I", *words)
            listeners[f"socket:[{fields[9]}]"] = (ipaddress.ip_address(packed), int(port, 16))
    found = {}
    for pid in pids:
        try:
            targets = targets_of(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        for listener in filter(None, map(listeners.get, targets)):
            found.setdefault(pid, set()).add(listener)
    return found


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def targets_of(pid):
    """Returns what the descriptors of a process refer to. The process may open and close descriptors in the meantime."""
    targets = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            targets.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return targets


def guardian_of(launcher):
    """Returns the launcher's child that is not a replica. Waits until that child has started, because until then it has
    the launcher's name."""
    [guardian] = eventually(lambda: [pid for pid in children(launcher) if name_of(pid) == "replica-guard"])
    return guardian


def replicas_of(launcher):
    guardian = guardian_of(launcher)
    return [pid for pid in children(launcher) if pid != guardian]


def agent_of(runtime):
    """Returns the process that shares the devices among the runs with this runtime directory, or None if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(pathlib.Path(runtime) / "adaptdl" / "agent.sock"))
        except OSError:
            return None
        return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


# Prints what each descriptor refers to, and which one is for progress reports.
PRINT_DESCRIPTORS = """
import json, os
targets = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        targets[fd] = os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        pass  # that of the listing
print(json.dumps({"status": os.environ["ADAPTDL_STATUS_FD"], "targets": targets}), flush=True)
"""


@contextlib.contextmanager
def stray_pipe(number=251):
    """Opens a pipe whose write end has the descriptor `number`, so that processes that the block starts with
    close_fds=False inherit it. Yields the read end."""
    read, write = os.pipe()
    os.dup2(write, number, inheritable=True)
    os.close(write)
    try:
        yield read
    finally:
        os.close(number)
        os.close(read)


class Run:
    """`adaptdl run` as a process whose output is collected line by line as it arrives."""

    def __init__(self, *arguments, cwd, environment):
        self.process = subprocess.Popen(
            [ADAPTDL, "run", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
        )
        self.out, self.err = [], []
        self._threads = [
            threading.Thread(target=self._collect, args=pair)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _collect(stream, lines):
        for line in stream:
            lines.append(line.decode(errors="surrogateescape").rstrip("\n"))
        stream.close()

    @property
    def pid(self):
        return self.process.pid

    def wait_for(self, text, count=1):
        """Waits until `count` lines with the text have been written to either stream, and returns all such lines."""
        found = eventually(
            lambda: [line for line in self.out + self.err if text in line][count - 1 :]
            or self.process.poll() is not None
        )
        lines = [line for line in self.out + self.err if text in line]
        if not found or len(lines) < count:
            eventually(lambda: not any(thread.is_alive() for thread in self._threads), 5)
            lines = [line for line in self.out + self.err if text in line]
        if len(lines) < count:
            raise AssertionError(f"{text!r} did not appear {count} times; output:\n{self.text()}")
        return lines

    def send(self, number):
        self.process.send_signal(number)

    def finish(self, patience=PATIENCE):
        """Waits for the end of the process and of its output, and returns the exit code."""
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {patience} s; output:\n{self.text()}") from None
        for thread in self._threads:
            thread.join(PATIENCE)
            if thread.is_alive():
                raise AssertionError("another process holds the output open after the end of the process")
        return code

    def text(self):
        return "\n".join(["-- out", *self.out, "-- err", *self.err])

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.finish()


class RunTest(unittest.TestCase):
    """A test case with its own temporary directory, which contains a home directory."""

    maxDiff = None

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-e2e-")).resolve()
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.home = self.directory / "home"
        self.home.mkdir()
        (self.directory / "runtime").mkdir(mode=0o700)
        self.environment = clean_environment(
            HOME=str(self.home), XDG_STATE_HOME=None, XDG_RUNTIME_DIR=str(self.directory / "runtime")
        )
        self.runs = self.home / ".local" / "state" / "adaptdl" / "runs"
        self.addCleanup(self.end_agent)

    def agent(self):
        return agent_of(self.environment["XDG_RUNTIME_DIR"])

    def end_agent(self):
        """Kills the agent, which would otherwise stay for a while after its last run."""
        if pid := self.agent():
            with contextlib.suppress(ProcessLookupError):  # it may end by itself at this moment
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: not is_alive(pid))

    def start(self, *arguments, **more):
        """Starts `adaptdl run` with these arguments and additional environment variables. The value None removes a variable."""
        environment = {**self.environment, **more}
        run = Run(
            *arguments,
            cwd=self.directory,
            environment={name: value for name, value in environment.items() if value is not None},
        )
        self.addCleanup(run.end)
        return run

    def run_to_end(self, *arguments, code=0, **more):
        run = self.start(*arguments, **more)
        self.assertEqual(run.finish(), code, run.text())
        return run

    def adaptdl(self, *words, code=0):
        """Runs another adaptdl command. Returns its standard output or, if it must fail, its standard error."""
        done = subprocess.run(
            [ADAPTDL, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env=self.environment,
            timeout=PATIENCE,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def shown_on_terminal(self, *words, columns=0):
        """Runs a command on a terminal with that number of columns, where 0 stands for an unknown width. Returns the bytes that
        it writes there, and its exit code."""
        leader, follower = pty.openpty()
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        command = subprocess.Popen([ADAPTDL, *words], env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL,
                                   stdout=follower, stderr=follower)
        os.close(follower)
        seen = b""
        try:
            while data := os.read(leader, 65536):
                seen += data
        except OSError:
            pass  # the other end was closed
        os.close(leader)
        return seen.replace(b"\r\n", b"\n"), command.wait(PATIENCE)

    def listed(self, *options):
        """Returns the output of `adaptdl ls --json`, by the names of the runs."""
        return {run["name"]: run for run in json.loads(self.adaptdl("ls", "--json", *options))}

    def prefer(self, run, name, replicas):
        """Makes the named run prefer that number of replicas, as a search does with its trials. Otherwise the policy would decide
        based on the program's own measurements, and on a busy machine it may find that fewer replicas are enough."""
        run.wait_for(" replicas of ")  # by then, its record exists
        request = {"request": "share", "replicas": replicas}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(json.loads((self.runs / name / "run.json").read_text())["socket"])
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = connection.makefile().readline()
        self.assertTrue(json.loads(answer)["ok"], answer)

    def assert_own_descriptors(self, shown):
        """Asserts that PRINT_DESCRIPTORS shows only /dev/null, two pipes for output and one pipe for progress."""
        self.assertEqual(set(shown["targets"]), {"0", "1", "2", shown["status"]}, shown)
        self.assertEqual(shown["targets"].pop("0"), "/dev/null")
        pipes = set(shown["targets"].values())
        self.assertEqual([pipe.split(":")[0] for pipe in pipes], ["pipe"] * 3)

    def own_checkpoints(self):
        """Returns the checkpoint directories that runs created for themselves and left behind."""
        return list(self.runs.glob("*/checkpoints"))

    def script(self, name, text):
        """Creates an executable file in the test's directory, and returns its path."""
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(self, name, text):
        return self.script(name, f"#!{sys.executable}\n{text}")

    def refused(self, *arguments, code=2, **more):
        """Runs `adaptdl run`, which must reject the arguments with a one-line error, and returns the error message."""
        run = self.run_to_end(*arguments, code=code, **more)
        self.assertEqual(run.out, [])
        self.assertEqual(len(run.err), 1, run.text())
        self.assertTrue(run.err[0].startswith("adaptdl: error: "), run.err[0])
        return run.err[0][len("adaptdl: error: ") :]


def interrupt(run):
    run.send(signal.SIGINT)
