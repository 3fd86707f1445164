"""The job of rescale_pause_ddp.py under Ray Train, which restarts it when the number of nodes changes.

    python ray_rescale_train.py digits|large FILE SNAPSHOT NODES MS

It runs on the Ray cluster at $RAY_ADDRESS, on one to NODES nodes. On n replicas, a step takes at least MS/n milliseconds.
"""

import pathlib
import sys

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

MONITOR_INTERVAL = 5  # seconds between two considerations of the number of workers (Ray's default: 60)


def train(arguments):
    sys.path.insert(0, arguments["directory"])
    import rescale_pause_ddp  # in this directory

    rescale_pause_ddp.train(*arguments["job"])


def main(name, stamps, snapshot, nodes, step_ms):
    ray.init(log_to_driver=True)
    arguments = {"directory": str(pathlib.Path(__file__).parent), "job": [name, stamps, snapshot, int(step_ms)]}
    scaling = ScalingConfig(num_workers=(1, int(nodes)), resources_per_worker={"CPU": 1}, elastic_resize_monitor_interval_s=MONITOR_INTERVAL)
    run = RunConfig(storage_path=f"{snapshot}-results", failure_config=FailureConfig(max_failures=-1))
    TorchTrainer(train, train_loop_config=arguments, scaling_config=scaling, run_config=run).fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
