"""Compares simulated completion times with those in the Pollux paper, in a Markdown table.

    python3 tests/bench/paper_table.py build/cli/adaptdl

The times are averages over the four workloads of each load, in seconds. Takes a few minutes, most of them for Pollux.
"""

import csv
import json
import pathlib
import subprocess
import sys

DATA = pathlib.Path(__file__).parents[2] / "share/adaptdl/osdi21"
LOADS = "0.5", "1.0", "1.5", "2.0"
PUBLISHED = "tiresias", "optimus", "pollux"


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def published():
    """Returns {(policy, load): (average, 99th percentile)}."""
    with open(DATA / "published/average-jct.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {(policy, load): tuple(mean(float(row[column]) for row in rows if (row["policy"], row["load"]) == (policy, load))
                                  for column in ("average_jct_s", "p99_jct_s"))
            for policy in PUBLISHED for load in LOADS}


def simulate(adaptdl, policy, load, restart_cost):
    command = [adaptdl, "simulate", str(DATA / "workloads" / f"load-{load}"), "--traces", str(DATA / "traces"), "--policy", policy,
               "--restart-cost", f"{restart_cost}s", "--json"]
    rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return {key: mean(row[key] for row in rows if row["workload"] != "mean")
            for key in ("average_jct_s", "p99_jct_s", "worst_ftf", "restarts_per_job")}


def main(adaptdl):
    paper = published()
    print("| load | policy | average | published | | 99th percentile | published | | worst FTF | restarts per job |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for load in LOADS:
        for policy, restart_cost in ("tiresias", 30), ("optimus", 30), ("pollux", 30), ("adaptive", 30), ("adaptive", 1):
            ours = simulate(adaptdl, policy, load, restart_cost)
            average, p99 = paper[policy if policy in PUBLISHED else "pollux", load]
            name = policy if restart_cost == 30 else f"{policy}, restarts of {restart_cost} s"
            print(f"| {load} | {name} | {ours['average_jct_s']:,.0f} | {average:,.0f} | {ours['average_jct_s'] / average - 1:+.1%} "
                  f"| {ours['p99_jct_s']:,.0f} | {p99:,.0f} | {ours['p99_jct_s'] / p99 - 1:+.1%} "
                  f"| {ours['worst_ftf']:.2f} | {ours['restarts_per_job']:.1f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
