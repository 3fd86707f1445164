"""Compares the step time of adaptdl's data-parallel training with that of Python's DistributedDataParallel, on the same
LibTorch. Three jobs with two replicas of one thread each train the same model on the same batches, in turns of a few steps: a plain
adaptdl job with LibTorch's SGD, an adaptive adaptdl job, whose optimizer also measures the gradient noise scale, and a job
in Python with PyTorch's SGD. All of them release the gradients of the previous step instead of setting them to zero.

Prints the ratios of the median step times. Exits with 1 if the plain job's ratio is over 1.02, a bound for an otherwise
idle machine. The adaptive job does more work than the Python job, so its ratio is for information only. Skipped without
Debian's python3-torch. The optional argument is the number of rounds (default: 25).
"""

import os
import pathlib
import statistics
import sys
import tempfile
import unittest

E2E = pathlib.Path(os.environ["SOURCE_ROOT"], "tests", "e2e")
sys.path.insert(0, str(E2E))
import peer_jobs  # noqa: E402
import python_peer  # noqa: E402

PROGRAM = os.environ["DDP_PROGRAM"]
PEER = E2E / "python_ddp_peer.py"
REPLICAS = 2
MAX_RATIO = 1.02
WARM_UP = 10
STEPS, LEFT_OUT = 20, 2  # steps per turn, and the number of steps at its beginning that are not counted
# A model with 5.3 M parameters; python_ddp_test.py describes the fields.
CASE = dict(side=16, channels=[32, 64], widths=[4096, 256], samples=32, passes=1, lr=0.01, clip=0, bf16=False,
            double=False, sync_batch_norm=False)


def measure(jobs, rounds):
    """Returns the step times of each job, each measured on the replica that took longer."""
    for name, job in jobs.items():
        [size, _] = job.ask(what="make", case={**CASE, "name": "ddp-step", "adaptive": name == "adaptive"})
        job.ask(what="train", steps=WARM_UP)
    print(f"{size / 1e6:.1f} M parameters, {rounds} rounds of {STEPS} steps")
    seconds = {name: [] for name in jobs}
    order = list(jobs)
    for _ in range(rounds):
        losses = {}
        for name in order:
            answers = jobs[name].ask(what="train", steps=STEPS)
            losses[name] = [answer["losses"] for answer in answers]
            seconds[name] += list(map(max, *(answer["seconds"] for answer in answers)))[LEFT_OUT:]
        if any(each != losses["Python"] for each in losses.values()):
            raise SystemExit("the jobs do not train identically; see e2e/python_ddp")
        order = order[1:] + order[:1]
    return seconds


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    python = python_peer.python_with_torch()
    with (
        tempfile.TemporaryDirectory() as directory,
        peer_jobs.Job.ours(PROGRAM, REPLICAS) as plain,
        peer_jobs.Job.ours(PROGRAM, REPLICAS) as adaptive,
        peer_jobs.Job.of_python(python, PEER, REPLICAS, pathlib.Path(directory, "store")) as peer,
    ):
        peer_jobs.require_same_torch(plain, peer)
        seconds = measure({"plain": plain, "adaptive": adaptive, "Python": peer}, rounds)
    theirs = statistics.median(seconds.pop("Python"))
    ratios = {name: statistics.median(ours) / theirs for name, ours in seconds.items()}
    for name, ratio in ratios.items():
        print(f"{name} step / step of DistributedDataParallel: {ratio:.4f} ({ratio * theirs * 1e3:.2f} ms / "
              f"{theirs * 1e3:.2f} ms, medians of {len(seconds[name])})")
    return int(ratios["plain"] > MAX_RATIO)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except unittest.SkipTest as reason:
        print(reason)
        sys.exit(python_peer.SKIPPED)
