"""Answers questions about allocations with the published Python scheduler: a JSON object a line on standard input, an
answer a line on standard output. Run by a Python that has it. A question is a problem as scheduler_program.cc describes
it, a seed and a number of cycles.
"""

import json
import sys
import time
import warnings

import numpy

warnings.simplefilter("ignore")
numpy.int, numpy.float = int, float  # names that NumPy has dropped, and the scheduler uses

from adaptdl.goodput import GoodputFunction, GradParams, PerfParams
from adaptdl_sched.policy.pollux import PolluxPolicy
from adaptdl_sched.policy.speedup import SpeedupFunction
from adaptdl_sched.policy.utils import JobInfo, NodeInfo

GPUS = {"nvidia.com/gpu": 4}


def job_info(job):
    function = GoodputFunction(PerfParams(*job["perf"]), GradParams(*job["grad"]), job["init"])
    speedup = SpeedupFunction(function, job["max"], (job["min_local"], job["max_local"]), job["accumulation"])
    most = min(max(2 * job["profiled"], 1), job["max_replicas"])  # as its allocator has it
    return JobInfo({"nvidia.com/gpu": 1}, speedup, job["creation"], 0, most)


def allocate(question):
    """The allocations of each of as many cycles, all on the same problem, and the mean seconds of one."""
    problem = question["problem"]
    numpy.random.seed(question["seed"])
    jobs = {job["name"]: job_info(job) for job in problem["jobs"]}
    nodes = {node: NodeInfo(dict(GPUS), False) for node in problem["nodes"]}
    policy = PolluxPolicy()
    # Any utility will do: the best that it found on as many nodes as there are, not on as many as it would like.
    policy._min_util, policy._max_util = -numpy.inf, numpy.inf
    began = time.perf_counter()
    cycles = [policy.optimize(jobs, nodes, problem["previous"], NodeInfo(dict(GPUS), True))[0]
              for _ in range(question["cycles"])]
    return {"cycles": cycles, "seconds": (time.perf_counter() - began) / question["cycles"]}


answers, sys.stdout = sys.stdout, sys.stderr  # pymoo advises on standard output
for line in sys.stdin:
    print(json.dumps(allocate(json.loads(line))), file=answers, flush=True)
