"""Does what scaling_program.cc does, but with the published Python package `adaptdl`: python_scaling_peer.py SPEC OUTPUT
RANK REPLICAS STORE

STORE is a file through which the replicas find each other.

The package is used as its AdaptiveDataParallel uses it, with four additions. LEGWScale gets the batch size of a data
loader. Gradients of accumulated batches are divided before the optimizer steps, as in later versions of the package;
this version measures the divided gradients but steps with their sum. Adam counts its steps in double precision, since
1 - 0.999^step has only five correct digits in the single precision of PyTorch 1.13, which is newer than the package.
And if a gradient is not finite, a single replica forgets the previous gradient, because our implementation overwrites
the previous gradient while it measures the pair.
"""

import json
import sys
import types

import adaptdl.torch
import adaptdl.torch.gradient_noise_scale as noise_scales
import adaptdl.torch.scaling_rules as scaling_rules
import numpy
import torch


class Given(torch.nn.Module):
    """A model with two parameters, whose gradients are the inputs of the model."""

    def __init__(self, sizes):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.zeros(size)) for size in sizes)

    def forward(self, of_a, of_b):
        return (self.a * of_a).sum() + (self.b * of_b).sum()


def make_rule(one):
    kind = getattr(scaling_rules, one["rule"])
    rule = kind(one["warmup_epochs"], one["data_size"]) if one["rule"] == "LEGWScale" else kind()
    scale_lr = rule.scale_lr

    def watched(scale):
        rule.scale, rule.factors = scale, scale_lr(scale)
        return rule.factors

    rule.scale_lr = watched
    return rule


def count_steps_in_double(optimizer):
    for key, state in optimizer.state.items():
        if key != "gns" and "step" in state:
            state["step"] = torch.as_tensor(state["step"], dtype=torch.float64)


def run(one, rank, replicas, output):
    net = Given(one["sizes"])
    groups = [{"params": [param], "lr": lr} for param, lr in zip((net.a, net.b), one["lr"])]
    optimizer = getattr(torch.optim, one["optimizer"])(groups, lr=1.0)
    model = torch.nn.parallel.DistributedDataParallel(net)
    rule = make_rule(one)
    kind = "AdamGradientNoiseScale" if one["rule"] == "AdamScale" else "GradientNoiseScale"
    model.gns = gns = getattr(noise_scales, kind)(model, optimizer)
    rule.initialize(model, optimizer, patch_optimizer=True)
    scaling_rules.current_dataloader = lambda: types.SimpleNamespace(batch_size=one["batch_size"])
    gradients = torch.from_numpy(numpy.fromfile(one["gradients"], dtype=numpy.float32))
    gradients = iter(gradients.view(-1, replicas, sum(one["sizes"]))[:, rank])
    for local_bsz, accumulation in one["schedule"]:
        for batch in range(accumulation + 1):
            model.require_backward_grad_sync = batch == accumulation
            gns.set_accum_scale(local_bsz * replicas / one["batch_size"])
            count_steps_in_double(optimizer)
            loss = model(*next(gradients).split(one["sizes"]))
            optimizer.zero_grad()
            loss.backward()
            if model.require_backward_grad_sync:
                for param in net.parameters():
                    param.grad.div_(gns.accum_count)
                if not all(param.grad.isfinite().all() for param in net.parameters()):
                    gns._prev_grads = None
            count_steps_in_double(optimizer)
            optimizer.step()
        if output:
            seen = dict(sqr=gns.raw_sqr_avg.tolist(), var=gns.raw_var_avg.tolist(),
                        factors=numpy.atleast_1d(rule.factors).tolist(), gain=gns.gain(rule.scale),
                        progress=float(gns.get_progress()), scale=rule.scale,
                        weights=[net.a[0].item(), net.b[0].item()])
            output.write(json.dumps(seen) + "\n")


def main():
    spec, output, rank, replicas, store = sys.argv[1:]
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(replicas)
    )
    with open(spec) as file:
        cases = json.load(file)
    with open(output if rank == "0" else "/dev/null", "w") as file:
        for one in cases:
            run(one, int(rank), int(replicas), file if rank == "0" else None)


main()
