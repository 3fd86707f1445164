"""Compares our allocations with those of the published Python scheduler, on the same problems: 16 nodes with 4 GPUs each,
and 10 to 160 jobs with the step times and batch sizes of the applications in the Pollux paper. In most problems, some jobs
are already running, or jobs received a first replica on arrival; the other problems start with an empty cluster.

Our scheduler gets one cycle, without a population to start from. The Python scheduler gets three cycles, each of which
continues from the population of the previous one, and its best result counts: when it starts with an empty cluster, its
first cycle often finds no allocations for which the nodes have room.

A cycle of the Python scheduler takes 2 to 20 seconds, so by default the test solves only a few small problems.
Set $SCHEDULER_PROBLEMS to solve that number of problems, spread over all sizes: "meson test --benchmark
python-scheduler" solves 100, and takes an hour.
"""

import math
import os
import pathlib
import random
import statistics
import unittest

import goodput_support
import python_peer

PACKAGES = [*goodput_support.PACKAGES, "matplotlib==3.10.8", "cma==3.2.2", "python-dateutil==2.9.0.post0",
            "--no-deps pymoo==0.5.0", "--no-deps adaptdl-sched==0.2.11"]
MANY = int(os.environ.get("SCHEDULER_PROBLEMS", "0"))
SIZES = [10 + 150 * i // (MANY - 1) for i in range(MANY)] if MANY > 1 else [10, 12, 15, 18, 20, 24, 28, 32]
CYCLES = 3
NODES = [f"node-{i:02}" for i in range(16)]
GPUS = 4


class PythonSchedulerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        peer = python_peer.venv("scheduler", PACKAGES)
        cls.ours = goodput_support.Program(os.environ["SCHEDULER_PROGRAM"])
        cls.addClassCleanup(cls.ours.end)
        cls.python = goodput_support.Program(peer, pathlib.Path(__file__).with_name("python_scheduler_peer.py"))
        cls.addClassCleanup(cls.python.end)

    def test_allocations_match_or_beat_the_published_scheduler_on_95_percent_of_problems(self):
        applications = fitted_applications()
        as_good, ratios, times = 0, [], []
        for seed, jobs in enumerate(SIZES):
            problem = random_problem(random.Random(seed), jobs, applications)
            ours = self.ours.ask(what="allocate", problem=problem, policy="pollux-released", repeat=5)
            python = self.python.ask(problem=problem, seed=seed, cycles=CYCLES)
            worth = self.worth(problem, ours["allocations"])
            of_python = max(self.worth(problem, each) for each in python["cycles"])
            as_good += worth >= of_python * (1 - 1e-9)
            ratios.append(worth / of_python if of_python else math.inf)
            times.append(python["seconds"] / ours["seconds"])
            print(f"{jobs:4} jobs: worth {worth:7.2f}, of Python {of_python:7.2f} ({ratios[-1]:.3f} times), in"
                  f" {ours['seconds'] * 1e3:7.2f} ms, of Python {python['seconds'] * 1e3:8.0f} ms"
                  f" ({times[-1]:.0f} times)", flush=True)
        found = [ratio for ratio in ratios if ratio < math.inf] or [math.inf]
        print(f"as good or better on {as_good} of {len(SIZES)}; Python found nothing on {ratios.count(math.inf)},"
              f" on the others ours is worth {statistics.median(found):.3f} times as much (median; minimum"
              f" {min(found):.3f}); {statistics.median(times):.0f} times faster (median; minimum {min(times):.0f})")
        self.assertGreaterEqual(as_good, math.ceil(0.95 * len(SIZES)))

    def worth(self, problem, allocations):
        self.assert_possible(problem, allocations)  # otherwise the comparison would be meaningless
        return self.ours.ask(what="evaluate", problem=problem, allocations=allocations)

    def assert_possible(self, problem, allocations):
        used, distributed = {}, {}
        for job in problem["jobs"]:
            allocation = allocations.get(job["name"], [])
            self.assertLessEqual(len(allocation), most_replicas(job))
            for node in allocation:
                used[node] = used.get(node, 0) + 1
            for node in set(allocation) if len(set(allocation)) > 1 else ():
                distributed[node] = distributed.get(node, 0) + 1
        self.assertLessEqual(set(used), set(NODES))
        self.assertLessEqual(max(used.values(), default=0), GPUS)
        self.assertLessEqual(max(distributed.values(), default=0), 1)


def fitted_applications():
    """Returns the fitted step-time parameters and the batch sizes of each application."""
    fit = goodput_support.Program(os.environ["GOODPUT_PROGRAM"])
    applications = []
    for name in goodput_support.applications():
        seen = goodput_support.observations(name)
        sizes = [int(path.stem.split("-")[1]) for path in (goodput_support.TRACES / name).glob("validation-*.csv")]
        applications.append(dict(
            perf=fit.ask(what="fit", observations=seen), init=min(sizes), max=max(sizes),
            min_local=min(row[2] for row in seen), max_local=max(row[2] for row in seen)))
    fit.end()
    return applications


def random_problem(chosen, jobs, applications):
    problem = dict(nodes=NODES, jobs=[], previous={})
    for number in range(jobs):
        application = chosen.choice(applications)
        *times, gamma = application["perf"]
        times = [time * math.exp(chosen.gauss(0, 0.3)) for time in times]
        problem["jobs"].append(dict(
            application, name=f"job-{number:03}", perf=[*times, gamma], grad=[1, 10 ** chosen.uniform(-1, 2)],
            accumulation=True, profiled=chosen.choice([1, 1, 2, 3, 4, 8, 16, 32]),
            max_replicas=min(64, application["max"] // application["min_local"]), creation=number))
    chosen.choice([run_some, run_some, run_as_they_came, run_as_they_came, run_none])(chosen, problem)
    return problem


def most_replicas(job):
    return min(2 * job["profiled"], job["max_replicas"])


def run_none(_, problem):
    pass


def run_as_they_came(_, problem):
    """Gives each job one replica while there is room, as the released operator does before the first cycle."""
    for job, node in zip(problem["jobs"], [node for node in NODES for _ in range(GPUS)]):
        problem["previous"][job["name"]] = [node]


def run_some(chosen, problem):
    """Gives half of the jobs replicas on consecutive GPUs, while there is room."""
    free = [node for node in NODES for _ in range(GPUS)]
    for job in chosen.sample(problem["jobs"], len(problem["jobs"]) // 2):
        if len(free) % GPUS:  # so that jobs that span several nodes do not share a node
            count = min(chosen.randint(1, most_replicas(job)), len(free) % GPUS)
        else:
            count = min(chosen.randint(1, most_replicas(job)), len(free))
        problem["previous"][job["name"]], free = free[:count], free[count:]
        if not free:
            break


if __name__ == "__main__":
    python_peer.main()
