"""Does what ddp_program.cc does, but with PyTorch's DistributedDataParallel on Gloo: python_ddp_peer.py RANK REPLICAS STORE

STORE is a file through which the replicas find each other.
"""

import contextlib
import json
import math
import sys
import time

import torch
import torch.distributed.nn.functional
from torch import nn

BATCHES, CLASSES = 5, 10


class WholeBatchNorm(nn.BatchNorm2d):
    """Computes what SyncBatchNorm must compute, since PyTorch's own SyncBatchNorm rejects tensors on a CPU. It gathers
    the batch of all replicas, applies PyTorch's plain batch normalization and its backward pass to that batch, and
    returns this replica's share. It has neither code nor formulas in common with our SyncBatchNorm."""

    def forward(self, share):
        whole = super().forward(torch.cat(torch.distributed.nn.functional.all_gather(share)))
        return whole[torch.distributed.get_rank() * len(share):][:len(share)]


def values(first, shape):
    places = torch.arange(first, first + math.prod(shape))
    return (places * places * 7919).remainder(10007).double().div(5003).sub(1).view(shape)


def make_model(one):
    layers, inputs, side = [], 3, one["side"]
    for outputs in one["channels"]:
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=not one["sync_batch_norm"]))
        if one["sync_batch_norm"]:
            layers.append(WholeBatchNorm(outputs))
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        inputs, side = outputs, side // 2
    layers.append(nn.Flatten())
    inputs *= side**2
    for outputs in one["widths"]:
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        inputs = outputs
    net = nn.Sequential(*layers, nn.Linear(inputs, CLASSES))
    first = 0
    with torch.no_grad():
        for name, param in net.named_parameters():
            if param.dim() > 1:
                param.copy_(values(first, param.shape) * math.sqrt(6 / param[0].numel()))
            if name.endswith("bias"):
                param.zero_()
            first += param.numel()
    return net.double() if one["double"] else net


class Training:
    def __init__(self, one, rank):
        self.passes, self.clip, self.bf16 = one["passes"], one["clip"], one["bf16"]
        self.net = make_model(one)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=one["lr"], momentum=0.9, weight_decay=1e-4)
        self.model = nn.parallel.DistributedDataParallel(self.net)
        shape = BATCHES, self.passes, one["samples"], 3, one["side"], one["side"]
        self.images = values((rank + 1) * math.prod(shape), shape).float().to(next(self.net.parameters()).dtype)
        labels = torch.arange(math.prod(shape[:3])).add(3 * rank).remainder(CLASSES)
        self.labels = labels.view(BATCHES, self.passes, -1)
        self.steps = 0

    def train(self, steps):
        losses, seconds = [], []
        for _ in range(steps):
            began = time.perf_counter()
            of_passes = self.step()
            seconds.append(time.perf_counter() - began)
            losses += [loss.item() for loss in of_passes]
        return dict(losses=losses, seconds=seconds)

    def step(self):
        batch, self.steps = self.steps % BATCHES, self.steps + 1
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for number in range(self.passes):
            last = number + 1 == self.passes
            with contextlib.nullcontext() if last else self.model.no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                    outputs = self.model(self.images[batch, number])
                    losses.append(nn.functional.cross_entropy(outputs, self.labels[batch, number]))
                (losses[-1] / self.passes).backward()
        if self.clip > 0:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()
        return losses

    def state(self):
        return {name: tensor.flatten().tolist() for name, tensor in self.net.state_dict().items()}


def main():
    rank, replicas, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=replicas)
    training = None
    for line in sys.stdin:
        question = json.loads(line)
        what = question["what"]
        if what == "config":
            answer = torch.__config__.show()
        elif what == "make":
            training = Training(question["case"], rank)
            answer = sum(param.numel() for param in training.net.parameters())
        elif what == "train":
            answer = training.train(question["steps"])
        elif what == "state":
            answer = training.state()
        print(json.dumps(answer), flush=True)


main()
