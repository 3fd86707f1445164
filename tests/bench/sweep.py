#!/usr/bin/env python3
"""Compares an adaptive batch size with the best fixed batch size, from a poor start.

    python3 tests/bench/sweep.py BUILD [--problem digits|images] [--seeds 5] [--replicas 2] [--epochs N]

For each problem and seed, this script trains with the poor start (a small batch size and the learning rate that suits
it), kept fixed; with a sweep of fixed batch sizes, each with the learning rate of the poor start scaled by the square
root and linearly; and with --autoscale-bsz from the poor start. All runs train for the same number of epochs.

The target is the highest final accuracy of a fixed batch size (the mean of the last two epochs, over the seeds) minus half
a percentage point, which allows for the noise of such a small test set. The time to the target is the training and testing
time up to the end of the first epoch that reaches it, averaged over the seeds; for a run that never reaches it, the
total time is used, and the table says so. The best fixed batch size is the one that reaches the target in the least time,
among those whose final accuracy is not below the target. Prints a table in Markdown, and exits with 1 if a bound is not met.
"""

import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

TOLERANCE = 0.005

PROBLEMS = {
    "digits": {
        "program": "digits", "options": ["--optimizer", "sgd"], "start": (4, 0.02), "largest": 512,
        "sizes": [16, 32, 64, 128], "epochs": 10,
    },
    "images": {
        "program": "digits", "options": ["--optimizer", "sgd"], "start": (4, 0.02), "largest": 512,
        "sizes": [16, 32, 64, 128], "epochs": 16, "generated": True,
    },
}


def generate_images(directory, side=8, classes=10, training=1500, testing=500):
    """Generates images in MNIST's format: a smooth random pattern per class, shifted by up to a pixel, with noise added."""
    draw = random.Random(7)
    coarse = [[[draw.gauss(0, 1) for _ in range(4)] for _ in range(4)] for _ in range(classes)]
    patterns = [[[grid[y * 4 // side][x * 4 // side] for x in range(side)] for y in range(side)] for grid in coarse]
    for part, count in (("train", training), ("t10k", testing)):
        labels = [draw.randrange(classes) for _ in range(count)]
        pixels = bytearray()
        for label in labels:
            dx, dy = draw.randint(-1, 1), draw.randint(-1, 1)
            for y in range(side):
                row = patterns[label][(y + dy) % side]
                pixels += bytes(min(255, max(0, int(128 + 40 * row[(x + dx) % side] + draw.gauss(0, 45))))
                                for x in range(side))
        (directory / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, side, side) + pixels)
        (directory / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels))


def train(build, problem, replicas, batch_size, lr, seed, more=()):
    """Trains once, and returns a row for each epoch, with its accuracy, the seconds so far and the batch size."""
    with tempfile.TemporaryDirectory() as directory:
        log = pathlib.Path(directory) / "log.json"
        subprocess.run(
            [build / "cli/adaptdl", "run", "--replicas", str(replicas), "--no-checkpoint", "--",
             build / "trainer/programs" / problem["program"], *problem["options"], "--batch-size", str(batch_size),
             "--lr", f"{lr:.6g}", "--epochs", str(problem["epochs"]), "--seed", str(seed), "--log-json", log, *more],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
    seconds = 0
    for row in rows:
        seconds += row["seconds"]
        row["so_far"] = seconds
    return rows


class Result:
    """The runs of one configuration, one per seed."""

    def __init__(self, name, runs):
        self.name = name
        self.runs = runs
        self.accuracy = statistics.mean(statistics.mean(row["accuracy"] for row in run[-2:]) for run in runs)
        self.last_size = round(statistics.mean(run[-1]["batch_size"] for run in runs))

    def times_to(self, target):
        return [next((row["so_far"] for row in run if row["accuracy"] >= target), run[-1]["so_far"]) for run in self.runs]

    def missed(self, target):
        return sum(all(row["accuracy"] < target for row in run) for run in self.runs)

    def row(self, target):
        times = self.times_to(target)
        missed = self.missed(target)
        return (f"| {self.name} | {self.last_size} | {self.accuracy:.4f} | {statistics.mean(times):.2f} | "
                f"{min(times):.2f} to {max(times):.2f}{f', {missed} never' if missed else ''} |")


def best_fixed(results):
    highest = max(result.accuracy for result in results)
    good = [result for result in results if result.accuracy >= highest - TOLERANCE]
    return min(good, key=lambda result: statistics.mean(result.times_to(highest - TOLERANCE))), highest


def measure(name, build, seeds, replicas, directory, epochs):
    problem = dict(PROBLEMS[name])
    problem["epochs"] = epochs or problem["epochs"]
    size, lr = problem["start"]
    if problem.get("generated"):
        generate_images(directory)
        problem["options"] = [*problem["options"], "--data", directory]

    def runs(label, batch_size, rate, more=()):
        print(f"{name}: {label}", file=sys.stderr, flush=True)
        return Result(label, [train(build, problem, replicas, batch_size, rate, seed, more) for seed in seeds])

    start = runs(f"poor start: {size}, lr {lr:g}", size, lr)
    fixed = [runs(f"fixed {larger}, lr {lr * (larger / size) ** power:.3g}", larger, lr * (larger / size) ** power)
             for larger in problem["sizes"] for power in (0.5, 1)]
    adaptive = runs(f"adaptive from {size}, lr {lr:g}", size, lr,
                    ["--autoscale-bsz", "--max-batch-size", str(problem["largest"])])
    best, highest = best_fixed(fixed + [start])
    target = highest - TOLERANCE

    def seconds(result):
        return statistics.mean(result.times_to(target))

    print(f"\n### {name}: {replicas} replicas, {len(seeds)} seeds, target accuracy {target:.4f}\n")
    print("| run | batch size in the last epoch | final accuracy | seconds to the target | range over the seeds |")
    print("| --- | --- | --- | --- | --- |")
    for result in [start, *fixed, adaptive]:
        print(result.row(target))
    to_best, to_start = seconds(adaptive) / seconds(best), seconds(adaptive) / seconds(start)
    print(f"\nBest fixed run: {best.name}. The adaptive run takes {to_best:.2f} times as long as that run "
          "(goal: at most 1.1) and "
          f"{to_start:.2f} times as long as the poor start (goal: at most 0.5). "
          f"Its final accuracy minus that of the best fixed run: {adaptive.accuracy - best.accuracy:+.4f}.")
    return to_best <= 1.1 and to_start <= 0.5 and adaptive.missed(target) == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--problem", choices=PROBLEMS, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--epochs", type=int, help="of each run, in place of the problem's own number")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        reached = [measure(name, arguments.build.resolve(), range(1, arguments.seeds + 1), arguments.replicas,
                           pathlib.Path(directory), arguments.epochs) for name in arguments.problem or PROBLEMS]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
