"""Supports tests that compare our goodput with that of the published Python package: runs both as programs that answer
the same questions, and reads the step times that were measured for the Pollux paper."""

import csv
import json
import os
import pathlib
import random
import subprocess

import python_peer

PACKAGES = [*python_peer.NUMPY, python_peer.ADAPTDL]
TRACES = pathlib.Path(os.environ["SOURCE_ROOT"], "share", "adaptdl", "osdi21", "traces")


class Program:
    """A program that answers questions. Each question is a JSON object on one line, and so is each answer."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"{self.process.args[0]} ended with {self.process.wait()} at {question}")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def programs():
    """Returns our program and the Python package's. Raises unittest.SkipTest if the package is not available."""
    peer = python_peer.venv("adaptdl", PACKAGES)
    return (Program(os.environ["GOODPUT_PROGRAM"]),
            Program(peer, pathlib.Path(__file__).with_name("python_goodput_peer.py")))


def applications():
    return sorted(path.name for path in TRACES.iterdir())


def observations(application):
    """Returns what was measured for an application, in the form that a fit expects: for each number of nodes, number of
    replicas and local batch size, the mean times of an accumulation step and of an optimizer step."""
    times = {}
    for row in _rows(application, "placements.csv"):
        digits = [int(digit) for digit in row["placement"]]
        times.setdefault((len(digits), sum(digits), int(row["local_bsz"])), []).append(row)
    for row in _rows(application, "scalability.csv"):
        key = int(row["num_nodes"]), int(row["num_replicas"]), int(row["local_bsz"])
        times.setdefault(key, []).append(row)
    means = []
    for key, rows in sorted(times.items()):
        step = sum(float(row["step_time"]) for row in rows) / len(rows)
        sync = sum(float(row["sync_time"]) for row in rows) / len(rows)
        means.append([*key, step - sync, step])
    return means


def _rows(application, name):
    with open(TRACES / application / name, newline="") as file:
        return list(csv.DictReader(file))


def split(everything, number, seed):
    """Returns `number` randomly chosen items to fit, and the rest."""
    shuffled = list(everything)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:number], shuffled[number:]
