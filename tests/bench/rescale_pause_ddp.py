"""The job of rescale_pause_program.cc in PyTorch, made elastic in the same way as PyTorch's own examples.

    torchrun ... rescale_pause_ddp.py digits|large FILE SNAPSHOT

It uses DistributedDataParallel on Gloo. Rank 0 saves a snapshot every 20 steps, and all workers load it when they start.
"""

import os
import sys
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, BATCH_SIZE, SIDE, CLASSES, WIDTH = 1500, 32, 8, 10, 3500
SNAPSHOT_STEPS = 20


def make_model(name):
    if name == "digits":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout2d(0.25), nn.Flatten(), nn.Linear(SIDE * SIDE * 16, 128),
            nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, CLASSES))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH),
        nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))


def save(path, net, optimizer, epoch):
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"{path}.new")
    os.replace(f"{path}.new", path)


def train(name, stamps, snapshot, step_ms=0):
    """Trains in the process group that the caller has initialized. On n replicas, a step takes at least step_ms/n milliseconds."""
    torch.manual_seed(1)
    stamps = os.open(stamps, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    net = make_model(name)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    rank, replicas = torch.distributed.get_rank(), torch.distributed.get_world_size()
    epoch = step = 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch = saved["epoch"]
    model = DistributedDataParallel(net)
    data = TensorDataset(torch.randn(SAMPLES, 1, SIDE, SIDE), torch.randint(CLASSES, (SAMPLES,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH_SIZE // replicas, sampler=sampler, drop_last=True)
    while True:
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(step_ms / replicas / 1000)
            os.write(stamps, f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)} {os.getpid()} {rank} {replicas}\n".encode())
            step += 1
            if rank == 0 and step % SNAPSHOT_STEPS == 0:
                save(snapshot, net, optimizer, epoch)
        epoch += 1


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    train(*sys.argv[1:])
