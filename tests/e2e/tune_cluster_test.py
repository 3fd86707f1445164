"""Tests hyperparameter searches whose trials are jobs of a cluster, with a stand-in for the cluster.
tests/cluster/operator_tune_test.py uses a real one."""

import json
import signal
import sys
import unittest

import local_network
import tune_support
from kube_stand_in import CLAIMS, ENDED, JOBS, Cluster
from run_support import PATIENCE, eventually
from tune_support import PROGRAM

JOB = """
apiVersion: adaptdl.petuum.com/v1
kind: AdaptDLJob
metadata: {labels: {team: vision}}
spec:
  maxReplicas: 4
  template:
    spec:
      containers:
      - {name: main, image: trainer:1, args: [of the file], resources: {limits: {nvidia.com/gpu: 1}}}
"""
SEARCH = ["--cluster", "--study", "s", "-P", "lr=log:1e-5..1e-1", "--metric", "accuracy:max", "--seed", 1]


class TuneClusterTest(tune_support.TuneTest):
    def setUp(self):
        local_network.leave_network()
        super().setUp()
        self.cluster = Cluster(self.directory)
        self.addCleanup(self.cluster.close)
        (self.directory / "kubeconfig").write_text(self.cluster.kubeconfig())
        (self.directory / "adaptdljob.yaml").write_text(JOB)
        self.environment["KUBECONFIG"] = str(self.directory / "kubeconfig")

    def trained(self, study, number):
        file = self.directory / "volumes" / str(number) / "trained.jsonl"
        return [json.loads(line)["epoch"] for line in file.read_text().splitlines()]

    def phases(self):
        return {name: job.get("status", {}).get("phase") for name, job in self.cluster.all(JOBS).items()}

    def wait_for(self, what, condition):
        self.assertTrue(eventually(condition, PATIENCE), f"not so: {what}; {self.phases()}")

    def reports(self, study):
        """Returns how often the storage contains each step of each trial."""
        counts = {}
        # The search may be writing the last line.
        for line in (self.studies / study / "journal.log").read_text().rpartition("\n")[0].splitlines():
            operation = json.loads(line)
            if "intermediate_value" in operation:
                key = operation["trial_id"], operation["step"]
                counts[key] = counts.get(key, 0) + 1
        return counts

    def assert_every_epoch_once(self, study, epochs=16):
        """Asserts that every complete trial was trained exactly once for each epoch, and that each result was stored exactly once."""
        counts = self.reports(study)
        self.assertEqual(set(counts.values()), {1}, counts)
        for trial in self.trials(study):
            steps = [step for number, step in counts if number == trial["number"]]
            self.assertEqual(sorted(steps), self.trained(study, trial["number"]), trial)
            if trial["state"] == "complete":
                self.assertEqual(self.trained(study, trial["number"]), list(range(1, epochs + 1)))

    def test_a_search_ends_with_the_best_trial_and_only_complete_trials_keep_their_jobs(self):
        printed = self.tune(*SEARCH, "--trials", 8, "--parallel", 3, *self.program())
        trials = self.trials("s")
        self.assertEqual(len(trials), 8)
        self.assertLessEqual({trial["state"] for trial in trials}, {"complete", "pruned"})
        self.assertIn("best: trial ", printed)
        complete = {f"s-{trial['number']}" for trial in trials if trial["state"] == "complete"}
        self.assertEqual(self.phases(), {name: "Succeeded" for name in complete})
        jobs = self.cluster.all(JOBS)
        owners = [claim["metadata"]["ownerReferences"][0]["uid"] for claim in self.cluster.all(CLAIMS).values()]
        self.assertEqual(sorted(owners), sorted(job["metadata"]["uid"] for job in jobs.values()))
        self.assert_every_epoch_once("s")
        [study] = json.loads(self.adaptdl("tune", "ls", "--json"))
        self.assertGreaterEqual(study["device_seconds"], 10 * len(trials))

    def test_a_job_combines_the_job_file_with_the_parameters_and_labels_of_its_trial(self):
        self.environment["ADAPTDL_SUBMIT_REPO_CREDS"] = "creds"
        self.tune(*SEARCH, "--trials", 1, "-P", "note=$HOME", "--min-replicas", 2, "--checkpoint-every", "90s",
                  "--image", "trainer:2", *self.program("--epochs", 1))  # fmt: skip
        [job] = self.cluster.all(JOBS).values()
        parameters = {**self.trials("s")[0]["parameters"], "note": "$HOME"}
        labels = job["metadata"]["labels"]
        self.assertEqual((labels["team"], labels["adaptdl/study"], labels["adaptdl/trial"]), ("vision", "s", "0"))
        self.assertEqual((job["spec"]["minReplicas"], job["spec"]["maxReplicas"]), (2, 4))
        self.assertEqual(job["spec"]["template"]["spec"]["imagePullSecrets"], [{"name": "creds"}])
        [container] = job["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["command"][:2], [sys.executable, str(PROGRAM)])
        self.assertNotIn("args", container)
        self.assertEqual((container["image"], container["resources"]), ("trainer:2", {"limits": {"nvidia.com/gpu": 1}}))
        volume = self.directory / "volumes" / "0"
        environment = json.loads((volume / "environment.json").read_text())
        self.assertEqual(json.loads((volume / "params.json").read_text()), parameters)
        self.assertEqual(float(environment["ADAPTDL_PARAM_LR"]), parameters["lr"])
        self.assertEqual((environment["ADAPTDL_PARAM_NOTE"], environment["ADAPTDL_CHECKPOINT_EVERY"]), ("$HOME", "90s"))

    def start_held(self, *options):
        """Starts a search with three trials that wait after the third epoch, and waits until the results of that epoch are stored."""
        search = self.start_tune(*SEARCH, "--trials", 3, "--pruner", "none", *options, *self.program("--hold-after", 3))
        self.wait_for("three trials are held", lambda: self.has_study() and
                      sum(step == 3 for _, step in self.reports("s")) == 3)
        return search

    def has_study(self):
        return (self.studies / "s" / "journal.log").exists()

    def test_an_interrupt_suspends_the_jobs_and_a_resumed_search_continues_them(self):
        search = self.start_held()
        search.send_signal(signal.SIGINT)
        self.assertEqual(search.wait(PATIENCE), 143)
        self.assertEqual(self.phases(), {f"s-{number}": "Suspended" for number in range(3)})
        self.release()
        self.tune("--resume", "--study", "s")
        self.assertEqual({trial["state"] for trial in self.trials("s")}, {"complete"})
        self.assert_every_epoch_once("s")

    def test_jobs_outlive_a_killed_search_and_a_resumed_search_adopts_them(self):
        search = self.start_held()
        search.kill()
        search.wait()
        # The trials are trained to completion while no search is running.
        self.release()
        self.wait_for("all jobs have ended", lambda: set(self.phases().values()) <= set(ENDED))
        self.tune("--resume", "--study", "s", "--cluster")
        self.assertEqual({trial["state"] for trial in self.trials("s")}, {"complete"})
        self.assert_every_epoch_once("s")
        self.assertEqual(len([path for method, path in self.cluster.requests if (method, path) == ("POST", JOBS)]), 4)

    def test_a_search_survives_an_outage_and_errors_of_the_api_server(self):
        search = self.start_held()
        self.cluster.close_server()
        self.release()
        jobs = [replica.process for replica in self.cluster.replicas.values()]
        self.wait_for("all replicas have ended", lambda: all(process.poll() is not None for process in jobs))
        self.cluster.refusals = 3
        self.cluster.open_server()
        self.assertEqual(search.wait(5 * PATIENCE), 0)
        self.assertEqual({trial["state"] for trial in self.trials("s")}, {"complete"})
        self.assert_every_epoch_once("s")

    def test_a_trial_fails_if_its_job_is_deleted_or_fails_and_the_others_continue(self):
        search = self.start_held()
        with self.cluster.changed:
            self.cluster.remove(JOBS, self.cluster.objects[JOBS]["s-1"])
        self.cluster.replicas[next(name for name in self.cluster.replicas if name.startswith("s-2-"))].process.kill()
        self.wait_for("two trials have failed", lambda: [t["state"] for t in self.trials("s")].count("failed") == 2)
        self.release()
        self.assertEqual(search.wait(PATIENCE), 0)
        trials = self.trials("s")
        self.assertEqual([trial["state"] for trial in trials], ["complete", "failed", "failed"])
        self.assertEqual(trials[1]["why"], "job 's-1' was deleted")
        self.assertEqual(trials[2]["why"], "replica 0 exited with code -9; see `adaptdl logs s-2`")

    def test_a_second_interrupt_ends_the_search_without_waiting_for_jobs_to_stop(self):
        search = self.start_held()
        for replica in self.cluster.replicas.values():
            replica.process.send_signal(signal.SIGSTOP)
        search.send_signal(signal.SIGINT)
        self.wait_for("the jobs are stopping", lambda: set(self.phases().values()) == {"Stopping"})
        search.send_signal(signal.SIGINT)
        self.assertEqual(search.wait(PATIENCE), 143)
        for replica in self.cluster.replicas.values():
            replica.process.send_signal(signal.SIGCONT)
        self.release()
        self.tune("--resume", "--study", "s")
        self.assertEqual({trial["state"] for trial in self.trials("s")}, {"complete"})
        self.assert_every_epoch_once("s")

    def assert_refused(self, reason, *arguments, code=2):
        self.assertIn(reason, self.tune(*arguments, code=code))
        self.assertFalse((self.studies / "s").exists())

    def test_invalid_options_files_and_names_are_rejected_before_anything_is_created(self):
        program = self.program()
        self.assert_refused("--devices cannot be used with --cluster; it applies only to local trials", *SEARCH, "--devices", 2, *program)
        self.assert_refused("with --cluster, --parallel must be a number", *SEARCH, "--parallel", "auto", *program)
        self.assert_refused("--jobfile requires --cluster", *SEARCH[1:], "--jobfile", "x.yaml", *program)
        self.assert_refused("job file 'none.yaml' not found", *SEARCH, "--jobfile", "none.yaml", *program)
        self.assert_refused("replicas (5) must not be greater than the maximum (4)", *SEARCH, "--min-replicas", 5, *program)
        self.assert_refused("invalid study name 'A_b' for cluster jobs", "--cluster", "--study", "A_b", *SEARCH[3:], *program)
        (self.directory / "two.yaml").write_text(JOB + "---" + JOB)
        self.assert_refused("expected one AdaptDLJob, got 2", *SEARCH, "--jobfile", "two.yaml", *program)
        with self.cluster.changed:
            self.cluster.create(JOBS, {"metadata": {"name": "s-7"}, "spec": {"suspend": True}})
        self.assert_refused("job 's-7' in namespace 'default' has the name of a trial", *SEARCH, *program)
        self.assertEqual([path for method, path in self.cluster.requests if (method, path) == ("POST", JOBS)], [])
        self.environment["KUBECONFIG"] = str(self.directory / "none")
        self.assert_refused("no file in KUBECONFIG exists", *SEARCH, *program, code=1)

    def test_resuming_a_study_cannot_change_its_cluster_or_the_options_of_its_jobs(self):
        self.tune(*SEARCH, "--trials", 1, *self.program("--epochs", 1))
        for option in ("--image=other", "--min-replicas=2", "--context=other", "--checkpoint-every=1s"):
            printed = self.tune("--resume", "--study", "s", option, code=2)
            self.assertIn(f"--resume cannot change {option.partition('=')[0]} for a study in a cluster; omit {option.partition('=')[0]}", printed)
        self.tune("--resume", "--study", "s", "--trials", 2)
        self.assertEqual([trial["state"] for trial in self.trials("s")], ["complete", "complete"])
        self.assertIn("copy them with `adaptdl cp s-", self.adaptdl("tune", "best", "s", "--export", "out", code=1))


if __name__ == "__main__":
    unittest.main()
