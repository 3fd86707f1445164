"""Answers questions about allocations with the published Python scheduler: reads one JSON object per line from standard
input, and writes one answer per line to standard output. Needs a Python environment in which the scheduler is installed.
A question consists of a problem, in the format that scheduler_program.cc describes, a seed and a number of cycles.
"""

import json
import sys
import time
import warnings

import numpy

warnings.simplefilter("ignore")
numpy.int, numpy.float = int, float  # the scheduler uses these names, which NumPy has removed

from adaptdl.goodput import GoodputFunction, GradParams, PerfParams
from adaptdl_sched.policy.pollux import PolluxPolicy
from adaptdl_sched.policy.speedup import SpeedupFunction
from adaptdl_sched.policy.utils import JobInfo, NodeInfo

GPUS = {"nvidia.com/gpu": 4}


def job_info(job):
    function = GoodputFunction(PerfParams(*job["perf"]), GradParams(*job["grad"]), job["init"])
    speedup = SpeedupFunction(function, job["max"], (job["min_local"], job["max_local"]), job["accumulation"])
    limit = min(max(2 * job["profiled"], 1), job["max_replicas"])  # as its allocator limits it
    return JobInfo({"nvidia.com/gpu": 1}, speedup, job["creation"], 0, limit)


def allocate(question):
    """Returns the allocations of each of the requested cycles, all on the same problem, and the mean time of a cycle in seconds."""
    problem = question["problem"]
    numpy.random.seed(question["seed"])
    jobs = {job["name"]: job_info(job) for job in problem["jobs"]}
    nodes = {node: NodeInfo(dict(GPUS), False) for node in problem["nodes"]}
    policy = PolluxPolicy()
    # These limits accept any utility. The policy then returns the best allocations that it found on the existing nodes,
    # instead of on the number of nodes that it would prefer.
    policy._min_util, policy._max_util = -numpy.inf, numpy.inf
    began = time.perf_counter()
    cycles = [policy.optimize(jobs, nodes, problem["previous"], NodeInfo(dict(GPUS), True))[0]
              for _ in range(question["cycles"])]
    return {"cycles": cycles, "seconds": (time.perf_counter() - began) / question["cycles"]}


answers, sys.stdout = sys.stdout, sys.stderr  # pymoo prints hints to standard output
for line in sys.stdin:
    print(json.dumps(allocate(json.loads(line))), file=answers, flush=True)
