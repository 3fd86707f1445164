"""Asks an Optuna sampler for the parameters of trials, as the helper process of `adaptdl tune --sampler optuna:NAME`.

    optuna_sampler.py NAME SEED [JOURNAL STUDY]

NAME is a class in optuna.samplers. The process first checks that the sampler works, and then reads the study from the
journal before each trial. It never writes to the journal; instead, its answer contains the attributes that the sampler
stores. Without a journal, the study is empty.

The process writes a line of JSON when it has started, and one for each line of JSON that it reads:

    -                                                       {"optuna": VERSION}
    {"trial": NUMBER, "trials": COUNT, "given": {NAME: {"value": VALUE, "distribution": TEXT}}}
                                                            {"trial": NUMBER}
    {"suggest": NAME, "distribution": TEXT}                 {"value": VALUE}
    {"finish": NUMBER}                                      {"attributes": {"trial": {...}, "study": {...}}}

The sampler sees only the first COUNT trials of the study, and trial NUMBER if that is a later one. The TEXT of a
distribution has the format of the journal. Any answer may be {"error": TEXT} instead.
"""

import copy
import datetime
import inspect
import json
import os
import sys
import warnings


def take_streams():
    """Reserves standard input and output for the protocol. Anything that libraries print goes to standard error."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, answers


REQUESTS, ANSWERS = take_streams()
# Packages that samplers import, in addition to those on which Optuna itself depends.
PACKAGES = {"CmaEsSampler": ["cmaes"], "GPSampler": ["scipy", "torch"], "QMCSampler": ["scipy"]}


def answer(message):
    ANSWERS.write(json.dumps(message) + "\n")
    ANSWERS.flush()


def refuse(why):
    answer({"error": why})
    sys.exit(1)


def refuse_import(error):
    """Reports the missing module and the packages to install, and exits."""
    while not (isinstance(error, ImportError) and error.name) and error.__cause__ is not None:
        error = error.__cause__
    module = getattr(error, "name", None)
    if not module:
        refuse(f"{type(error).__name__}: {error}")
    package = module.split(".")[0]
    packages = PACKAGES.get(sys.argv[1], [])
    if "optuna" not in sys.modules:
        packages = ["optuna", *packages]
    refuse(f"Python package '{package}' not found by {sys.executable}; pip install {' '.join(packages or [package])}, "
           "or set ADAPTDL_PYTHON to a Python that has it")


try:
    import optuna
    import numpy  # a dependency of Optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution, json_to_distribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, TrialState
except ImportError as missing:
    refuse_import(missing)


class StudyView(optuna.storages.BaseStorage):
    """A snapshot of one study for the sampling of a trial. Anything that the sampler writes is stored only here."""

    def __init__(self, storage, name, count, number, given):
        self.study_id = storage.get_study_id_from_name(name)
        self.name = name
        self.directions = storage.get_study_directions(self.study_id)
        self.user_attributes = storage.get_study_user_attrs(self.study_id)
        self.system_attributes = dict(storage.get_study_system_attrs(self.study_id))
        all_trials = storage.get_all_trials(self.study_id, deepcopy=False)
        self.trials = [shown(trial) if trial.number != number else trial for trial in all_trials[:count]]
        if number >= count:
            others = [trial._trial_id for study in storage.get_all_studies()
                      for trial in storage.get_all_trials(study._study_id, deepcopy=False)]
            self.trials.append(new_trial(number, max(others, default=-1) + 1))
        self.current = self.trials[number]._trial_id
        self.indices = {trial._trial_id: index for index, trial in enumerate(self.trials)}
        self.written = {"trial": {}, "study": {}}  # system attributes
        for parameter, fixed in given.items():
            distribution = json_to_distribution(fixed["distribution"])
            self.set_trial_param(self.current, parameter, distribution.to_internal_repr(fixed["value"]), distribution)
        # `given` already contains the enqueued values, except those outside the range.
        trial = self.copy_of_current(self.current)
        if "fixed_params" in trial.system_attrs:
            trial.system_attrs = {**trial.system_attrs, "fixed_params": {}}

    def copy_of_current(self, trial_id):
        """Replaces the sampled trial with a copy and returns the copy. The sampler may hold a list that contains the old trial."""
        if trial_id != self.current:
            raise RuntimeError("a sampler cannot change a trial that it does not sample")
        index = self.indices[trial_id]
        self.trials[index] = copy.copy(self.trials[index])
        return self.trials[index]

    def set_trial_param(self, trial_id, param_name, param_value_internal, distribution):
        trial = self.copy_of_current(trial_id)
        trial.params = {**trial.params, param_name: distribution.to_external_repr(param_value_internal)}
        trial.distributions = {**trial.distributions, param_name: distribution}

    def set_trial_system_attr(self, trial_id, key, value):
        trial = self.copy_of_current(trial_id)
        trial.system_attrs = {**trial.system_attrs, key: value}
        self.written["trial"][key] = value

    def set_study_system_attr(self, study_id, key, value):
        self.system_attributes[key] = value
        self.written["study"][key] = value

    def get_study_id_from_name(self, study_name):
        return self.study_id

    def get_study_name_from_id(self, study_id):
        return self.name

    def get_study_directions(self, study_id):
        return self.directions

    def get_study_user_attrs(self, study_id):
        return self.user_attributes

    def get_study_system_attrs(self, study_id):
        return self.system_attributes

    def get_trial(self, trial_id):
        return self.trials[self.indices[trial_id]]

    def get_all_trials(self, study_id, deepcopy=True, states=None):
        trials = [trial for trial in self.trials if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def refuse_change(self, *arguments, **more):
        raise RuntimeError("a sampler cannot change the study")

    create_new_study = delete_study = set_study_user_attr = get_all_studies = create_new_trial = refuse_change
    set_trial_state_values = set_trial_intermediate_value = set_trial_user_attr = refuse_change


def shown(trial):
    """Returns a trial as samplers see it. A paused trial appears as pruned, because its results have already been judged."""
    if trial.state != TrialState.RUNNING or trial.user_attrs.get("adaptdl:state") != "paused":
        return trial
    pruned = copy.copy(trial)
    pruned.state = TrialState.PRUNED
    return pruned


def new_trial(number, trial_id):
    return FrozenTrial(
        number=number, trial_id=trial_id, state=TrialState.RUNNING, value=None, datetime_start=datetime.datetime.now(),
        datetime_complete=None, params={}, distributions={}, user_attrs={}, system_attrs={}, intermediate_values={},
    )


def needed_arguments(kind):
    fixed = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [each.name for each in inspect.signature(kind).parameters.values()
            if each.default is inspect.Parameter.empty and each.kind not in fixed]


def sampler_class(name):
    kinds = {each: kind for each, kind in vars(optuna.samplers).items()
             if inspect.isclass(kind) and issubclass(kind, BaseSampler) and not inspect.isabstract(kind)}
    usable = sorted(each for each, kind in kinds.items() if not needed_arguments(kind))
    if name not in kinds:
        refuse(f"unknown sampler; Optuna {optuna.__version__} has {', '.join(usable)}")
    if name not in usable:
        needed = ", ".join(needed_arguments(kinds[name]))
        refuse(f"it requires arguments ({needed}); choose one of {', '.join(usable)}")
    return kinds[name]


def make_sampler(kind, seed, number):
    """Creates a sampler for one trial. Each trial has its own, so a resumed search continues as if uninterrupted."""
    own = int(numpy.random.SeedSequence([seed, number]).generate_state(1)[0])
    if kind is optuna.samplers.QMCSampler:
        # All trials belong to one sequence, whose position is an attribute of the study.
        return kind(seed=seed % 2**32, independent_sampler=optuna.samplers.RandomSampler(seed=own))
    return kind(**({"seed": own} if "seed" in inspect.signature(kind).parameters else {}))


def try_out(kind):
    """Samples a trial of a small study, so that all modules that the sampler requires are imported."""
    space = {"x": FloatDistribution(0, 1, step=1 / 16), "y": FloatDistribution(0, 1, step=1 / 16)}
    study = optuna.create_study(sampler=make_sampler(kind, 0, 0))
    for number in range(12):
        params = {"x": number / 16, "y": number * 5 % 16 / 16}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=float(number)))
    study.ask(space)


def suggest(trial, name, distribution):
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    kind = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
    return kind(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)


class Helper:
    def __init__(self, kind, seed, journal, study):
        self.kind, self.seed = kind, seed
        self.view = self.trial = None
        if journal is None:
            self.storage = optuna.storages.InMemoryStorage()
            self.study = optuna.create_study(storage=self.storage).study_name
        else:
            self.storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(journal))
            self.study = study

    def handle(self, request):
        if "suggest" in request:
            return {"value": suggest(self.trial, request["suggest"], json_to_distribution(request["distribution"]))}
        if "finish" in request:
            return {"attributes": self.view.written}
        number = request["trial"]
        self.view = StudyView(self.storage, self.study, request["trials"], number, request["given"])
        study = optuna.load_study(study_name=self.study, storage=self.view, pruner=optuna.pruners.NopPruner(),
                                  sampler=make_sampler(self.kind, self.seed, number))
        self.trial = optuna.trial.Trial(study, self.view.current)
        return {"trial": number}


def main(name, seed, journal=None, study=None):
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if int(optuna.__version__.split(".")[0]) < 4:
        refuse(f"Optuna {optuna.__version__} is too old; pip install --upgrade optuna")
    kind = sampler_class(name)
    try:
        try_out(kind)
    except ImportError as error:
        refuse_import(error)
    answer({"optuna": optuna.__version__})
    helper = Helper(kind, int(seed), journal, study)
    for line in iter(REQUESTS.readline, ""):
        try:
            message = json.dumps(helper.handle(json.loads(line)))
        except Exception as error:
            message = json.dumps({"error": f"{type(error).__name__}: {error}"})
        ANSWERS.write(message + "\n")
        ANSWERS.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
