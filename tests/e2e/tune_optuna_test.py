"""Tests searches with Optuna's samplers, in the versions that `adaptdl tune` supports: the results must match those of
Optuna alone."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import python_peer
import run_support
from run_support import ADAPTDL, PATIENCE, children, eventually

PEER = pathlib.Path(__file__).with_name("optuna_peer.py")
PROGRAM = pathlib.Path(__file__).with_name("tune_program.py")
SPACE = """
parameters:
  lr: log:1e-5..1e-1
  opt: [sgd, adam]
  momentum: {low: 0.5, high: 0.99, when: {opt: sgd}}
  layers: {low: 2, high: 8, step: 2}
  dropout: 0.0..0.5:0.1
seed: 5
"""
DEPENDENCIES = ["alembic==1.20.1", "colorlog==6.12.0", "Mako==1.4.3", "MarkupSafe==3.0.4", "packaging==26.4", "PyYAML==6.0.4",
                "SQLAlchemy==2.1.9", "tqdm==4.70.1", "typing_extensions==4.16.0", "numpy==2.2.6", "cmaes==0.13.1"]
TRIAL_SYSTEM_ATTRIBUTE = 9


def comparable(attributes):
    """Replaces the state of CMA-ES with its size: the state contains uninitialized memory, which CMA-ES does not read."""
    return {key: len(value) if key.startswith("cma:optimizer:") else value for key, value in attributes.items()}


class SearchTest(run_support.RunTest):
    """Searches with one version of Optuna."""

    maxDiff = None
    version = None
    packages = []

    @classmethod
    def setUpClass(cls):
        cls.python = python_peer.venv(f"optuna-samplers-{cls.version}", cls.requirements())

    @classmethod
    def requirements(cls):
        return [*DEPENDENCIES, *cls.packages, f"--no-deps optuna=={cls.version}"]

    def setUp(self):
        super().setUp()
        self.environment["ADAPTDL_PYTHON"] = self.python
        (self.directory / "space.yaml").write_text(SPACE)

    def arguments(self, study, sampler, trials, parallel, *options):
        return ["--study", study, "--sampler", f"optuna:{sampler}", "--trials", trials, "--parallel", parallel, "--space", "space.yaml",
                "--metric", "accuracy:max", "--device-kind", "cpu", "--devices", 3, "--max-replicas", 1, *options,
                "--", sys.executable, PROGRAM, "--lr", "{lr}", "--results"]

    def tune(self, *arguments, code=0):
        done = subprocess.run([ADAPTDL, "tune", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd=self.directory, env=self.environment, timeout=10 * PATIENCE)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def start_tune(self, *arguments):
        search = subprocess.Popen([ADAPTDL, "tune", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, cwd=self.directory, env=self.environment)
        self.addCleanup(search.stderr.close)
        self.addCleanup(lambda: search.poll() is None and (search.terminate(), search.wait()))
        return search

    def start_held(self, study, *options):
        """Starts a search whose first trials are held after their first report, and waits for the first of these reports."""
        search = self.start_tune(*self.arguments(study, *options), "--hold-after", 1)
        self.assertTrue(eventually(lambda: self.has_result(study)))
        return search

    def release(self):
        """Lets the trials continue."""
        (self.directory / "release").touch()

    def journal(self, study):
        return self.home / ".local" / "state" / "adaptdl" / "studies" / study / "journal.log"

    def trials(self, study):
        return json.loads(self.adaptdl("tune", "show", study, "--json"))["trials"]

    def parameters(self, study):
        return [trial["parameters"] for trial in self.trials(study)]

    def attributes(self, study):
        """Returns the system attributes of the trials, by trial number."""
        attributes = {}
        for line in map(json.loads, self.journal(study).read_text().splitlines()):
            if line["op_code"] == TRIAL_SYSTEM_ATTRIBUTE:
                attributes.setdefault(line["trial_id"], {}).update(line["system_attr"])
        return attributes

    def assert_as_optuna_alone(self, study, sampler):
        peer = subprocess.run([self.python, PEER, sampler, "5", self.journal(study), study], capture_output=True, text=True,
                              env=self.environment, timeout=5 * PATIENCE)
        self.assertEqual(peer.returncode, 0, peer.stderr)
        attributes = self.attributes(study)
        for trial, alone in zip(self.trials(study), json.loads(peer.stdout), strict=True):
            self.assertEqual(trial["parameters"], alone["parameters"], trial["number"])
            self.assertEqual(comparable(attributes.get(trial["number"], {})), comparable(alone["attributes"]), trial["number"])

    def has_result(self, study):
        return self.journal(study).exists() and b'"adaptdl:epoch"' in self.journal(study).read_bytes()

    def helper_of(self, search):
        """Returns the helper process of a search."""
        def find():
            for pid in children(search.pid):
                try:
                    if b"optuna_sampler.py" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                        return pid
                except FileNotFoundError:
                    continue
            return None

        return eventually(find)


class SamplerTests:
    """The tests that every version of Optuna must pass."""

    def test_tpe_with_paused_trials_matches_optuna(self):
        # Without --hold-at-rungs, a trial that is faster than the sampler would end before the search reads its first report.
        self.tune(*self.arguments("s", "TPESampler", 24, 3), "--hold-at-rungs")
        self.assertIn("pruned", {trial["state"] for trial in self.trials("s")})
        self.assert_as_optuna_alone("s", "TPESampler")

    def test_cma_es_stores_its_state_and_matches_optuna(self):
        self.tune(*self.arguments("s", "CmaEsSampler", 24, 3, "--pruner", "none"))
        self.assert_as_optuna_alone("s", "CmaEsSampler")
        generations = {each["cma:generation"] for each in self.attributes("s").values() if "cma:generation" in each}
        self.assertGreaterEqual(generations, {0, 1})

    def test_a_killed_and_resumed_search_tries_the_same_parameters_as_an_uninterrupted_one(self):
        generator = random.Random(3)
        for sampler in ("TPESampler", "CmaEsSampler"):
            options = (sampler, 14, 1, "--pruner", "none")
            self.tune(*self.arguments(f"{sampler}-whole", *options))
            killed = f"{sampler}-killed"
            command = self.arguments(killed, *options)
            for _ in range(4):
                search = self.start_tune(*command)
                time.sleep(generator.uniform(1, 6))
                search.kill()
                search.wait()
                if self.journal(killed).exists() and b"adaptdl:settings" in self.journal(killed).read_bytes():
                    command = ["--resume", "--study", killed]
            self.tune(*command)
            self.assertEqual(self.parameters(killed), self.parameters(f"{sampler}-whole"))

    def test_a_search_fails_if_its_helper_is_killed_and_can_be_resumed(self):
        options = ("TPESampler", 14, 1, "--pruner", "none")
        self.tune(*self.arguments("whole", *options))
        search = self.start_held("s", *options)
        helper = self.helper_of(search)
        os.kill(helper, signal.SIGKILL)
        self.release()
        printed = search.stderr.read()
        self.assertEqual(search.wait(PATIENCE), 1, printed)
        self.assertIn("error: sampler 'optuna:TPESampler' failed: the helper process was killed by SIGKILL", printed.splitlines()[-1])
        self.tune("--resume", "--study", "s")
        self.assertEqual(self.parameters("s"), self.parameters("whole"))

    def test_the_helper_has_its_own_session_and_ends_with_an_interrupted_search(self):
        search = self.start_held("s", "TPESampler", 100, 2, "--pruner", "none")
        helper = self.helper_of(search)
        self.assertEqual(os.getsid(helper), helper)
        search.send_signal(signal.SIGINT)
        printed = search.stderr.read()
        self.assertEqual(search.wait(PATIENCE), 143, printed)
        self.assertTrue(eventually(lambda: not run_support.is_alive(helper)))

    def test_a_hung_sampler_is_killed_after_an_interrupt(self):
        options = ("TPESampler", 4, 1, "--pruner", "none")
        self.tune(*self.arguments("whole", *options))
        search = self.start_held("s", *options)
        os.kill(self.helper_of(search), signal.SIGSTOP)
        self.release()
        # The search asks the sampler before it checks for signals again.
        self.assertTrue(eventually(lambda: "complete" in {trial["state"] for trial in self.trials("s")}))
        search.send_signal(signal.SIGINT)
        printed = search.stderr.read()
        self.assertEqual(search.wait(PATIENCE), 1, printed)
        self.assertIn("sampler 'optuna:TPESampler' failed: the helper process was interrupted before it answered", printed.splitlines()[-1])
        self.tune("--resume", "--study", "s")
        self.assertEqual(self.parameters("s"), self.parameters("whole"))

    def test_an_optuna_sampler_keeps_enqueued_parameters_and_draws_the_others(self):
        search = self.start_held("s", "TPESampler", 4, 1, "--pruner", "none")
        search.terminate()
        search.stderr.read()
        search.wait(PATIENCE)
        self.release()
        self.adaptdl("tune", "enqueue", "s", "lr=0.01", "opt=sgd")
        self.tune("--resume", "--study", "s")
        enqueued = self.trials("s")[1]["parameters"]
        self.assertEqual((enqueued["lr"], enqueued["opt"]), (0.01, "sgd"))
        self.assertEqual(set(enqueued), {"lr", "opt", "momentum", "layers", "dropout"})

    def test_an_unusable_sampler_is_rejected_before_the_study_is_created(self):
        for sampler, error in [
            ("GPSampler", r"Python package '(scipy|torch)' not found by .*; pip install scipy torch, or set ADAPTDL_PYTHON"),
            ("BruteForceSampler", "ValueError: FloatDistribution.step must be given"),
            ("NoSampler", rf"unknown sampler; Optuna {self.version} has BruteForceSampler, CmaEsSampler, GPSampler, .*TPESampler$"),
            ("BaseSampler", "unknown sampler; Optuna"),
            ("GridSampler", r"it requires arguments \(search_space\); choose one of BruteForceSampler"),
        ]:
            with self.subTest(sampler=sampler):
                printed = self.tune(*self.arguments("s", sampler, 4, 1), code=2)
                self.assertRegex(printed, rf"^adaptdl: error: tune: (cannot use )?sampler 'optuna:{sampler}'( failed)?: {error}")
                self.assertEqual(len(printed.splitlines()), 1)
                self.assertFalse(self.journal("s").parent.exists())


class Optuna400Test(SamplerTests, SearchTest):
    version = "4.0.0"


class Optuna490Test(SamplerTests, SearchTest):
    version = "4.9.0"


class Optuna500Test(SamplerTests, SearchTest):
    version = "5.0.0"


class SequenceTest(SearchTest):
    version = "5.0.0"
    packages = ["scipy==1.15.3"]

    def test_a_quasi_random_sequence_matches_optuna_and_is_stored_with_the_study(self):
        self.tune(*self.arguments("s", "QMCSampler", 12, 2, "--pruner", "none"))
        self.assert_as_optuna_alone("s", "QMCSampler")
        self.assertIn(b'"system_attr":{"qmc:', self.journal("s").read_bytes())


class GaussianProcessTest(SearchTest):
    version = "5.0.0"
    packages = ["scipy==1.15.3"]

    @classmethod
    def setUpClass(cls):
        cls.python, cls.torch = python_peer.venv_beside_torch("optuna-torch", cls.requirements())

    def setUp(self):
        super().setUp()
        self.environment["PYTHONPATH"] = self.torch

    def test_gaussian_process_sampling_matches_optuna(self):
        self.tune(*self.arguments("s", "GPSampler", 14, 2, "--pruner", "none"))
        self.assert_as_optuna_alone("s", "GPSampler")
        self.assertIn(b"gp:relative_params:0", self.journal("s").read_bytes())


if __name__ == "__main__":
    python_peer.main()
