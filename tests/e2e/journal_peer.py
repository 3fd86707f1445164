"""Reads and writes studies with Optuna, as the counterpart of journal_program.cc: journal_peer.py WHAT ARGUMENT...

    dump FILE...             prints the studies of each file, one JSON line per file
    write FILE               writes studies with an example of everything that only Optuna writes
    continue FILE...         runs one more trial in the last study of each file, or in a new study
    work FILE STUDY COUNT    runs COUNT trials alongside other processes, and prints their numbers
    draw FILE                writes studies of many sizes, whose trials are random and complete
    importance FILE          prints the importances of the parameters of each study, by name
"""

import datetime
import json
import math
import sys
import warnings

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution, distribution_to_json
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState


def open_storage(file):
    return JournalStorage(JournalFileBackend(file))


def load(file, name):
    return optuna.load_study(study_name=name, storage=open_storage(file), sampler=optuna.samplers.RandomSampler(seed=1))


def time_of(time):
    return time and time.astimezone(datetime.timezone.utc).isoformat(timespec="microseconds")


def of_trial(trial):
    return {
        "id": trial._trial_id, "number": trial.number, "state": int(trial.state), "parameters": trial.params,
        "distributions": {name: json.loads(distribution_to_json(each)) for name, each in trial.distributions.items()},
        "values": [float(each) for each in trial.values or []], "intermediate": {str(step): value for step, value in trial.intermediate_values.items()},
        "user": trial.user_attrs, "system": trial.system_attrs,
        "started": time_of(trial.datetime_start), "ended": time_of(trial.datetime_complete),
    }


def dump(file):
    storage = open_storage(file)
    print(json.dumps([
        {
            "id": study._study_id, "name": study.study_name, "directions": [int(each) for each in study.directions],
            "user": study.user_attrs, "system": study.system_attrs,
            "trials": [of_trial(trial) for trial in storage.get_all_trials(study._study_id)],
        }
        for study in storage.get_all_studies()
    ]))


def objective(trial):
    trial.suggest_float("rate", 1e-5, 1, log=True)
    trial.suggest_float("momentum", 0, 1, step=0.25)
    trial.suggest_int("layers", 1, 9, step=2)
    trial.suggest_categorical("optimizer", ["sgd", "grüß \"\\\n", True, None, 2, 0.5])
    trial.suggest_int("batch", 16, 4096, log=True)
    trial.suggest_categorical("odd", [float("nan"), float("inf")])
    for step, value in enumerate([0.5, float("nan"), float("-inf"), 3]):
        trial.report(value, step * 1_000_000_007)
    trial.set_user_attr("text", "grüß \U0001f600 \x00 \"\\/\u2028")
    trial.set_user_attr("nested", {"a": [1, -2, 2**63, 1e400, None, True, {"b": []}], "": 1e-320})


def write(file):
    storage = open_storage(file)
    optuna.create_study(study_name="deleted", storage=storage).ask()
    optuna.delete_study(study_name="deleted", storage=storage)
    study = optuna.create_study(study_name="one", storage=storage, direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))
    study.set_user_attr("config", {"lr": float("inf"), "n": 1})
    study.set_metric_names(["accuracy"])
    study.enqueue_trial({"rate": 1, "layers": 3}, user_attrs={"why": "a guess"})
    study.enqueue_trial({"rate": 7})  # is out of range, but is used nevertheless
    for number in range(6):
        trial = study.ask()
        objective(trial)
        if number == 0:
            study.tell(trial, state=TrialState.PRUNED)
        elif number == 1:
            study.tell(trial, state=TrialState.FAIL)
        elif number == 2:
            study.tell(trial, float("nan"))  # makes the trial fail
        elif number < 5:
            study.tell(trial, [float("inf"), 1][number - 3])
    study.enqueue_trial({"rate": 0.25})
    study.add_trial(optuna.trial.create_trial(
        params={"rate": 0.5, "layers": 4, "optimizer": "b"}, value=2, intermediate_values={1: 0.5, 20: float("nan")},
        distributions={"rate": FloatDistribution(0, 1, step=0.5), "layers": IntDistribution(1, 5), "optimizer": CategoricalDistribution("ab")},
        user_attrs={"a": 1}, system_attrs={"b": None},
    ))
    both = optuna.create_study(study_name="two", storage=storage, directions=["minimize", "maximize"])
    both.tell(both.ask({"x": FloatDistribution(-1, 1)}), [0.1, 1e300])
    both.add_trial(optuna.trial.create_trial(params={}, distributions={}, values=[1, 2]))


