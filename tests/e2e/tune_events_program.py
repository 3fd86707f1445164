"""A trial that logs its accuracy with TensorBoard's own writers, as PyTorch and TensorFlow 2 do. It reports nothing else.

    tune_events_program.py FORM LR

FORM is `simple` (as in PyTorch), `tensor` (as in TensorFlow), or `keras`: two writers of the same tag, one of them for validation.
"""

import math
import os
import pathlib
import sys

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

EPOCHS = 4


def accuracy(lr, epoch):
    return 1 - abs(math.log10(lr) + 2) / 10 - 0.5 / epoch


def simple(tag, value):
    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def log(writer, form, tag, value, step):
    writer.add_event(Event(wall_time=1.5e9 + step, step=step, summary=form(tag, value)))


def main():
    form, lr = sys.argv[1], float(sys.argv[2])
    directory = pathlib.Path(os.environ["ADAPTDL_TENSORBOARD_LOGDIR"])
    names = ["train", "validation"] if form == "keras" else ["."]
    writers = {name: EventFileWriter(str(directory / name)) for name in names}
    for epoch in range(1, EPOCHS + 1):
        for name, writer in writers.items():
            value = 1.0 if name == "train" else accuracy(lr, epoch)
            log(writer, simple if form == "simple" else scalar_pb, "accuracy", value, 100 * epoch)
            log(writer, simple, "loss", 1 - value, 100 * epoch)
    for writer in writers.values():
        writer.close()


if __name__ == "__main__":
    main()
