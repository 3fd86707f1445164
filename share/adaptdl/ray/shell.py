"""Runs commands for `adaptdl cp --ray` on the head node: shell.py SESSION DIRECTORY

The messages of a session are packages that the command uploads, named SESSION-0.zip, SESSION-1.zip and so on. Each is a line
of JSON; in a "write" message, the bytes follow the line:
  {"do": "start", "process": P, "command": [...]}     starts a command in DIRECTORY
  {"do": "write", "process": P}                       writes the bytes to the command's standard input
  {"do": "kill", "process": P}                        kills the command
  {"do": "end"}                                       ends the session, and kills its commands
  {"do": "stay"}                                      shows that the session continues
The answers are lines of standard output:
  @ready | @read N                        how many messages have been handled
  @P o BASE64 | @P e BASE64 | @P x CODE   output, error output, and the exit code, which comes last
Without a message for SILENCE seconds, the session ends.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time

from ray._raylet import GcsClient

SILENCE = 120
PIECE = 12 << 10  # bytes of output per line


lock = threading.Lock()


def say(line):
    rest = line.encode() + b"\n"
    with lock:
        try:
            while rest:
                rest = rest[os.write(1, rest):]
        except OSError:
            os._exit(1)  # for example, the disk is full


class Process:
    def __init__(self, number, command, directory, processes):
        """Starts the command. The process is removed from `processes` when it has ended."""
        self.number, self.processes = number, processes
        try:
            if not os.path.isdir(directory):
                raise OSError(f"{directory}: no such directory")
            self.process = subprocess.Popen(command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            self.process = None
            self.say("e", f"{error}\n".encode())
            say(f"@{number} x {127 if isinstance(error, FileNotFoundError) else 126}")
            return
        processes[number] = self
        pipes = (("o", self.process.stdout), ("e", self.process.stderr))
        self.readers = [threading.Thread(target=self.pass_on, args=pipe, daemon=True) for pipe in pipes]
        for thread in [*self.readers, threading.Thread(target=self.wait, daemon=True)]:
            thread.start()

    def say(self, stream, data):
        say(f"@{self.number} {stream} {base64.b64encode(data).decode()}")

    def pass_on(self, stream, pipe):
        while data := pipe.read1(PIECE):
            self.say(stream, data)

    def wait(self):
        for thread in self.readers:
            thread.join()
        code = self.process.wait()
        self.processes.pop(self.number, None)
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            try:
                pipe.close()
            except OSError:
                pass  # the process did not read all of its input
        say(f"@{self.number} x {code if code >= 0 else 128 - code}")

    def write(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except (OSError, ValueError):
            pass  # the process has ended; its exit code reports this

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def messages(store, session):
    """Yields the messages in order, until there has been none for SILENCE seconds."""
    number, last = 0, time.monotonic()
    while time.monotonic() - last < SILENCE:
        key = f"gcs://{session}-{number}.zip".encode()
        if (message := store.internal_kv_get(key, None)) is None:
            time.sleep(0.02)
            continue
        store.internal_kv_del(key, False, None)
        header, _, data = message.partition(b"\n")
        yield json.loads(header), data
        number, last = number + 1, time.monotonic()
        say(f"@read {number}")


def main():
    session, directory = sys.argv[1:]
    store = GcsClient(address=os.environ["RAY_ADDRESS"])
    processes = {}
    say("\n@ready")
    for message, data in messages(store, session):
        number = message.get("process")
        if message["do"] == "start":
            Process(number, message["command"], directory, processes)
        elif message["do"] == "write" and number in processes:
            processes[number].write(data)
        elif message["do"] == "kill" and number in processes:
            processes[number].kill()
        elif message["do"] == "end":
            break
    for process in list(processes.values()):
        process.kill()
    store.internal_kv_del(f"gcs://{session}-".encode(), True, None)  # messages that were not read
    os.ftruncate(1, 0)  # Ray keeps the log


if __name__ == "__main__":
    main()
    os._exit(0)  # does not wait for threads of Ray's library
