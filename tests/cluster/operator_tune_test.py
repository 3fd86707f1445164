"""Tests `adaptdl tune --cluster`: the trials of a study are jobs, among which the operator divides the GPUs."""

import json
import pathlib
import secrets
import signal

import cluster_support
from operator_jobs_support import IMAGE, ONE_GPU
from operator_support import OperatorTest

TRIALS, EPOCHS, HELD = 3, 8, 3
# Reports an accuracy after each epoch, and from epoch HELD on waits to be released. Saves a checkpoint on SIGTERM.
PROGRAM = f"""
trap 'stop=1' TERM
cd /adaptdl/checkpoint
epoch=$(ls | sed -n 's/^epoch-//p' | sort -n | tail -n 1)
epoch=${{epoch:-0}}
while [ "$epoch" -lt {EPOCHS} ]; do
  [ -z "$stop" ] || {{ touch "epoch-$epoch"; exit 143; }}
  epoch=$((epoch + 1))
  echo "$epoch" >> /adaptdl/share/trained
  cp "$ADAPTDL_PARAMS_FILE" /adaptdl/share/params.json
  echo "{{\\"accuracy\\": $1.$epoch, \\"epoch\\": $epoch}}" >> "$ADAPTDL_RESULTS_FILE"
  while [ "$epoch" -ge {HELD} ] && [ -z "$stop" ] && [ ! -e /adaptdl/share/release ]; do sleep 0.2; done
done
"""


class TuneTest(OperatorTest):
    def setUp(self):
        super().setUp()
        self.study = f"s{secrets.token_hex(2)}"
        self.storage = f"{self.namespace}-{secrets.token_hex(4)}"
        self.apply({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": self.storage},
            "provisioner": "kubernetes.io/no-provisioner",
        })  # fmt: skip
        self.addCleanup(cluster_support.kubectl, "delete", "storageclass", self.storage)
        for number in range(TRIALS):
            name = f"{self.storage}-{number}"
            self.volumes.append(name)
            self.apply({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {
                    "storageClassName": self.storage, "accessModes": ["ReadWriteMany"], "capacity": {"storage": "10Gi"},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(self.directory / "trials" / name), "type": "DirectoryOrCreate"},
                },
            })  # fmt: skip
        template = self.make_template("true", image=IMAGE, resources=ONE_GPU)
        template["spec"]["terminationGracePeriodSeconds"] = 60
        job = self.job_object("trial", template, minReplicas=1, maxReplicas=1)
        (self.directory / "adaptdljob.yaml").write_text(json.dumps(job), encoding="utf-8")

    def search(self):
        return self.start(
            "tune", "--cluster", "--study", self.study, "--trials", TRIALS, "--pruner", "none", "-P", "units=1..9", "--metric", "accuracy:max",
            "--checkpoint-storage-class", self.storage, "--", "sh", "-c", PROGRAM.replace("{", "{{").replace("}", "}}"), "program", "{units}",
        )  # fmt: skip

    def trials(self):
        done = self.adaptdl("tune", "show", self.study, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["trials"]

    def reports(self):
        """Returns, for each trial, the epochs whose results are in the storage, in the order in which they were stored."""
        epochs = {number: [] for number in range(TRIALS)}
        # The search may be writing the last line.
        lines = (self.directory / f"state/adaptdl/studies/{self.study}/journal.log").read_text().rpartition("\n")[0].splitlines()
        for operation in map(json.loads, lines):
            if "intermediate_value" in operation:
                epochs[operation["trial_id"]].append(operation["step"])
        return epochs

    def share(self, number):
        """Returns the directory that the replicas of a trial share."""
        volumes = self.get("adaptdljob", f"{self.study}-{number}")["spec"]["template"]["spec"]["volumes"]
        (claim,) = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]
        volume = self.get("persistentvolume", self.get("pvc", claim)["spec"]["volumeName"])
        return pathlib.Path(volume["spec"]["hostPath"]["path"]) / "adaptdl/share"

    def trained(self, number):
        return [int(epoch) for epoch in (self.share(number) / "trained").read_text().split()]

    def wait_for_reports(self, epoch):
        self.wait_for(f"all trials have reported epoch {epoch}", lambda: all(
            epochs[-1:] == [epoch] for epochs in self.reports().values()
        ))  # fmt: skip

    def test_a_suspended_killed_and_resumed_study_trains_and_counts_each_epoch_once(self):
        search = self.search()
        search.wait_for(f"study '{self.study}': ")
        self.wait_for_reports(HELD)
        labelled = self.kubectl("get", "adaptdljobs", "-l", f"adaptdl/study={self.study}", "-o", "name").split()
        self.assertEqual(len(labelled), TRIALS)
        search.process.send_signal(signal.SIGINT)
        self.assertEqual(search.finish(), 143, search.text())
        for number in range(TRIALS):
            self.assertEqual(self.status(f"{self.study}-{number}")["phase"], "Suspended")
            self.wait_for("its pod is gone", lambda number=number: not self.pods_of(f"{self.study}-{number}"))

        # Each trial trains for one more epoch and is held again.
        resumed = self.start("tune", "--resume", "--study", self.study)
        self.wait_for_reports(HELD + 1)
        resumed.kill()
        for number in range(TRIALS):
            (self.share(number) / "release").touch()
        for number in range(TRIALS):
            self.wait_for_phase(f"{self.study}-{number}", "Succeeded")

        again = self.start("tune", "--resume", "--study", self.study)
        self.assertEqual(again.finish(), 0, again.text())
        epochs = list(range(1, EPOCHS + 1))
        self.assertEqual(self.reports(), {number: epochs for number in range(TRIALS)})
        for trial in self.trials():
            self.assertEqual(trial["state"], "complete")
            self.assertGreater(trial["device_seconds"], 0)
            self.assertEqual(self.trained(trial["number"]), epochs)
            self.assertEqual(json.loads((self.share(trial["number"]) / "params.json").read_text()), trial["parameters"])

    def test_jobs_of_stopped_trials_are_deleted_with_their_volume_claims(self):
        search = self.search()
        search.wait_for(f"study '{self.study}': ")
        self.wait_for_reports(HELD)
        stopped = self.adaptdl("tune", "stop", self.study, 0)
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        for number in range(1, TRIALS):
            (self.share(number) / "release").touch()
        self.assertEqual(search.finish(), 0, search.text())
        self.assertEqual([trial["state"] for trial in self.trials()], ["pruned"] + ["complete"] * (TRIALS - 1))
        names = sorted(job["metadata"]["name"] for job in self.get("adaptdljobs"))
        self.assertEqual(names, [f"{self.study}-{number}" for number in range(1, TRIALS)])
        self.wait_for("its claim is gone", lambda: len(self.get("pvc")) == TRIALS - 1)


if __name__ == "__main__":
    cluster_support.main()