def carry_on(file):
    storage = open_storage(file)
    names = [study.study_name for study in storage.get_all_studies()]
    study = load(file, names[-1]) if names else optuna.create_study(study_name="new", storage=storage)
    trial = study.ask()
    trial.suggest_float("rate", 1e-5, 1, log=True)
    trial.suggest_categorical("optimizer", ["sgd", "grüß \"\\\n", True, None, 2, 0.5])
    trial.report(0.5, 1)
    study.tell(trial, 1.5)


def work(file, name, count):
    study = load(file, name)
    for value in range(int(count)):
        trial = study.ask()
        trial.suggest_float("rate", 1e-5, 1, log=True)
        for step in range(3):
            trial.report(step, step)
        trial.set_user_attr("worker", "optuna")
        study.tell(trial, value)
        print(trial.number, flush=True)


def random_objective(trial, conditions):
    x = trial.suggest_float("x", -5, 10)
    rate = trial.suggest_float("rate", 1e-5, 0.1, log=True)
    dropout = trial.suggest_float("dropout", 0, 1, step=0.25)
    layers = trial.suggest_int("layers", 1, 8)
    width = trial.suggest_int("width", 1, 512, log=True)
    batch = trial.suggest_int("batch", 0, 100000, step=10)
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam", None])
    trial.suggest_int("one", 3, 3)
    value = abs(x - 3) + abs(math.log10(rate) + 3) + dropout + layers / 3 + math.log(width) / 9 + batch / 1e5 + (optimizer == "sgd")
    if conditions and optimizer == "sgd":
        value += trial.suggest_float("momentum", 0, 0.9)
        # The range depends on another parameter.
        value += trial.suggest_int("warmup", 0, 10 * layers) / 20 if layers < 4 else 0
    if conditions and optimizer == "adam":
        value -= trial.suggest_float("beta", 0.8, 0.999)
    # Some studies have many equal values.
    return value if trial.study.study_name.endswith("0") else round(value)


def draw(file):
    conditions = optuna.__version__ >= "5"  # earlier versions ignore parameters that some trials lack
    storage = optuna.storages.InMemoryStorage()
    for number, trials in enumerate((11, 12, 20, 29, 60, 100, 101, 350, 11, 12, 20, 29, 60, 100, 101, 350)):
        name = f"{number // 8}-{number % 8}-{number % 2}"
        study = optuna.create_study(study_name=name, storage=storage, direction=["minimize", "maximize"][number // 8],
                                    sampler=optuna.samplers.RandomSampler(seed=number))
        study.optimize(lambda trial: random_objective(trial, conditions and number % 8 > 3), n_trials=trials)
        optuna.copy_study(from_study_name=name, from_storage=storage, to_storage=open_storage(file))


def importance(file):
    storage = open_storage(file)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    print(json.dumps({
        study.study_name: optuna.importance.get_param_importances(load(file, study.study_name), evaluator=evaluator)
        for study in storage.get_all_studies()
    }))


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    what, *arguments = sys.argv[1:]
    if what in ("dump", "continue"):
        for each in arguments:
            dump(each) if what == "dump" else carry_on(each)
    else:
        {"write": write, "work": work, "draw": draw, "importance": importance}[what](*arguments)
