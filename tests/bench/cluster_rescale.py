"""Measures how long training pauses when the operator changes the replicas of a job:
cluster_rescale.py PROGRAM [ROUNDS [MODEL...]]

PROGRAM is the built rescale_pause_program. In a real cluster with virtual GPUs, a job gets 1, 2, 4, 3 and 1 of them, ROUNDS
times (default: 5). One run measures this for the models `digits` and `large` (25 M parameters):

live     with `liveRescale: true`
restart  with `liveRescale: false`, by a checkpoint and a restart of all replicas

The pause is defined as in rescale_pause.py: the longest time without a completed step, between the last step before the
change was requested and the fifth step after it, minus the normal step time of the group in which that time ends.

Prints a table in Markdown, and exits with 1 if a bound is not met: the 95th percentile of live must be at most 2 s, and
its median at most a fifth of the median of restart.
"""

import pathlib
import secrets
import statistics
import sys
import time

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
# The step time on one replica, in ms. It is long enough that more replicas are faster even on two shared processors.
MODELS = {"digits": 800, "large": 4000}

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))
import cluster_support  # noqa: E402
import rescale_pause  # noqa: E402
from operator_jobs_support import IMAGE, ONE_GPU  # noqa: E402
from operator_support import OperatorTest  # noqa: E402

rescale_pause.PATIENCE = 300
CHANGES = [(1, 2), (2, 4), (4, 3), (3, 1)]
BOUND_SECONDS, BOUND_RATIO = 2, 5


class Rescaled(OperatorTest):
    programs = (PROGRAM,)

    def give_gpus(self, count):
        # All GPUs are on one node, because two replicas on one node could be faster than three on two nodes.
        self.offer_gpus(count, "node0")
        self.offer_gpus(0, "node1")

    def pauses(self, model):
        """Returns the pauses by change."""
        self.give_gpus(1)
        claim = f"adaptdl-pvc-{secrets.token_hex(8)}"
        steps = rescale_pause.Steps(self.make_volume(claim) / "adaptdl/share/steps")
        template = self.make_template("", image=IMAGE, volume=claim, resources=ONE_GPU)
        template["spec"]["terminationGracePeriodSeconds"] = 60
        main = template["spec"]["containers"][0]
        main["command"] = [f"/usr/bin/{PROGRAM.name}", model, "/adaptdl/share/steps", str(MODELS[model])]
        main["env"] += [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "ADAPTDL_CHECKPOINT_EVERY", "value": "0s"}]
        self.create_job(model, template, maxReplicas=4)
        # The policy bases its decisions on measured step times.
        steps.wait(0, 1, 1)
        self.wait_for("measured step times", lambda: (self.status(model).get("train") or {}).get("perfParams"), 300)
        pauses = {change: [] for change in CHANGES}
        for number in range(ROUNDS):
            for change in CHANGES:
                asked = time.monotonic()
                self.give_gpus(change[1])
                pauses[change].append(steps.pause(asked, change[1]))
                print(f"{model}, round {number}, {change[0]} to {change[1]}: {pauses[change][-1]:.2f} s", file=sys.stderr, flush=True)
        self.kubectl("delete", "adaptdljob", model, "--wait=true")
        self.give_gpus(1)
        return pauses


class Live(Rescaled):
    settings = {"liveRescale": "true"}


class Restart(Rescaled):
    settings = {"liveRescale": "false"}


def measure(way, models):
    """Returns the pauses by model and change."""
    way.setUpClass()
    test = way()
    test.setUp()
    try:
        return {model: test.pauses(model) for model in models}
    except BaseException:
        print(way.operator_report(), file=sys.stderr)
        raise
    finally:
        test.watch.stop()
        test.doCleanups()
        way.doClassCleanups()


def main():
    models = sys.argv[3:] or list(MODELS)
    cluster_support.use_cluster()
    pauses = {way.__name__.lower(): measure(way, models) for way in (Live, Restart)}
    print("| model | replicas | live: median / 95th percentile | restart: median / 95th percentile |\n| --- | --- | --- | --- |")
    missed = []
    for model in models:
        for before, after in CHANGES:
            live, restart = (pauses[way][model][before, after] for way in ("live", "restart"))
            print(f"| {model} | {before} to {after} | {rescale_pause.cell(live)} | {rescale_pause.cell(restart)} |")
        live, restart = ([pause for each in pauses[way][model].values() for pause in each] for way in ("live", "restart"))
        print(f"| {model} | all | {rescale_pause.cell(live)} | {rescale_pause.cell(restart)} |")
        if rescale_pause.percentile(live) > BOUND_SECONDS:
            missed.append(f"{model}: the 95th percentile of live is over {BOUND_SECONDS} s")
        if statistics.median(restart) < BOUND_RATIO * statistics.median(live):
            missed.append(f"{model}: the median of restart is less than {BOUND_RATIO} times that of live")
    print("\n" + ("\n".join(f"FAIL: {each}" for each in missed) or "PASS: all bounds are met"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
