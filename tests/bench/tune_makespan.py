"""Compares the makespan of `adaptdl tune` with that of Optuna, which uses ASHA and one fixed device per trial.

    tune_makespan.py ADAPTDL DIGITS [SEEDS [PYTHON]]

Both search for the learning rate and the optimizer of DIGITS on 4 devices of the kind cpu, with 32 trials, TPE, and
successive halving with factor 4. One run of the script measures both, with SEEDS seeds (default: 3). PYTHON is an
interpreter with Optuna 5.0.0 (default: one in a virtual environment, which the script creates). For each seed, prints
both makespans, their ratio, both best accuracies, the number of complete trials on each side, and the share of device
time in which no trial held the device, according to the device-seconds that `adaptdl tune show` reports. Fails if the
median ratio is above 0.75, if devices were idle for more than 5% of the time with any seed, or if the best accuracy is
lower than Optuna's by more than 0.01 on average.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import python_peer  # noqa: E402

REQUIREMENTS = ["optuna==5.0.0", "numpy==2.2.6"]
DEVICES, TRIALS, EPOCHS = 4, 32, 64
PROGRAM = ["--epochs", str(EPOCHS), "--autoscale-bsz", "--max-batch-size", "256"]

# Searches with one worker per device; each worker runs one trial after another as a process.
OPTUNA = r"""
import json, os, subprocess, sys, time, pathlib
import optuna
program, directory, seed, devices, trials = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:6])
options = sys.argv[6:]
optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed),
                            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4))

def objective(trial):
    lr = trial.suggest_float("lr", 1e-3, 1, log=True)
    optimizer = trial.suggest_categorical("opt", ["sgd", "adadelta"])
    log = directory / f"{trial.number}.jsonl"
    log.touch()
    process = subprocess.Popen([program, *options, "--lr", str(lr), "--optimizer", optimizer, "--log-json", str(log)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    with log.open() as lines:
        over, line = False, ""
        while not over:
            over = process.poll() is not None
            while read := lines.readline():
                line += read  # the program may have written a part of it
                if not line.endswith("\n"):
                    break
                result, line = json.loads(line), ""
                trial.report(result["accuracy"], result["epoch"] + 1)
                if trial.should_prune():
                    process.kill()
                    process.wait()
                    raise optuna.TrialPruned()
            time.sleep(0.02)
    return result["accuracy"]

study.optimize(objective, n_trials=trials, n_jobs=devices)
print(json.dumps({"best": study.best_value, "complete": sum(trial.state.name == "COMPLETE" for trial in study.trials)}))
"""


def search(adaptdl, digits, seed, directory):
    (directory / "run").mkdir(mode=0o700)
    environment = {**os.environ, "HOME": str(directory / "home"), "XDG_RUNTIME_DIR": str(directory / "run"), "OMP_NUM_THREADS": "1"}
    environment.pop("XDG_STATE_HOME", None)
    begin = time.monotonic()
    subprocess.run([adaptdl, "tune", "--study", "digits", "-P", "lr=log:1e-3..1", "-P", "opt=sgd|adadelta", "--metric",
                    "accuracy:max", "--trials", str(TRIALS), "--seed", str(seed), "--device-kind", "cpu", "--devices",
                    str(DEVICES), "--", digits, *PROGRAM, "--lr", "{lr}", "--optimizer", "{opt}"],
                   env=environment, check=True, stderr=(directory / "log").open("w"))
    seconds = time.monotonic() - begin
    shown = json.loads(subprocess.run([adaptdl, "tune", "show", "digits", "--json"], env=environment, check=True,
                                      capture_output=True).stdout)["trials"]
    complete = [trial for trial in shown if trial["state"] == "complete"]
    used = sum(trial["device_seconds"] for trial in shown)
    return {"seconds": seconds, "idle": 1 - used / (DEVICES * seconds), "best": max(trial["value"] for trial in complete), "complete": len(complete)}


def search_with_optuna(python, digits, seed, directory):
    begin = time.monotonic()
    done = subprocess.run([python, "-c", OPTUNA, digits, str(directory), str(seed), str(DEVICES), str(TRIALS), *PROGRAM],
                          check=True, stdout=subprocess.PIPE, text=True)
    return {"seconds": time.monotonic() - begin, **json.loads(done.stdout)}


def main():
    adaptdl, digits = sys.argv[1:3]
    seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    python = sys.argv[4] if len(sys.argv) > 4 else python_peer.venv("optuna", REQUIREMENTS)
    ratios, idle, gains = [], [], []
    print("seed  makespan  Optuna's  ratio  best    Optuna's  complete  Optuna's  idle")
    for seed in range(seeds):
        with tempfile.TemporaryDirectory(prefix="adaptdl-") as first, tempfile.TemporaryDirectory() as second:
            ours = search(adaptdl, digits, seed, pathlib.Path(first))
            theirs = search_with_optuna(python, digits, seed, pathlib.Path(second))
        ratios.append(ours["seconds"] / theirs["seconds"])
        idle.append(ours["idle"])
        gains.append(ours["best"] - theirs["best"])
        print(f"{seed:4}  {ours['seconds']:6.1f} s  {theirs['seconds']:6.1f} s  {ratios[-1]:5.2f}  {ours['best']:.4f}  "
              f"{theirs['best']:.4f}    {ours['complete']:8}  {theirs['complete']:8}  {idle[-1]:.1%}", flush=True)
    return statistics.median(ratios) > 0.75 or max(idle) > 0.05 or statistics.mean(gains) < -0.01


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.exit(main())
