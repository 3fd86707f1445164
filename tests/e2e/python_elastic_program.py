"""A linear regression as a user of the published Python package `adaptdl` would write it, unaware of our
implementation.

For the test, it prints which samples it trains on and which step it is at, and waits for files at certain steps, so
that the test can act on it at these steps.
"""

import argparse
import os
import pickle
import time

import adaptdl.checkpoint
import adaptdl.env
import adaptdl.torch
import torch

SAMPLES, BATCH_SIZE = 256, 16


class Samples(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(SAMPLES, 4, generator=generator)
        noise = torch.randn(SAMPLES, 1, generator=generator)
        self.outputs = self.inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]]) + 0.1 * noise

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, self.inputs[index], self.outputs[index]


class Steps(adaptdl.checkpoint.State):
    """Counts the steps so far, as an example of a state that the program defines."""

    def __init__(self):
        super().__init__("steps")
        self.count = 0
        adaptdl.checkpoint.load_state(self)

    def save(self, fileobj):
        pickle.dump(self.count, fileobj)

    def load(self, fileobj):
        self.count = pickle.load(fileobj)


def say(text):
    print(text, flush=True)


def wait_for(path, step):
    say(f"waits after step {step}")
    while not os.path.exists(path):
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--wait", action="append", default=[], metavar="STEP:FILE")
    parser.add_argument("--pause", type=float, default=0, help="seconds of a step, shared by the replicas")
    parser.add_argument("--autoscale", metavar="MAX:MIN", help="maximum total batch size, and minimum local batch size")
    options = parser.parse_args()
    waits = {int(step): path for step, path in (each.split(":", 1) for each in options.wait)}

    torch.manual_seed(0)
    torch.set_num_threads(1)
    adaptdl.torch.init_process_group("gloo")
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    model = adaptdl.torch.AdaptiveDataParallel(net, optimizer)
    loader = adaptdl.torch.AdaptiveDataLoader(Samples(), batch_size=BATCH_SIZE, shuffle=True)
    if options.autoscale:
        max_batch, min_local = map(int, options.autoscale.split(":"))
        loader.autoscale_batch_size(max_batch, local_bsz_bounds=(min_local, max_batch), gradient_accumulation=True)
    steps = Steps()
    say(f"rank {adaptdl.env.replica_rank()} of {adaptdl.env.num_replicas()} begins after step {steps.count}")
    for epoch in adaptdl.torch.remaining_epochs_until(options.epochs):
        for indices, inputs, outputs in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), outputs).backward()
            optimizer.step()
            steps.count += 1
            say(f"epoch {epoch}: {' '.join(map(str, indices.tolist()))}")
            time.sleep(options.pause * len(indices) / BATCH_SIZE)
            if steps.count in waits:
                wait_for(waits[steps.count], steps.count)
    parameters = [*net.weight.flatten().tolist(), net.bias.item()]
    say(f"ends after step {steps.count} with {' '.join(map(str, parameters))}")


main()
