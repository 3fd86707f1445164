"""Measures how long `adaptdl tune show` takes for a study of 1,000 trials with ten results each.

    tune_show.py ADAPTDL [PYTHON]

`adaptdl tune` runs the first trial, and Optuna 5.0.0 adds the others to its study. PYTHON is an interpreter with Optuna
(default: one in a virtual environment, which the script creates). Prints the median time of 20 calls and, for
comparison, the median time of `adaptdl --version`. Fails if the median of `adaptdl tune show` is above 50 ms.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import python_peer  # noqa: E402

REQUIREMENTS = ["optuna==5.0.0", "numpy==2.2.6"]
SEARCH = ["--study", "thousand", "-P", "lr=log:1e-5..1e-1", "-P", "layers=2..8", "-P", "opt=sgd|adam", "--metric", "accuracy:max",
          "--trials", "1", "--", "sh", "-c", "echo '{{\"accuracy\": 0.5}}'", "sh", "{lr}", "{layers}", "{opt}"]
OPTUNA = r"""
import os, random, sys
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
os.fsync = lambda descriptor: None  # the study may be lost
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="thousand", storage=JournalStorage(JournalFileBackend(sys.argv[1])),
                          sampler=optuna.samplers.RandomSampler(seed=0))
attributes = study.trials[0].user_attrs
for _ in range(999):
    trial = study.ask()
    trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    trial.suggest_int("layers", 2, 8)
    trial.suggest_categorical("opt", ["sgd", "adam"])
    for name, value in attributes.items():
        trial.set_user_attr(name, value)
    for step in range(1, 11):
        trial.report(random.random(), step)
    study.tell(trial, random.random())
"""


def milliseconds(command, environment):
    times = []
    for _ in range(20):
        began = time.perf_counter()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def main(adaptdl, python=None):
    python = python or python_peer.venv("optuna", REQUIREMENTS)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_STATE_HOME": home}
        subprocess.run([adaptdl, "tune", *SEARCH], env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        (journal,) = pathlib.Path(home).glob("**/journal.log")
        subprocess.run([python, "-c", OPTUNA, journal], check=True)
        show = milliseconds([adaptdl, "tune", "show", "thousand"], environment)
        start = milliseconds([adaptdl, "--version"], environment)
    print(f"tune show of 1,000 trials: median {show:.1f} ms, of which the start of the command takes {start:.1f} ms")
    return 0 if show <= 50 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
