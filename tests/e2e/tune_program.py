#!/usr/bin/env python3
"""A trial that needs no library. Its accuracy rises with each epoch, and is highest for the learning rate 0.01.

It saves a checkpoint on SIGTERM and, with --save-every, each time that number of epochs has been trained. For each epoch, it
adds a line to trained.jsonl in its trial's directory, so that a test can check whether an epoch was trained twice.

With --events, it logs its accuracy as a TensorBoard scalar, in a new file after each restart.

Tests can hold it: with --hold-after, it waits after that number of epochs until it is stopped or released. The file
`release` in its working directory, or `release-N` for trial N, releases it, after which it no longer pauses. With
--hold-at-rungs, it waits at each rung of asha until the search has decided whether it may continue, however slow the
search is.

    tune_program.py --lr LR [--epochs N] [--pause SECONDS] [--fail-above LR] [--silent] [--nan] [--results] [--events]
                    [--progress] [--save-every EPOCHS] [--hold-after EPOCHS] [--hold-at-rungs]
"""

import argparse
import json
import math
import os
import pathlib
import signal
import struct
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--epochs", type=int, default=16)
parser.add_argument("--pause", type=float, default=0.01)
parser.add_argument("--fail-above", type=float, default=math.inf)
parser.add_argument("--silent", action="store_true")
parser.add_argument("--results", action="store_true")
parser.add_argument("--events", action="store_true")
parser.add_argument("--nan", action="store_true")
parser.add_argument("--progress", action="store_true")
parser.add_argument("--save-every", type=int, default=0)
parser.add_argument("--hold-after", type=int, default=0)
parser.add_argument("--hold-at-rungs", action="store_true")
options = parser.parse_args()

stopping = False


def stop(number, frame):
    global stopping
    stopping = True


def checksum(data):
    """Returns the masked CRC-32C that TFRecord files use."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)


def log_event(step, tag, value):
    """Logs a scalar. The step must fit into a one-byte varint, and the tag must be short enough for one-byte lengths."""
    scalar = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    event = b"\x09" + struct.pack("<d", time.time()) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    length = struct.pack("<Q", len(event))
    directory = pathlib.Path(os.environ["ADAPTDL_TENSORBOARD_LOGDIR"], f"run-{os.getpid()}")
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"events.out.tfevents.{os.getpid()}").open("ab") as file:
        file.write(length + checksum(length) + event + checksum(event))


def save(epoch):
    draft = checkpoints / f"draft-{os.getpid()}"
    draft.mkdir()
    draft.rename(checkpoints / f"checkpoint-{epoch}")


def is_released():
    return os.path.exists("release") or os.path.exists(f"release-{checkpoints.parent.name}")


def allowed_rung():
    """Returns the rung to which the search has promoted this trial, according to the storage of the study."""
    rung = 0
    # The search may be writing the last line.
    for line in (checkpoints.parents[2] / "journal.log").read_text().rpartition("\n")[0].splitlines():
        operation = json.loads(line)
        if operation.get("trial_id") == int(checkpoints.parent.name):
            rung = operation.get("user_attr", {}).get("adaptdl:rung", rung)
    return rung


def hold(epoch):
    """Waits after this epoch if the options require it."""
    while epoch == options.hold_after and not stopping and not is_released():
        time.sleep(0.01)
    if options.hold_at_rungs and epoch in RUNGS:
        while not stopping and allowed_rung() <= RUNGS.index(epoch):
            time.sleep(0.05)


RUNGS = [1, 4]  # epochs of the first two rungs of asha, if the first report is of epoch 1
signal.signal(signal.SIGTERM, stop)
checkpoints = pathlib.Path(os.environ["ADAPTDL_CHECKPOINT_PATH"])
trained = checkpoints.parent / "trained.jsonl"
done = max((int(path.name.split("-")[1]) for path in checkpoints.glob("checkpoint-*")), default=0)
if options.lr > options.fail_above:
    sys.exit(f"learning rate {options.lr} is too high")
for epoch in range(done + 1, options.epochs + 1):
    if not is_released():
        time.sleep(options.pause)
    if stopping:
        save(epoch - 1)
        sys.exit(143)
    if epoch == options.epochs:
        # A search may answer the last report with SIGTERM, which must not kill the interpreter while it is exiting.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with trained.open("a") as file:
        file.write(json.dumps({"epoch": epoch, "start": os.getpid()}) + "\n")
    if options.progress:
        report = {"goodput": 1234, "progress": epoch, "targetProgress": options.epochs}
        os.write(int(os.environ["ADAPTDL_STATUS_FD"]), json.dumps(report).encode() + b"\n")
    accuracy = 1 - abs(math.log10(options.lr) + 2) / 10 - 0.5 / epoch
    if options.results:
        with open(os.environ["ADAPTDL_RESULTS_FILE"], "a") as file:
            file.write(json.dumps({"accuracy": accuracy, "step": epoch * 100, "epoch": epoch}) + "\n")
    elif options.events:
        log_event(epoch, "accuracy", accuracy)
    elif not options.silent:
        print(json.dumps({"accuracy": math.nan if options.nan else accuracy, "epoch": epoch}), flush=True)
    if options.save_every and epoch % options.save_every == 0:
        save(epoch)
    hold(epoch)
