"""Shows what an Optuna sampler alone suggests for each trial of a study: optuna_peer.py NAME SEED JOURNAL STUDY

Prints the parameters and the system attributes of the trials in the order of their numbers, as JSON. Each trial is
sampled with Optuna's own storage, from what the journal contained before the trial was created.
"""

import json
import pathlib
import sys
import tempfile
import warnings

import numpy
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

CREATE_TRIAL = 4


def sampler_for(name, seed, number):
    own = int(numpy.random.SeedSequence([seed, number]).generate_state(1)[0])
    if name == "QMCSampler":
        return optuna.samplers.QMCSampler(seed=seed, independent_sampler=optuna.samplers.RandomSampler(seed=own))
    return getattr(optuna.samplers, name)(seed=own)


def suggest_all(trial):
    """Suggests the parameters of tune_optuna_test.py, sorted by name like all parameters from a space file."""
    trial.suggest_float("dropout", 0, 0.5, step=0.1)
    trial.suggest_int("layers", 2, 8, step=2)
    trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    if trial.suggest_categorical("opt", ["sgd", "adam"]) == "sgd":
        trial.suggest_float("momentum", 0.5, 0.99)


def sample(name, seed, lines, study_name, number):
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "journal.log"
        file.write_text("".join(lines))
        storage = JournalStorage(JournalFileBackend(str(file)))
        study_id = storage.get_study_id_from_name(study_name)
        for trial in storage.get_all_trials(study_id):
            if trial.user_attrs.get("adaptdl:state") == "paused" and trial.state == TrialState.RUNNING:
                storage.set_trial_state_values(trial._trial_id, TrialState.PRUNED)
        study = optuna.load_study(study_name=study_name, storage=storage, sampler=sampler_for(name, seed, number))
        trial = study.ask()
        assert trial.number == number
        suggest_all(trial)
        return {"parameters": trial.params, "attributes": storage.get_trial(trial._trial_id).system_attrs}


def main(name, seed, journal, study):
    lines = pathlib.Path(journal).read_text().splitlines(keepends=True)
    created = [place for place, line in enumerate(lines) if json.loads(line)["op_code"] == CREATE_TRIAL]
    print(json.dumps([sample(name, int(seed), lines[:place], study, number) for number, place in enumerate(created)]))


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
