"""Prints the reference values for lr_scheduler_test.cc, computed by the schedulers of PyTorch (run with torch 2.11)."""

import warnings

import torch
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import *

warnings.simplefilter("ignore")


def parameter():
    return torch.zeros(1, requires_grad=True)


def two_groups():
    return SGD([{"params": [parameter()], "lr": lr} for lr in (0.4, 0.05)], 0.1, momentum=0.9)


def show(name, rows):
    print(f"// {name}")
    for row in rows:
        print("    {" + ", ".join(repr(value).replace("nan", "kNan") for value in row) + "},")


def rates(name, make, steps, optimizer=None):
    """Prints, for each number of steps, the learning rates of both groups and the momentum or beta1 of the first group."""
    optimizer = optimizer or two_groups()
    scheduler = make(optimizer)
    rows = []
    for count in range(max(steps) + 1):
        if count in steps:
            groups = optimizer.param_groups
            momentum = groups[0]["betas"][0] if "betas" in groups[0] else groups[0]["momentum"]
            rows.append([count, groups[0]["lr"], groups[-1]["lr"], momentum])
        optimizer.step()
        scheduler.step()
    show(name, rows)


def plateau(name, metrics, **options):
    """Prints the learning rates of both groups after each metric."""
    optimizer = two_groups()
    scheduler = ReduceLROnPlateau(optimizer, **options)
    rows = []
    for metric in metrics:
        scheduler.step(metric)
        rows.append([metric] + [group["lr"] for group in optimizer.param_groups])
    show(name, rows)


rates("cosine", lambda o: CosineAnnealingLR(o, 10, 0.01), [0, 1, 3, 7, 9, 10, 11, 14, 20])
rates("multi-step", lambda o: MultiStepLR(o, [5, 3, 3, 8], 0.5), [0, 2, 3, 4, 5, 7, 8, 9])
rates("exponential", lambda o: ExponentialLR(o, 0.9), [0, 1, 5, 30])
rates("lambda", lambda o: LambdaLR(o, lambda n: 0.95**n / (n + 2)), [0, 1, 4, 9])
rates("one cycle", lambda o: OneCycleLR(o, [1.0, 0.2], total_steps=20), [0, 1, 2, 5, 6, 12, 18, 19])
rates(
    "one cycle, linear, three phases",
    lambda o: OneCycleLR(
        o, 0.8, total_steps=20, pct_start=0.4, anneal_strategy="linear", three_phase=True, base_momentum=0.7,
        max_momentum=0.9, div_factor=10, final_div_factor=100
    ),
    [0, 3, 7, 8, 13, 14, 15, 17, 19],
)
rates(
    "one cycle, Adam", lambda o: OneCycleLR(o, 0.01, total_steps=15), [0, 2, 4, 9, 14],
    Adam([parameter()], 0.001, betas=(0.8, 0.99))
)
rates("linear", lambda o: LinearLR(o, start_factor=0.25, total_iters=4), [0, 1, 2, 3, 4, 6])
rates(
    "linear, then cosine",
    lambda o: SequentialLR(o, [LinearLR(o, start_factor=0.25, total_iters=4), CosineAnnealingLR(o, 10)], [4]),
    [0, 1, 3, 4, 5, 9, 14],
)
losses = [1.0, 0.9, 0.89, 0.8899, 0.9, float("nan"), 0.95, 0.88, 0.88, 0.88, 0.88, 0.88, 0.88]
plateau("plateau of losses", losses, patience=2, factor=0.5, threshold=0.01, cooldown=1, min_lr=[0.15, 0.01])
accuracies = [0.1, 0.5, 0.55, 0.58, 0.6, 0.61, 0.62, 0.63, 0.64]
plateau("plateau of accuracies", accuracies, mode="max", patience=1, factor=0.2, threshold=0.1, threshold_mode="abs")
