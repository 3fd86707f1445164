"""Compares the samplers of `adaptdl tune` with those of Optuna 5 by the best value after 25, 50 and 100 trials.

    tune_samplers.py PROGRAM [SEEDS [PYTHON]]

PROGRAM is bench_tune_samplers; PYTHON is an interpreter with Optuna 5.0.0 and SciPy (default: one in a virtual
environment, which the script creates). One run of the script measures both, with SEEDS seeds (default: 50). Fails if
adaptdl's samplers are significantly worse at 95% confidence, by a one-sided Mann-Whitney test that is corrected for the
number of rows.

The problems are two functions and two tables, to be minimized:
  branin              2 floats
  hartmann6           6 floats; hartmann6-parallel: the same, with 8 trials at once
  tabular             choices, integers and logarithmic floats; a formula with deterministic noise in each cell
  conditional         the same, but one choice of the optimizer has its own parameter, and the other choices share another parameter
"""

import json
import math
import pathlib
import statistics
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import python_peer  # noqa: E402

REQUIREMENTS = ["optuna==5.0.0", "numpy==2.2.6", "scipy==1.15.3"]
PROBLEMS = ["branin", "hartmann6", "hartmann6-parallel", "tabular", "conditional"]
SAMPLERS = ["tpe", "random", "qmc"]
TRIALS = [25, 50, 100]
CONFIDENCE = 0.95

HARTMANN_ALPHA = [1.0, 1.2, 3.0, 3.2]
HARTMANN_A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
HARTMANN_P = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
              [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]


def branin(trial):
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)
    first = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return first**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(trial):
    x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(6)]
    distances = [sum(a * (each - p * 1e-4) ** 2 for each, a, p in zip(x, *rows)) for rows in zip(HARTMANN_A, HARTMANN_P)]
    return -sum(alpha * math.exp(-distance) for alpha, distance in zip(HARTMANN_ALPHA, distances))


def noise(cell):
    """Returns noise that is uniform in [-1, 1), computed with the finalizer of SplitMix64."""
    mask = 2**64 - 1
    cell = (cell + 0x9E3779B97F4A7C15) & mask
    cell = (cell ^ (cell >> 30)) * 0xBF58476D1CE4E5B9 & mask
    cell = (cell ^ (cell >> 27)) * 0x94D049BB133111EB & mask
    return ((cell ^ (cell >> 31)) >> 11) * 2.0**-52 - 1


def tabular(trial, conditional=False):
    optimizer = ["sgd", "adam", "rmsprop"].index(trial.suggest_categorical("optimizer", ["sgd", "adam", "rmsprop"]))
    rate = int((math.log10(trial.suggest_float("rate", 1e-5, 0.09999, log=True)) + 5) * 5)
    layers = trial.suggest_int("layers", 1, 8)
    octave = int(math.log2(trial.suggest_int("width", 16, 2048, log=True)) * 2)
    dropout = round(trial.suggest_float("dropout", 0, 0.7, step=0.1) * 10)
    norm = trial.suggest_categorical("norm", [True, False])
    loss = 0.1 + [0.02, 0.0, 0.03][optimizer] + 0.004 * (rate - [14, 9, 10][optimizer]) ** 2 + 0.01 * abs(layers - 5)
    loss += 0.006 * (octave - 15) ** 2 + 0.02 * (dropout - 0.5 * layers) ** 2 * 0.2 + (0 if norm else 0.01 * layers)
    if conditional and optimizer == 0:
        loss += 0.1 * abs(trial.suggest_float("momentum", 0, 0.99) - 0.9)
    elif conditional:
        loss += 0.05 * abs(math.log10(trial.suggest_float("epsilon", 1e-9, 1e-3, log=True)) + 6)
    cell = ((((optimizer * 20 + rate) * 9 + layers) * 24 + octave) * 8 + dropout) * 2 + norm
    return loss + 0.02 * noise(cell)


OBJECTIVES = {"branin": branin, "hartmann6": hartmann6, "hartmann6-parallel": hartmann6, "tabular": tabular,
              "conditional": lambda trial: tabular(trial, conditional=True)}


def optuna_best(problem, sampler, seed):
    """Runs one Optuna study, and returns the best value after each number of trials."""
    import optuna

    makers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler,
              "qmc": lambda seed: optuna.samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)}
    study = optuna.create_study(sampler=makers[sampler](seed=seed))
    at_once = 8 if problem == "hartmann6-parallel" else 1
    while len(study.trials) < TRIALS[-1]:
        started = [study.ask() for _ in range(min(at_once, TRIALS[-1] - len(study.trials)))]
        results = [OBJECTIVES[problem](trial) for trial in started]
        for trial, result in zip(started, results):
            study.tell(trial, result)
    values = [trial.value for trial in study.trials]
    return [min(values[:count]) for count in TRIALS]


def optuna_main(seeds):
    """Prints, for each line of adaptdl's results on standard input, Optuna's results and the p-values. Runs in PYTHON."""
    import warnings

    import optuna
    from scipy.stats import mannwhitneyu

    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for line in sys.stdin:
        problem, sampler, ours = json.loads(line)
        theirs = [optuna_best(problem, sampler, seed) for seed in range(seeds)]
        worse = [mannwhitneyu(our, their, alternative="greater").pvalue for our, their in zip(zip(*ours), zip(*theirs))]
        print(json.dumps([theirs, worse]), flush=True)


def compare(program, python, seeds):
    """Prints the table, and returns the number of rows in which adaptdl's samplers are significantly worse."""
    command = [python, __file__, "--optuna", str(seeds)]
    # Running trials in parallel makes a difference only for TPE.
    pairs = [(sampler, problem) for sampler in SAMPLERS for problem in PROBLEMS
             if sampler == "tpe" or problem != "hartmann6-parallel"]
    tests = len(pairs) * len(TRIALS)
    missed = 0
    print(f"{'problem':<20}{'sampler':<9}{'trials':>6}{'adaptdl':>12}{'Optuna':>12}{'p (worse)':>11}")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as peer:
        for sampler, problem in pairs:
            ours = json.loads(subprocess.check_output([program, problem, sampler, str(seeds)]))
            peer.stdin.write(json.dumps([problem, sampler, ours]) + "\n")
            peer.stdin.flush()
            theirs, worse = json.loads(peer.stdout.readline())
            for trials, our, their, p in zip(TRIALS, zip(*ours), zip(*theirs), worse):
                our, their = statistics.median(our), statistics.median(their)
                is_missed = p < (1 - CONFIDENCE) / tests
                missed += is_missed
                print(f"{problem:<20}{sampler:<9}{trials:>6}{our:>12.4f}{their:>12.4f}{p:>11.3f}"
                      f"{'  significantly worse' if is_missed else ''}", flush=True)
        peer.stdin.close()
    return missed


def main():
    if sys.argv[1] == "--optuna":
        return optuna_main(int(sys.argv[2]))
    try:
        python = sys.argv[3] if len(sys.argv) > 3 else python_peer.venv("optuna", REQUIREMENTS)
    except unittest.SkipTest as reason:
        print(reason)
        return python_peer.SKIPPED
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    missed = compare(sys.argv[1], python, seeds)
    print(subprocess.check_output([sys.argv[1], "time"], encoding="utf-8"), end="")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
